//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// jobCalls are the calls of a provider with the key of an order that came after a moment, in the order in which they
// came.
func (s *Stack) jobCalls(provider string, after time.Time) []scripted.Request {
	calls := slices.DeleteFunc(s.providers[provider].Requests(""), func(r scripted.Request) bool {
		return r.At.Before(after) || !strings.HasPrefix(r.Header.Get(keyHeader), orderKey)
	})
	slices.SortFunc(calls, func(a, b scripted.Request) int { return a.At.Compare(b.At) })
	return calls
}

// most is how many of the calls came within one second, whichever.
func most(calls []scripted.Request) (n int) {
	for i, first := range calls {
		in := 0
		for _, c := range calls[i:] {
			if c.At.Sub(first.At) < time.Second {
				in++
			}
		}
		n = max(n, in)
	}
	return n
}

// unevenness is how many more calls than its rate one second may have at the provider: the one that a bucket gives at
// once, and one that the way to the provider has held up.
const unevenness = 2

func TestTheDrainHurtsNobodyWhoHasJustComeBack(t *testing.T) {
	t.Parallel()
	const queued, perSecond, rate, budget = 1000, 20, 5, 0.1
	c := chain{name: "back", api: "anthropic", on: []string{"a"}, more: fileChain{Degrade: []string{"queue"}},
		breaker: fileBreaker{Failures: 5, OpenFor: time.Second, MaxOpenFor: 2 * time.Second}}
	recovery := map[string]any{"rate": fmt.Sprint(rate, "/s"), "retry_budget": budget}
	s := startStack(t, plan{idle: true, chains: []chain{c}, edit: func(f *file) { f.Recovery = recovery }})
	measured := func(d time.Duration) []time.Duration {
		t.Helper()
		stop := s.live(t, "back", perSecond)
		wait(t.Context(), d)
		took, failed := stop()
		if failed > perSecond*2 { // a breaker that is still open
			t.Errorf("%d of %d live requests failed", failed, failed+len(took))
		}
		return took
	}
	without := measured(6 * time.Second)

	s.set(t, "a", "529")
	orders := make([]order, queued)
	ctx := within(t, 2*time.Minute)
	spread(queued, 20, func(i int) {
		orders[i] = order{key: fmt.Sprint(orderKey, i), chain: "back"}
		if err := s.place(ctx, t, &orders[i]); err != nil {
			t.Error(err)
		}
	})
	s.services[0].kill() // so that it takes none of the orders for live traffic of the last seconds
	if err := s.startService(t, 0); err != nil {
		t.Fatal(err)
	}

	// The budget is the narrower bound: 2 a second.
	s.set(t, "a", "ok")
	began := time.Now()
	with := measured(10 * time.Second)
	took := time.Since(began)
	calls := s.jobCalls("a", began)
	t.Logf("live requests had a p95 of %s without the drain and %s with it (p50 %s and %s); it ran %d jobs in %s, at most %d within a second",
		quantile(without, 0.95), quantile(with, 0.95), quantile(without, 0.5), quantile(with, 0.5), len(calls), took, most(calls))
	if got := most(calls); got > perSecond*budget+unevenness {
		t.Errorf("the provider got %d jobs within a second, want at most %v", got, perSecond*budget+unevenness)
	}
	if got, bound := len(calls), perSecond*budget*took.Seconds()+unevenness; got == 0 || float64(got) > bound {
		t.Errorf("the provider got %d jobs in %s, want some and at most %v", got, took, bound)
	}

	// The rate is: 5 a second.
	recovery["retry_budget"] = 1.0
	s.reload(t)
	began = time.Now()
	stop := s.live(t, "back", perSecond)
	wait(t.Context(), 5*time.Second)
	took = time.Since(began)
	calls = s.jobCalls("a", began)
	t.Logf("with all of live traffic as its budget it ran %d jobs in %s, at most %d within a second", len(calls), took, most(calls))
	if got := most(calls); got > rate+unevenness || float64(len(calls)) > rate*took.Seconds()+unevenness || len(calls) == 0 {
		t.Errorf("the provider got %d jobs in %s and %d within a second, want some and at most %d a second", len(calls), took, got, rate)
	}

	// The provider has four jobs when it fails again.
	s.set(t, "a", "ok after=2s")
	wait(t.Context(), 4*time.Second)
	stop()
	s.set(t, "a", "529 after=1s")
	fails := time.Now()
	s.stopsAt(t, fails)
}

// reload saves the config as it is now and waits until the service has it.
func (s *Stack) reload(t *testing.T) {
	t.Helper()
	before := s.hash(t)
	s.compose(t, 0).save(t, s.services[0].config)
	eventually(t, patience, func() error {
		if s.hash(t) == before {
			return fmt.Errorf("the config still has the hash %s", before)
		}
		return nil
	})
}

func (s *Stack) hash(t *testing.T) string {
	t.Helper()
	m, err := s.metrics(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range m {
		if sample.name == "understudy_config_info" {
			return sample.labels["hash"]
		}
	}
	t.Fatal("there is no understudy_config_info")
	return ""
}

// stopsAt checks that of the jobs no more than four, which were in flight, met a failure that began at a moment.
func (s *Stack) stopsAt(t *testing.T, fails time.Time) {
	t.Helper()
	failed := func() (calls []scripted.Request) {
		for _, r := range s.jobCalls("a", fails.Add(-patience)) {
			if r.Step.Status == 529 && r.At.After(fails) {
				calls = append(calls, r)
			}
		}
		return calls
	}
	eventually(t, patience, func() error {
		if calls := failed(); len(calls) == 0 || !calls[0].Done {
			return fmt.Errorf("no job has met the failure: %d", len(calls))
		}
		return nil
	})
	wait(t.Context(), 3*time.Second) // less than the shortest pause
	calls := failed()
	heard := calls[0].Ended
	for _, r := range calls {
		if r.Ended.Before(heard) {
			heard = r.Ended
		}
	}
	after := 0
	for _, r := range calls {
		if r.At.After(heard.Add(200 * time.Millisecond)) { // on its way as the answer came
			after++
		}
	}
	t.Logf("%d jobs met the failure, %d were sent after the first had", len(calls), after)
	if len(calls) > 4 || after > 0 {
		t.Errorf("%d jobs met the failure, %d of them sent after the first had, want at most the 4 that were in flight", len(calls), after)
	}
}
