//go:build e2e

package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// sturdy is a breaker that a storm does not open.
var sturdy = fileBreaker{Failures: 1000}

// all makes n calls at once and returns their answers in order.
func (s *Stack) all(t *testing.T, d time.Duration, n int, of func(i int) call) []answer {
	t.Helper()
	answers := make([]answer, n)
	ctx := within(t, d)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = s.sdk(ctx, t, of(i)) })
	}
	wg.Wait()
	return answers
}

func TestAHundredExchangesAreRescuedAtOnce(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{chains: []chain{
		{name: "retried", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy},
		{name: "opened", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 5, OpenFor: time.Hour}},
	}})
	for _, name := range []string{"retried", "opened"} {
		t.Run(name, func(t *testing.T) {
			of := func(i int) call {
				return call{path: messages, chain: name, script: "a=529; b=ok after=2s", id: fmt.Sprintf("%s %d", t.Name(), i)}
			}
			for i, a := range s.all(t, time.Minute, 100, of) {
				reason := a.header.Get("x-llm-fallback-reason")
				served{by: "b", target: name + "/b", rung: 1, reason: reason}.check(t, of(i), a)
				if name == "retried" && reason != "overloaded" {
					t.Errorf("x-llm-fallback-reason = %q, want overloaded", reason)
				}
			}
		})
	}
	if got := s.providers["a"].Count(""); got < 105 {
		t.Errorf("the failing primary saw %d requests, want the 100 of one chain and at least 5 of the other", got)
	}
	s.survives(t)
}

// integrity: 200 streams of 100 events at once, a third of them failing over in different ways.
func integrity(t *testing.T, s *Stack) {
	failing := []string{"529", "error-start", "reset"}
	paths := []string{messages, chats, responsed}
	of := func(i int) call {
		c := call{path: paths[i%3], stream: true, chain: "flow-" + apiOf(paths[i%3]), script: "*=ok n=100 size=64 delay=5ms", id: fmt.Sprintf("%s %d", t.Name(), i)}
		if i/3%3 == 0 {
			c.script = fmt.Sprintf("a=%s; b=ok n=100 size=64 delay=5ms", failing[i/9%3])
		}
		return c
	}
	for i, a := range s.all(t, 2*time.Minute, 200, of) {
		c := of(i)
		w := served{by: "a", target: c.chain + "/a", n: 100, size: 64, rung: 0, reason: a.header.Get("x-llm-fallback-reason")}
		if i/3%3 == 0 {
			w.by, w.target, w.rung = "b", c.chain+"/b", 1
		}
		w.check(t, c, a)
	}
}

// flowing are the chains that integrity uses.
var flowing = []chain{
	{name: "flow-anthropic", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy},
	{name: "flow-openai", api: "openai", on: []string{"a", "b"}, breaker: sturdy},
}

func TestTwoHundredStreamsLoseNoByte(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{chains: flowing})
	integrity(t, s)
	s.survives(t)
}
