//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// probed is a breaker that short outages show well.
var probed = fileBreaker{Failures: 5, OpenFor: 2 * time.Second, MaxOpenFor: 4 * time.Second, HalfOpen: "probe"}

// fleet is three replicas on three NATS servers: all behind one Envoy, and each behind one of its own.
type fleet struct {
	*Stack
	nats *cluster
	one  []*Stack
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	lasting := fileBreaker{Failures: 5, OpenFor: time.Hour}
	var chains []chain
	for _, name := range []string{"one", "spread", "late", "apart"} {
		chains = append(chains, chain{name: name, api: "anthropic", on: []string{"a", "b"}, breaker: lasting})
	}
	chains = append(chains, chain{name: "probed", api: "anthropic", on: []string{"a", "b"}, breaker: probed},
		chain{name: "flow", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy})
	f := &fleet{nats: startNATS(t, 3)}
	f.Stack = startStack(t, plan{replicas: 3, nats: f.nats, chains: chains})
	for i := range f.services {
		f.one = append(f.one, f.solo(t, i))
	}
	f.each(t, is(1), "understudy_store_up")
	return f
}

func TestAFleetHasOneBreakerForEachTarget(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	for _, part := range []struct {
		name string
		run  func(*fleet, *testing.T)
	}{
		{"what one replica opens is open on all", (*fleet).oneOpens},
		{"failures on different replicas add up to one trip", (*fleet).addUp},
		{"one probe for each open period", (*fleet).oneProbe},
		{"a NATS server killed", (*fleet).loseOne},
		{"all NATS servers killed, and back", (*fleet).loseAll},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(f, t) }) {
			return // the parts build on each other
		}
	}
	f.tellsEachChangeOnce(t)
	f.survives(t)
}

// fails makes n exchanges whose primary fails.
func (s *Stack) fails(t *testing.T, chain string, n int) {
	t.Helper()
	for range n {
		c := call{path: messages, chain: chain, script: "a=529; b=ok", id: t.Name() + " fails"}
		served{by: "b", target: chain + "/b", rung: 1, attempts: 2, reason: "overloaded", noHints: true}.check(t, c, s.sdk(within(t, patience), t, c))
	}
}

// skips checks that an exchange makes no call to the primary.
func (s *Stack) skips(t *testing.T, chain string) {
	t.Helper()
	c := call{path: messages, chain: chain, script: "*=ok", id: t.Name() + " skips"}
	a := s.sdk(within(t, patience), t, c)
	served{by: "b", target: chain + "/b", rung: 1, reason: a.header.Get("x-llm-fallback-reason")}.check(t, c, a)
	s.calls(t, c.id, "a:0")
}

func (f *fleet) oneOpens(t *testing.T) {
	f.one[0].fails(t, "one", 5)
	took := f.opens(t, "one/a")
	t.Logf("open on all three replicas %s after the fifth failure", took)
	for _, view := range f.one {
		view.skips(t, "one")
	}
	f.each(t, is(1), "understudy_breaker_transitions_total", "target", "one/a")
}

// opens is how long it takes until a breaker is open on all replicas.
func (f *fleet) opens(t *testing.T, target string) time.Duration {
	t.Helper()
	began, ctx := time.Now(), within(t, 10*time.Second)
	for i := 0; i < len(f.services); {
		m, err := f.metrics(ctx, i)
		if err != nil {
			t.Fatalf("%s is not open on replica %d: %v", target, i, err)
		}
		if m.sum("understudy_breaker_state", "target", target) == open {
			i++
		} else {
			wait(ctx, time.Millisecond)
		}
	}
	return time.Since(began)
}

func (f *fleet) addUp(t *testing.T) {
	f.one[0].fails(t, "spread", 2)
	f.one[1].fails(t, "spread", 2)
	f.each(t, is(closed), "understudy_breaker_state", "target", "spread/a")
	f.one[2].fails(t, "spread", 1)
	f.breaker(t, "spread/a", open)
	f.calls(t, t.Name()+" fails", "a:5 b:5")
	for _, view := range f.one {
		view.skips(t, "spread")
	}
	f.each(t, is(1), "understudy_breaker_transitions_total", "target", "spread/a")
}

