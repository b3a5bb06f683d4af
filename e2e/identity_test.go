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

// onceChain is a chain on which a key stands for one execution.
func onceChain(name, window string) chain {
	return chain{name: name, api: "anthropic", on: []string{"a", "b"}, breaker: sturdy, more: fileChain{Once: map[string]any{"window": window}}}
}

// keyed is the call under an idempotency key that is named like its script.
func (c call) keyed(t testing.TB) call {
	c.id = c.scriptID(t)
	c.header = map[string]string{"idempotency-key": c.id}
	return c
}

// later makes a raw call in the background.
func (s *Stack) later(ctx context.Context, t testing.TB, c call) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- s.raw(ctx, t, c) }()
	return got
}

// whole says of an answer what must be the same for all who share it.
func (a answer) whole() string {
	return fmt.Sprintf("%d %s %s %s %v", a.status, a.header.Get("content-type"), a.header.Get("x-llm-target"), a.body, a.err)
}

// waits is long enough for a request to have reached the service, and to wait there.
const waits = 500 * time.Millisecond

func TestAKeyIsRunOnce(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run("Envoy "+version, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, plan{idle: true, envoy: version, chains: []chain{onceChain("once", "1h"), onceChain("brief", "1s")}})
			t.Run("rows", func(t *testing.T) {
				for name, row := range onceRows {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						row(within(t, time.Minute), t, s)
					})
				}
			})
			s.reads(t, is(0), "understudy_held_bytes")
			s.survives(t)
		})
	}
}

var onceRows = map[string]func(context.Context, *testing.T, *Stack){
	"Envoy gives up on a request that waits longer than it waits for the service": outwaits,
	"a hundred streamed duplicates are not one execution":                         func(ctx context.Context, t *testing.T, s *Stack) { duplicates(ctx, t, s, true) },
	"a hundred duplicates are not one execution":                                  func(ctx context.Context, t *testing.T, s *Stack) { duplicates(ctx, t, s, false) },
	"another request gets the answer of its key's first":                          anotherBody,
	"a key is not free after its window":                                          afterTheWindow,
	"the failure of the first is not told to those who wait, or is kept":          firstFails,
	"a client that leaves takes the answer of those who wait with it":             firstLeaves,
	"a client that leaves in mid-stream takes the answer of those who wait along": firstLeavesLate,
}

func outwaits(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "once", script: "a=ok after=20s"}.keyed(t)
	first := s.later(ctx, t, c)
	if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
		t.Fatal(err)
	}
	second := s.raw(ctx, t, c)
	one(t, <-first, second)
	s.calls(t, c.id, "a:1 b:0")
}

// one checks that all got one good answer.
func one(t *testing.T, answers ...answer) {
	t.Helper()
	for i, a := range answers {
		if a.err != nil || a.status != http.StatusOK || a.whole() != answers[0].whole() {
			t.Errorf("client %d got %.300s, want what the first got: %.300s", i, a.whole(), answers[0].whole())
		}
	}
}

func duplicates(ctx context.Context, t *testing.T, s *Stack, stream bool) {
	c := call{path: messages, stream: stream, chain: "once", script: "a=ok n=20 delay=50ms"}.keyed(t)
	answers := make([]answer, 100)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = s.raw(ctx, t, c) })
	}
	wg.Wait()
	one(t, answers...)
	one(t, answers[0], s.raw(ctx, t, c)) // after it has finished, too
	if !strings.Contains(answers[0].body, " 19]") {
		t.Errorf("the answer is %s, want all of it", answers[0].body)
	}
	s.calls(t, c.id, "a:1 b:0")
}

func anotherBody(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "once", script: "a=ok after=1s"}.keyed(t)
	other := func() {
		t.Helper()
		c := c
		c.body = strings.Replace(requestBody(messages, false), "hello", "goodbye", 1)
		refused(t, s.raw(ctx, t, c), messages, http.StatusUnprocessableEntity)
	}
	first := s.later(ctx, t, c)
	if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
		t.Fatal(err)
	}
	other()
	one(t, <-first, s.raw(ctx, t, c))
	other()
	s.calls(t, c.id, "a:1 b:0")
}

func afterTheWindow(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "brief", script: "a=ok"}.keyed(t)
	one(t, s.raw(ctx, t, c))
	eventually(t, patience, func() error {
		one(t, s.raw(ctx, t, c))
		if n := s.providers["a"].Count(c.id); n < 2 {
			return fmt.Errorf("the key was run %d times, want once more after its window", n)
		}
		return nil
	})
}

