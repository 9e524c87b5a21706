//go:build !linux

package house

// portOwner has no way to see it here.
func portOwner(string) Owner { return Owner{} }
