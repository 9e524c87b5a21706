package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// The cost of a new hash (OWASP's second recommendation for argon2id), and what one that is read may cost.
const (
	hashMemory  = 19_456 // KiB
	hashTime    = 2
	hashThreads = 1
	hashSalt    = 16
	hashKey     = 32

	maxHashMemory = 256 << 10 // KiB
	maxHashTime   = 16
	maxHashText   = 512

	minPassword = 10   // characters
	maxPassword = 1024 // bytes
	maxWaiting  = 64   // callers who wait for their hash
)

// crew bounds the hashes that are made at once, and who waits for one: a login costs memory and time, and a
// flood of them must cost no more.
type crew struct {
	places  chan struct{}
	waiting *atomic.Int64
	memory  uint32
}

func newCrew(atOnce int, memory uint32) crew {
	if atOnce <= 0 {
		atOnce = 1
	}
	if memory == 0 {
		memory = hashMemory
	}
	return crew{make(chan struct{}, atOnce), new(atomic.Int64), memory}
}

// do runs a hash when its turn comes. The error is Limit LIMIT_EXCEEDED, or that of ctx.
func (w crew) do(ctx context.Context, hash func()) error {
	if w.waiting.Add(1) > maxWaiting {
		w.waiting.Add(-1)
		return fault.New(fault.Limit, wire.CodeLimit, "too many logins wait for their turn; try again soon")
	}
	defer w.waiting.Add(-1)
	select {
	case w.places <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("auth: wait for a hash: %w", ctx.Err())
	}
	defer func() { <-w.places }()
	gently(hash)
	return nil
}

// phc is an argon2id hash in its text form: $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH.
type phc struct {
	memory, time uint32
	threads      uint8
	salt, hash   []byte
}

// parsePHC reads a hash. What would cost too much to check is refused.
func parsePHC(text string) (h phc, err error) {
	bad := func(why string) (phc, error) {
		return phc{}, fault.Newf(fault.Invalid, CodeBadPassword,
			"the hash is no argon2id hash in PHC form (%s); make one with plinth hash-password", why)
	}
	if len(text) > maxHashText {
		return bad("too long")
	}
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return bad("not $argon2id$v=19$m=…,t=…,p=…$salt$hash")
	}
	if parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return bad("another version")
	}
	costs := strings.Split(parts[3], ",")
	if len(costs) != 3 {
		return bad("its costs")
	}
	var n [3]uint64
	for i, name := range []string{"m=", "t=", "p="} {
		digits, ok := strings.CutPrefix(costs[i], name)
		if n[i], err = strconv.ParseUint(digits, 10, 32); !ok || err != nil || n[i] == 0 {
			return bad("its costs")
		}
	}
	if n[0] < 8 || n[0] > maxHashMemory || n[1] > maxHashTime || n[2] > 16 || n[0] < 8*n[2] {
		return bad("costs out of bounds")
	}
	h = phc{memory: uint32(n[0]), time: uint32(n[1]), threads: uint8(n[2])}
	strict := base64.RawStdEncoding.Strict()
	if h.salt, err = strict.DecodeString(parts[4]); err != nil || len(h.salt) < 8 || len(h.salt) > 64 {
		return bad("its salt")
	}
	if h.hash, err = strict.DecodeString(parts[5]); err != nil || len(h.hash) < 16 || len(h.hash) > 64 {
		return bad("its hash")
	}
	return h, nil
}

func (h phc) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads,
		b64(h.salt), b64(h.hash))
}

func (h phc) of(password string) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.time, h.memory, h.threads, uint32(len(h.hash)))
}

// HashPassword returns the argon2id hash of a password in PHC form, for NewUser.Hash and plinth
// hash-password. The error is Invalid BAD_PASSWORD.
func HashPassword(password string) (string, error) {
	if err := checkPassword(password); err != nil {
		return "", err
	}
	return hashPassword(password, hashMemory), nil
}

func hashPassword(password string, memory uint32) string {
	h := phc{memory: memory, time: hashTime, threads: hashThreads, salt: make([]byte, hashSalt),
		hash: make([]byte, hashKey)}
	_, _ = rand.Read(h.salt) // it never fails: the runtime ends the program instead
	h.hash = h.of(password)
	return h.String()
}

// hash hashes a new password in its turn.
func (a *Auth) hash(ctx context.Context, password string) (text string, err error) {
	if err := checkPassword(password); err != nil {
		return "", err
	}
	err = a.crew.do(ctx, func() { text = hashPassword(password, a.crew.memory) })
	return text, err
}

// verify holds a password against a hash, in its turn. An empty hash costs as much as another and is never
// right, so that an unknown name cannot be told from a wrong password by the clock.
func (a *Auth) verify(ctx context.Context, hash, password string) (ok bool, err error) {
	h, bad := parsePHC(hash)
	if bad != nil {
		h = phc{memory: a.crew.memory, time: hashTime, threads: hashThreads, salt: make([]byte, hashSalt),
			hash: make([]byte, hashKey)}
	}
	err = a.crew.do(ctx, func() { ok = same(string(h.of(password)), string(h.hash)) })
	return ok && bad == nil, err
}

// strengthen returns the hash to keep for a password that was right: the old one, or a new one where the
// old was cheaper to try than what this program makes.
func (a *Auth) strengthen(ctx context.Context, hash, password string) (string, error) {
	h, err := parsePHC(hash)
	if err != nil {
		return "", err
	}
	if uint64(h.memory)*uint64(h.time) >= uint64(a.crew.memory)*hashTime {
		return hash, nil
	}
	var better string
	err = a.crew.do(ctx, func() { better = hashPassword(password, a.crew.memory) })
	return better, err
}

// common are passwords that are tried first, wherever they are long enough to be allowed otherwise.
var common = map[string]bool{
	"password12": true, "password123": true, "password1234": true, "1234567890": true, "12345678910": true,
	"qwertyuiop": true, "qwerty12345": true, "1q2w3e4r5t": true, "abcdefghij": true, "iloveyou12": true,
	"administrator": true, "changeme123": true, "letmein1234": true, "welcome1234": true, "plinthplinth": true,
}

// checkPassword refuses what is too short, too long or tried by everyone.
func checkPassword(password string) error {
	switch {
	case !utf8.ValidString(password):
		return fault.New(fault.Invalid, CodeBadPassword, "the password is no text")
	case utf8.RuneCountInString(password) < minPassword:
		return fault.Newf(fault.Invalid, CodeBadPassword, "the password must have at least %d characters", minPassword)
	case len(password) > maxPassword:
		return fault.Newf(fault.Invalid, CodeBadPassword, "the password must have at most %d bytes", maxPassword)
	case common[strings.ToLower(password)]:
		return fault.New(fault.Invalid, CodeBadPassword, "that password is among the first that are tried; choose another")
	}
	return nil
}
