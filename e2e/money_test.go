//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// fallbackUSD is what a served exchange of a "dear" chain costs: 60 tokens of its answer, of the 100 that are reserved.
const (
	fallbackUSD = 0.06
	reserveUSD  = 0.10
	limitUSD    = 3.00
	dearScript  = "a=529; b=ok usage=0/60"
)

// dearOutput makes only the output cost, $ 0.001 a token: what is reserved depends on max_tokens alone.
var dearOutput = filePrice{Output: 1000}

// dearChain has a cheap primary and a dear fallback.
func dearChain(name string) chain {
	return chain{name: name, api: "anthropic", on: []string{"a", "b"}, breaker: sturdy,
		prices: map[string]filePrice{"a": {Output: 1}, "b": dearOutput},
		more:   fileChain{Degrade: []string{"off"}, Budget: map[string]any{"usd": limitUSD, "window": "1h"}}}
}

// organized is a config in which a header tells the tenant.
func organized(f *file) {
	f.Tenant = map[string]any{"header": "x-org", "trusted_header": true}
}

func TestSpendStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	each := dearChain("each")
	each.prices = map[string]filePrice{"a": dearOutput, "b": dearOutput}
	each.more.Budget = map[string]any{"usd": 1, "window": "1h", "per": "tenant"}
	soft := dearChain("soft")
	soft.prices = map[string]filePrice{"a": dearOutput, "b": {Output: 10}}
	soft.more.Budget = map[string]any{"usd": 1, "window": "1h", "soft": 0.5}
	premium := dearChain("premium")
	premium.more.Budget = map[string]any{"usd": 1000, "window": "month", "max_premium": 3}
	ramped := chain{name: "ramped", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy, more: fileChain{Degrade: []string{"off"}}}
	s := startStack(t, plan{replicas: 3, nats: startNATS(t, 1), edit: func(f *file) {
		organized(f)
		target := f.Targets["ramped/b"]
		target.MaxRamp = 1.5
		f.Targets["ramped/b"] = target
	}, chains: []chain{dearChain("dear"), dearChain("killed"), each, soft, premium, ramped, {name: "free", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}}})
	ctx := within(t, 2*time.Minute)
	t.Run("a budget is overspent by 200 exchanges at once", func(t *testing.T) { spendsUp(ctx, t, s) })
	t.Run("a budget is overspent across a kill -9", func(t *testing.T) { spendsUpKilled(ctx, t, s) })
	t.Run("one tenant spends another's budget", func(t *testing.T) { tenantsSpend(ctx, t, s) })
	t.Run("the soft limit does not lead to the cheaper target", func(t *testing.T) { softens(ctx, t, s) })
	t.Run("a fallback is dearer than max_premium", func(t *testing.T) { tooDear(ctx, t, s) })
	t.Run("a failover is steeper than max_ramp", func(t *testing.T) { ramps(ctx, t, s) })
	s.survives(t)
}

// wave makes n calls at once on a chain and says how many were served; any other answer must be the degraded one.
func (s *Stack) wave(ctx context.Context, t *testing.T, n int, c call) (good int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			a := s.raw(ctx, t, c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.status == http.StatusOK:
				good++
			case a.header.Get("x-llm-degraded") != "off":
				t.Errorf("the client got %.300s, want an answer or the degraded one", a.whole())
			}
		})
	}
	wg.Wait()
	return good
}

// spendAll sends waves until nothing is served any more, also when the replicas have given back what they do not need.
func (s *Stack) spendAll(ctx context.Context, t *testing.T, c call) {
	t.Helper()
	for dry := 0; dry < 2 && ctx.Err() == nil; dry++ {
		if s.wave(ctx, t, 200, c) > 0 {
			dry = -1
		} else if dry == 0 {
			wait(ctx, 2*time.Second)
		}
	}
}

// billed is what provider b asks for the calls of a script id, by its own record.
func (s *Stack) billed(id string) float64 { return float64(s.providers["b"].Count(id)) * fallbackUSD }

func spendsUp(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "dear", script: dearScript, id: t.Name()}
	s.spendAll(ctx, t, c)
	spent := s.billed(c.id)
	if spent > limitUSD || spent <= limitUSD-reserveUSD {
		t.Errorf("the provider asks for $ %.2f, want at most %.2f and less than %.2f below", spent, limitUSD, reserveUSD)
	}
	s.each(t, near(limitUSD-spent), "understudy_budget_remaining_usd", "chain", "dear")
	s.reads(t, near(spent), "understudy_spend_usd_total", "chain", "dear")
	s.each(t, is(0), "understudy_budget_state", "chain", "dear") // the cheap primary can be afforded still

	for _, other := range []string{"free", ""} { // blocks nothing else
		c := call{path: messages, chain: other, script: dearScript, id: t.Name() + " other"}
		if a := s.raw(ctx, t, c); a.status != http.StatusOK {
			t.Errorf("chain %q answers %.300s, want it to serve on", other, a.whole())
		}
	}
}