// oneProbe: the provider is down for some open periods. Its answers take a while, so that every replica sees that the
// breaker is half-open.
func (f *fleet) oneProbe(t *testing.T) {
	f.set(t, "a", "529 after=500ms")
	f.one[0].failsUnscripted(t, "probed", 5)
	f.breaker(t, "probed/a", open)
	for down := within(t, 15*time.Second); down.Err() == nil; {
		c := call{path: messages, chain: "probed", id: t.Name() + " meanwhile"}
		a := f.sdk(within(t, patience), t, c)
		served{by: "b", target: "probed/b", rung: 1, reason: a.header.Get("x-llm-fallback-reason")}.check(t, c, a)
		f.calls(t, c.id, "a:0")
		wait(down, 20*time.Millisecond)
	}
	f.set(t, "a", "ok")
	f.breaker(t, "probed/a", closed)

	probes := f.probes("a")
	t.Logf("%d probes", probes)
	if probes < 3 {
		t.Errorf("the provider saw %d probes in an outage of 15 s with open periods of 2 s and 4 s, want at least 3", probes)
	}
	f.reads(t, is(float64(probes)), "understudy_probes_total", "target", "probed/a")
	changes := func(to string, n int) {
		t.Helper()
		f.each(t, is(float64(n)), "understudy_breaker_transitions_total", "target", "probed/a", "to", to)
	}
	changes("open", probes)
	changes("half-open", probes)
	changes("closed", 1)
	f.reads(t, is(1), "understudy_probes_total", "target", "probed/a", "result", "alive")
}

// failsUnscripted makes n exchanges whose primary fails by itself.
func (s *Stack) failsUnscripted(t *testing.T, chain string, n int) {
	t.Helper()
	for range n {
		c := call{path: messages, chain: chain}
		served{by: "b", target: chain + "/b", rung: 1, attempts: 2, reason: "overloaded", noHints: true}.check(t, c, s.sdk(within(t, patience), t, c))
	}
}

// set changes what a provider does with requests that bring no script.
func (s *Stack) set(t *testing.T, provider, behaviour string) {
	t.Helper()
	if err := s.providers[provider].Set(behaviour); err != nil {
		t.Fatal(err)
	}
}

// probes is how many probes a provider has seen.
func (s *Stack) probes(provider string) int {
	all := s.providers[provider].Requests("")
	return len(slices.DeleteFunc(all, func(r scripted.Request) bool { return r.Model != probeModel }))
}

// flowing is exchanges of which every second one fails over.
func (f *fleet) flowing(t *testing.T) func(i int) call {
	return func(i int) call {
		return call{path: messages, stream: i%4 < 2, chain: "flow", script: []string{"a=529; b=ok", "*=ok"}[i%2], id: fmt.Sprint(t.Name(), i)}
	}
}

// allServed checks that no exchange of flowing has failed.
func allServed(t *testing.T, answers []answer) {
	t.Helper()
	for _, a := range answers {
		if a.err != nil || a.status != 200 {
			t.Errorf("an exchange got %d, %v, want an answer", a.status, a.err)
		}
	}
	t.Logf("%d exchanges", len(answers))
}

func (f *fleet) loseOne(t *testing.T) {
	leader := f.nats.leader(t, "breakers")
	answers := f.underLoad(t, f.flowing(t), func() {
		f.nats.nodes[leader].kill()
		wait(t.Context(), 3*time.Second)
	})
	allServed(t, answers)
	for _, view := range f.one {
		view.skips(t, "one")
	}
	f.one[1].fails(t, "late", 5)
	f.breaker(t, "late/a", open)
	f.each(t, is(1), "understudy_store_up")
	f.nats.start(t)
}

func (f *fleet) loseAll(t *testing.T) {
	answers := f.underLoad(t, f.flowing(t), func() {
		for _, n := range f.nats.nodes {
			n.kill()
		}
		f.each(t, is(0), "understudy_store_up")
		wait(t.Context(), 2*time.Second)
	})
	allServed(t, answers)
	for _, view := range f.one {
		view.skips(t, "one")
	}
	f.one[0].fails(t, "apart", 5)
	f.one[0].breaker(t, "apart/a", open)
	f.one[0].skips(t, "apart")
	for _, view := range f.one[1:] { // nobody has told them
		c := call{path: messages, chain: "apart", script: "*=ok", id: t.Name()}
		served{by: "a", target: "apart/a", rung: 0, attempts: 1}.check(t, c, view.sdk(within(t, patience), t, c))
	}

	allServed(t, f.underLoad(t, f.flowing(t), func() {
		f.nats.start(t)
		f.each(t, is(1), "understudy_store_up")
	}))
	f.breaker(t, "apart/a", open)
	for _, target := range []string{"one/a", "spread/a", "late/a"} {
		f.breaker(t, target, open)
	}
	f.breaker(t, "probed/a", closed)
	for _, view := range f.one {
		view.skips(t, "apart")
	}
}
