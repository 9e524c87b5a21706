package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
)

func caseNames(cases []Case) (names []string) {
	for _, c := range cases {
		names = append(names, c.Name)
	}
	return names
}

func TestScenariosCompareWhatTheySay(t *testing.T) {
	for scenario, want := range map[string][]string{
		EngineReplicas: {"4 hosts"},
		EngineKeys:     {caseOpen, caseOpen + control, caseKeys},
		EngineChannels: {caseCopy, caseChannel},
		EngineLogins:   {caseQuiet, caseQuiet + control, caseLogins},
	} {
		cases := plan(t, Options{Scenarios: []string{scenario}})
		if got := caseNames(cases); !slices.Equal(got, want) {
			t.Errorf("%s has the cases %q, want %q", scenario, got, want)
		}
		for i := range cases {
			if len(cases[i].Job.Steps) != 1 {
				t.Errorf("%s, %s has %d steps", scenario, cases[i].Name, len(cases[i].Job.Steps))
			}
		}
	}
	replicas := plan(t, Options{Scenarios: []string{EngineReplicas}})[0].Job
	if replicas.Hosts != 4 || replicas.Steps[0].Calls != 100_000 || replicas.Dialect != DialectReplicas {
		t.Errorf("replicas: %+v", replicas)
	}
	for quick, want := range map[bool]int64{true: 256 << 20, false: 1 << 30} {
		o := Options{Scenarios: []string{EngineChannels}, Quick: quick}
		for _, c := range plan(t, o) {
			if c.Job.Steps[0].Bytes != want {
				t.Errorf("quick %v: %s sends %d bytes, want %d", quick, c.Name, c.Job.Steps[0].Bytes, want)
			}
		}
	}
}

func TestACaseOfAScenarioChangesNoOther(t *testing.T) {
	engine := Program{Name: "x", Path: "x", Env: []string{"A=b"}}
	cases := plan(t, Options{Scenarios: []string{EngineKeys}, Engine: engine})
	if open, keyed := cases[0].Program.Env, cases[2].Program.Env; len(open) != 1 || len(keyed) != 3 {
		t.Errorf("environments %q and %q", open, keyed)
	}
}

func TestScenariosThatMakeAccountsNeedAnEngineOfTheirOwn(t *testing.T) {
	for _, scenario := range []string{EngineKeys, EngineLogins} {
		o, err := (Options{Scenarios: []string{scenario}, Engine: Program{Target: "ws://localhost:1"}}).filled()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.cases(); err == nil || !strings.Contains(err.Error(), scenario) {
			t.Errorf("%s on a running engine: %v", scenario, err)
		}
	}
}

func TestDeviationIsThatOfTheWorstHost(t *testing.T) {
	for _, c := range []struct {
		shares []int64
		want   float64
	}{
		{[]int64{25, 25, 25, 25}, 0}, {[]int64{30, 25, 25, 20}, 20}, {[]int64{100, 0, 0, 0}, 300},
		{[]int64{0, 0}, 0}, {nil, 0},
	} {
		if got := deviation(c.shares); got != c.want {
			t.Errorf("%v: %v %%, want %v", c.shares, got, c.want)
		}
	}
}

// scene is a report of one scenario: the values of a figure in each round, by case.
func scene(scenario string, of func(v float64) load.Result, cases map[string][]float64) *Report {
	r := &Report{Rounds: 3}
	for _, name := range []string{caseOpen, caseKeys, caseCopy, caseChannel, caseQuiet, caseLogins, "4 hosts"} {
		values, ok := cases[name]
		if !ok {
			continue
		}
		c := CaseReport{Scenario: scenario, Name: name, Steps: []StepReport{{Name: "a"}}}
		for round, v := range values {
			c.Steps[0].Trials = append(c.Steps[0].Trials, Trial{Round: round, Result: of(v)})
		}
		r.Cases = append(r.Cases, c)
	}
	r.finish(context.Background())
	return r
}

