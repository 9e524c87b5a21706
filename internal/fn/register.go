package fn

import (
	"fmt"
	"sort"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Reserved returns the prefixes that belong to the rooms of Plinth. A worker cannot register under them,
// with one exception that old clients need: stream::get(NAME) and its sisters, by which a worker provides
// a stream of its own.
func Reserved() []string {
	return []string{"engine::", "flow::", "site::", "secret::", "cron::", "http::", "state::", "queue::",
		"stream::"}
}

// Conflict is the error of a name that somebody else holds. Owner is nil for a reserved name.
type Conflict struct {
	Namespace, Name string
	Owner           *Peer
}

func (e *Conflict) Error() string {
	if e.Owner == nil {
		return fmt.Sprintf("%s is reserved for Plinth's own rooms; choose another service name", e.Name)
	}
	return fmt.Sprintf("%s is already registered in namespace %s by %s", e.Name, e.Namespace, e.Owner.Name())
}

// Unwrap makes fault.KindOf work on it.
func (e *Conflict) Unwrap() error {
	code := wire.CodeFunctionConflict
	if e.Owner == nil {
		code = wire.CodeReservedPrefix
	}
	return &fault.Error{Kind: fault.Conflict, Code: code, Message: e.Name}
}

// Add registers a function for a peer. A name that the peer itself holds is replaced. A name that another
// peer holds is a *Conflict, unless both said Replicas: then the calls are dealt among them. Calls that are
// under way keep the function they started with.
func (r *Registry) Add(p *Peer, spec Spec) (*Function, error) {
	if spec.Namespace == "" {
		spec.Namespace = Default
	}
	if err := r.allowed(p, &spec); err != nil {
		return nil, err
	}
	f := &Function{Spec: spec, Owner: p, span: r.names.Intern(spec.Name)}
	r.owners.Lock()
	defer r.owners.Unlock()
	head := find(&r.directory, spec.Namespace, spec.Name)
	old := head.of(p)
	if head != nil && !head.alone(p) && (!spec.Replicas || !head.Replicas) {
		r.names.Release(f.span)
		return nil, &Conflict{Namespace: spec.Namespace, Name: spec.Name, Owner: head.other(p)}
	}
	if err := head.room(old); err != nil {
		r.names.Release(f.span)
		return nil, err
	}
	f.join(head, old)
	if old != nil {
		f.place = old.place
		p.functions[f.place] = f
		r.names.Release(old.span)
	} else {
		f.place = len(p.functions)
		p.functions = append(p.functions, f)
		if f.Namespace != Default {
			r.spaces[f.Namespace]++
		}
	}
	if head == nil || head == old {
		r.directory.put(f)
	}
	return f, nil
}

// allowed checks the form of a name and who may use it.
func (r *Registry) allowed(p *Peer, spec *Spec) error {
	if spec.Name == "" {
		return fault.New(fault.Invalid, wire.CodeInvalidArguments, "a function needs a name: service::name")
	}
	for _, prefix := range Reserved() {
		if !strings.HasPrefix(spec.Name, prefix) {
			continue
		}
		for _, own := range p.prefixes {
			if own == prefix && spec.Namespace == Default {
				return nil
			}
		}
		if prefix == "stream::" && strings.HasSuffix(spec.Name, ")") && strings.Contains(spec.Name, "(") {
			return nil
		}
		return &Conflict{Namespace: spec.Namespace, Name: spec.Name}
	}
	return nil
}

// Remove takes a function of a peer out of the table; it reports whether the peer held it.
func (r *Registry) Remove(p *Peer, space, name string) bool {
	if space == "" {
		space = Default
	}
	r.owners.Lock()
	defer r.owners.Unlock()
	f := find(&r.directory, space, name).of(p)
	if f == nil {
		return false
	}
	last := len(p.functions) - 1
	p.functions[f.place] = p.functions[last]
	p.functions[f.place].place = f.place
	p.functions[last] = nil
	p.functions = p.functions[:last]
	r.takeOff(f)
	return true
}

// takeOff removes one host's function: the name goes with its last host. owners is held.
func (r *Registry) takeOff(f *Function) {
	if heir := f.quit(); heir == nil {
		r.directory.drop(f)
	} else if find(&r.directory, f.Namespace, f.Name) == f {
		r.directory.put(heir)
	}
	r.forget(f)
}

// RemoveAll takes all functions of a peer out of the table.
func (r *Registry) RemoveAll(p *Peer) {
	r.owners.Lock()
	defer r.owners.Unlock()
	for _, f := range p.functions {
		r.takeOff(f)
	}
	p.functions = nil
}

// forget drops what the registry counts about a function; owners is held.
func (r *Registry) forget(f *Function) {
	r.names.Release(f.span)
	if f.Namespace == Default {
		return
	}
	if r.spaces[f.Namespace]--; r.spaces[f.Namespace] == 0 {
		delete(r.spaces, f.Namespace)
	}
}

// Functions returns the functions of a peer, in the order in which they were registered.
func (r *Registry) Functions(p *Peer) []*Function {
	r.owners.Lock()
	defer r.owners.Unlock()
	return append([]*Function(nil), p.functions...)
}

// Spaces returns the namespaces that hold the given name, sorted.
func (r *Registry) Spaces(name string) (in []string) {
	r.owners.Lock()
	all := append(make([]string, 0, len(r.spaces)+1), Default)
	for space := range r.spaces {
		all = append(all, space)
	}
	r.owners.Unlock()
	for _, space := range all {
		if r.Lookup([]byte(space), []byte(name)) != nil {
			in = append(in, space)
		}
	}
	sort.Strings(in)
	return in
}

// NotFound is the error of a name that leads nowhere; it says where else the name exists.
func (r *Registry) NotFound(space, name string) *fault.Error {
	if space == "" {
		space = Default
	}
	message := fmt.Sprintf("Function %s not found in namespace %s.", name, space)
	if in := r.Spaces(name); len(in) > 0 {
		message += " It exists in: " + strings.Join(in, ", ") + "."
	}
	return fault.New(fault.NotFound, wire.CodeFunctionNotFound, message)
}

func forbidden(f *Function) *fault.Error {
	return fault.Newf(fault.Denied, wire.CodeForbidden, "%s is private: only %s may call it",
		f.Name, f.Owner.Name())
}

// Count returns how many functions a peer has.
func (r *Registry) Count(p *Peer) int {
	r.owners.Lock()
	defer r.owners.Unlock()
	return len(p.functions)
}
