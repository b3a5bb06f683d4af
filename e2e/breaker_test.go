//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// breakerRows are shown on one replica, and on two that share a store.
var breakerRows = []struct {
	name string
	run  func(*testing.T, plan)
}{
	{"five failures open the breaker and one success closes it", fiveFailures},
	{"a rate-limited target rests as long as it said", rateLimited},
	{"the caller's fault comes back byte for byte", callersFault},
	{"an open chain says when to come back", comeBack},
	{"a hang-up gives the half-open permit back", halfOpenHangUp},
	{"death after content is charged", deathIsCharged},
	{"a reload keeps the breakers of targets that stay", reloadKeeps},
}

func TestBreakers(t *testing.T) {
	t.Parallel()
	for _, row := range breakerRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(t, plan{})
		})
	}
}

func fiveFailures(t *testing.T, p plan) {
	c := chain{name: "five", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 5, OpenFor: 3 * time.Second}}
	p.chains = []chain{c}
	s := startStack(t, p)
	bad := call{path: messages, chain: "five", script: "a=529", id: "bad"}
	for i := range 5 {
		served{by: "b", target: "five/b", rung: 1, attempts: 2, reason: "overloaded", noHints: p.replicas > 1}.check(t, bad, s.sdk(within(t, patience), t, bad))
		s.calls(t, "bad", fmt.Sprintf("a:%d b:%d", i+1, i+1))
	}
	opened := time.Now()
	s.agree(t, "five/a", open)
	sixth := call{path: messages, chain: "five", script: "a=ok", id: "sixth"}
	a := s.sdk(within(t, patience), t, sixth)
	if time.Since(opened) < c.breaker.OpenFor { // else the machine was too busy to say
		served{by: "b", target: "five/b", rung: 1, reason: a.header.Get("x-llm-fallback-reason")}.check(t, sixth, a)
		s.calls(t, "sixth", "a:0 b:1")
	}

	good := call{path: messages, chain: "five", script: "a=ok", id: "good"}
	eventually(t, patience, func() error {
		s.sdk(within(t, patience), t, good)
		if s.providers["a"].Count("good") == 0 {
			return fmt.Errorf("no request has been let through to the opened target")
		}
		return nil
	})
	s.breaker(t, "five/a", closed)
	served{by: "a", target: "five/a", rung: 0, attempts: 1}.check(t, good, s.sdk(within(t, patience), t, good))
}

// agree waits until all replicas see a breaker as one of them does; the one replica that there is sees it at once.
func (s *Stack) agree(t *testing.T, target string, state float64) {
	t.Helper()
	if len(s.services) > 1 {
		s.breaker(t, target, state)
	}
}

func rateLimited(t *testing.T, p plan) {
	c := chain{name: "limited", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}}
	p.chains = []chain{c}
	s := startStack(t, p)
	limited := call{path: messages, chain: "limited", script: "a=429 retry-after=2, ok", id: "limited"}
	asked := time.Now()
	served{by: "b", target: "limited/b", rung: 1, attempts: 2, reason: "rate_limited", noHints: p.replicas > 1}.check(t, limited, s.sdk(within(t, patience), t, limited))
	s.calls(t, "limited", "a:1 b:1")

	if len(s.services) > 1 {
		s.each(t, atLeast(0.001), "understudy_cooldown_seconds", "target", "limited/a")
	}
	a := s.sdk(within(t, patience), t, limited)
	if time.Since(asked) < 2*time.Second { // else the machine was too busy to say
		served{by: "b", target: "limited/b", rung: 1, reason: a.header.Get("x-llm-fallback-reason")}.check(t, limited, a)
		s.calls(t, "limited", "a:1 b:2")
	}
	eventually(t, patience, func() error {
		s.sdk(within(t, patience), t, limited)
		if s.providers["a"].Count("limited") < 2 {
			return fmt.Errorf("the target is not tried again")
		}
		return nil
	})
	s.breaker(t, "limited/a", closed) // a rate limit never trips
}

func callersFault(t *testing.T, p plan) {
	p.chains = []chain{
		{name: "claude", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}},
		{name: "gpt", api: "openai", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}},
	}
	s := startStack(t, p)
	for _, path := range []string{messages, chats, responsed} {
		for _, status := range []string{"400", "413", "422"} {
			t.Run(path+" "+status, func(t *testing.T) {
				c := call{path: path, stream: true, chain: map[string]string{"anthropic": "claude", "openai": "gpt"}[apiOf(path)], script: "a=" + status}
				direct := *s
				direct.listen = strings.TrimPrefix(s.endpoints["a"], "http://")
				want := direct.raw(within(t, patience), t, c)
				c.id = t.Name() + " through Envoy"
				got := s.raw(within(t, patience), t, c)
				if got.status != want.status || got.body != want.body || got.err != nil {
					t.Errorf("the client got %d %q, %v, want %d %q", got.status, got.body, got.err, want.status, want.body)
				}
				if got.header.Get("content-type") != want.header.Get("content-type") {
					t.Errorf("content-type = %q, want %q", got.header.Get("content-type"), want.header.Get("content-type"))
				}
				s.calls(t, c.id, "a:1 b:0")
			})
		}
	}
	s.breaker(t, "claude/a", closed)
	s.breaker(t, "gpt/a", closed)
}

func TestAMalformedRequestIsAnsweredByThePrimary(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	const broken = `{"model": "m", "messages": [`
	req := s.request(within(t, patience), t, call{path: messages, script: "a=400"}, strings.NewReader(broken))
	a := s.do(req)
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "invalid_request_error") {
		t.Errorf("the client got %d %s, want the provider's own 400", a.status, a.body)
	}
	s.calls(t, t.Name(), "a:1 b:0")
	if got := string(s.providers["a"].Requests(t.Name())[0].Body); got != broken {
		t.Errorf("the provider got %q, want it untouched: %q", got, broken)
	}
}

