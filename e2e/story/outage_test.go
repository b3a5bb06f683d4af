//go:build story

package story

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"understudy/internal/stage"
	"understudy/pkg/admin"
)

// feature is a chain of the stack as its operator knows it.
type feature struct {
	chain, primary, fallback string
	provider, second         string // the accounts of primary and fallback
	row, breaker             string // ids of the chain and of its primary on the status page
}

// One primary is down for less than a minute, the other until somebody is told that its chain runs on a fallback: so two
// alerts that take minutes, one to resolve and one to fire, do so at once.
func TestTheOperatorIsToldOfAnOutageAndOfItsEnd(t *testing.T) {
	s := startStack(t)
	answers := feature{"answers", "a/sonnet", "b/sonnet", "a", "b", "c0", "t0"}
	chat := feature{"chat", "c/gpt", "d/gpt", "c", "d", "c1", "t2"}
	messages, completions := s.steady(stage.Call{API: "anthropic", Stream: true}), s.steady(stage.Call{API: "openai"})
	s.quiet(`understudy_exchanges_total{outcome="served"} >= 10`, 2)
	s.shows("summary", "all 4 closed")
	s.shows("failovers", "None since the start")

	began := time.Now()
	s.plays(answers.provider, "529")
	s.plays(chat.provider, "529")
	for _, f := range []feature{answers, chat} {
		s.breakerAlert(f, began)
		s.showsTheFallback(f)
	}
	s.shows("summary", "2 of 4 not closed")

	ended := time.Now()
	s.plays(answers.provider, "ok")
	s.showsTheRecovery(answers)
	s.shows("summary", "1 of 4 not closed")
	s.fallbackAlert(chat, began)
	if got, err := s.alert(t.Context(), about{"UnderstudyChainOnFallback", "chain", answers.chain}); err != nil || got.State == "firing" {
		t.Errorf("the alert of %s, which was on its fallback for a moment = %q, %v, want that nobody is told", answers.chain, got.State, err)
	}
	s.plays(chat.provider, "ok")
	s.showsTheRecovery(chat)
	s.shows("summary", "all 4 closed")
	s.resolves(3*time.Minute, about{"UnderstudyBreakerOpen", "target", answers.primary})
	t.Logf("the alert of %s resolved %s after its provider was well again, which had been down for %s", answers.primary, since(ended), ended.Sub(began).Round(time.Second))

	messages.stop()
	completions.stop()
	s.accountsFor(answers, messages.calls)
	s.accountsFor(chat, completions.calls)
}

func since(at time.Time) time.Duration { return time.Since(at).Round(100 * time.Millisecond) }

// plays makes a provider do something else from now on.
func (s *stack) plays(provider, behaviour string) {
	s.t.Helper()
	if err := s.providers[provider].Set(behaviour); err != nil {
		s.t.Fatal(err)
	}
}

// breakerAlert waits for the outage alert, which names the target and whom it harms, and nobody else.
func (s *stack) breakerAlert(f feature, began time.Time) {
	s.t.Helper()
	a := about{"UnderstudyBreakerOpen", "target", f.primary}
	got := s.fires(stage.Patience, a)
	s.t.Logf("%s fired %s after the outage began; its breaker had opened after %s", a, since(began), s.opened(f.primary).Sub(began).Round(time.Millisecond))
	s.says(got, "summary", f.primary)
	s.says(got, "description", f.primary, "last day: "+f.chain+".") // the list of chains, to its end
	s.says(got, "runbook_url", "docs/runbook.md#understudybreakeropen")
}

// fallbackAlert waits for the alert of a chain that has long been without its primary.
func (s *stack) fallbackAlert(f feature, began time.Time) {
	s.t.Helper()
	a := about{"UnderstudyChainOnFallback", "chain", f.chain}
	got := s.fires(4*time.Minute, a)
	s.t.Logf("%s fired %s after the outage began", a, since(began))
	s.says(got, "summary", f.chain)
	s.says(got, "description", f.chain, "answered by "+f.fallback+" and not by its primary")
}

