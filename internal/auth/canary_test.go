package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pquerna/otp/totp"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/testkit"
)

// TestSecretsStayOutOfTrailLogErrorsAndFigures hands in marked secrets, right and wrong ones, and looks for
// them and for all secrets that were given out. Only the secret of one-time codes may be in the data
// folder: it is needed as it is.
func TestSecretsStayOutOfTrailLogErrorsAndFigures(t *testing.T) {
	h, canary := start(t), testkit.NewCanary(1)
	var told bytes.Buffer
	note := func(err error) {
		if err != nil {
			told.WriteString(err.Error() + "\n")
		}
	}
	claim, err := h.NewClaim(t.Context())
	note(err)
	u := auth.NewUser{Name: "ann", Password: canary.Value(0)}
	for _, token := range []string{canary.Value(1), "pc_" + canary.Value(2), claim} {
		_, err := h.Claim(t.Context(), auth.Credential{Token: canary.Value(3), Remote: here}, token, u)
		note(err)
	}
	session, _, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: canary.Value(0), Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	ann, err := h.Authenticate(auth.Credential{Token: session, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	key, _ := h.key(ann, "k", "engine:*")
	seed, uri, err := h.StartTOTP(t.Context(), ann, "ann")
	note(err)
	_, err = h.ConfirmTOTP(t.Context(), ann, "ann", canary.Value(4))
	note(err)
	now, err := totp.GenerateCode(seed, h.clock())
	note(err)
	recovery, err := h.ConfirmTOTP(t.Context(), ann, "ann", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []auth.Login{{Name: "ann", Password: canary.Value(5)},
		{Name: "ann", Password: canary.Value(0), Code: canary.Value(6)}, {Name: "ann", Password: canary.Value(0)},
		{Name: "ann", Password: canary.Value(0), Code: recovery[0]}, {Name: "eve", Password: canary.Value(7)}} {
		_, _, err := h.Login(t.Context(), in)
		note(err)
	}
	for i, prefix := range []string{"", "pk_", "wk_12345678_", "ps_", "pl_", key[:12]} {
		_, err := h.Authenticate(auth.Credential{Token: prefix + canary.Value(8+i), Remote: here})
		note(err)
	}
	note(h.SetPassword(t.Context(), ann, "ann", canary.Value(20), "short"))
	note(h.SetPassword(t.Context(), ann, "ann", canary.Value(0), canary.Value(21)))
	_, err = h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Hash: canary.Value(22)})
	note(err)
	note(h.Logout(t.Context(), canary.Value(23)))
	h.WritePrometheus(&told)
	local := h.LocalToken()
	h.stop()
	told.WriteString(h.log.String())

	// The local token is where its reader is to find it.
	if err := os.Remove(filepath.Join(h.path, "auth", auth.LocalTokenFile)); err != nil {
		t.Fatal(err)
	}
	sightings, err := canary.FindDir(h.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(sightings, canary.Find(told.Bytes())...) {
		t.Errorf("a secret that was handed in: %v", s)
	}
	everything, trail := told.String(), ""
	for _, part := range []string{"auth", "audit"} {
		files, err := filepath.Glob(filepath.Join(h.path, part, "*"))
		if err != nil {
			t.Fatal(err)
		}
		deeper, _ := filepath.Glob(filepath.Join(h.path, part, "*", "*"))
		for _, name := range append(files, deeper...) {
			if info, err := os.Stat(name); err != nil || info.IsDir() {
				continue
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			everything += string(b)
			if part == "audit" {
				trail += string(b)
			}
		}
	}
	for what, secret := range map[string]string{"claim": claim[3:], "session": session[3:], "key": key[12:],
		"local token": local[3:], "recovery code": recovery[0], "another recovery code": recovery[9]} {
		if strings.Contains(everything, secret) {
			t.Errorf("the %s was written", what)
		}
	}
	if strings.Contains(trail+told.String(), seed) || !strings.Contains(uri, seed) {
		t.Error("the secret of one-time codes was told")
	}
	if !strings.Contains(trail, `"totp.confirm"`) || !strings.Contains(everything, seed) {
		t.Error("the files were not looked at")
	}
}

func TestAKeyThatWasNeverUsedSaysSo(t *testing.T) {
	h := start(t)
	ann := h.owner()
	k, secret, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
		Scopes: []string{"engine:*"}})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.Key(k.ID); err != nil || !again.LastUsed.IsZero() || !k.LastUsed.IsZero() {
		t.Errorf("got %v, %v", again.LastUsed, err)
	}
	if _, err := h.Authenticate(auth.Credential{Token: secret, Remote: here}); err != nil {
		t.Fatal(err)
	}
	if again, _ := h.Key(k.ID); h.clock().Sub(again.LastUsed).Minutes() > 1 {
		t.Errorf("last used at %v", again.LastUsed)
	}
}