func firstFails(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "once", script: "a=529 after=1s, ok; b=529 after=1s, ok"}.keyed(t)
	first := s.later(ctx, t, c)
	if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
		t.Fatal(err)
	}
	second := s.raw(ctx, t, c)
	if a := <-first; a.status != 529 || second.status != 529 || second.body != a.body {
		t.Errorf("the first got %.300s and who waited %.300s, want the same 529", a.whole(), second.whole())
	}
	if got := second.header.Get("x-should-retry"); got != "false" {
		t.Errorf("who waited got x-should-retry %q, want what the first got", got)
	}
	s.calls(t, c.id, "a:1 b:1")
	one(t, s.raw(ctx, t, c))
	s.calls(t, c.id, "a:2 b:1")
}

func firstLeaves(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "once", script: "a=hang, ok after=1s"}.keyed(t)
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	s.later(leaving, t, c)
	if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
		t.Fatal(err)
	}
	second, third := s.later(ctx, t, c), s.later(ctx, t, c)
	wait(ctx, waits)
	leave()
	one(t, <-second, <-third)
	s.calls(t, c.id, "a:2 b:0")
}

func firstLeavesLate(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, stream: true, chain: "once", script: "a=stall n=3, ok n=5 delay=50ms"}.keyed(t)
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	first := make(chan struct{})
	go func() {
		defer close(first)
		s.read(leaving, t, c)
		wait(ctx, waits)
		leave()
	}()
	if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
		t.Fatal(err)
	}
	second, third := s.later(ctx, t, c), s.later(ctx, t, c)
	<-first
	one(t, <-second, <-third)
	s.calls(t, c.id, "a:2 b:0")
}

// read makes a call and reads the first byte of its answer.
func (s *Stack) read(ctx context.Context, t *testing.T, c call) {
	resp, err := s.http.Do(s.request(ctx, t, c, strings.NewReader(requestBody(c.path, c.stream))))
	if err != nil {
		t.Error(err)
		return
	}
	context.AfterFunc(ctx, func() { resp.Body.Close() })
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestAKeyIsRunOnceByTwoReplicas(t *testing.T) {
	t.Parallel()
	whole := onceChain("whole", "1h")
	whole.more.Commit = "complete"
	brief := onceChain("brief", "1h")
	brief.more.Deadlines.Total = 2 * time.Second
	s := startStack(t, plan{idle: true, replicas: 2, nats: startNATS(t, 1), chains: []chain{onceChain("once", "1h"), whole, brief}})
	ctx := within(t, 2*time.Minute)
	t.Run("a hundred duplicates", func(t *testing.T) { duplicates(ctx, t, s, false) })
	t.Run("a hundred streamed duplicates", func(t *testing.T) { duplicates(ctx, t, s, true) })
	t.Run("the client of the first leaves", func(t *testing.T) { firstLeaves(ctx, t, s) })
	t.Run("kill -9 of the replica that runs it", func(t *testing.T) { killedOwner(ctx, t, s) })
	t.Run("kill -9 of the replica, and no front that goes on", func(t *testing.T) { lonelyOwner(ctx, t, s) })
	s.survives(t)
}

// killedOwner: the front goes on with the same exchange at the other replica, which must not take it for a duplicate.
func killedOwner(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, stream: true, chain: "whole", script: "a=ok n=3 gate; b=ok after=1s"}.keyed(t)
	first := s.later(ctx, t, c)
	owner := -1
	eventually(t, patience, func() error {
		for i := range s.services {
			if m, err := s.metrics(ctx, i); err == nil && m.sum("understudy_held_bytes") > 0 {
				owner = i
				return nil
			}
		}
		return fmt.Errorf("no replica holds an answer")
	})
	var waiting []<-chan answer
	for range 6 {
		waiting = append(waiting, s.later(ctx, t, c))
	}
	wait(ctx, waits)
	s.services[owner].kill()
	answers := []answer{<-first}
	for _, w := range waiting {
		answers = append(answers, <-w)
	}
	one(t, answers...)
	s.providers["a"].Open(c.id)
	s.calls(t, c.id, "a:1 b:1")
	if err := s.startService(t, owner); err != nil {
		t.Fatal(err)
	}
}

// lonelyOwner: nobody goes on, so that the claim ends with its life.
func lonelyOwner(ctx context.Context, t *testing.T, s *Stack) {
	alone := s.solo(t, 0)
	c := call{path: messages, chain: "brief", script: "a=hang, ok"}.keyed(t)
	first := alone.later(ctx, t, c)
	if err := s.providers["a"].AwaitRequests(ctx, c.id, 1); err != nil {
		t.Fatal(err)
	}
	s.services[0].kill()
	if a := <-first; a.status < 500 {
		t.Errorf("the first client got %.300s, want a failure", a.whole())
	}
	if a := s.raw(ctx, t, c); a.status < 500 {
		t.Errorf("a duplicate got %.300s, want a failure until the claim has ended", a.whole())
	}
	eventually(t, time.Minute, func() error {
		if a := s.raw(ctx, t, c); a.status != http.StatusOK {
			return fmt.Errorf("the client got %.300s, want the key to be free in the end", a.whole())
		}
		return nil
	})
	s.calls(t, c.id, "a:2 b:0")
}
