package auth

import (
	"context"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// One-time codes as authenticator apps make them (RFC 6238): six digits, SHA-1, 30 seconds, one step of
// tolerance to each side.
const (
	codePeriod    = 30
	recoveryCodes = 10
)

// own lets a user change its own second factor, and those who manage accounts that of others.
func own(by *Principal, u *user) error {
	if by.is(u) {
		return nil
	}
	return mayTouch(by, u, "")
}

// StartTOTP gives a user a secret for an authenticator app, as text and as otpauth URI. It counts once a code
// made with it was confirmed.
func (a *Auth) StartTOTP(ctx context.Context, by *Principal, name string) (secret, uri string, err error) {
	_, err = a.edit(ctx, by, "totp.start", name, func(_ *state, u *user) ([]record, error) {
		if !by.is(u) {
			return nil, fault.New(fault.Denied, wire.CodeForbidden, "only the user itself can set up one-time codes")
		}
		if u.TOTP {
			return nil, fault.New(fault.Conflict, CodeExists, "one-time codes are on already; remove them first")
		}
		k, err := totp.Generate(totp.GenerateOpts{Issuer: "Plinth", AccountName: u.Name})
		if err != nil {
			return nil, fault.Newf(fault.Internal, "", "make a secret: %w", err)
		}
		secret, uri, u.Secret = k.Secret(), k.URL(), k.Secret()
		return nil, nil
	})
	return secret, uri, err
}

// ConfirmTOTP turns one-time codes on and returns the recovery codes, each good once, which nobody can read
// again.
func (a *Auth) ConfirmTOTP(ctx context.Context, by *Principal, name, code string) (recovery []string,
	err error) {
	now := a.o.Now()
	_, err = a.edit(ctx, by, "totp.confirm", name, func(_ *state, u *user) ([]record, error) {
		if !by.is(u) {
			return nil, fault.New(fault.Denied, wire.CodeForbidden, "only the user itself can confirm one-time codes")
		}
		if u.Secret == "" || u.TOTP {
			return nil, fault.New(fault.Conflict, CodeNoTOTP, "there is nothing to confirm: start the set-up first")
		}
		if !u.spend(code, now) {
			return nil, fault.New(fault.Denied, wire.CodeForbidden, "the code is not right; check the clock of the device")
		}
		u.TOTP, u.Recovery, recovery = true, nil, nil
		for range recoveryCodes {
			text := newID() + newID()
			recovery = append(recovery, text)
			u.Recovery = append(u.Recovery, hashOf(text))
		}
		return nil, nil
	})
	return recovery, err
}

// RemoveTOTP turns one-time codes off.
func (a *Auth) RemoveTOTP(ctx context.Context, by *Principal, name string) error {
	_, err := a.edit(ctx, by, "totp.remove", name, func(_ *state, u *user) ([]record, error) {
		if err := own(by, u); err != nil {
			return nil, err
		}
		u.TOTP, u.Secret, u.Recovery, u.Counter = false, "", nil, 0
		return nil, nil
	})
	return err
}

// spend uses a one-time or a recovery code up. A code counts once: a later one must belong to a later step.
func (u *user) spend(code string, now time.Time) bool {
	code = strings.Join(strings.Fields(code), "")
	step := now.Unix() / codePeriod
	for _, counter := range []int64{step - 1, step, step + 1} {
		if counter <= u.Counter {
			continue
		}
		want, err := totp.GenerateCodeCustom(u.Secret, time.Unix(counter*codePeriod, 0),
			totp.ValidateOpts{Period: codePeriod, Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err == nil && same(want, code) {
			u.Counter = counter
			return true
		}
	}
	hash := hashOf(strings.ToLower(code))
	for i, known := range u.Recovery {
		if same(known, hash) {
			left := make([]string, 0, len(u.Recovery)-1)
			u.Recovery = append(append(left, u.Recovery[:i]...), u.Recovery[i+1:]...)
			return true
		}
	}
	return false
}
