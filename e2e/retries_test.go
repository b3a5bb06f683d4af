//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// deadRow is a chain that has no answer, and how its targets fail.
type deadRow struct {
	name    string
	script  string
	breaker fileBreaker
}

var deadRows = []deadRow{
	{"overloaded", "*=529", sturdy},
	{"an error", "*=500", sturdy},
	{"a reset", "*=reset", sturdy},
	{"a provider that asks for retries", "*=529 evil", sturdy},
	{"breakers that open for a second", "*=529", fileBreaker{Failures: 1, OpenFor: time.Second}},
	{"breakers that open for an hour", "*=529", fileBreaker{Failures: 1, OpenFor: time.Hour}},
}

// Without the service each try of an SDK would be one at each target: three times as many attempts as targets.
func TestSDKsDoNotMultiplyTheAttemptsOfADeadChain(t *testing.T) {
	t.Parallel()
	var chains []chain
	type pick struct {
		row  deadRow
		call call
	}
	var picks []pick
	for i, row := range deadRows {
		for _, kind := range clientKinds {
			kind.insists, kind.script, kind.chain = true, row.script, fmt.Sprintf("dead-%d-%d", i, len(chains))
			chains = append(chains, chain{name: kind.chain, api: apiOf(kind.path), on: []string{"a", "b"}, breaker: row.breaker})
			picks = append(picks, pick{row, kind})
		}
	}
	s := startStack(t, plan{chains: chains})
	t.Run("rows", func(t *testing.T) {
		for _, p := range picks {
			t.Run(p.row.name+" by "+p.call.kind(), func(t *testing.T) {
				t.Parallel()
				s.deadTo(t, p.call)
			})
		}
	})
	// It keeps the account from all chains for a second, so that it comes by itself.
	t.Run("a rate limit for a second", func(t *testing.T) {
		c := call{path: messages, chain: picks[0].call.chain, script: "*=429 retry-after=1", insists: true}
		s.deadTo(t, c)
	})
	s.reads(t, atLeast(1), "understudy_client_retries_total")
	s.survives(t)
}

// deadTo calls a chain of two targets that has no answer.
func (s *Stack) deadTo(t *testing.T, c call) {
	t.Helper()
	a := s.sdk(within(t, time.Minute), t, c)
	if a.err == nil {
		t.Fatalf("the client got %q, want an error", a.text)
	}
	const targets = 2
	if got := s.providers["a"].Count(t.Name()) + s.providers["b"].Count(t.Name()); got < 1 || got > targets+1 {
		t.Errorf("the providers saw %d attempts, want 1 to %d; the last answer was %d %v, %v", got, targets+1, a.status, a.header, a.err)
	}
}

func TestAnSDKsRetryOfASpentChainIsRefused(t *testing.T) {
	t.Parallel()
	c := chain{name: "once", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Second},
		more: fileChain{Retry: fileRetry{Client: 1}}}
	s := startStack(t, plan{chains: []chain{c}})
	retry := func(n string) answer {
		return s.raw(within(t, patience), t, call{path: messages, chain: "once", script: "*=529",
			header: map[string]string{"x-stainless-retry-count": n}})
	}
	if a := retry("0"); a.status != 529 || a.header.Get("retry-after") != "1" {
		t.Errorf("the first request got %.300s, %v, want a 529 and when to come again", a.whole(), a.header)
	}
	if a := retry("1"); a.status < http.StatusInternalServerError || a.header.Get("x-should-retry") != "false" {
		t.Errorf("the retry got %.300s, %v, want it refused", a.whole(), a.header)
	}
	wait(t.Context(), 1100*time.Millisecond) // the breakers would let it through
	if a := retry("1"); a.header.Get("x-should-retry") != "false" {
		t.Errorf("the later retry got %.300s, %v, want it refused", a.whole(), a.header)
	}
	s.calls(t, t.Name(), "a:1 b:1")
	s.reads(t, is(2), "understudy_client_retries_total", "chain", "once")
}
