package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/admin"
	"understudy/pkg/chain"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/processor"
)

func lookoutOf(t *testing.T) (*lookout, *config.Config) {
	t.Helper()
	c, err := config.Parse("u.yaml", []byte(strings.NewReplacer("DIR", "/tmp", "STORE", embedded("/tmp")).Replace(serviceYAML)))
	if err != nil {
		t.Fatal(err)
	}
	return &lookout{
		book: func() *config.Config { return c }, why: func(string) string { return "overloaded" },
		kept:     func(string) bool { return true },
		verdicts: map[string]*ring[admin.Verdict]{}, traffic: map[string]*flow{}, config: admin.Config{OK: true},
	}, c
}

// seen is what the page would show.
func (l *lookout) seen(c *config.Config) admin.Status {
	s := admin.Status{At: time.Now(), Targets: []admin.Target{{Name: "a/m"}, {Name: "b/m"}}, Chains: []admin.Chain{{Name: "main", Rungs: make([]admin.Rung, 2)}}}
	l.show(&s, c)
	return s
}

func record(outcome string, rung int) *processor.Record {
	now := time.Now()
	return &processor.Record{ID: "id", Chain: "main", Outcome: outcome, Rung: rung, Target: []string{"", "a/m", "b/m"}[rung+1], Start: now.Add(-time.Second), End: now}
}

func TestAChainsTrafficIsThatOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := lookoutOf(t)
		for range 3 {
			l.Exchange(record("served", 0))
		}
		l.Exchange(record("fallback", 1))
		for _, outcome := range []string{"degraded", "failed", "canceled"} {
			l.Exchange(record(outcome, -1))
		}
		job, marked := record("served", 0), record("served", 0)
		job.Job, marked.Marked = true, true
		l.Exchange(job)
		l.Exchange(marked)
		ch := l.seen(c).Chains[0]
		if want := (admin.Outcomes{Served: 3, Fallback: 1, Degraded: 1, Failed: 1, Canceled: 1}); ch.Outcomes != want {
			t.Errorf("outcomes = %+v, want %+v", ch.Outcomes, want)
		}
		if ch.Rungs[0].Served != 3 || ch.Rungs[0].Share != 0.75 || ch.Rungs[1].Share != 0.25 {
			t.Errorf("rungs = %+v, want 3 of 4 and 1 of 4", ch.Rungs)
		}
		time.Sleep(window - slot)
		if got := l.seen(c).Chains[0].Outcomes.Total(); got != 7 {
			t.Errorf("%d exchanges just before the window is over, want 7", got)
		}
		l.Exchange(record("served", 0))
		time.Sleep(slot)
		if got := l.seen(c).Chains[0].Outcomes.Total(); got != 1 {
			t.Errorf("%d exchanges after the window, want only the one that came since", got)
		}
		time.Sleep(10 * window)
		l.Exchange(record("served", 0)) // in a slot that was used before
		if got := l.seen(c).Chains[0].Outcomes.Total(); got != 1 {
			t.Errorf("%d exchanges much later, want 1", got)
		}
	})
}

func TestFailoversSayWhoFromToAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := lookoutOf(t)
		l.Exchange(record("served", 0))
		l.Exchange(record("canceled", 0))
		skipped := record("fallback", 1)
		skipped.Reason = "overloaded"
		l.Exchange(skipped)
		tried := record("fallback", 1)
		tried.ID, tried.Reason, tried.Attempts = strings.Repeat("x", 5000)+"\xff", "timeout", 2
		tried.Past = []chain.Past{{Target: "a/m", At: tried.Start.Add(300 * time.Millisecond)}}
		l.Exchange(tried)
		lost := record("failed", -1)
		lost.Verdict = classify.Verdict{Class: classify.Auth}
		l.Exchange(lost)
		l.Exchange(record("fallback", 1))
		got := l.seen(c).Failovers
		if len(got) != 4 {
			t.Fatalf("%d failovers, want 4: %+v", len(got), got)
		}
		if f := got[3]; f.From != "a/m" || f.To != "b/m" || f.Why != "overloaded" || f.Lost != 0 || f.Took != 1000 || f.Exchange != "id" {
			t.Errorf("of a skipped target: %+v", f)
		}
		if f := got[2]; f.From != "a/m" || f.Why != "timeout" || f.Lost != 300 || f.Attempts != 2 || len(f.Exchange) > maxWord {
			t.Errorf("of a target that failed: %+v", f)
		}
		if f := got[0]; f.From != "a/m" || f.Why != "forced open" {
			t.Errorf("of a target that is forced open: %+v", f)
		}
		if f := got[1]; f.To != "" || f.Outcome != "failed" || f.Why != "auth" {
			t.Errorf("of one that nobody served: %+v", f)
		}
	})
}

