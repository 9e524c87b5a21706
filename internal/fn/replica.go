package fn

import (
	"slices"
	"sync/atomic"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// maxReplicas bounds the hosts of one name: each call looks at all of them.
const maxReplicas = 256

// group is the replicas of one name. Readers see one of its lists, which never changes; writers hold
// Registry.owners and put a new one in its place. One of the members stands in the directory for all.
type group struct {
	members atomic.Pointer[[]*Function] // never empty while the name is in the directory
	turn    atomic.Uint32
}

// choose returns the replica whose host has the fewest calls in flight; equals take turns.
func (r *Registry) choose(g *group) *Function {
	members := *g.members.Load()
	n := len(members)
	at := int(g.turn.Add(1)) % n
	if n == 1 {
		return members[0]
	}
	t := &r.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	best := members[at]
	for range n - 1 {
		if at++; at == n {
			at = 0
		}
		if m := members[at]; !m.Owner.gone && (best.Owner.gone || m.Owner.hosted.n < best.Owner.hosted.n) {
			best = m
		}
	}
	return best
}

// Replicated returns every host's function of the name that f belongs to, f itself when it has one host.
func (f *Function) Replicated() []*Function {
	if f.group == nil {
		return []*Function{f}
	}
	return slices.Clone(*f.group.members.Load())
}

// of returns the function of the name that p hosts, or nil. f is what the directory has, nil included;
// like the methods below it is called with Registry.owners held.
func (f *Function) of(p *Peer) *Function {
	if f == nil {
		return nil
	}
	if f.group != nil {
		for _, m := range *f.group.members.Load() {
			if m.Owner == p {
				return m
			}
		}
		return nil
	}
	if f.Owner == p {
		return f
	}
	return nil
}

// alone reports whether p is the only host.
func (f *Function) alone(p *Peer) bool {
	return f.Owner == p && (f.group == nil || len(*f.group.members.Load()) == 1)
}

// other returns a host that is not p, to name in a refusal.
func (f *Function) other(p *Peer) *Peer {
	if f.Owner == p && f.group != nil {
		for _, m := range *f.group.members.Load() {
			if m.Owner != p {
				return m.Owner
			}
		}
	}
	return f.Owner
}

// room refuses one replica too many; old is the one that would be replaced.
func (f *Function) room(old *Function) error {
	if f == nil || f.group == nil || old != nil {
		return nil
	}
	if n := len(*f.group.members.Load()); n >= maxReplicas {
		return fault.Newf(fault.Limit, wire.CodeLimit, "%s has %d replicas already, the limit", f.Name, n)
	}
	return nil
}

// join makes f a replica beside those of head, in the place of old.
func (f *Function) join(head, old *Function) {
	if !f.Replicas {
		return
	}
	var members []*Function
	if head != nil && head.group != nil {
		f.group = head.group
		members = slices.Clone(*head.group.members.Load())
	} else {
		f.group = new(group)
	}
	if i := slices.Index(members, old); i >= 0 {
		members[i] = f
	} else {
		members = append(members, f)
	}
	f.group.members.Store(&members)
}

// quit takes f out of its group and returns a replica that can stand for the others; nil when f was the
// last. The list of the last one stays: a call may be reading it.
func (f *Function) quit() (heir *Function) {
	if f.group == nil {
		return nil
	}
	members := slices.DeleteFunc(slices.Clone(*f.group.members.Load()), func(m *Function) bool { return m == f })
	if len(members) == 0 {
		return nil
	}
	f.group.members.Store(&members)
	return members[0]
}
