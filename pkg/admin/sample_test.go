package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sample is a status in which everything is said, of a config of that size.
func sample(targets, chains int) Status {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) *time.Time { t := at.Add(d); return &t }
	s := Status{
		At: at, Replica: "replica-1", Store: "down", Window: 300, Faults: []string{"overloaded", "reset"},
		Config: Config{File: "understudy.yaml", Hash: strings.Repeat("0123456789abcdef", 4), Loaded: at, Error: "understudy.yaml:3: chains: no", Tried: in(-time.Minute)},
		Envoy: Envoy{Oldest: "1.36.4", Newest: "1.40.0", Config: "feed", Refused: &Refusal{"envoy-1", "1.35.0", "cds", "no such field"}, Connected: &[]Peer{
			{Node: "envoy-1", Version: "1.35.0", Hop: "internal", Accepted: map[string]string{"cds": "12"}, Refused: map[string]string{"rds": "route: unknown cluster"}, Refusing: true},
			{Node: "envoy-2", Version: "1.40.0", Supported: true, Hop: "tcp", Accepted: map[string]string{}, Refused: map[string]string{}},
		}},
		Drills:    []Drill{{ID: "DRILL1", Chain: "chain-0", Faults: map[string]string{"*": "reset"}, Share: 0.05, MaxErrors: 0.1, Until: at.Add(time.Minute)}},
		Providers: []Provider{{Name: "anthropic", Ready: true, Feed: "partial outage", Incident: "Elevated errors", Heard: in(-time.Minute)}, {Name: "bedrock"}},
	}
	states := []string{"closed", "half-open", "open"}
	for i := range targets {
		t := Target{Name: fmt.Sprintf("provider-%d/model-with-a-usual-name-%d", i%7, i), Provider: "anthropic", Model: "claude-sonnet-5", Chains: []string{"chain-0"},
			State: states[i%3], Share: 0.25, Until: in(4 * time.Second), Cooling: in(90 * time.Second), Why: "overloaded"}
		if i == 0 {
			t.Forced = "open"
		}
		for j := range 8 {
			t.Verdicts = append(t.Verdicts, Verdict{At: at.Add(time.Duration(-i-j) * time.Second), Class: "server_error", Detail: fmt.Sprintf("api_error_%d", i*j)})
		}
		s.Targets = append(s.Targets, t)
	}
	for i := range chains {
		c := Chain{Name: fmt.Sprintf("chain-%d", i), API: "anthropic", Off: "operator", Observe: true, Drill: "DRILL1", Degrade: []string{"cache", "off"}, PerSecond: 12.5,
			Outcomes: Outcomes{100, 20, 3, 2, 1}, Budget: &Budget{USD: 100, Remaining: 12.34, State: "soft", Per: "24h0m0s", Tenant: true, Reopens: in(time.Hour)},
			SpentUSD: 87.66, Queue: &Queue{3, 1, 75}}
		for j := range 8 {
			c.Rungs = append(c.Rungs, Rung{Targets: []string{s.Targets[(i*8+j)%targets].Name}, Downshift: j == 7, Served: i + j, Share: 0.125})
		}
		s.Chains = append(s.Chains, c)
	}
	for i := range 50 {
		s.Failovers = append(s.Failovers, Failover{At: at, Chain: "chain-0", Exchange: fmt.Sprintf("8f14e45f-%04d-4c1d-9d2a-1b2c3d4e5f60", i*7919), From: s.Targets[0].Name, To: s.Targets[1].Name,
			Outcome: "fallback", Mode: "downshift", Why: "overloaded", Attempts: 2, Lost: int64(i), Took: 1234, Drill: "DRILL1"})
		s.Transitions = append(s.Transitions, Transition{At: at, Target: s.Targets[0].Name, From: "closed", To: "open", Why: "overloaded", By: "this replica"})
	}
	return s
}

// served is a listener with what s shows, and what its changes were asked for.
type served struct {
	http.Handler
	status atomic.Pointer[Status]
	asked  []string
}

// now makes s what there is to see.
func (s *served) now(status Status) { s.status.Store(&status) }

func serve(s Status, edit func(*Options)) *served {
	out := &served{}
	out.now(s)
	ask := func(what ...any) error {
		out.asked = append(out.asked, strings.TrimSpace(fmt.Sprintln(what...)))
		return nil
	}
	o := Options{
		Metrics: prometheus.NewRegistry(), Ready: func() error { return nil }, Local: true, Token: func() string { return "" },
		Status: func() Status { return *out.status.Load() },
		Job:    func(context.Context, string) (int, []byte) { return 200, []byte("{}") },
		Switch: func(_ context.Context, chain string, off bool) error { return ask("switch", chain, off) },
		Force:  func(_ context.Context, target, how string) error { return ask("force", target, how) },
		Drills: drillsFunc(ask),
	}
	if edit != nil {
		edit(&o)
	}
	out.Handler = Handler(o)
	return out
}

// drillsFunc is Drills that only hear what they are asked for.
type drillsFunc func(what ...any) error

func (f drillsFunc) Begin(_ context.Context, plan []byte) ([]byte, error) {
	return []byte("{}"), f("begin", string(plan))
}

func (f drillsFunc) Token(_ context.Context, plan []byte) ([]byte, error) {
	return []byte("{}"), f("token", string(plan))
}

func (f drillsFunc) Stop(_ context.Context, id string) error { return f("stop", id) }

// get is the answer to a browser on this machine.
func (s *served) get(t testing.TB, path string) (*http.Response, string) {
	t.Helper()
	return s.do(t, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9003"+path, nil))
}

func (s *served) do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

// spoil puts a text behind every string in v that says something.
func spoil(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i), text)
		}
	case reflect.Map:
		spoiled := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			spoiled.SetMapIndex(reflect.ValueOf(k.String()+text), reflect.ValueOf(v.MapIndex(k).String()+text))
		}
		v.Set(spoiled)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type() != reflect.TypeFor[time.Time]() {
				spoil(v.Field(i), text)
			}
		}
	case reflect.String:
		if v.String() != "" {
			v.SetString(v.String() + text)
		}
	}
}
