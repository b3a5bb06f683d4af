package chain

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// fallback makes a bench of the targets a and b, a of which is open for long while b is as change and a minute make it.
func fallback(t *testing.T, change func(*config.Chain), ramp config.Ramp) *bench {
	rungs := targets("a", "b")
	rungs[0].Target.Breaker.OpenFor = time.Hour
	rungs[1].Target.Breaker.Ramp = ramp
	b := &bench{t: t, cfg: conf(change, rungs), memo: NewMemo(), x: Exchange{ID: "x"}}
	b.book = NewBook(b.cfg, nil, func(breaker.Transition) {})
	b.trouble("a open", "b open")
	time.Sleep(time.Minute)
	return b
}

// reaches makes an exchange, which succeeds where it gets, and says whether that is the target name.
func (b *bench) reaches(name string) bool {
	for attempt := 1; ; attempt++ {
		try, err := b.plan().Begin(Exchange{ID: "x", Attempt: attempt}, nil)
		if err == nil {
			try.Report(verdict(classify.OK))
			return try.Target.Name == name
		}
		if !errors.Is(err, ErrSkip) {
			return false
		}
	}
}

// A fallback is asked only by requests that come to it, and they come only where Check says that it may be tried.
func TestAFallbackThatComesBackGetsItsShareWhileThePrimaryIsOpen(t *testing.T) {
	for name, change := range map[string]func(*config.Chain){"plain": nil, "sticky": sticky} {
		synctest.Test(t, func(t *testing.T) {
			b := fallback(t, change, config.Ramp{Interval: 10 * time.Second, Share: 0.1})
			if !b.reaches("b") {
				t.Fatalf("%s: the trial is not made", name)
			}
			calls := 0
			for range 200 {
				if b.reaches("b") {
					calls++
				}
			}
			if calls < 19 || calls > 20 {
				t.Errorf("%s: calls of a fallback with a share of 10 %% in 200 requests = %d, want 19 or 20", name, calls)
			}
		})
	}
}

func TestAHalfOpenFallbackIsAskedForItsTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fallback(t, nil, config.Ramp{})
		br := b.book.Breaker("b")
		br.Fleet(true)
		if got := b.begin(1, nil); got != "spent" || !br.Asked(br.Truth().Gen) {
			t.Errorf("Begin(1) = %s, asked for the trial = %v; want spent and true, or no replica ever makes it", got, br.Asked(br.Truth().Gen))
		}
	})
}

func TestAChainThatObservesAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fallback(t, func(c *config.Chain) { c.Observe = true }, config.Ramp{})
		br := b.book.Breaker("b")
		br.Fleet(true)
		try, _ := b.plan().Observe(Exchange{ID: "x", Attempt: 1})
		if try.More(verdict(classify.ServerError)) || br.Asked(br.Truth().Gen) {
			t.Error("More = true, or the trial is asked for; want neither, as no request would make it")
		}
	})
}

// TestARampDoesNotKeepCallsOfOursFromAFallback: they keep to its pace by themselves.
func TestARampDoesNotKeepCallsOfOursFromAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fallback(t, nil, config.Ramp{Interval: time.Hour, Share: 0.01})
		if !b.reaches("b") {
			t.Fatal("the trial is not made")
		}
		for own, want := range map[bool]string{true: "skip", false: "spent"} {
			b.x.Own = own
			if got := b.begin(1, nil); got != want {
				t.Errorf("Begin(1) with the primary open and the fallback ramping, own: %v = %s, want %s", own, got, want)
			}
		}
	})
}

// A drill's requests go the whole way along the chain, a fault's deadline long: what they would take is missing to clients.
func TestARehearsalDoesNotTakeTheTrialFromClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fallback(t, nil, config.Ramp{})
		rehearsed, err := b.plan().Begin(Exchange{ID: "d", Attempt: 2, Drill: true}, nil)
		if err != nil || rehearsed.Target.Name != "b" {
			t.Fatalf("Begin(rehearsal) = %v, %v, want half-open b", rehearsed, err)
		}
		if !b.reaches("b") {
			t.Error("a client's request does not get the trial while a rehearsal is on its way")
		}
		rehearsed.Release()
		if got := b.book.Breaker("b").State(); got != breaker.Closed {
			t.Errorf("state = %s, want closed by the client's trial", got)
		}
	})
}

func TestARehearsalSpendsNothingOfTheRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b", "c")
		b.exchange("a", "b") // both fail
		for range 100 {
			for n := 1; n <= 3; n++ {
				try, err := b.plan().Begin(Exchange{ID: "d", Attempt: n, Drill: true}, nil)
				if err != nil {
					t.Fatalf("Begin(rehearsal, %d) = %v, want a try", n, err)
				}
				try.Release()
			}
		}
		if got := b.exchange("a", "b"); got != 3 {
			t.Errorf("a client's request makes %d attempts after a hundred rehearsals, want 3", got)
		}
		if got, want := b.plan().Live(), 2/budgetWindow.Seconds(); got != want {
			t.Errorf("Live() = %v, want %v: rehearsals are no traffic", got, want)
		}
	})
}
