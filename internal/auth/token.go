package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// What tokens begin with, so that people and scanners see what they have found.
const (
	prefixAPI     = "pk_"
	prefixWorker  = "wk_"
	prefixSession = "ps_"
	prefixLocal   = "pl_"
	prefixClaim   = "pc_"
)

const (
	secretBytes = 32
	idLetters   = 8
	maxToken    = 256
)

// LocalTokenFile is the file in the data folder, mode 0600, whose reader owns the node.
const LocalTokenFile = "local.token"

// newSecret returns a random text of 43 letters.
func newSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // it never fails: the runtime ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// newID returns 8 random letters.
func newID() string {
	var b [idLetters / 2]byte
	_, _ = rand.Read(b[:]) // as above
	return hex.EncodeToString(b[:])
}

// split takes a token apart: its prefix, the public part of a key with that prefix, and its secret. It
// allocates nothing: all are parts of the token.
func split(token string) (kind, public, secret string) {
	if len(token) == 0 {
		return "", "", ""
	}
	if len(token) < 3 || len(token) > maxToken {
		return "bad", "", ""
	}
	kind = token[:3]
	if kind != prefixAPI && kind != prefixWorker {
		return kind, "", token[3:]
	}
	id, secret, _ := strings.Cut(token[3:], "_")
	return kind, token[:3+len(id)], secret
}

// digest is what is kept of a random secret. It may be a fast hash: nobody guesses 32 random bytes.
type digest [sha256.Size]byte

func digestOf(secret string) digest {
	var b [maxToken]byte // on the stack: a token is longer than what a conversion keeps there by itself
	if len(secret) <= len(b) {
		return sha256.Sum256(b[:copy(b[:], secret)])
	}
	return sha256.Sum256([]byte(secret))
}

// hashOf is the digest as text.
func hashOf(secret string) string {
	sum := digestOf(secret)
	return hex.EncodeToString(sum[:])
}

// parseDigest reads what hashOf wrote.
func parseDigest(text string) (d digest, err error) {
	b, err := hex.DecodeString(text)
	if err == nil && len(b) != len(d) {
		err = fmt.Errorf("%d bytes in place of %d", len(b), len(d))
	}
	if err != nil {
		return d, fmt.Errorf("auth: read a hash: %w", err)
	}
	return digest(b), nil
}

// same compares in constant time.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// basic returns the password of Basic credentials.
func basic(value string) (string, bool) {
	if len(value) > 4*maxToken {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return "", false
	}
	_, password, ok := strings.Cut(string(b), ":")
	return password, ok
}

// LocalToken returns the token that proves that its bearer can read the data folder.
func (a *Auth) LocalToken() string { return a.local }

// newLocalToken makes a token for this run and writes it where only the folder's owner can read it. It
// needs no sync: the next start makes another.
func (a *Auth) newLocalToken() error {
	token := prefixLocal + newSecret()
	path := filepath.Join(a.room.Path(), LocalTokenFile)
	if err := a.o.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("auth: replace the local token: %w", err)
	}
	f, err := a.o.FS.Open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return fmt.Errorf("auth: write the local token: %w", err)
	}
	_, err = f.WriteAt([]byte(token+"\n"), 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("auth: write the local token: %w", err)
	}
	a.local = token
	return nil
}
