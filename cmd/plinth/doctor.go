package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/budget"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// The states of a check, from good to bad. A note is worth knowing and nothing to worry about.
const (
	stateOK   = "ok"
	stateNote = "note"
	stateWarn = "warn"
	stateFail = "fail"
)

// check is one thing that the doctor looked at.
type check struct {
	Name  string `json:"name"`
	State string `json:"state"` // ok, note, warn, fail
	What  string `json:"what"`
	Do    string `json:"do"` // what puts it right; "" when nothing is wrong
}

// diagnosis is what `plinth doctor --json` prints.
type diagnosis struct {
	State  string  `json:"state"` // the worst of all: ok, warn or fail
	Checks []check `json:"checks"`
}

// newDoctor makes `plinth doctor`.
func newDoctor(p *program) *cobra.Command {
	cmd := withSettings(&cobra.Command{
		Use: "doctor", Short: "Check whether Plinth can run well here", GroupID: groupLook,
		Long: "Checks the configuration, ports, data folder, disk, clock, limits and memory of this machine, and a server that runs\n" +
			"here. It changes nothing. Exit code 0: all is well, 8: there are warnings, 1: something will not work.",
		Example: "  plinth doctor\n  plinth doctor --data /var/lib/plinth --json",
		Args:    args(0, 0, "no arguments"),
	}, func(cmd *cobra.Command, _ []string, s *settings) error {
		d := &doctor{p: p, settings: s}
		return p.printDiagnosis(d.examine(cmd.Context()))
	})
	return p.prints(cmd, formObject, diagnosis{Checks: []check{}})
}

func (p *program) printDiagnosis(d diagnosis) error {
	if p.wantLines() {
		if err := printRows(p, d.Checks); err != nil {
			return err
		}
	} else if p.wantJSON() {
		if err := p.printJSON(d); err != nil {
			return err
		}
	} else {
		t := p.table("check", "state", "what")
		t.Width = 0
		paint := p.outPaint()
		colours := map[string]func(string) string{stateOK: paint.Good, stateWarn: paint.Warn, stateFail: paint.Bad}
		for _, c := range d.Checks {
			t.Row(c.Name, c.State, c.What)
			t.Mark(1, colours[c.State])
			if c.Do != "" {
				t.Row("", "", "-> "+c.Do)
			}
		}
		if _, err := t.WriteTo(p.out); err != nil {
			return wrote(err)
		}
	}
	return verdict(d)
}

// verdict makes the exit code of what was found.
func verdict(d diagnosis) error {
	count := map[string]int{}
	for _, c := range d.Checks {
		count[c.State]++
	}
	what := fmt.Sprintf("%d failed, %d warned, of %d checks", count[stateFail], count[stateWarn], len(d.Checks))
	switch d.State {
	case stateFail:
		return &house.Problem{Code: codeChecks, What: what, Do: "see what stands beside each arrow"}
	case stateWarn:
		return &house.Problem{Code: codePartly, What: what, Do: "see what stands beside each arrow"}
	}
	return nil
}

// doctor collects checks.
type doctor struct {
	p        *program
	settings *settings
	config   *house.Config
	running  bool // a Plinth answers on the worker socket
	checks   []check
}

func (d *doctor) add(name, state, what, do string) {
	d.checks = append(d.checks, check{name, state, what, do})
}

// examine runs all checks, in the order of the table.
func (d *doctor) examine(ctx context.Context) diagnosis {
	d.version()
	if d.configuration() {
		d.server(ctx)
		d.port(ctx, app.KeyEngineListen)
		d.port(ctx, house.KeyAdminListen)
		d.folder()
		d.memory()
	}
	d.clock()
	d.openFiles()
	d.memoryMaps()
	worst := stateOK
	for _, c := range d.checks {
		if c.State == stateFail || c.State == stateWarn && worst == stateOK {
			worst = c.State
		}
	}
	return diagnosis{worst, d.checks}
}

func (d *doctor) version() {
	b := readBuild(debug.ReadBuildInfo)
	d.add("version", stateOK, fmt.Sprintf("plinth %s, %s, %s/%s", b.Version, b.Go, b.OS, b.Arch), "")
}

// configuration checks all sources. Without them the other checks would look in the wrong places.
func (d *doctor) configuration() bool {
	c, err := d.settings.load(d.p)
	if err != nil {
		for _, p := range house.Problems(err) {
			d.add("config", stateFail, p.Error(), p.Do)
		}
		if len(house.Problems(err)) == 0 {
			d.add("config", stateFail, err.Error(), "")
		}
		return false
	}
	d.config = c
	what := c.File()
	if what == "" {
		what = "no " + house.FileName + ": defaults, environment and flags"
	}
	d.add("config", stateOK, what, "")
	return true
}

