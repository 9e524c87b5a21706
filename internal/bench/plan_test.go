package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/wire"
)

// plan returns the cases of options, the engine being this binary.
func plan(t *testing.T, o Options) []Case {
	t.Helper()
	o, err := o.filled()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := o.cases()
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func stepNames(c Case) string {
	var names []string
	for _, s := range c.Job.Steps {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

func TestTheZeroOptionsAreThePublicPages(t *testing.T) {
	cases := plan(t, Options{})
	if len(cases) != 2 {
		t.Fatalf("%d cases, want calls and memory", len(cases))
	}
	calls, memory := cases[0], cases[1]
	if stepNames(calls) != "1 8 32 128 512 2048" || calls.Job.Steps[0].Measure != 10*time.Second {
		t.Errorf("calls: %+v", calls.Job)
	}
	if j := calls.Job; j.Callers != 2 || j.Hosts != 2 || j.Payload != 64 || j.Dialect != DialectFrames {
		t.Errorf("calls: %+v", calls.Job)
	}
	if stepNames(memory) != "0 100 1000 5000 10000" || memory.Job.Callers != 0 {
		t.Errorf("memory: %+v", memory.Job)
	}
	self, _ := os.Executable()
	if calls.Program.Path != self || calls.Program.Args[0] != "serve" {
		t.Errorf("the engine is %+v, want this executable", calls.Program)
	}
}

func TestOptionsShapeTheJob(t *testing.T) {
	c := plan(t, Options{
		Scenarios: []string{"calls"}, Quick: true, InFlight: []int{7}, Payload: 1000, Connections: 65, Plain: true,
	})[0]
	want := load.Step{Name: "7", InFlight: 7, Warm: 500 * time.Millisecond, Measure: 2 * time.Second}
	if j := c.Job; j.Steps[0] != want || j.Callers != 32 || j.Hosts != 33 || !j.Plain || j.Payload != 1000 {
		t.Errorf("%+v", j)
	}
	c = plan(t, Options{Scenarios: []string{"calls"}, Rate: 1500, Step: time.Second})[0]
	if s := c.Job.Steps; len(s) != 1 || s[0].Rate != 1500 || s[0].Name != "1500/s" || s[0].InFlight != 0 {
		t.Errorf("%+v", s)
	}
	if c = plan(t, Options{SDK: true})[0]; c.Job.Dialect != DialectSDK {
		t.Errorf("the SDK is driven with %q", c.Job.Dialect)
	}
}

func TestAComparisonHasItsControlBesideIt(t *testing.T) {
	var names []string
	o := Options{Scenarios: []string{"calls"}, Against: []Program{{Name: "other", Path: "x"}}}
	for _, c := range plan(t, o) {
		names = append(names, c.Name)
	}
	if want := []string{"plinth", "plinth (control)", "other"}; !slices.Equal(names, want) {
		t.Errorf("cases %q, want %q", names, want)
	}
}

func TestProfilesGiveTheServerItsProcessorsAndItsCap(t *testing.T) {
	profiles, err := ParseProfiles("1x512, 2x1024")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Scenarios: []string{"calls"}, Profiles: profiles, ServerCPUs: []int{0}, LoadCPUs: []int{1}}
	cases := plan(t, o)
	for i, c := range []struct {
		name   string
		server []int
		load   []int
		notes  int
	}{{"1x512", []int{0}, []int{1}, 0}, {"2x1024", []int{0, 1}, []int{1}, 1}} {
		got := cases[i]
		right := slices.Equal(got.ServerCPUs, c.server) && slices.Equal(got.LoadCPUs, c.load)
		if got.Profile.String() != c.name || !right {
			t.Errorf("%s: %v on %v, load on %v", c.name, got.Profile, got.ServerCPUs, got.LoadCPUs)
		}
		if len(got.Notes) != c.notes {
			t.Errorf("%s: notes %q, want %d", c.name, got.Notes, c.notes)
		}
	}
	o.Profiles = []Profile{{CPUs: 9, Memory: 1 << 30}}
	if c := plan(t, o)[0]; !strings.Contains(strings.Join(c.Notes, "; "), "only 2 of 9") {
		t.Errorf("notes %q do not say that processors are missing", c.Notes)
	}
}

func TestSharedProcessorsAreRemarkedOn(t *testing.T) {
	c := plan(t, Options{Scenarios: []string{"calls"}, ServerCPUs: []int{0}, LoadCPUs: []int{0}})[0]
	if len(c.Notes) != 1 {
		t.Errorf("notes %q, want one", c.Notes)
	}
}

func TestProfilesReadAsTheyAreWritten(t *testing.T) {
	for _, list := range []string{"1x512", "2x1024,4x2048"} {
		profiles, err := ParseProfiles(list)
		if err != nil {
			t.Fatal(err)
		}
		var back []string
		for _, p := range profiles {
			back = append(back, p.String())
		}
		if got := strings.Join(back, ","); got != list {
			t.Errorf("%q came back as %q", list, got)
		}
	}
	if s := (Profile{}).String(); s != "" {
		t.Errorf("the machine as it is has the name %q", s)
	}
	for _, list := range []string{"", "1", "x512", "0x512", "1x8", "1x512x2", "1x-5", "1x512,", "1x9999999999"} {
		if p, err := ParseProfiles(list); err == nil {
			t.Errorf("%q reads as %v", list, p)
		}
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"scenario":    {Scenarios: []string{"lunch"}},
		"connections": {Connections: 1},
		"payload":     {Payload: 1},
		"in flight":   {InFlight: []int{0}},
		"rate":        {Rate: -1},
		"sdk rate":    {SDK: true, Rate: 5},
		"sdk plain":   {SDK: true, Plain: true},
	} {
		if _, err := Run(t.Context(), o, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRunMeasuresWhatTheOptionsAskFor(t *testing.T) {
	p, left := program(t, roleRelay)
	r, err := Run(t.Context(), Options{
		Scenarios: []string{"calls"}, Rounds: 1, Step: 40 * time.Millisecond, InFlight: []int{1, 3}, Engine: p,
		Load: []string{os.Args[0], roleLoad}, Command: []string{"plinth", "bench"}, Version: "v", Commit: "c",
	}, nil)
	if err != nil || r.Partial {
		t.Fatalf("%v, %+v", err, r)
	}
	if e := r.Environment; e.Version != "v" || e.Commit != "c" || e.Go == "" || r.Command[1] != "bench" {
		t.Errorf("environment %+v", e)
	}
	if c := r.Case("calls", roleRelay); c == nil || len(c.Steps) != 2 || c.ServerCPUs == "" {
		t.Errorf("case %+v", c)
	}
	gone(t, left)
}

func TestTheSDKDrivesARelay(t *testing.T) {
	p, left := program(t, roleRelay)
	r, err := Run(t.Context(), Options{
		Scenarios: []string{"calls"}, Rounds: 1, Step: 200 * time.Millisecond, InFlight: []int{16},
		Engine: p, SDK: true, Load: []string{os.Args[0], roleLoad},
	}, nil)
	if err != nil || r.Partial {
		t.Fatalf("%v, %+v", err, r)
	}
	if s := r.Cases[0].Steps[0]; s.Lost != 0 || len(s.Errors) != 0 {
		t.Errorf("lost %d, errors %v", s.Lost, s.Errors)
	}
	gone(t, left)
}

func TestOverloadOffersThreeTimesWhatTheHostsServe(t *testing.T) {
	job := load.Job{Callers: 2, Hosts: 2}
	Overload(&job, false)
	capacity := float64(job.Hosts) / job.Service.Seconds()
	for i, times := range []float64{0.5, 3, 0.5} {
		if got := job.Steps[i].Rate; got != times*capacity {
			t.Errorf("step %d offers %v, want %v times %v", i, got, times, capacity)
		}
	}
	if job.Steps[1].Measure != 30*time.Second || !job.Steps[1].Keep || job.Steps[0].Keep || job.Steps[2].Keep {
		t.Errorf("steps %+v", job.Steps)
	}
}

func TestAnOverloadIsJudgedByItsThreeSteps(t *testing.T) {
	job := load.Job{Callers: 2, Hosts: 2}
	Overload(&job, true)
	ms := time.Millisecond
	points := func(p99 ...time.Duration) (series []load.Point) {
		for i, d := range p99 {
			series = append(series, load.Point{At: time.Duration(i+1) * 250 * ms, Calls: 100, P99: d})
		}
		return series
	}
	trials := []Trial{
		{Result: load.Result{Seconds: 2, P99: 3 * ms, Series: points(3*ms, 4*ms)}},
		{Result: load.Result{
			Step: job.Steps[1], Seconds: 6, Calls: 48_000, P99: 900 * ms,
			Errors: map[string]int64{wire.CodeHostOverloaded: 90, wire.CodeUnknown: 2, "": 1, load.CodeDiffers: 4},
		}, RSSPeak: 7},
		{Result: load.Result{Lost: 1, Series: points(900*ms, 100*ms, 7*ms, 8*ms, 9*ms, 5*ms, 5*ms, 5*ms, 5*ms)}},
	}
	got, ok := judgeOverload(trials, &job)
	limit := time.Duration(wire.DefaultBounds().MaxInFlightPerWorker)
	want := OverloadResult{
		Offered: 24_000, Served: 8000, Refused: 90, Untyped: 7, Lost: 1, Normal: 3 * ms, P99: 900 * ms,
		Bound: limit*job.Service*5/4 + 3*ms, RSSPeak: 7, Back: 8 * ms, Recovery: 1250 * ms,
	}
	if !ok || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, ok := judgeOverload(trials[:2], &job); ok {
		t.Error("an overload that was cut short has a judgement")
	}
}

func TestRecoveryIsTheBeginOfTheFirstCalmSecond(t *testing.T) {
	series := func(pattern string) (points []load.Point) {
		for i, r := range pattern {
			p := load.Point{At: time.Duration(i+1) * 250 * time.Millisecond, Calls: 1, P99: 1}
			switch r {
			case 'x':
				p.P99 = 100
			case '0':
				p.Calls = 0
			case 'f':
				p.Failed = 1
			}
			points = append(points, p)
		}
		return points
	}
	for pattern, want := range map[string]time.Duration{
		"....":        0,
		"x....":       250 * time.Millisecond,
		"...x....":    time.Second,
		"xx.0.f.....": 1500 * time.Millisecond,
		"xxxx...":     -1,
		"":            -1,
	} {
		if got := recovery(series(pattern), 10); got != want {
			t.Errorf("%s: back after %v, want %v", pattern, got, want)
		}
	}
}

func TestBannersSayWhereTheWorkersConnect(t *testing.T) {
	for line, want := range map[string]string{
		`{"workers":"ws://127.0.0.1:5","admin":"http://127.0.0.1:6"}`: "127.0.0.1:5",
		`{"workers":"127.0.0.1:5"}`:                                   "127.0.0.1:5",
		`{"workers":"ws://[::1]:5/path"}`:                             "[::1]:5",
		`{"workers":""}`:                                              "",
		`{"workers":7}`:                                               "",
		`{}`:                                                          "",
		`workers`:                                                     "",
	} {
		got, ok := parseBanner([]byte(line))
		if ok != (want != "") || got.Workers != want {
			t.Errorf("%s: %q, %v; want %q", line, got, ok, want)
		}
		if admin := strings.Contains(line, "admin"); admin != (got.Admin == "127.0.0.1:6") {
			t.Errorf("%s: the admin door is at %q", line, got.Admin)
		}
	}
}

func TestTheTailOfStandardErrorIsKept(t *testing.T) {
	var b tail
	for i := range 10_000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	if q := b.quote(); !strings.HasSuffix(q, "line 9999") || len(q) > 3*tailSize {
		t.Errorf("%d bytes that end with %q", len(q), q[len(q)-20:])
	}
	if q := new(tail).quote(); q != "" {
		t.Errorf("nothing was said, and quoted as %q", q)
	}
}

func TestTheMachineIsRead(t *testing.T) {
	const info = "processor : 0\nmodel name\t: A CPU\nflags\t: fpu hypervisor\nmodel name : B\n"
	model, virtual := parseCPUInfo(info)
	if model != "A CPU" || !virtual {
		t.Errorf("%q, %v", model, virtual)
	}
	if model, virtual = parseCPUInfo("flags : fpu hypervisors"); model != "" || virtual {
		t.Errorf("%q, %v", model, virtual)
	}
	for text, want := range map[string]int64{"MemTotal:  2 kB\n": 2048, "": 0, "MemTotal: x kB": 0} {
		if got := parseMemInfo(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParseBanner(f *testing.F) {
	f.Add([]byte(`{"workers":"ws://127.0.0.1:5"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if told, ok := parseBanner(b); ok && !strings.Contains(told.Workers, ":") ||
			told.Admin != "" && !strings.Contains(told.Admin, ":") {
			t.Fatalf("%q gives the addresses %+v", b, told)
		}
		_, _ = parseCPUInfo(string(b))
		_ = parseMemInfo(string(b))
		if profiles, err := ParseProfiles(string(b)); err == nil {
			for _, p := range profiles {
				if p.CPUs < 1 || p.Memory < 16<<20 {
					t.Fatalf("%q gives %+v", b, p)
				}
			}
		}
	})
}
