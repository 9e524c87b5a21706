package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// card is what a worker says of itself in engine::workers::register. It does not change once it is on a
// connection.
type card struct {
	name        string // unique in its namespace: a second worker of that name gets a suffix
	runtime     string
	version     string
	description string
	os          string
	isolation   string
	project     string
	framework   string
	pid         int64
	features    []string
}

// announcement is the payload of engine::workers::register (protocol section 3.2).
type announcement struct {
	Runtime     string          `json:"runtime"`
	Version     string          `json:"version"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	OS          string          `json:"os"`
	PID         json.Number     `json:"pid"`
	Isolation   *string         `json:"isolation"`
	Namespace   json.RawMessage `json:"namespace"`
	Features    []string        `json:"features"`
	Telemetry   struct {
		Project   string `json:"project_name"`
		Framework string `json:"framework"`
	} `json:"telemetry"`
}

// level is how loud its coming and going is: a program without a pid, which listings hide, calls once and
// is gone.
func (n *card) level() slog.Level {
	if n.pid == 0 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

const (
	maxText        = 256 // bytes of one text of a card
	maxDescription = 280 // characters that are kept of a worker's description
)

// announce is engine::workers::register: it runs on the caller's own loop.
func (e *Engine) announce(c *fn.Call) fn.Outcome {
	k, ok := c.Caller.Data.(*conn)
	if !ok {
		return failed(fault.New(fault.Invalid, wire.CodeInvalidArguments, "only a worker can register itself"))
	}
	var a announcement
	if err := json.Unmarshal(orEmpty(c.Payload), &a); err != nil {
		return failed(fault.Newf(fault.Invalid, wire.CodeDeserialization, "engine::workers::register: %v", err))
	}
	space, err := namespaceOf(a.Namespace, e.bounds.MaxNamespaceBytes)
	if err != nil {
		return failed(err)
	}
	if k.announced && space != "" && space != k.space {
		e.log.Warn("worker keeps its first namespace", "worker", k.peer.Name(), "namespace", k.space, "asked",
			space)
	}
	first := !k.announced
	if first {
		k.announced, k.space = true, fn.Default
		if space != "" {
			k.space = shared(space)
		}
	}
	n := a.card(k)
	if !e.name(k, n) {
		k.send(&wire.Frame{Type: wire.TypeRegistrationRejected, Code: []byte(wire.CodeWorkerConflict),
			Namespace: []byte(k.space), WorkerName: []byte(n.name), OwnerWorkerID: []byte(e.ownerOf(k.space, n.name))})
		k.shut(ws.ClosePolicy, "worker name is taken")
		return failed(fault.Newf(fault.Conflict, wire.CodeWorkerConflict,
			"a worker named %s is already connected in namespace %s", n.name, k.space))
	}
	if first {
		e.log.Log(context.Background(), n.level(), "worker joined", "worker", n.name, "id", k.id.String(),
			"namespace", k.space,
			"runtime", n.runtime, "version", n.version)
		e.news.worker(workerConnected, k.id)
	} else {
		e.news.worker(workerChanged, k.id)
	}
	return fn.Outcome{Result: success}
}

var success = []byte(`{"success":true}`)

func (a *announcement) card(k *conn) *card {
	text := func(s string) string { return shared(cut(plain(s), maxText)) }
	n := &card{name: cut(plain(a.Name), maxText), runtime: text(a.Runtime), version: text(a.Version),
		description: strings.TrimSpace(plain(a.Description)), os: text(a.OS),
		project: text(a.Telemetry.Project), framework: text(a.Telemetry.Framework), features: a.Features}
	if r := []rune(n.description); len(r) > maxDescription {
		n.description = string(r[:maxDescription])
	}
	if a.Isolation != nil {
		n.isolation = text(*a.Isolation)
	}
	if pid, err := a.PID.Int64(); err == nil {
		n.pid = pid
	}
	if n.name == "" {
		n.name = "worker-" + k.id.String()[:8]
	}
	if len(n.features) > 64 {
		n.features = n.features[:64]
	}
	for _, f := range n.features {
		if f == "caller" {
			k.callers = true
		}
	}
	return n
}

// name gives the worker its name. Workers that speak features are refused a name that is taken; older
// ones, which would reconnect for ever, are kept with a suffix.
func (e *Engine) name(k *conn, n *card) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k.card != nil && e.names[workerName{k.space, k.card.name}] == k {
		delete(e.names, workerName{k.space, k.card.name})
	}
	wanted := n.name
	for i := 2; e.names[workerName{k.space, n.name}] != nil; i++ {
		if len(n.features) > 0 {
			n.name = wanted
			return false
		}
		n.name = fmt.Sprintf("%s#%d", wanted, i)
	}
	e.names[workerName{k.space, n.name}] = k
	k.card = n
	e.fn.Rename(&k.peer, n.name)
	return true
}

func (e *Engine) ownerOf(space, name string) string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if k := e.names[workerName{space, name}]; k != nil {
		return k.id.String()
	}
	return ""
}

// namespaceOf reads the optional namespace of an announcement; absent and null are "".
func namespaceOf(raw json.RawMessage, most int) (string, *fault.Error) {
	if wire.IsNull(raw) {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil || strings.TrimSpace(s) == "" || len(s) > most {
		return "", fault.Newf(fault.Invalid, wire.CodeInvalidNamespace,
			"namespace must be a text that is not blank, at most %d bytes", most)
	}
	return s, nil
}

func failed(err *fault.Error) fn.Outcome { return fn.Outcome{Err: err} }

func orEmpty(payload []byte) []byte {
	if wire.IsNull(payload) {
		return []byte("{}")
	}
	return payload
}
