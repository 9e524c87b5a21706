package app

import (
	"crypto/tls"
	"fmt"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/internal/loop"
)

// listenerSettings are the settings of further worker listeners: [engine.listeners.NAME].
func listenerSettings() []house.Setting {
	key := func(member string) string { return listenerFamily + ".*." + member }
	return []house.Setting{
		{Key: key("listen"), Type: house.Text, Check: house.Address, Help: "address of a further worker listener"},
		{Key: key("tls_cert"), Type: house.Text, Help: "file with its certificate: it then speaks TLS"},
		{Key: key("tls_key"), Type: house.Text, Help: "file with the key of that certificate"},
		{Key: key("hosts"), Type: house.List, Help: "more host names that it answers to"},
		{Key: key("origins"), Type: house.List, Help: "origins of browser pages that may connect there"},
		{Key: key("auth_function"), Type: house.Text,
			Help: "function that decides who comes in; without it a key is asked for"},
		{Key: key("expose"), Type: house.List, Check: checkRule,
			Help: "rules of what may be called there: service::* or a JSON object; with a function or a rule, nothing else may"},
		{Key: key("on_function_registration"), Type: house.Text, Help: "hook that decides on functions"},
		{Key: key("on_trigger_registration"), Type: house.Text, Help: "hook that decides on triggers"},
		{Key: key("on_trigger_type_registration"), Type: house.Text, Help: "hook that decides on trigger types"},
		{Key: key("middleware"), Type: house.Text, Help: "function that answers in place of those that are called"},
	}
}

// checkRule reads one expose rule.
func checkRule(text string) error {
	_, err := rbac.ParseRule(text)
	return err
}

// listeners reads the main listener and the further ones, in the order of their names.
func (a *App) listeners() (main engine.Listener, more []engine.Listener, err error) {
	cfg := a.cfg
	main = engine.Listener{Listen: cfg.Text(KeyEngineListen), Hosts: cfg.List(KeyEngineHosts),
		Origins: cfg.List(KeyEngineOrigins)}
	if main.TLS, err = a.secure("engine", cfg.Text(KeyEngineCert), cfg.Text(KeyEngineKey)); err != nil {
		return main, nil, err
	}
	for _, name := range cfg.Names(listenerFamily) {
		text := func(member string) string { return cfg.Text(listenerFamily + "." + name + "." + member) }
		list := func(member string) []string { return cfg.List(listenerFamily + "." + name + "." + member) }
		l := engine.Listener{Name: name, Listen: text("listen"), Hosts: list("hosts"), Origins: list("origins")}
		if l.TLS, err = a.secure(listenerFamily+"."+name, text("tls_cert"), text("tls_key")); err != nil {
			return main, nil, err
		}
		p := rbac.Policy{AuthFunction: text("auth_function"), OnFunction: text("on_function_registration"),
			OnTrigger: text("on_trigger_registration"), OnTriggerType: text("on_trigger_type_registration"),
			Middleware: text("middleware")}
		for _, rule := range list("expose") {
			r, err := rbac.ParseRule(rule)
			if err != nil {
				return main, nil, fmt.Errorf("listener %s: %w", name, err)
			}
			p.Expose = append(p.Expose, r)
		}
		if p.AuthFunction != "" || p.OnFunction != "" || p.OnTrigger != "" || p.OnTriggerType != "" ||
			p.Middleware != "" || p.Expose != nil {
			l.Rules = &p
		}
		more = append(more, l)
	}
	return main, more, nil
}

// secure makes the TLS of a listener; nil without a certificate.
func (a *App) secure(key, cert, private string) (*tls.Config, error) {
	if cert == "" && private == "" {
		return nil, nil
	}
	get, err := loop.LoadCertificate(cert, private, a.log)
	if err != nil {
		return nil, &house.Problem{Kind: fault.Invalid, Code: house.CodeBadSetting,
			What: "the certificate of " + key + " cannot be used", Why: err.Error(),
			Do: "name a certificate and its key, in PEM, with " + key + ".tls_cert and " + key + ".tls_key", Err: err}
	}
	return &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}, nil
}
