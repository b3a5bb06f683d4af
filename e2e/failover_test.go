//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"
)

// failure is one way in which a target does not answer.
type failure struct {
	name     string
	provider string // where it happens
	script   string // of provider a
	class    string
}

var failures = []failure{
	{"529", "a", "529", "overloaded"},
	{"500", "a", "500", "server_error"},
	{"503", "a", "503", "overloaded"},
	{"an HTML 502 of a proxy", "a", "html502", "server_error"},
	{"a Cloudflare 520 without a body", "a", "cf520", "server_error"},
	{"its own 507", "a", "507", "server_error"},
	{"a connection refused", "dead", "", "transport"},
	{"no DNS", "nodns", "", "transport"},
	{"an empty cluster", "empty", "", "transport"},
	{"a reset before headers", "a", "reset", "transport"},
	{"a hang past its deadline", "a", "hang", "timeout"},
}

// clientKinds are the calls that every failover is shown with.
var clientKinds = []call{
	{path: messages, stream: true},
	{path: messages},
	{path: chats, stream: true},
	{path: chats},
	{path: responsed, stream: true},
	{path: responsed},
}

func (c call) kind() string {
	if c.stream {
		return c.path + " streamed"
	}
	return c.path
}

// failoverRow is one failure, at one slot, for one kind of call.
type failoverRow struct {
	failure
	call call
	slot int
	want served
}

// failoverRows makes the rows and their chains.
func failoverRows(kinds []call) (rows []failoverRow, chains []chain) {
	for _, f := range failures {
		for _, kind := range kinds {
			for slot := range 2 {
				rows = append(rows, f.row(&chains, kind, slot))
			}
		}
	}
	return rows, chains
}

func (f failure) row(chains *[]chain, kind call, slot int) failoverRow {
	on := []string{f.provider, "c"}
	if slot == 1 {
		on = []string{"b", f.provider, "c"}
	}
	c := chainFor(chains, apiOf(kind.path), on...)
	c.more.Deadlines = fileDeadlines{FirstContent: 3 * time.Second, Answer: 3 * time.Second}
	kind.chain = c.name
	kind.script = fmt.Sprintf("a=%s; b=529; c=ok", f.script)
	return failoverRow{f, kind, slot, served{by: "c", target: c.target("c"), rung: slot + 1, attempts: slot + 2, reason: f.class}}
}

func (r failoverRow) name() string {
	return fmt.Sprintf("%s at slot %d of %s", r.failure.name, r.slot, r.call.kind())
}

// run makes the call and checks that the next target has answered it.
func (r failoverRow) run(t *testing.T, s *Stack) {
	t.Parallel()
	a := s.sdk(within(t, time.Minute), t, r.call)
	r.want.check(t, r.call, a)
	s.calls(t, t.Name(), fmt.Sprintf("b:%d c:1", r.slot))
	if r.provider == "a" {
		s.calls(t, t.Name(), "a:1")
	}
}

func TestEachFailureIsAnsweredByTheNextTarget(t *testing.T) {
	t.Parallel()
	for _, p := range []plan{
		{envoy: envoyMain},
		{envoy: envoyMain, tls: true},
		{envoy: envoyMiddle},
		{envoy: envoyMiddle, tls: true},
		{envoy: envoyOldest},
		{envoy: envoyOldest, tls: true},
	} {
		name := "Envoy " + p.envoy
		kinds := []call{clientKinds[0], clientKinds[3], clientKinds[4]} // each dialect, streamed or not
		if p.envoy == envoyMain {
			kinds = clientKinds
		}
		if p.tls {
			name += " and HTTP 2 providers"
		}
		t.Run(name, func(t *testing.T) { failovers(t, p, kinds) })
	}
}

func failovers(t *testing.T, p plan, kinds []call) {
	rows, chains := failoverRows(kinds)
	p.chains = chains
	s := startStack(t, p)
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.name(), func(t *testing.T) { row.run(t, s) })
		}
	})
	if p.tls {
		for _, r := range s.providers["c"].Requests("") {
			if r.Proto != "HTTP/2.0" {
				t.Fatalf("a provider was called over %s, want HTTP/2.0", r.Proto)
			}
		}
	}
	s.survives(t)
}

func TestEachAttemptIsMadeForItsTarget(t *testing.T) {
	t.Parallel()
	chains := []chain{
		{name: "claude", api: "anthropic", on: []string{"a", "b", "c"}},
		{name: "gpt", api: "openai", on: []string{"a", "b", "c"}},
	}
	s := startStack(t, plan{chains: chains})
	for _, c := range []call{
		{path: messages, chain: "claude", script: "a=529; b=500"},
		{path: chats, chain: "gpt", script: "a=529; b=500"},
	} {
		t.Run(c.path, func(t *testing.T) {
			s.sdk(within(t, patience), t, c)
			keys := map[string]bool{}
			for _, name := range []string{"a", "b", "c"} {
				requests := s.providers[name].Requests(t.Name())
				if len(requests) != 1 {
					t.Fatalf("provider %s saw %d requests, want 1", name, len(requests))
				}
				r := requests[0]
				if r.Model != model(name) {
					t.Errorf("provider %s was asked for model %q, want %q", name, r.Model, model(name))
				}
				if want := credential(apiOf(c.path), name); r.Header.Get(want[0]) != want[1] {
					t.Errorf("provider %s was given %s %q, want %q", name, want[0], r.Header.Get(want[0]), want[1])
				}
				if "http://"+r.Host != s.endpoints[name] {
					t.Errorf("provider %s was called as host %q, want that of %s", name, r.Host, s.endpoints[name])
				}
				keys[r.Header.Get("idempotency-key")] = true
			}
			if len(keys) != 1 || keys[""] {
				t.Errorf("idempotency keys = %v, want the same one for every attempt", names(keys))
			}
		})
	}
}

// credential is the header and value that a provider's account is called with.
func credential(api, provider string) [2]string {
	if api == "anthropic" {
		return [2]string{"x-api-key", key(account(provider, api))}
	}
	return [2]string{"authorization", "Bearer " + key(account(provider, api))}
}

func TestAClientsIdempotencyKeyGoesToEveryTarget(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "keyed", api: "anthropic", on: []string{"a", "b"}}}})
	s.raw(within(t, patience), t, call{path: messages, chain: "keyed", script: "a=529", header: map[string]string{"idempotency-key": "mine"}})
	for _, name := range []string{"a", "b"} {
		for _, r := range s.providers[name].Requests(t.Name()) {
			if got := r.Header.Get("idempotency-key"); got != "mine" {
				t.Errorf("provider %s was given idempotency-key %q, want mine", name, got)
			}
		}
	}
	s.calls(t, t.Name(), "a:1 b:1")
}
