package app

import (
	"strconv"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/wire"
)

// Keys of the settings that the rooms read.
const (
	KeyEngineListen      = "engine.listen"
	KeyEngineHosts       = "engine.hosts"
	KeyEngineOrigins     = "engine.origins"
	KeyEngineLoops       = "engine.loops"
	KeyEngineCert        = "engine.tls_cert"
	KeyEngineKey         = "engine.tls_key"
	KeyHTTPAllow         = "engine.http.allow"
	KeyHTTPPrivate       = "engine.http.block_private"
	KeyHTTPSecure        = "engine.http.require_https"
	KeyHTTPEnv           = "engine.http.env"
	listenerFamily       = "engine.listeners"
	KeyBootstrapName     = "bootstrap.name"
	KeyBootstrapEmail    = "bootstrap.email"
	KeyBootstrapPassword = "bootstrap.password"
	KeyBootstrapHash     = "bootstrap.password_hash"
	KeySpans             = "telemetry.spans"
	KeyLogs              = "telemetry.logs"
	limitPrefix          = "engine.limits."
)

// Rooms are the names that the setting `only` takes.
func Rooms() []string { return []string{"engine"} }

// Settings returns the table of every setting of the program.
func Settings() (*house.Table, error) {
	return house.NewTable(house.Settings(Rooms()), engineSettings(), listenerSettings(), bootstrapSettings(),
		limitSettings())
}

// bootstrapSettings make the first account without a hand; they do nothing once there is one.
func bootstrapSettings() []house.Setting {
	return []house.Setting{
		{Key: KeyBootstrapName, Type: house.Text, Rare: true,
			Help: "name of the first account, made at the start when there is none"},
		{Key: KeyBootstrapEmail, Type: house.Text, Rare: true, Help: "its e-mail address"},
		{Key: KeyBootstrapPassword, Type: house.Text, Secret: true,
			Help: "its password; better in a file that PLINTH_BOOTSTRAP_PASSWORD_FILE names"},
		{Key: KeyBootstrapHash, Type: house.Text, Secret: true,
			Help: "the argon2id hash of its password in place of it; plinth hash-password makes one"},
	}
}

func engineSettings() []house.Setting {
	return []house.Setting{
		{Key: KeyEngineListen, Type: house.Text, Default: "127.0.0.1:49134", Check: house.Address,
			Help: "address of the worker socket"},
		{Key: KeyEngineCert, Type: house.Text, Rare: true,
			Help: "file with the certificate of the worker socket, which then speaks TLS; it is read again when it changes"},
		{Key: KeyEngineKey, Type: house.Text, Rare: true, Help: "file with the key of that certificate"},
		{Key: KeyHTTPAllow, Type: house.List, Default: "*", Rare: true,
			Help: "hosts that HTTP functions may call, such as api.example.org or *.example.org"},
		{Key: KeyHTTPPrivate, Type: house.Bool, Default: "true", Rare: true,
			Help: "keep HTTP functions out of private networks and this machine"},
		{Key: KeyHTTPSecure, Type: house.Bool, Default: "true", Rare: true,
			Help: "let HTTP functions call https only"},
		{Key: KeyHTTPEnv, Type: house.List, Default: "*", Rare: true,
			Help: "environment variables that HTTP functions may name for their secrets; those of PLINTH_ never"},
		{Key: KeyEngineHosts, Type: house.List, Rare: true,
			Help: "more host names that the worker socket answers to, beside localhost and loopback addresses"},
		{Key: KeyEngineOrigins, Type: house.List, Rare: true,
			Help: "origins of browser pages that may connect as workers; none by default"},
		{Key: KeyEngineLoops, Type: house.Int, Default: "0", Max: 256, Rare: true,
			Help: "event loops; 0 is one for each CPU"},
		{Key: KeySpans, Type: house.Size, Default: "16MiB", Max: 1 << 40,
			Help: "memory for spans; the oldest make room for new ones, and what is lost is counted"},
		{Key: KeyLogs, Type: house.Size, Default: "4MiB", Max: 1 << 40, Rare: true,
			Help: "memory for log records, kept the same way"},
	}
}

// limitSettings makes a setting of every row of the protocol's table of limits.
func limitSettings() (all []house.Setting) {
	for _, l := range wire.Limits() {
		s := house.Setting{Key: limitPrefix + l.Name, Type: house.Int, Default: strconv.FormatInt(l.Default, 10),
			Min: l.Min, Max: l.Max, Help: help(l.Help), Rare: true}
		switch l.Unit {
		case "bytes":
			s.Type, s.Default = house.Size, house.FormatSize(l.Default)
		case "ms":
			s.Key = strings.TrimSuffix(s.Key, "_ms")
			s.Type, s.Default = house.Duration, house.FormatDuration(time.Duration(l.Default)*time.Millisecond)
			s.Min, s.Max = l.Min*int64(time.Millisecond), l.Max*int64(time.Millisecond)
		}
		all = append(all, s)
	}
	return all
}

// help turns the sentences of a limit into the one line of a setting.
func help(s string) string {
	return strings.TrimSuffix(strings.ReplaceAll(s, ". ", "; "), ".")
}

// bounds reads the limits back.
func bounds(c *house.Config) (b wire.Bounds, err error) {
	b = wire.DefaultBounds()
	for _, l := range wire.Limits() {
		v := c.Int(limitPrefix + l.Name)
		if l.Unit == "ms" {
			v = c.Duration(limitPrefix + strings.TrimSuffix(l.Name, "_ms")).Milliseconds()
		}
		if err := b.Set(l.Name, v); err != nil {
			return b, err
		}
	}
	return b, b.Check()
}