func (s *stack) says(a alert, annotation string, words ...string) {
	s.t.Helper()
	text := strings.Join(strings.Fields(a.Annotations[annotation]), " ")
	for _, w := range words {
		if !strings.Contains(text, w) {
			s.t.Errorf("%s of %v = %q, want %q in it", annotation, a.Labels, text, w)
		}
	}
}

// opened is when a target's breaker opened first, of the transitions that are remembered.
func (s *stack) opened(target string) (at time.Time) {
	s.t.Helper()
	status, err := stage.GetJSON[admin.Status](s.t.Context(), s.status+"/api/status")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, tr := range status.Transitions { // the latest first
		if tr.Target == target && tr.From == "closed" && tr.To == "open" {
			at = tr.At
		}
	}
	if at.IsZero() {
		s.t.Errorf("transitions = %v, want one of %s from closed to open", status.Transitions, target)
	}
	return at
}

// showsTheFallback looks for where a chain's requests go, on the page and in what it is made of.
func (s *stack) showsTheFallback(f feature) {
	s.t.Helper()
	s.shows(f.breaker, "✕ open", "half-open in", "last failure: overloaded")
	s.shows(f.row, "✕ open "+f.primary+` \d+ %`, "✓ closed "+f.fallback+` [1-9]\d* %`, `by the primary, [1-9]\d* by a fallback`)
	s.shows("failovers", f.chain+` \S+ `+f.primary+" "+f.fallback+" overloaded")
	s.shows("transitions", f.primary+" closed open overloaded this replica")
	c, err := s.chain(s.t.Context(), f.chain)
	if err != nil {
		s.t.Fatal(err)
	}
	if c.Outcomes.Fallback == 0 || c.Rungs[1].Served != c.Outcomes.Fallback || c.Rungs[1].Share <= 0 {
		s.t.Errorf("in the outage %s has outcomes %+v and rungs %+v, want fallbacks, all of the second rung", f.chain, c.Outcomes, c.Rungs)
	}
}

// showsTheRecovery waits until the page tells that a primary is tried, is well and serves.
func (s *stack) showsTheRecovery(f feature) {
	s.t.Helper()
	s.shows(f.breaker, "✓ closed", "100 % ok")
	s.shows(f.row, "✓ closed "+f.primary+` [1-9]\d* %`)
	s.shows("transitions", f.primary+" half-open closed")
	before, err := s.chain(s.t.Context(), f.chain)
	if err != nil {
		s.t.Fatal(err)
	}
	stage.Eventually(s.t, stage.Patience, "the primary of "+f.chain, func(ctx context.Context) error {
		now, err := s.chain(ctx, f.chain)
		if err == nil && now.Outcomes.Served <= before.Outcomes.Served {
			err = fmt.Errorf("it has served %d, want more", now.Outcomes.Served)
		}
		return err
	})
}

// accountsFor compares what /api/status says of the whole story, which its window of five minutes holds, with what was
// asked and with what the fallback's provider has seen.
func (s *stack) accountsFor(f feature, calls int) {
	s.t.Helper()
	fallback := s.providers[f.second].Count("")
	want := admin.Outcomes{Served: calls - fallback, Fallback: fallback}
	stage.Eventually(s.t, stage.Patience, "the account of "+f.chain, func(ctx context.Context) error {
		c, err := s.chain(ctx, f.chain)
		if err == nil && (c.Outcomes != want || c.Rungs[0].Served != want.Served || c.Rungs[1].Served != want.Fallback) {
			err = fmt.Errorf("outcomes %+v, rungs %+v, want %+v", c.Outcomes, c.Rungs, want)
		}
		return err
	})
	s.t.Logf("%s: %d calls, all answered: %d by %s, %d by %s", f.chain, calls, want.Served, f.primary, fallback, f.fallback)
}