func TestASpentChainTellsTheMostTellingFailure(t *testing.T) {
	t.Parallel()
	var chains []chain
	rows := []struct {
		name    string
		on      []string
		script  string
		status  int
		has     string
		attempt string
	}{
		{"the primary's overload rather than the fallback's 500", []string{"a", "b"}, "a=529; b=500", 529, "overloaded_error", "a:1 b:1"},
		{"the primary's overload rather than the fallback's wrong key", []string{"a", "b"}, "a=529; b=401", 529, "overloaded_error", "a:1 b:1"},
		{"nobody reachable", []string{"dead", "nodns"}, "", 503, `"error"`, ""},
		{"all cut before headers", []string{"a", "b"}, "*=reset", 503, `"error"`, "a:1 b:1"},
	}
	for _, row := range rows {
		chainFor(&chains, "anthropic", row.on...)
	}
	s := startStack(t, plan{chains: chains})
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := s.raw(within(t, patience), t, call{path: messages, stream: true, chain: chains[i].name, script: row.script})
			if err := inDialect(messages, a.body); a.status != row.status || !strings.Contains(a.body, row.has) || err != nil {
				t.Errorf("the client got %d %s, want %d and %q in an Anthropic error: %v", a.status, a.body, row.status, row.has, err)
			}
			if a.header.Get("x-llm-failover") != "" {
				t.Errorf("x-llm-failover = %q leaves to the client", a.header.Get("x-llm-failover"))
			}
			s.calls(t, t.Name(), row.attempt)
		})
	}
}

func comeBack(t *testing.T, p plan) {
	brief := fileBreaker{Failures: 1, OpenFor: 20 * time.Second}
	long := fileBreaker{Failures: 1, OpenFor: time.Hour}
	p.chains = []chain{
		{name: "brief", api: "openai", on: []string{"a", "b"}, breaker: brief},
		{name: "long", api: "openai", on: []string{"a", "b"}, breaker: long},
	}
	s := startStack(t, p)
	for _, name := range []string{"brief", "long"} {
		c := call{path: chats, chain: name, script: "*=503"}
		s.raw(within(t, patience), t, c)
		s.breaker(t, name+"/a", open)
		s.breaker(t, name+"/b", open)
		c.id = name + " again"
		a := s.raw(within(t, patience), t, c)
		if err := inDialect(chats, a.body); a.status < 500 || err != nil {
			t.Errorf("chain %s: the client got %d %s, want an OpenAI error: %v", name, a.status, a.body, err)
		}
		s.calls(t, c.id, "a:0 b:0")
		after, retry := a.header.Get("retry-after"), a.header.Get("x-should-retry")
		if name == "brief" && after == "" {
			t.Errorf("no retry-after, want the seconds until the breaker re-opens (headers %v)", a.header)
		}
		if name == "long" && (after != "" || retry != "false") {
			t.Errorf("retry-after %q, x-should-retry %q, want x-should-retry: false alone", after, retry)
		}
	}
}

func TestTheOffModeIsTheOwnersOwnAnswer(t *testing.T) {
	t.Parallel()
	off := chain{name: "off", api: "anthropic", on: []string{"a", "b"}}
	off.more.Degrade, off.more.Off = []string{"off"}, &fileOff{Status: 418, Message: "The kettle is on."}
	s := startStack(t, plan{chains: []chain{off}})
	a := s.raw(within(t, patience), t, call{path: messages, chain: "off", script: "*=529"})
	if a.status != 418 || !strings.Contains(a.body, "The kettle is on.") || a.header.Get("x-llm-degraded") != "off" {
		t.Errorf("the client got %d %s, x-llm-degraded %q, want 418, the owner's message and off", a.status, a.body, a.header.Get("x-llm-degraded"))
	}
	s.calls(t, t.Name(), "a:1 b:1")
}

func TestABlipIsTriedOnceMoreWhereThatIsConfigured(t *testing.T) {
	t.Parallel()
	again := chain{name: "again", api: "anthropic", on: []string{"a", "b"}}
	again.more.Retry = fileRetry{SameTarget: 1, On: []string{"server_error", "transport"}}
	wait := chain{name: "wait", api: "anthropic", on: []string{"a", "b"}}
	wait.more.On = map[string]string{"rate_limited": "wait", "max_wait": "3s"}
	s := startStack(t, plan{chains: []chain{again, wait}})
	for _, row := range []struct {
		chain, script, calls string
		want                 served
	}{
		{"again", "a=500, ok", "a:2 b:0", served{by: "a", target: "again/a", rung: 0}},
		{"again", "a=reset, ok", "a:2 b:0", served{by: "a", target: "again/a", rung: 0}},
		{"again", "a=500", "a:2 b:1", served{by: "b", target: "again/b", rung: 1, reason: "server_error"}},
		{"again", "a=529, ok", "a:1 b:1", served{by: "b", target: "again/b", rung: 1, reason: "overloaded"}},
		{"wait", "a=429 retry-after=1, ok", "a:2 b:0", served{by: "a", target: "wait/a", rung: 0}},
		{"wait", "a=429 retry-after=30, ok", "a:1 b:1", served{by: "b", target: "wait/b", rung: 1, reason: "rate_limited"}},
	} {
		t.Run(row.chain+" "+row.script, func(t *testing.T) {
			c := call{path: messages, chain: row.chain, script: row.script}
			row.want.check(t, c, s.sdk(within(t, patience), t, c))
			s.calls(t, t.Name(), row.calls)
		})
	}
}
