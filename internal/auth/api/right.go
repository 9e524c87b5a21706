package api

import (
	"context"
	"strings"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
)

// right is what an operation needs, in the words of its description.
type right string

const (
	nobody right = "no credential" // it is in Open
	known  right = "any credential"
	read   right = "the scope admin:read"
	manage right = "the scope admin:manage"
	look   right = "to be that user, or the scope admin:read"
	mine   right = "to be that user, or the scope admin:manage"
	local  right = "the local token"
)

// rightKey is where a description keeps its right.
const rightKey = "right"

// named is the input of an operation on one user.
type named interface{ user() string }

// check asks the principal of a request. What is finer than a right is asked by package auth.
func (r right) check(ctx context.Context, in any) error {
	p := by(ctx)
	verb := "manage"
	switch r {
	case nobody:
		return nil
	case known:
		if From(ctx) != nil {
			return nil
		}
		return fault.New(fault.Denied, "AUTH_ERROR", "a credential is needed")
	case local:
		if p.Kind == auth.KindLocal {
			return nil
		}
		return fault.New(fault.Denied, "FORBIDDEN", "this needs the local token, from the data folder of this Plinth")
	case look, mine:
		if n, ok := in.(named); ok && p.Kind == auth.KindUser && strings.EqualFold(p.Name, n.user()) {
			return nil
		}
	}
	if r == read || r == look {
		verb = "read"
	}
	if p.May("admin", verb, "") {
		return nil
	}
	return fault.Newf(fault.Denied, "FORBIDDEN", "this needs the scope admin:%s", verb)
}
