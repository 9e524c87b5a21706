package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// door is the admin door of an engine that was started here, with an account on it. The proof that it is
// ours to claim is the token in the engine's data folder.
type door struct {
	base, token    string
	name, password string // of the account
	client         http.Client
}

// doorTime bounds one request.
const doorTime = 20 * time.Second

// newDoor makes the first account of an engine.
func newDoor(ctx context.Context, at Site) (*door, error) {
	if at.Admin == "" {
		return nil, fmt.Errorf("the server has not said where its admin door is")
	}
	token, err := os.ReadFile(filepath.Join(at.Folder, "auth", "local.token"))
	if err != nil {
		return nil, fmt.Errorf("find the local token: %w", err)
	}
	d := &door{base: "http://" + at.Admin, token: strings.TrimSpace(string(token)),
		name: "bench", password: rand.Text(), client: http.Client{Timeout: doorTime}}
	account := map[string]string{"name": d.name, "password": d.password}
	return d, d.ask(ctx, d.token, "/api/setup/bootstrap", account, nil)
}

// key makes a worker key with a scope and returns its text.
func (d *door) key(ctx context.Context, name, scope string) (string, error) {
	var made struct {
		Secret string `json:"secret"`
	}
	err := d.ask(ctx, d.token, "/api/keys", map[string]any{"name": name, "kind": "worker",
		"scopes": []string{scope}, "expires_in_seconds": 3600}, &made)
	return made.Secret, err
}

// ask posts a document and reads the answer into out, unless that is nil.
func (d *door) ask(ctx context.Context, token, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := d.client.Do(r)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	switch {
	case err != nil:
		return fmt.Errorf("ask %s: %w", path, err)
	case answer.StatusCode/100 != 2:
		return fmt.Errorf("ask %s: %s: %s", path, answer.Status, text)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

// visits is what became of the people who logged in.
type visits struct {
	done, refused int
	slowest       time.Duration
}

// crowd bounds the logins under way: an engine that falls behind is not buried.
const crowd = 32

// visit logs in again and again, every so often, until ctx ends.
func (d *door) visit(ctx context.Context, every time.Duration) (v visits) {
	var mu sync.Mutex
	var people sync.WaitGroup
	free := make(chan struct{}, crowd)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			people.Wait()
			return v
		case <-tick.C:
		}
		select {
		case free <- struct{}{}:
		default:
			mu.Lock()
			v.refused++
			mu.Unlock()
			continue
		}
		people.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			err := d.ask(ctx, "", "/api/login", map[string]string{"name": d.name, "password": d.password}, nil)
			if ctx.Err() != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			v.done++
			if err != nil {
				v.done, v.refused = v.done-1, v.refused+1
			}
			v.slowest = max(v.slowest, time.Since(began))
		})
	}
}

// withKey is an address of a worker socket with a key as its password.
func withKey(address, key string) string {
	return (&url.URL{Scheme: "ws", User: url.UserPassword("any", key), Host: address, Path: "/"}).String()
}
