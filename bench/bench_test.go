package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"understudy/pkg/envoyconf"
)

func TestQuantilesAreThoseOfWhatWasAddedToHalfAPercent(t *testing.T) {
	h := hist{}
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Microsecond)
	}
	other := hist{}
	other.merge(h)
	for _, q := range []float64{0.01, 0.5, 0.99, 1} {
		got, want := other.quantile(q), time.Duration(q*1000)*time.Microsecond
		if off := math.Abs(float64(got)/float64(want) - 1); off > 0.006 {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := (hist{}).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}

func TestAScriptIsFoundHoweverAGatewayWritesTheBody(t *testing.T) {
	want := script{Events: 20, Interval: 5 * time.Millisecond, Fail: 10}
	_, body, ok := strings.Cut(string(request("h", nil, want, 50_000)), "\r\n\r\n")
	if !ok {
		t.Fatal("a request without an end of its headers")
	}
	bodies := map[string]string{
		"as it was sent":           body,
		"with the messages before": `{"messages": [{"role": "user", "content": "` + body[strings.Index(body, "bench events"):],
	}
	for name, body := range bodies {
		got, ok, err := readScript(strings.NewReader(body), make([]byte, 64<<10))
		if got != want || !ok || err != nil {
			t.Errorf("readScript(%s) = %+v, %t, %v; want %+v", name, got, ok, err, want)
		}
	}
	if _, ok, _ := readScript(strings.NewReader(`{"messages":[]}`), make([]byte, 64<<10)); ok {
		t.Error("readScript of a body without a script = ok, want not")
	}
}

// serving is a provider on a free port.
func serving(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = (&provider{primary: true}).serve(ln) // ends with the listener
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func TestALoadCountsWhatTheProviderAnswers(t *testing.T) {
	addr := serving(t)
	for name, row := range map[string]struct {
		script   script
		hangUp   bool
		failed   int64
		contents int64 // a call
	}{
		"whole answers":             {},
		"streams":                   {script: script{Events: 7}, contents: 7},
		"streams that are left":     {script: script{Events: 1000, Interval: time.Millisecond}, hangUp: true, contents: 1},
		"half of the answers fail":  {script: script{Fail: 50}, failed: 10},
		"every one of them is late": {script: script{Events: 3, Interval: time.Millisecond}, contents: 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := load{addr: addr, request: request(addr, nil, row.script, 100), clients: 2, events: row.script.Events, atLeast: 20, hangUp: row.hangUp}
			got := l.run(t.Context())
			if got.Errors != row.failed || got.Exchanges != 20-row.failed {
				t.Errorf("exchanges, errors = %d, %d (%s), want %d, %d", got.Exchanges, got.Errors, got.Error, 20-row.failed, row.failed)
			}
			if n := got.Delay.count(); n != 20*row.contents {
				t.Errorf("content events = %d, want %d", n, 20*row.contents)
			}
		})
	}
}

func TestAStreamThatEndsEarlyIsAnError(t *testing.T) {
	addr := serving(t)
	l := load{addr: addr, request: request(addr, nil, script{Events: 5}, 100), clients: 1, events: 6, atLeast: 1}
	if got := l.run(t.Context()); got.Errors != 1 || !strings.Contains(got.Error, "5 events of 6") {
		t.Errorf("errors = %d (%s), want one that tells of 5 events of 6", got.Errors, got.Error)
	}
}

// windows of a soak, in which a figure is what f says.
func windows(figure string, f func(n int) float64) (all []window) {
	for n := range 40 {
		w := window{Number: n + 1, Seconds: float64(5 * n), Figures: map[string]float64{}}
		for name := range bounds {
			w.Figures[name] = 100
		}
		w.Figures[figure] = f(n)
		all = append(all, w)
	}
	return all
}

func TestASoakFailsOnGrowthAndOnNothingElse(t *testing.T) {
	saw := func(n int) float64 { return 100 + float64(n%5) }
	steps := func(n int) float64 { return 100 + 60*float64(min(n, 15))/15 } // it fills what it keeps, and no more
	for name := range bounds {
		leak := func(n int) float64 { return 100 + 60*float64(n) }
		if err := judge(windows(name, leak), io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("judge(a growing %s) = %v, want an error about it", name, err)
		}
		for _, fine := range []func(int) float64{saw, steps} {
			if err := judge(windows(name, fine), io.Discard); err != nil {
				t.Errorf("judge(a flat %s) = %v, want none", name, err)
			}
		}
	}
}

func TestASoakForgivesOnlyStreamsThatAKillHasCut(t *testing.T) {
	for name, row := range map[string]struct {
		load   string
		killed bool
		fails  bool
	}{
		"a stream on a killed replica":      {"stream", true, false},
		"a stream in quiet":                 {"stream", false, true},
		"a whole answer, whatever happened": {"json", true, true},
	} {
		all := windows("service_files", func(int) float64 { return 100 })
		all[3].Failed, all[3].Killed = map[string]int64{row.load: 1}, row.killed
		if err := judge(all, io.Discard); (err != nil) != row.fails {
			t.Errorf("judge(%s) = %v, want failing: %t", name, err, row.fails)
		}
	}
}

func TestWhatIsComparedIsOfOneRound(t *testing.T) {
	at := func(variant string, round int, cpu time.Duration) sample {
		s := sample{Workload: "json-small", Variant: variant, Round: round, CPU: map[string]time.Duration{"service": cpu}, tally: *newTally()}
		s.Exchanges = 1000
		return s
	}
	r := results{samples: []sample{
		at("floor", 1, time.Second), at("floor", 2, 4*time.Second), // something else ran in the second round
		at("understudy", 2, 6*time.Second), at("understudy", 1, 3*time.Second),
	}}
	got := r.against("json-small", cpu("service"), "understudy", "floor", ratio)
	if want := []float64{1.5, 3}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
}

func TestTheSizingTextHasARowForEveryRateAndCase(t *testing.T) {
	var s sizing
	s.Fleet = []fleetCase{{Case: "it opens", Replicas: 10, Messages: 3}}
	for _, k := range kinds {
		some := sample{Workload: k.workload, Variant: "understudy", CPU: map[string]time.Duration{"service": time.Second, "envoy": time.Second}, tally: *newTally()}
		some.Exchanges = 1000 // a millisecond each
		s.samples = append(s.samples, some)
	}
	rows := s.Sizes()
	if len(rows) != 3*len(kinds) {
		t.Fatalf("rows = %d, want %d", len(rows), 3*len(kinds))
	}
	if r := rows[1]; r.Rate != 10_000 || r.ServiceCores != "10.0" || r.Replicas != 9 { // 10 cores / 0.6 / 2
		t.Errorf("row = %+v, want 10 cores on 9 replicas for 10,000 a second", r)
	}
}

func TestUnknownNamesAreToldBeforeAnythingStarts(t *testing.T) {
	for _, args := range [][]string{{"run", "-workloads", "none"}, {"dance"}, {"report", "-raw", "/nowhere"}} {
		var out bytes.Buffer
		if err := run(context.Background(), args, &out, io.Discard); err == nil || out.Len() > 0 {
			t.Errorf("run(%v) = %v with %q, want an error alone", args, err, out.String())
		}
	}
}

func TestOnlyFrontAndHopSpeakHTTP2(t *testing.T) {
	s := &stack{dir: t.TempDir(), listen: "127.0.0.1:2", more: []string{"127.0.0.1:4", "127.0.0.1:6", "127.0.0.1:8"}}
	_, cfg, err := s.config(&world{primary: "127.0.0.1:10", backup: "127.0.0.1:12"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := envoyconf.Bootstrap(cfg, envoyconf.Internal)
	if err != nil {
		t.Fatal(err)
	}
	before, err := envoyconf.YAML(m)
	if err != nil {
		t.Fatal(err)
	}
	is, was := protocols(t, overHTTP2(before)), protocols(t, before)
	if is["hop"] != "http2_protocol_options" {
		t.Errorf("the hop's protocol = %q, want http2_protocol_options", is["hop"])
	}
	if is["hop"] = was["hop"]; !maps.Equal(is, was) {
		t.Errorf("protocols of the others = %v, want as before: %v", is, was)
	}
}

// protocols are those that clusters name, by cluster.
func protocols(t *testing.T, bootstrap []byte) map[string]string {
	t.Helper()
	var b struct {
		StaticResources struct {
			Clusters []struct {
				Name    string
				Options map[string]struct {
					Explicit map[string]any `yaml:"explicit_http_config"`
				} `yaml:"typed_extension_protocol_options"`
			}
		} `yaml:"static_resources"`
	}
	if err := yaml.Unmarshal(bootstrap, &b); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range b.StaticResources.Clusters {
		for _, o := range c.Options {
			for protocol := range o.Explicit {
				all[c.Name] = protocol
			}
		}
	}
	return all
}