func TestScenariosAreHeldAgainstWhatTheyAskFor(t *testing.T) {
	cost := func(v float64) load.Result {
		return load.Result{Seconds: 1, Calls: 100, Server: time.Duration(v * float64(time.Millisecond))}
	}
	late := func(v float64) load.Result {
		return load.Result{Seconds: 1, Calls: 100, P99: time.Duration(v * float64(time.Millisecond))}
	}
	moved := func(v float64) load.Result { return load.Result{Seconds: 1, Bytes: int64(v * (1 << 20))} }
	uneven := func(v float64) load.Result {
		return load.Result{Seconds: 1, Calls: 200, Shares: []int64{100 + int64(v), 100 - int64(v)}}
	}
	for name, c := range map[string]struct {
		report *Report
		value  float64
		met    bool
	}{
		"median of pairs": {scene(EngineKeys, cost, map[string][]float64{
			caseOpen: {100, 200, 100}, caseKeys: {105, 218, 150}}), 1.09, true},
		"too dear": {scene(EngineKeys, cost, map[string][]float64{
			caseOpen: {100, 100, 100}, caseKeys: {111, 112, 90}}), 1.11, false},
		"fast enough": {scene(EngineChannels, moved, map[string][]float64{
			caseCopy: {1000}, caseChannel: {500}}), 0.5, true},
		"too slow": {scene(EngineChannels, moved, map[string][]float64{
			caseCopy: {1000}, caseChannel: {499}}), 0.499, false},
		"undisturbed": {scene(EngineLogins, late, map[string][]float64{caseQuiet: {10}, caseLogins: {12}}), 1.2, true},
		"disturbed":   {scene(EngineLogins, late, map[string][]float64{caseQuiet: {10}, caseLogins: {13}}), 1.3, false},
		"worst round": {scene(EngineReplicas, uneven, map[string][]float64{"4 hosts": {0, 6, 1}}), 6, false},
		"even":        {scene(EngineReplicas, uneven, map[string][]float64{"4 hosts": {0, 5, 1}}), 5, true},
	} {
		if len(c.report.Asked) != 1 {
			t.Errorf("%s: %d verdicts, want one", name, len(c.report.Asked))
			continue
		}
		a := c.report.Asked[0]
		if d := a.Value - c.value; a.Met != c.met || d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: %v, met %v; want %v, %v", name, a.Value, a.Met, c.value, c.met)
		}
		var b bytes.Buffer
		if err := c.report.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "NOT MET") == c.met || !strings.Contains(b.String(), "what is asked for") {
			t.Errorf("%s: the table says\n%s", name, b.String())
		}
	}
	half := scene(EngineKeys, cost, map[string][]float64{caseKeys: {105}})
	if len(half.Asked) != 0 {
		t.Errorf("a verdict without a comparison: %+v", half.Asked)
	}
}

