package house

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/plinth-run/plinth/internal/fault"
)

// Address is the check of an address to listen on: a host or nothing, and a port.
func Address(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(host, " /@") {
		return fmt.Errorf(`must be an address and a port, such as "127.0.0.1:8081"`)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("has no port between 0 and 65535 (%q)", port)
	} else if strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("has a port that is not a plain number (%q)", port)
	}
	return nil
}

// Wide says whether an address to listen on can be reached from other machines, as far as its text tells: all
// that is neither localhost nor a loopback address.
func Wide(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err != nil || !IsLoopback(host)
}

// WideProblem tells why a wide address cannot be listened on while there is no account: whoever reached it
// could claim the house, or use it. It gives nil when the address is not wide.
func WideProblem(s *Setting, address string) error {
	if !Wide(address) {
		return nil
	}
	host, port, _ := net.SplitHostPort(address) // what cannot be split is wide, and told whole
	where := host + " is not a loopback address"
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		where = "it would listen on every network of this machine"
	}
	return &Problem{
		Kind: fault.Invalid, Code: CodeNotLoopback,
		What: fmt.Sprintf("will not listen on %s (%s)", address, s.Key),
		Why:  where + ", and there is no account yet: whoever reaches a door may use it",
		Do: "create an account first, with plinth admin claim or the PLINTH_BOOTSTRAP_* variables, " +
			"or use 127.0.0.1:" + port,
	}
}

// IsLoopback says whether a host, without its port, is localhost or a loopback address. Names are
// not looked up: what a name means is for others to say.
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// ListenProblem tells why an address could not be had, who has it where that can be seen, and which
// setting changes it. It gives err back when it is no failure to listen.
func ListenProblem(err error, s *Setting, address string) error {
	if err == nil {
		return nil
	}
	p := &Problem{Kind: fault.Unavailable, Code: CodePortRefused, Err: err,
		What: fmt.Sprintf("cannot listen on %s (%s)", address, s.Key)}
	other := fmt.Sprintf("--%s or %s", s.Flag(), s.Env())
	switch {
	case portTaken(err):
		p.Kind, p.Code = fault.Conflict, CodePortInUse
		p.Why = "another program has the port"
		p.Do = "stop it, or choose another address with " + other
		if owner := portOwner(address); owner.PID > 0 {
			p.Why = fmt.Sprintf("process %d (%s) has the port", owner.PID, owner.Name)
			p.Do = fmt.Sprintf("stop process %d, or choose another address with %s", owner.PID, other)
		}
	case errors.Is(err, syscall.EACCES):
		p.Why = "this user may not listen on that port"
		p.Do = "choose a port above 1023 with " + other
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		p.Why = "this machine does not have that address"
		p.Do = "choose an address of this machine with " + other
	default:
		if op := (*net.OpError)(nil); !errors.As(err, &op) && !errors.As(err, new(syscall.Errno)) {
			return err
		}
		p.Why = cause(err)
		p.Do = "choose another address with " + other
	}
	return p
}

// portTaken knows EADDRINUSE of all systems: on Windows it is WSAEADDRINUSE or, with an exclusive
// owner, WSAEACCES.
func portTaken(err error) bool {
	if errors.Is(err, syscall.EADDRINUSE) {
		return true
	}
	const wsaInUse = 10048
	var number syscall.Errno
	return errors.As(err, &number) && uintptr(number) == wsaInUse
}

// cause is the innermost error's text.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// An Owner is the process that listens on a port; PID is 0 when it cannot be seen.
type Owner struct {
	PID  int
	Name string
}

// PortOwner finds who listens on the port of address. It needs Linux, and a process of the same user.
func PortOwner(address string) Owner { return portOwner(address) }