func TestWhatIsRememberedIsBoundedAndTheLatestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := lookoutOf(t)
		for i := range 3 * keptEvents {
			r := record("fallback", 1)
			r.ID = fmt.Sprint(i)
			l.Exchange(r)
			l.Attempt("a/m", classify.Verdict{Class: classify.Overloaded, Detail: fmt.Sprint(i)})
			l.Attempt("gone/m", classify.Verdict{})
			l.Transition(breaker.Transition{Target: "a/m", From: breaker.Closed, To: breaker.Open, Own: i%2 == 0})
		}
		l.forced("a/m", breaker.Released, breaker.ForcedOpen)
		s := l.seen(c)
		last := fmt.Sprint(3*keptEvents - 1)
		if len(s.Failovers) != keptEvents || s.Failovers[0].Exchange != last || s.Failovers[keptEvents-1].Exchange != fmt.Sprint(2*keptEvents) {
			t.Errorf("%d failovers from %s to %s, want the last %d", len(s.Failovers), s.Failovers[0].Exchange, s.Failovers[len(s.Failovers)-1].Exchange, keptEvents)
		}
		if v := s.Targets[0].Verdicts; len(v) != keptVerdicts || v[0].Detail != last || v[0].Class != "overloaded" || s.Targets[1].Verdicts == nil {
			t.Errorf("verdicts = %+v, want the last %d", v, keptVerdicts)
		}
		if got := s.Transitions[:3]; !slices.Equal([]string{got[0].By, got[1].By, got[2].By}, []string{"an operator", "the fleet", "this replica"}) || got[0].To != "forced open" || got[1].Why != "overloaded" {
			t.Errorf("transitions = %+v", got)
		}
		if len(l.verdicts) != 1 {
			t.Errorf("verdicts of %d targets are kept, want 1: the config has no other that was tried", len(l.verdicts))
		}
	})
}

func TestAnEnvoyOfAnotherVersionIsKnown(t *testing.T) {
	for version, want := range map[string]bool{
		"1.36.4": true, "1.40.0": true, "1.40.7": true, "1.38.0": true, "1.36.3": false, "1.35.9": false, "1.41.0": false, "1.100.0": false, "2.0.0": false, "": false, "dev": false,
	} {
		if got := isMadeFor(version); got != want {
			t.Errorf("isMadeFor(%q) = %v, want %v", version, got, want)
		}
	}
}

// BenchmarkLookout is what the page costs each exchange with one attempt, with all processors at it.
func BenchmarkLookout(b *testing.B) {
	l := &lookout{book: func() *config.Config { return &config.Config{} }, verdicts: map[string]*ring[admin.Verdict]{}, traffic: map[string]*flow{}}
	r := record("served", 0)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Attempt("a/m", classify.Verdict{Class: classify.OK})
			l.Exchange(r)
		}
	})
}

func TestWhatAReloadTakesAwayIsForgottenThoughNobodyLooks(t *testing.T) {
	l, _ := lookoutOf(t)
	gone := record("served", 0)
	gone.Chain = "gone"
	l.Exchange(gone)
	l.Exchange(record("served", 0))
	l.Attempt("gone/m", classify.Verdict{Class: classify.OK})
	l.Attempt("a/m", classify.Verdict{Class: classify.OK})
	l.reloaded(nil)
	if len(l.traffic) != 1 || l.traffic["main"] == nil || len(l.verdicts) != 1 || l.verdicts["a/m"] == nil {
		t.Errorf("after a reload traffic of %d chains and verdicts of %d targets are kept, want those of the config alone", len(l.traffic), len(l.verdicts))
	}
}

func TestAFileWithAFaultInEachLineFillsNoPage(t *testing.T) {
	l, c := lookoutOf(t)
	l.reloaded(errors.New(strings.Repeat("é", maxText)))
	if got := l.seen(c).Config; got.OK || len(got.Error) > maxText+len("…") || !strings.HasPrefix(got.Error, "éé") {
		t.Errorf("config = %.50v…, %d bytes, want the beginning of the error", got, len(got.Error))
	}
}