func TestBytesThatPassABareCopyAreMeasured(t *testing.T) {
	c := Case{Scenario: EngineChannels, Name: caseCopy, Program: Program{Name: caseCopy, Path: os.Args[0],
		Args: []string{roleCopy}}}
	c.Job.Dialect, c.Job.Steps = DialectCopy, []load.Step{{Name: "a", Bytes: 3<<20 + 1}, {Name: "b", Bytes: 1}}
	r, err := RunCases(t.Context(), []Case{c}, session(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{3<<20 + 1, 1} {
		s := r.Cases[0].Steps[i]
		if len(s.Trials) != 2 || s.Trials[1].Bytes != want {
			t.Fatalf("step %s: %+v; %+v", s.Name, s.Trials, r.Cases[0].Failures)
		}
		if f, ok := s.Figure(Throughput); !ok || f.Median <= 0 {
			t.Errorf("step %s: %+v", s.Name, f)
		}
	}
}

func TestAChannelNeedsAnEngineThatHasThem(t *testing.T) {
	p, _ := program(t, roleRelay)
	c := Case{Scenario: EngineChannels, Name: caseChannel, Program: p}
	c.Job = load.Job{Dialect: DialectChannel, Steps: []load.Step{{Name: "a", Bytes: 1}}}
	r, err := RunCases(t.Context(), []Case{c}, session(1), nil)
	if f := r.Cases[0].Failures; err != nil || len(f) != 1 || !strings.Contains(f[0].Error, "create a channel") {
		t.Fatalf("%v, %+v", err, f)
	}
}

func TestTheShareOfEachHostIsCounted(t *testing.T) {
	p, _ := program(t, roleRelay) // which deals nothing: the last host to register has all calls
	c := Case{Scenario: EngineReplicas, Name: "4 hosts", Program: p}
	c.Job = load.Job{Dialect: DialectReplicas, Callers: 2, Hosts: 4, Payload: 64}
	c.Job.Steps = []load.Step{{Name: "8", InFlight: 8, Calls: 500, Measure: time.Minute}}
	r, err := RunCases(t.Context(), []Case{c}, session(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases[0].Steps[0].Trials) != 1 {
		t.Fatalf("%+v", r.Cases[0].Failures)
	}
	trial := r.Cases[0].Steps[0].Trials[0]
	slices.Sort(trial.Shares)
	if trial.Calls < 500 || trial.Seconds > 30 || trial.Shares[3] < 500 || trial.Shares[0]+trial.Shares[2] != 0 {
		t.Errorf("%d calls in %v s, shares %v", trial.Calls, trial.Seconds, trial.Shares)
	}
	if len(r.Asked) != 1 || r.Asked[0].Met || r.Asked[0].Value != 300 {
		t.Errorf("%+v", r.Asked)
	}
}

// guarded is a case on a server with an admin door.
func guarded(t *testing.T, setup Setup) Case {
	t.Helper()
	p, _ := program(t, roleDoor)
	c := small("a", p, 1)
	c.Setup = setup
	return c
}

func TestASetupGivesTheLoadItsTargetAndRunsBesideIt(t *testing.T) {
	c := guarded(t, func(ctx context.Context, at Site, job *load.Job) (Beside, error) {
		d, err := newDoor(ctx, at)
		if err != nil {
			return nil, err
		}
		key, err := d.key(ctx, "a", "engine:*")
		if err != nil {
			return nil, err
		}
		job.Target, job.CallAt = withKey(at.Workers, key), at.Workers
		return func(ctx context.Context) []string {
			v := d.visit(ctx, time.Millisecond)
			if v.done == 0 || v.refused != 0 || v.slowest == 0 {
				return []string{fmt.Sprintf("wrong: %+v", v)}
			}
			return []string{"they came"}
		}, nil
	})
	r, err := RunCases(t.Context(), []Case{c}, session(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Cases[0]
	if len(got.Failures) != 0 || len(got.Steps[0].Trials) != 2 {
		t.Fatalf("%+v", got.Failures)
	}
	if want := []string{"round 1: they came", "round 2: they came"}; !slices.Equal(got.Notes, want) {
		t.Errorf("notes %q, want %q", got.Notes, want)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "wk_key") {
		t.Error("the report has the key")
	}
}

func TestASetupThatFailsFailsItsRound(t *testing.T) {
	c := guarded(t, func(context.Context, Site, *load.Job) (Beside, error) {
		return nil, fmt.Errorf("no luck")
	})
	r, err := RunCases(t.Context(), []Case{c}, session(1), nil)
	if f := r.Cases[0].Failures; err != nil || len(f) != 1 || !strings.Contains(f[0].Error, "no luck") {
		t.Fatalf("%v, %+v", err, f)
	}
	p, _ := program(t, roleRelay) // no admin door
	c = plan(t, Options{Scenarios: []string{EngineLogins}, Engine: p})[0]
	r, err = RunCases(t.Context(), []Case{c}, session(1), nil)
	if f := r.Cases[0].Failures; err != nil || len(f) != 1 || !strings.Contains(f[0].Error, "admin door") {
		t.Fatalf("%v, %+v", err, f)
	}
}

func TestARefusalOfTheAdminDoorIsTold(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/keys" {
			fmt.Fprint(w, "no document")
			return
		}
		http.Error(w, `{"code":"ALREADY_CLAIMED"}`, http.StatusConflict)
	}))
	defer s.Close()
	at := Site{Admin: s.Listener.Addr().String(), Folder: t.TempDir()}
	if _, err := newDoor(t.Context(), at); err == nil || !strings.Contains(err.Error(), "local token") {
		t.Errorf("without a token: %v", err)
	}
	if err := os.Mkdir(filepath.Join(at.Folder, "auth"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at.Folder, "auth", "local.token"), []byte("pl_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newDoor(t.Context(), at); err == nil || !strings.Contains(err.Error(), "ALREADY_CLAIMED") {
		t.Errorf("a refusal: %v", err)
	}
	d := &door{base: s.URL}
	if _, err := d.key(t.Context(), "a", "b"); err == nil {
		t.Error("an answer that is no document gives a key")
	}
}

// slow answers a login after a while, in a bubble.
type slow struct{ takes time.Duration }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
}

func TestLoginsComeAtTheirRateAndNeverInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration][2]int{
			10 * time.Millisecond: {166, 0},  // all of them
			5 * time.Second:       {32, 102}, // what finds no room is counted
		} {
			d := &door{base: "http://door", client: http.Client{Transport: slow{takes}}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
			v := d.visit(ctx, time.Minute/loginsAMinute)
			cancel()
			if v.done < want[0]-2 || v.done > want[0]+2 || v.refused < want[1]-2 || v.refused > want[1]+2 {
				t.Errorf("logins that take %v: %d done, %d refused; want %v", takes, v.done, v.refused, want)
			}
		}
	})
}
