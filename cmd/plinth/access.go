package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// door is where a verb finds a running Plinth, and how it proves itself there. Flags are stronger than the
// environment, then comes the context in use, then what the configuration here says.
type door struct {
	URL   string // socket of the engine
	Admin string // admin door
	token string
	from  string // where the token came from, for messages
}

// DefaultAdmin is where the admin door listens unless told otherwise.
const defaultAdmin = "http://127.0.0.1:8081"

// doorFlags adds what every verb needs that speaks to a running Plinth.
func (p *program) doorFlags(flags *pflag.FlagSet) {
	p.url, p.admin = "", ""
	flags.StringVar(&p.url, "url", "", "socket of the engine (PLINTH_URL); default "+worker.DefaultURL)
	flags.StringVar(&p.admin, "admin", "", "admin door (PLINTH_ADMIN); default "+defaultAdmin)
	flags.StringVar(&p.context, "context", "", "context to use (PLINTH_CONTEXT); see plinth context")
	flags.StringVar(&p.tokenFile, "token-file", "",
		"file that holds a key or token, - for the standard input (PLINTH_TOKEN, PLINTH_TOKEN_FILE)")
}

// door resolves the flags and everything behind them.
func (p *program) door() (*door, error) {
	named, err := p.contextInUse()
	if err != nil {
		return nil, err
	}
	d := &door{URL: first(p.url, p.getenv("PLINTH_URL")), Admin: first(p.admin, p.getenv("PLINTH_ADMIN"))}
	folder := ""
	if cfg, err := new(settings).load(p); err == nil { // a configuration that cannot be read is serve's to tell
		folder = cfg.Text(house.KeyFolder)
		if named == nil {
			d.URL = first(d.URL, at("ws://", cfg.Text("engine.listen")))
			d.Admin = first(d.Admin, at("http://", cfg.Text(house.KeyAdminListen)))
		}
	}
	if named != nil {
		d.URL, d.Admin = first(d.URL, named.URL), first(d.Admin, named.Admin)
	}
	d.URL, d.Admin = first(d.URL, worker.DefaultURL), strings.TrimRight(first(d.Admin, defaultAdmin), "/")
	return d, p.credential(d, named, folder)
}

// at makes a URL of an address to listen on; none of one whose port is not known.
func at(scheme, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// credential finds the token: --token-file, the environment, the context, and on this machine the local token.
func (p *program) credential(d *door, named *namedDoor, folder string) error {
	read := func(path, from string) error {
		text, err := p.readSecret(path)
		if err != nil {
			return &house.Problem{Kind: fault.Invalid, Code: codeUsage, What: "cannot read the token of " + from,
				Why: err.Error(), Do: "name a file that holds a key and nothing else", Err: err}
		}
		d.token, d.from = text, from
		return nil
	}
	switch {
	case p.tokenFile != "":
		return read(p.tokenFile, "--token-file")
	case p.getenv("PLINTH_TOKEN") != "":
		d.token, d.from = p.getenv("PLINTH_TOKEN"), "PLINTH_TOKEN"
	case p.getenv("PLINTH_TOKEN_FILE") != "":
		return read(p.getenv("PLINTH_TOKEN_FILE"), "PLINTH_TOKEN_FILE")
	case named != nil && named.Token != "":
		d.token, d.from = named.Token, "context "+named.Name
	case named == nil && p.getenv("III_TOKEN") != "":
		d.token, d.from = p.getenv("III_TOKEN"), "III_TOKEN"
	case folder != "" && onThisMachine(d.URL) && onThisMachine(d.Admin):
		path := filepath.Join(folder, "auth", auth.LocalTokenFile)
		text, err := p.readSecret(path)
		if err == nil {
			d.token, d.from = text, path
		}
	}
	return nil
}

// onThisMachine keeps the local token at home.
func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	return err == nil && house.IsLoopback(u.Hostname())
}

const maxSecret = 4 << 10

// readSecret reads a short text from a file or, with -, from the standard input, without the line's end.
func (p *program) readSecret(path string) (string, error) {
	r := p.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSecret+1))
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(b), "\r\n")
	if len(b) > maxSecret || text == "" || strings.ContainsAny(text, "\r\n") {
		return "", errors.New("want one line of at most 4 KiB")
	}
	return text, nil
}

// refused puts a refusal of a credential into words; it is nil for another failure.
func (d *door) refused(err error) error {
	var r *worker.RefusedError
	if !errors.As(err, &r) {
		return nil
	}
	one := &house.Problem{Kind: fault.Denied, Code: "AUTH_ERROR", What: "the engine at " + d.URL + " refuses the connection",
		Why: r.Reason, Err: err}
	switch r.Status {
	case 401:
		one.Do = d.howToProve()
	case 403:
		one.Code, one.Do = "FORBIDDEN", "use a key with that scope: plinth key create"
	case 503:
		one.Kind, one.Code, one.Do = fault.Unavailable, "UNCLAIMED", "make the first account: plinth admin claim"
	default:
		one.Kind, one.Code, one.Do = fault.Unavailable, "REFUSED", "check the address"
	}
	return one
}

// howToProve says how to get in.
func (d *door) howToProve() string {
	if d.token == "" {
		return "give a key: PLINTH_TOKEN_FILE, --token-file or plinth context add; on the server's machine set PLINTH_DATA " +
			"to its data folder"
	}
	return fmt.Sprintf("the credential of %s is not valid there: get another key, or see plinth context", d.from)
}

// engineFlags adds the flags of a verb that speaks to the engine's socket.
func (p *program) engineFlags(cmd *cobra.Command) { p.doorFlags(cmd.Flags()) }
