package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// door is where a verb finds a running Plinth, and how it proves itself there. Flags are stronger than the
// environment, then comes the context in use, then what the configuration here says. A context that is named
// by a flag counts as a flag.
type door struct {
	URL   string // socket of the engine
	Admin string // admin door
	token string
	from  string // where the token came from, for messages
	lack  string // why a credential that might have been used was not; may be empty
}

// defaultAdmin is where the admin door listens unless told otherwise.
const defaultAdmin = "http://127.0.0.1:8081"

// doorFlags adds what every verb needs that speaks to a running Plinth.
func (p *program) doorFlags(flags *pflag.FlagSet) {
	p.addressFlags(flags)
	flags.StringVar(&p.data, "data", "",
		"data folder of the server, if it is on this machine: its local token is a credential (PLINTH_DATA)")
}

// addressFlags are doorFlags without --data, for a verb that has a --data of another meaning.
func (p *program) addressFlags(flags *pflag.FlagSet) {
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
	d := &door{URL: p.url, Admin: p.admin}
	if named != nil && p.context != "" {
		d.URL, d.Admin = first(d.URL, named.URL), first(d.Admin, named.Admin)
	}
	d.URL, d.Admin = first(d.URL, p.getenv("PLINTH_URL")), first(d.Admin, p.getenv("PLINTH_ADMIN"))
	if named != nil {
		d.URL, d.Admin = first(d.URL, named.URL), first(d.Admin, named.Admin)
	}
	folder := first(p.data, p.getenv("PLINTH_DATA"))
	given := map[string]string{}
	if p.data != "" {
		given[house.KeyFolder] = p.data
	}
	// A configuration that cannot be read is serve's to tell.
	if cfg, err := (&settings{given: given}).load(p); err == nil {
		folder = cfg.Text(house.KeyFolder)
		if named == nil {
			d.URL = first(d.URL, at("ws", cfg.Text(app.KeyEngineCert), cfg.Text(app.KeyEngineListen)))
			d.Admin = first(d.Admin, at("http", "", cfg.Text(house.KeyAdminListen)))
		}
	}
	d.URL, d.Admin = first(d.URL, worker.DefaultURL), strings.TrimRight(first(d.Admin, defaultAdmin), "/")
	d.takeKey()
	return d, p.credential(d, named, folder)
}

// takeKey takes the key out of an address such as ws://any:KEY@host, so that no message shows it.
func (d *door) takeKey() {
	for _, a := range []*string{&d.URL, &d.Admin} {
		u, err := url.Parse(*a)
		if err != nil || u.User == nil {
			continue
		}
		if key, ok := u.User.Password(); ok && d.token == "" {
			d.token, d.from = key, "the address"
		}
		u.User = nil
		*a = u.String()
	}
}

// at makes a URL of an address to listen on; none of one whose port is not known. A door with a certificate
// speaks TLS.
func at(scheme, certificate, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if certificate != "" {
		scheme += "s"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// credential finds the token: --token-file, a context that was named by a flag, the environment, the context
// in use, and on this machine the local token.
func (p *program) credential(d *door, named *namedDoor, folder string) error {
	own := named != nil && named.Token != ""
	if own && (!sameHost(d.URL, named.URL) || !sameHost(d.Admin, named.Admin)) {
		own, d.lack = false, "the key of context "+named.Name+" is for the addresses of that context alone"
	}
	switch {
	case d.token != "" && p.tokenFile == "": // it came with the address
	case p.tokenFile != "":
		return p.readToken(d, p.tokenFile, "--token-file")
	case own && p.context != "":
		d.token, d.from = named.Token, "context "+named.Name
	case p.getenv("PLINTH_TOKEN") != "":
		d.token, d.from = strings.TrimSpace(p.getenv("PLINTH_TOKEN")), "PLINTH_TOKEN"
	case p.getenv("PLINTH_TOKEN_FILE") != "":
		return p.readToken(d, p.getenv("PLINTH_TOKEN_FILE"), "PLINTH_TOKEN_FILE")
	case p.getenv("III_TOKEN") != "":
		d.token, d.from = strings.TrimSpace(p.getenv("III_TOKEN")), "III_TOKEN"
	case own:
		d.token, d.from = named.Token, "context "+named.Name
	case d.lack == "":
		p.localToken(d, folder)
	}
	return nil
}

func (p *program) readToken(d *door, path, from string) error {
	text, err := p.readSecret(path)
	if err != nil {
		return &house.Problem{Kind: fault.Invalid, Code: codeUsage, What: "cannot read the token of " + from,
			Why: err.Error(), Do: "name a file that holds a key and nothing else", Err: err}
	}
	d.token, d.from = text, from
	return nil
}

// localToken takes the token that the server keeps in its data folder. It never leaves this machine.
func (p *program) localToken(d *door, folder string) {
	if folder == "" || !onThisMachine(d.URL) || !onThisMachine(d.Admin) {
		return
	}
	path := filepath.Join(folder, "auth", auth.LocalTokenFile)
	text, err := p.readSecret(path)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		d.lack = path + ": " + err.Error()
		return
	}
	d.token, d.from = text, path
}

// sameHost reports whether two addresses are the same host by the same kind of connection: a key that was
// kept for one goes to no other, and not in the clear if it was kept for TLS.
func sameHost(a, b string) bool {
	x, err := url.Parse(a)
	y, bad := url.Parse(b)
	return err == nil && bad == nil && x.Scheme == y.Scheme && strings.EqualFold(x.Hostname(), y.Hostname())
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
	if path == "-" {
		if p.inRead {
			return "", errors.New("the standard input was read already, for another secret")
		}
		p.inRead = true
	} else {
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
	if len(b) > maxSecret || text == "" || strings.ContainsAny(text, "\r\n\x00") {
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
	one := &house.Problem{Kind: fault.Denied, Code: codeAuth, Why: r.Reason, Err: err,
		What: "the engine at " + d.URL + " refuses the connection"}
	switch r.Status {
	case 401:
		one.Do = d.howToProve()
	case 403:
		one.Code, one.Do = "FORBIDDEN", "use a key with that scope: plinth key create"
	case 503:
		one.Kind, one.Code, one.Do = fault.Unavailable, codeUnclaimed, "make the first account: plinth admin claim"
	default:
		one.Kind, one.Code, one.Do = fault.Unavailable, "REFUSED", "check the address"
	}
	return one
}

// howToProve says how to get in.
func (d *door) howToProve() string {
	if d.token == "" {
		do := "give a key: --token-file, PLINTH_TOKEN_FILE, plinth context add or plinth login; on the server's machine " +
			"--data FOLDER is enough"
		if d.lack != "" {
			do += " (" + d.lack + ")"
		}
		return do
	}
	if filepath.Base(d.from) == auth.LocalTokenFile {
		return fmt.Sprintf("%s is not of that server: give its data folder with --data or PLINTH_DATA, or a key", d.from)
	}
	return fmt.Sprintf("the credential of %s is not valid there: get another key, log in again (plinth login), or see "+
		"plinth context", d.from)
}

// engineFlags adds the flags of a verb that speaks to the engine's socket.
func (p *program) engineFlags(cmd *cobra.Command) { p.doorFlags(cmd.Flags()) }
