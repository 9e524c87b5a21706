//go:build !linux

package auth

// gently runs a long computation; threads have no priority of their own here.
func gently(f func()) { f() }
