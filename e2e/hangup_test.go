//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// hangUp makes a call and leaves: in mid-stream at the first text or, for a provider that says nothing, as soon as
// it has the request.
func (s *Stack) hangUp(ctx context.Context, t *testing.T, c call) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	done := make(chan struct{})
	c.onText = func(string) { leave() }
	go func() {
		defer close(done)
		s.sdk(ctx, t, c)
	}()
	if strings.HasPrefix(c.script, "a=hang") {
		if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
			return err
		}
		leave()
	}
	<-done
	return nil
}

func TestFiveHundredHangUpsLeaveNothingBehind(t *testing.T) { // alone: it is heavy
	c := chain{name: "left", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}}
	s := startStack(t, plan{chains: []chain{c}})
	for range 4 { // connections that stay anyway
		s.sdk(within(t, patience), t, call{path: messages, chain: "left", script: "a=ok"})
	}
	before, err := s.total(t, "go_goroutines")
	if err != nil {
		t.Fatal(err)
	}

	scripts := []string{"a=stall n=2", "a=hang", "a=ok n=1000 delay=10ms", "a=stall n=2"}
	ctx := within(t, 2*time.Minute)
	next := make(chan int)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for i := range next {
				c := call{path: messages, stream: true, chain: "left", script: scripts[i%len(scripts)], id: fmt.Sprint("leaver ", i)}
				if err := s.hangUp(ctx, t, c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 500 {
		next <- i
	}
	close(next)
	wg.Wait()

	for i := range 500 {
		if err := s.providers["a"].AwaitGone(ctx, fmt.Sprint("leaver ", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.providers["b"].Count(""); got != 0 {
		t.Errorf("the next target saw %d requests of clients that had left, want none", got)
	}
	s.breaker(t, "left/a", closed)
	s.reads(t, is(500), "understudy_exchanges_total", "chain", "left", "outcome", "canceled")
	s.reads(t, is(500), "understudy_attempts_total", "target", "left/a", "class", "canceled")
	s.reads(t, is(0), "understudy_held_bytes")
	s.reads(t, atMost(before+10), "go_goroutines")
	good := call{path: messages, chain: "left", script: "a=ok", id: "after"}
	served{by: "a", target: "left/a", rung: 0, attempts: 1}.check(t, good, s.sdk(within(t, patience), t, good))
	s.survives(t)
}

func halfOpenHangUp(t *testing.T, p plan) {
	c := chain{name: "half", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Second}}
	p.chains = []chain{c}
	s := startStack(t, p)
	s.sdk(within(t, patience), t, call{path: messages, chain: "half", script: "a=529"})
	s.breaker(t, "half/a", open)

	ctx, leave := context.WithCancel(within(t, patience))
	defer leave()
	eventually(t, patience, func() error { // until the half-open request is let through, and hangs
		tried := make(chan struct{})
		go func() {
			defer close(tried)
			s.sdk(ctx, t, call{path: messages, chain: "half", script: "a=hang; b=ok", id: "prober"})
		}()
		soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if err := s.providers["a"].AwaitRequests(soon, "prober", 1); err != nil {
			<-tried // it was served by b
			return err
		}
		leave()
		<-tried
		return nil
	})
	if err := s.providers["a"].AwaitGone(within(t, patience), "prober", 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		good := call{path: messages, chain: "half", script: "a=ok", id: "after"}
		a := s.sdk(within(t, patience), t, good)
		if a.header.Get("x-llm-target") != "half/a" {
			return fmt.Errorf("served by %s, want half/a again", a.header.Get("x-llm-target"))
		}
		return nil
	})
	s.breaker(t, "half/a", closed)
}

func TestALeftClientIsNoReasonToTryTheNextTarget(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	ctx, leave := context.WithCancel(within(t, patience))
	defer leave()
	done := make(chan answer, 1)
	go func() { done <- s.raw(ctx, t, call{path: messages, script: "a=hang", id: "gone"}) }()
	if err := s.providers["a"].AwaitRequests(within(t, patience), "gone", 1); err != nil {
		t.Fatal(err)
	}
	leave()
	<-done
	if err := s.providers["a"].AwaitGone(within(t, patience), "gone", 1); err != nil {
		t.Fatal(err)
	}
	s.reads(t, is(1), "understudy_exchanges_total", "outcome", "canceled")
	s.calls(t, "gone", "a:1 b:0")
	if err := s.is(within(t, patience), "http://"+s.services[0].admin+"/healthz", http.StatusOK); err != nil {
		t.Error(err)
	}
}