func near(want float64) func(float64) bool {
	return func(got float64) bool { return math.Abs(got-want) < 1e-6 }
}

func spendsUpKilled(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "killed", script: dearScript + " after=200ms", id: t.Name()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.wave(ctx, t, 200, c)
	}()
	if err := s.providers["b"].AwaitRequests(ctx, c.id, 10); err != nil {
		t.Fatal(err)
	}
	s.services[1].kill()
	<-done
	if err := s.startService(t, 1); err != nil {
		t.Fatal(err)
	}
	s.spendAll(ctx, t, c)
	spent := s.billed(c.id)
	t.Logf("the provider asks for $ %.2f of %.2f", spent, limitUSD)
	if spent > limitUSD || spent < limitUSD/2 {
		t.Errorf("the provider asks for $ %.2f, want at most %.2f, and not much less", spent, limitUSD)
	}
}

func tenantsSpend(ctx context.Context, t *testing.T, s *Stack) {
	of := func(org string) call {
		return call{path: messages, chain: "each", script: dearScript, id: t.Name() + org, header: map[string]string{"x-org": org}}
	}
	s.spendAll(ctx, t, of("acme"))
	if spent := s.billed(of("acme").id); spent > 1 || spent <= 1-reserveUSD {
		t.Errorf("acme has spent $ %.2f, want at most 1 and less than %.2f below", spent, reserveUSD)
	}
	if a := s.raw(ctx, t, of("globex")); a.status != http.StatusOK {
		t.Errorf("globex got %.300s, want an answer: its budget is its own", a.whole())
	}
	eventually(t, patience, func() error { // a replica hears of what the others spent when it is asked
		a := s.raw(ctx, t, of("acme"))
		if a.status != 503 || a.header.Get("x-llm-degraded") != "off" || a.header.Get("x-should-retry") != "false" {
			return fmt.Errorf("the client got %.300s, %v, want the degraded answer and no reason to retry for an hour", a.whole(), a.header)
		}
		if sum, err := s.total(t, "understudy_budget_state", "chain", "each"); err != nil || sum != 6 {
			return fmt.Errorf("the states of three replicas add up to %v, %v, want all of them open", sum, err)
		}
		return nil
	})
	s.each(t, atLeast(1), "understudy_budget_transitions_total", "chain", "each", "from", "closed", "to", "open")
}

func softens(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "soft", script: "a=ok usage=0/60; b=ok usage=0/60", id: t.Name()}
	eventually(t, patience, func() error {
		a := s.raw(ctx, t, c)
		if a.status != http.StatusOK {
			t.Fatalf("the client got %.300s, want an answer", a.whole())
		}
		if got := a.header.Get("x-llm-target"); got != "soft/b" {
			return fmt.Errorf("%s served", got)
		}
		return nil
	})
	if spent := float64(s.providers["a"].Count(c.id)) * fallbackUSD; spent < 0.5 || spent > 1 {
		t.Errorf("the dear target has cost $ %.2f before the soft limit, want 0.50 or little more", spent)
	}
	s.reads(t, atLeast(1), "understudy_budget_transitions_total", "chain", "soft", "to", "soft")
}

func tooDear(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "premium", script: dearScript, id: t.Name()}
	a := s.raw(ctx, t, c)
	if a.status != 503 || a.header.Get("x-llm-degraded") != "off" {
		t.Errorf("the client got %.300s, want the degraded answer", a.whole())
	}
	s.calls(t, c.id, "a:1 b:0")
	if strings.Contains(a.body, "budget") {
		t.Errorf("the client is told of budgets: %s", a.body)
	}
}

// rampTokens is what a target without a history may have in a minute at a max_ramp of 1.5.
const rampTokens = 75_000

func ramps(ctx context.Context, t *testing.T, s *Stack) {
	c := call{path: messages, chain: "ramped", script: "a=529; b=ok", id: t.Name()}
	c.body = strings.Replace(requestBody(messages, false), `"max_tokens":100`, `"max_tokens":5000`, 1)
	s.spendAll(ctx, t, c)
	sent := s.providers["b"].Count(c.id) * (5000 + len(c.body)/4)
	if sent > rampTokens || sent < rampTokens/2 {
		t.Errorf("the target was sent %d tokens in a minute, want at most %d, and not much less", sent, rampTokens)
	}
}
