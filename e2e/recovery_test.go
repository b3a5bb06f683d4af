//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAnOpenBreakerOutlivesKill9(t *testing.T) {
	t.Parallel()
	c := chain{name: "kept", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Minute}}
	s := startStack(t, plan{chains: []chain{c}})
	s.raw(within(t, patience), t, call{path: messages, chain: "kept", script: "*=529"})
	s.breaker(t, "kept/a", open)
	s.breaker(t, "kept/b", open)
	before := s.returns(t)

	const passes = 2 * time.Second
	wait(t.Context(), passes)
	s.services[0].kill()
	if err := s.startService(t, 0); err != nil {
		t.Fatal(err)
	}
	after := s.returns(t)
	if after > before-passes {
		t.Errorf("retry-after = %s, %s after it was %s and the service was killed, want the time that is left", after, passes, before)
	}
	s.breaker(t, "kept/a", open)
	s.breaker(t, "kept/b", open)
	s.each(t, is(0), "understudy_attempts_total")
	s.calls(t, "returns", "a:0 b:0")
}

// returns is when the chain whose targets are all open says that it is back, as soon as the service answers.
func (s *Stack) returns(t *testing.T) (after time.Duration) {
	t.Helper()
	eventually(t, patience, func() error {
		a := s.raw(within(t, patience), t, call{path: messages, chain: "kept", script: "*=ok", id: "returns"})
		seconds, err := strconv.Atoi(a.header.Get("retry-after"))
		if err != nil || a.status < 500 {
			return fmt.Errorf("the client got %d %s, retry-after %q, want an error and some seconds", a.status, a.body, a.header.Get("retry-after"))
		}
		after = time.Duration(seconds) * time.Second
		return nil
	})
	return after
}

// flapped is an exchange with a flapping provider, as its client saw it.
type flapped struct {
	begun, ended time.Time
	reached      bool // the flapping provider was called
}

func TestAFlappingProviderGetsNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	ramp := fileRamp{Interval: 3 * time.Second, Share: 0.1}
	c := chain{name: "flaps", api: "anthropic", on: []string{"a", "b"},
		breaker: fileBreaker{Failures: 5, OpenFor: time.Second, MaxOpenFor: time.Second, Ramp: ramp}}
	s := startStack(t, plan{replicas: 2, nats: startNATS(t, 1), chains: []chain{c}})
	ctx, done := context.WithCancel(t.Context())
	defer done()
	results := make(chan []flapped)
	go func() { results <- s.flap(ctx, t) }()
	for range 4 {
		s.set(t, "a", "529")
		wait(t.Context(), 2*time.Second)
		s.set(t, "a", "ok")
		wait(t.Context(), 2*time.Second)
	}
	done()
	exchanges := <-results

	closings := s.closings("flaps/a")
	if len(closings) < 2 {
		t.Errorf("the breaker closed %d times, want some", len(closings))
	}
	reached := 0
	for _, at := range closings {
		// An interval begins a little before it is told.
		n, all := shareOf(exchanges, at, at.Add(ramp.Interval-100*time.Millisecond))
		t.Logf("after the closing at %s: %d of %d exchanges", at.Format(time.StampMilli), n, all)
		if float64(n) > ramp.Share*float64(all) {
			t.Errorf("after the closing at %s the provider saw %d of %d exchanges, want at most %v of them", at, n, all, ramp.Share)
		}
		reached += n
	}
	if reached == 0 {
		t.Error("no exchange has reached the provider after a closing, want a share of them")
	}
}

// flap makes exchanges, a few at a time, until ctx ends.
func (s *Stack) flap(ctx context.Context, t *testing.T) (all []flapped) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c := call{path: messages, chain: "flaps", id: fmt.Sprint("flap ", worker, " ", i)}
				x := flapped{begun: time.Now()}
				if a := s.sdk(within(t, patience), t, c); a.err != nil {
					t.Errorf("an exchange got %d, %v, want an answer", a.status, a.err)
				}
				x.ended, x.reached = time.Now(), s.providers["a"].Count(c.id) > 0
				mu.Lock()
				all = append(all, x)
				mu.Unlock()
				wait(ctx, 5*time.Millisecond)
			}
		})
	}
	wg.Wait()
	return all
}

// closings are the times at which a breaker closed, as the first replica tells of each.
func (s *Stack) closings(target string) (first []time.Time) {
	var all []time.Time
	for _, service := range s.services {
		for _, tr := range service.transitions() {
			if tr.Target == target && tr.To == "closed" {
				all = append(all, tr.Time)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	for _, at := range all {
		if len(first) == 0 || at.Sub(first[len(first)-1]) > time.Second { // no open period is shorter
			first = append(first, at)
		}
	}
	return first
}

// shareOf counts the exchanges that reached the provider wholly between two times, and those that can have been counted
// by the ramp between them.
func shareOf(exchanges []flapped, from, to time.Time) (reached, all int) {
	for _, x := range exchanges {
		if x.ended.Before(from) || x.begun.After(to) {
			continue
		}
		all++
		if x.reached && x.begun.After(from) && x.ended.Before(to) {
			reached++
		}
	}
	return reached, all
}

func TestAnObservedChainChangesNothing(t *testing.T) {
	t.Parallel()
	c := chain{name: "watched", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}}
	c.more.Mode = "observe"
	s := startStack(t, plan{chains: []chain{c}})
	bad := call{path: messages, stream: true, chain: "watched", script: "a=529; b=ok", id: "straight"}
	direct := *s
	direct.listen = strings.TrimPrefix(s.endpoints["a"], "http://")
	want := direct.raw(within(t, patience), t, bad)
	bad.id = "through"
	got := s.raw(within(t, patience), t, bad)
	if got.status != 529 || got.body != want.body || got.err != nil {
		t.Errorf("the client got %d %q, %v, want 529 %q", got.status, got.body, got.err, want.body)
	}
	leaksNothing(t, got.header)
	unlabelled(t, got.header)
	s.calls(t, "through", "a:1 b:0")
	counts := func(decision string, n float64) {
		t.Helper()
		s.each(t, is(n), "understudy_unenforced_total", "chain", "watched", "target", "watched/a", "decision", decision)
	}
	counts("failover", 1)

	// The breaker is open now, and asked in vain.
	s.breaker(t, "watched/a", open)
	good := call{path: messages, chain: "watched", script: "*=ok", id: "again"}
	a := s.sdk(within(t, patience), t, good)
	if a.err != nil || a.status != http.StatusOK {
		t.Errorf("the client got %d, %v, want the primary's answer", a.status, a.err)
	}
	unlabelled(t, a.header)
	s.calls(t, "again", "a:1 b:0")
	counts("skip", 1)
}

// unlabelled checks that an answer says nothing of who served it.
func unlabelled(t *testing.T, h http.Header) {
	t.Helper()
	for name := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-llm-") || name == "x-should-retry" {
			t.Errorf("%s is on an answer of a chain that only observes", name)
		}
	}
}