// server looks whether a Plinth runs on the configured socket, and of which version.
func (d *doctor) server(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	d.p.url = "ws://" + d.config.Text(app.KeyEngineListen)
	if env := d.p.getenv("PLINTH_URL"); env != "" {
		d.p.url = env
	}
	d.p.data = d.config.Text(house.KeyFolder)
	c, err := d.p.connect(ctx, time.Second)
	if r := (*worker.RefusedError)(nil); errors.As(err, &r) {
		d.running = true
		d.add("server", stateWarn, "it runs at "+d.p.url+" and does not let this command in: "+r.Reason,
			"give a credential, such as PLINTH_TOKEN_FILE")
		return
	}
	if err != nil {
		d.add("server", stateNote, "none runs at "+d.p.url, "start it with: plinth serve")
		return
	}
	defer c.close()
	d.running = true
	var health struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}
	if err := c.ask(ctx, "engine::health::check", struct{}{}, &health); err != nil {
		d.add("server", stateWarn, "it runs at "+d.p.url+" but does not tell how it is: "+err.Error(),
			"look at its log")
		return
	}
	what := fmt.Sprintf("%s at %s, version %s", health.Status, d.p.url, health.Version)
	mine := readBuild(debug.ReadBuildInfo).Version
	switch {
	case health.Status != "healthy":
		d.add("server", stateWarn, what, "look at its log")
	case health.Version != mine:
		d.add("server", stateWarn, what+", and this command is "+mine, "use the command that belongs to the server")
	default:
		d.add("server", stateOK, what, "")
	}
}

// port looks whether the address of a door can be had, or is held by the Plinth that runs.
func (d *doctor) port(ctx context.Context, key string) {
	address := d.config.Text(key)
	setting, _ := d.config.Table().Find(key)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		_ = l.Close() // nothing was accepted
		d.add("port "+key, stateOK, address+" is free", "")
		return
	}
	for _, p := range house.Problems(house.ListenProblem(err, setting, address)) {
		if d.running && p.Code == house.CodePortInUse {
			d.add("port "+key, stateOK, address+" is in use while the server runs", "")
			return
		}
		d.add("port "+key, stateFail, p.Error(), p.Do)
	}
}

func (d *doctor) folder() {
	path := d.config.Text(house.KeyFolder)
	setting, _ := d.config.Table().Find(house.KeyFolder)
	f := house.LookAtFolder(path)
	if err := house.ProbeFolder(path, setting); err != nil {
		for _, p := range house.Problems(err) {
			d.add("data folder", stateFail, p.Error(), p.Do)
		}
	} else if !f.Persists {
		d.add("data folder", stateWarn, f.Path+" is "+f.Note, "choose a folder that is kept with --data")
	} else {
		d.add("data folder", stateOK, f.Path+", "+f.Note, "")
	}
	free, ok := freeSpace(f.Nearest())
	switch what := house.RoundSize(free) + " free"; {
	case !ok:
		d.add("disk", stateNote, "its free space cannot be told on this system", "")
	case free < 64<<20:
		d.add("disk", stateFail, what, "free some space, or choose another folder with --data")
	case free < 1<<30:
		d.add("disk", stateWarn, what, "free some space: a full disk stops writes")
	default:
		d.add("disk", stateOK, what, "")
	}
}

func (d *doctor) memory() {
	promise, from := d.config.Int(house.KeyMemory), "as "+house.KeyMemory+" says"
	if promise == 0 {
		promise, from = budget.Detect()
	}
	what := fmt.Sprintf("Plinth keeps to %s (%s)", house.RoundSize(promise), from)
	total, where, ok := machineMemory()
	if !ok {
		d.add("memory", stateOK, what, "")
		return
	}
	what += fmt.Sprintf(" of %s (%s)", house.RoundSize(total), where)
	switch {
	case promise > total:
		d.add("memory", stateFail, what, "promise less with --memory: the kernel would stop the process first")
	case promise > total/8*7:
		d.add("memory", stateWarn, what, "promise less with --memory, to leave room for what is not counted")
	default:
		d.add("memory", stateOK, what, "")
	}
}

// clock looks for a clock that was never set, and asks the kernel whether something keeps it right.
func (d *doctor) clock() {
	now := time.Now()
	what := now.Format(time.RFC3339)
	synced, known := clockSynced()
	switch {
	case now.Year() < 2025:
		d.add("clock", stateFail, what+" is in the past", "set the clock: certificates, schedules and traces need it")
	case known && !synced:
		d.add("clock", stateWarn, what+", and nothing keeps it right", "start a time service such as chrony or systemd-timesyncd")
	default:
		d.add("clock", stateOK, what, "")
	}
}

// openFiles compares the limit of descriptors with the connections that the engine may take.
func (d *doctor) openFiles() {
	limit, ok := descriptorLimit()
	if !ok {
		d.add("open files", stateNote, "no limit is known on this system", "")
		return
	}
	want := uint64(20_000)
	if d.config != nil {
		want = uint64(d.config.Int("engine.limits.max_connections"))
	}
	const rest = 256 // files, timers, the admin door
	if limit < want+rest {
		d.add("open files", stateWarn, fmt.Sprintf("%d at most, for up to %d connections", limit, want),
			fmt.Sprintf("raise it with: ulimit -n %d (or LimitNOFILE= of the service)", want+rest))
		return
	}
	d.add("open files", stateOK, fmt.Sprintf("%d at most", limit), "")
}

func (d *doctor) memoryMaps() {
	const usual = 65_530
	n, ok := maxMaps()
	switch {
	case !ok:
		// Only Linux counts them.
	case n < usual:
		d.add("memory maps", stateWarn, fmt.Sprintf("%d at most", n), fmt.Sprintf("raise it with: sysctl -w vm.max_map_count=%d", usual))
	default:
		d.add("memory maps", stateOK, fmt.Sprintf("%d at most", n), "")
	}
}

// firstNumber reads the number at the beginning of a line of text.
func firstNumber(text string) (n int64, ok bool) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return 0, false
	}
	_, err := fmt.Sscan(fields[0], &n)
	return n, err == nil
}
