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

func TestWhichTargetAnAttemptGets(t *testing.T) {
	rows := []struct {
		name    string
		change  func(*config.Chain)
		trouble []string
		attempt int
		want    string
	}{
		{"the first attempt does not go to the primary", nil, nil, 1, "a"},
		{"attempt two on a replica that saw nothing does not go to the second target", nil, nil, 2, "b"},
		{"the last attempt does not go to the last target", nil, nil, 3, "c"},
		{"an open primary ends the exchange", nil, []string{"a open"}, 1, "skip"},
		{"a cooling primary is tried", nil, []string{"a cooling"}, 1, "skip"},
		{"a skip promises a target where none is left", nil, []string{"a open", "b open", "c cooling"}, 1, "spent"},
		{"a skip forgets the targets after the next one", nil, []string{"a open", "b open"}, 1, "skip"},
		{"an open last target is skipped to nowhere", nil, []string{"c open"}, 3, "spent"},
		{"attempt numbers beyond the last slot end an exchange that reached nobody", nil, nil, 4, "a"},
		{"the second number beyond the last slot tries the same target again", nil, nil, 5, "b"},
		{"the walk beyond the last slot begins at an open target", nil, []string{"a open"}, 4, "b"},
		{"the walk beyond the last slot goes on past its end", nil, []string{"a open"}, 6, "spent"},
		{"the walk beyond the last slot tries what is not allowed", nil, []string{"a open", "b open", "c open"}, 4, "spent"},
		{"the walk goes on when Envoy will make no further attempt", nil, nil, 9, "spent"},
		{"without an attempt count the primary is passed over", nil, nil, 0, "a"},
		{"without an attempt count an open primary is the end", nil, []string{"a open", "b cooling"}, 0, "c"},
		{"without an attempt count nothing allowed is not told", nil, []string{"a open", "b open", "c open"}, 0, "spent"},
		{"a same-target retry happens without knowing that the first try failed", retrySame, nil, 2, "skip"},
		{"with a same-target retry the third number is not the second target", retrySame, nil, 3, "b"},
		{"without an attempt count the same target is tried twice", retrySame, []string{"a open"}, 0, "b"},
		{"the walk beyond the last slot repeats targets", retrySame, nil, 8, "b"},
		{"the last slot's retry on a replica that saw nothing is skipped to nowhere", retrySame, nil, 6, "spent"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a", "b", "c")
				b.trouble(row.trouble...)
				if got := b.begin(row.attempt, nil); got != row.want {
					t.Errorf("Begin(attempt %d) = %s, want %s", row.attempt, got, row.want)
				}
			})
		})
	}
}

func TestWhatIsRememberedOfAnExchange(t *testing.T) {
	type seen struct {
		attempt, slot int
		v             classify.Verdict
	}
	failed := verdict(classify.ServerError)
	next := func(c *config.Chain) { c.On.Refusal, c.On.Filtered = "next", "next" }
	larger := func(c *config.Chain) { c.Rungs[2].Larger = true }
	rows := []struct {
		name    string
		change  func(*config.Chain)
		trouble []string
		past    []seen
		attempt int
		want    string
	}{
		{"a target is tried again where nothing says so", nil, nil, []seen{{1, 0, failed}}, 2, "b"},
		{"a number beyond the last slot repeats an exchange that has failed", nil, nil, []seen{{3, 2, failed}}, 4, "spent"},
		{"the walk beyond the last slot ends after its own first failure", nil, nil, []seen{{4, 0, failed}}, 5, "b"},
		{"the walk tries a target twice as others failed elsewhere", nil, nil, []seen{{4, 0, failed}}, 6, "c"},
		{"the walk tries a target that failed on it", nil, nil, []seen{{4, 0, failed}, {5, 1, failed}, {6, 2, failed}}, 7, "spent"},
		{"a blip is not tried again", retrySame, nil, []seen{{1, 0, failed}}, 2, "a again"},
		{"a class that is not to be retried is", retrySame, nil, []seen{{1, 0, verdict(classify.Overloaded)}}, 2, "skip"},
		{"a blip of another target counts", retrySame, nil, []seen{{1, 0, failed}}, 4, "skip"},
		{"a blip of the attempt before last counts", retrySame, nil, []seen{{1, 0, failed}, {3, 2, verdict(classify.Timeout)}}, 4, "skip"},
		{"a retry goes to a target that has opened", retrySame, []string{"a open"}, []seen{{1, 0, failed}}, 2, "skip"},
		{"a short rate limit is not waited out", waitWhenLimited, []string{"a cooling"}, []seen{{1, 0, limited(2 * time.Second)}}, 2, "a again in 2s"},
		{"a rate limit that is over is waited for", waitWhenLimited, nil, []seen{{1, 0, limited(time.Second)}}, 2, "a again"},
		{"a long rate limit is waited out", waitWhenLimited, []string{"a cooling long"}, []seen{{1, 0, limited(20 * time.Second)}}, 2, "skip"},
		{"a cooldown that others made longer is waited out", waitWhenLimited, []string{"a cooling long"}, []seen{{1, 0, limited(2 * time.Second)}}, 2, "skip"},
		{"a rate limit without Retry-After is waited out", waitWhenLimited, []string{"a cooling"}, []seen{{1, 0, limited(0)}}, 2, "skip"},
		{"an overload is waited out", waitWhenLimited, []string{"a cooling"}, []seen{{1, 0, verdict(classify.Overloaded)}}, 2, "skip"},
		{"a rate limit is waited out where it should not be", retrySame, []string{"a cooling"}, []seen{{1, 0, limited(2 * time.Second)}}, 2, "skip"},
		{"a prompt too long goes to a target that is not larger", larger, nil, []seen{{1, 0, verdict(classify.ContextLength)}}, 2, "skip"},
		{"a prompt too long does not go to the larger target", larger, nil, []seen{{1, 0, verdict(classify.ContextLength)}}, 3, "c"},
		{"a later failure hides that the prompt is too long", nil, nil, []seen{{1, 0, verdict(classify.ContextLength)}, {2, 1, failed}}, 3, "spent"},
		{"a refusal goes to the same family", next, nil, []seen{{1, 0, verdict(classify.Refusal)}}, 2, "skip"},
		{"a refusal does not go to another family", next, nil, []seen{{1, 0, verdict(classify.Refusal)}}, 3, "c"},
		{"a later failure hides that the family refused", next, nil, []seen{{1, 0, verdict(classify.Refusal)}, {3, 2, failed}}, 2, "skip"},
		{"a filter of one platform speaks against the family on another", next, nil, []seen{{1, 0, verdict(classify.Filtered)}}, 2, "b"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a:m", "b:m", "c")
				b.trouble(row.trouble...)
				var past []Past
				for _, p := range row.past {
					past = append(past, b.past(p.attempt, p.slot, p.v))
				}
				if got := b.begin(row.attempt, past); got != row.want {
					t.Errorf("Begin(attempt %d, %v) = %s, want %s", row.attempt, row.past, got, row.want)
				}
			})
		})
	}
}

func TestAMemoryFromBeforeAReloadIsNoPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newBench(t, retrySame, "a", "b", "gone")
		past := []Past{old.past(5, 4, verdict(classify.Refusal))}
		b := newBench(t, retrySame, "a")
		if got := b.begin(2, past); got != "spent" {
			t.Errorf("Begin(attempt 2) = %s, want spent", got)
		}
		if got := b.begin(1, past); got != "a" {
			t.Errorf("Begin(attempt 1) = %s, want a", got)
		}
	})
}

func TestATargetWithoutItsSecretIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a", "b")
		absent, err := config.ReadSecret("env:UNDERSTUDY_TEST_ABSENT")
		if err != nil {
			t.Fatal(err)
		}
		p := *b.cfg.Targets["b"].Provider
		p.Auth = config.Auth{Header: "x-api-key", Secret: absent}
		b.cfg.Targets["b"].Provider = &p
		if got := b.begin(2, nil); got != "spent" {
			t.Errorf("Begin(2) = %s, want spent", got)
		}
		try, err := b.plan().Begin(Exchange{Attempt: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer try.Release()
		if try.More(verdict(classify.ServerError)) {
			t.Errorf("More(server_error) = true with a target left that has no secret, want false")
		}
	})
}

func TestASpentChainSaysWhyForEachTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a", "b")
		b.trouble("a open", "b cooling")
		want := "no target of the chain may be tried: a: target may not be tried: its breaker is open; " +
			"b: target may not be tried: it is cooling down after a rate limit"
		for attempt := range 2 {
			_, err := b.plan().Begin(Exchange{Attempt: attempt}, nil)
			if err == nil || err.Error() != want || !errors.Is(err, breaker.ErrOpen) || !errors.Is(err, breaker.ErrCooling) {
				t.Errorf("Begin(attempt %d) = %v, want %s", attempt, err, want)
			}
		}
	})
}

func TestWaitingOutARateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, waitWhenLimited, "a", "b")
		first, err := b.plan().Begin(Exchange{ID: "x", Attempt: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := limited(3 * time.Second); !first.More(v) {
			t.Errorf("More(%v) = false, want true", v)
		} else {
			b.memo.Add("x", b.past(1, 0, v))
			time.Sleep(3 * time.Millisecond) // until it is reported, and the front is back
			first.Report(v)
		}
		if got := b.begin(2, b.memo.Of("x")); got != "a again in 3s" {
			t.Fatalf("Begin(2) = %s, want a again in 3s", got)
		}
		time.Sleep(3 * time.Second)
		if got := b.begin(2, b.memo.Of("x")); got != "a again" {
			t.Errorf("Begin(2) after the wait = %s, want a again", got)
		}
		b.trouble("a cooling")
		if got := b.begin(2, b.memo.Of("x")); got != "skip" {
			t.Errorf("Begin(2) = %s when others were rate limited meanwhile, want skip: Envoy does not wait for ever", got)
		}
	})
}

func TestAnExchangeGoesOnWhereAllThatIsLeftIsAShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, waitWhenLimited, "a", "b")
		b.trouble("b open")
		try, err := b.plan().Begin(Exchange{Attempt: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if try.Report(limited(2 * time.Second)); !try.More(limited(2 * time.Second)) {
			t.Errorf("More(rate_limited) = false once the target cools, want true")
		}
	})
}

func TestWhetherAnExchangeGoesOn(t *testing.T) {
	rows := []struct {
		name    string
		change  func(*config.Chain)
		trouble []string
		attempt int
		v       classify.Verdict
		want    bool
	}{
		{"a failure of the primary is final", nil, nil, 1, verdict(classify.Overloaded), true},
		{"a failure of the last target is sent on", nil, nil, 3, verdict(classify.Overloaded), false},
		{"a failure is sent on to targets that are open", nil, []string{"b open", "c cooling"}, 1, verdict(classify.Overloaded), false},
		{"a failure is final though the last target is free", nil, []string{"b open"}, 1, verdict(classify.Overloaded), true},
		{"a caller's fault is sent on", nil, nil, 1, verdict(classify.Invalid), false},
		{"a failure is sent on where no front retries", nil, nil, 0, verdict(classify.Overloaded), false},
		{"a blip of the only free target is final", retrySame, []string{"b open", "c open"}, 1, verdict(classify.ServerError), true},
		{"no blip is tried again", retrySame, []string{"b open", "c open"}, 1, verdict(classify.Overloaded), false},
		{"a short rate limit of the only free target is final", waitWhenLimited, []string{"b open", "c open"}, 1, limited(3 * time.Second), true},
		{"a long rate limit of the only free target is sent on", waitWhenLimited, []string{"b open", "c open"}, 1, limited(4 * time.Second), false},
		{"a prompt too long is sent on where no larger target is", nil, nil, 1, verdict(classify.ContextLength), false},
		{"the walk beyond the last slot stops at its first failure", nil, nil, 4, verdict(classify.Overloaded), true},
		{"the walk beyond the last slot goes on past its end", nil, []string{"b open"}, 5, verdict(classify.Overloaded), false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a", "b", "c")
				b.trouble(row.trouble...)
				try, err := b.plan().Begin(Exchange{Attempt: row.attempt}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer try.Release()
				if got := try.More(row.v); got != row.want {
					t.Errorf("More(%v) = %v, want %v", row.v.Class, got, row.want)
				}
			})
		})
	}
}

func TestWhatAReportDoesToTheTarget(t *testing.T) {
	rows := []struct {
		name  string
		v     classify.Verdict
		want  error
		cools time.Duration
		last  string
	}{
		{"an answer opens the breaker", verdict(classify.OK), nil, 0, ""},
		{"an overload does not count", verdict(classify.Overloaded), breaker.ErrOpen, 0, "overloaded"},
		{"a server error does not count", verdict(classify.ServerError), breaker.ErrOpen, 0, "server_error"},
		{"a timeout does not count", verdict(classify.Timeout), breaker.ErrOpen, 0, "timeout"},
		{"a reset does not count", verdict(classify.Transport), breaker.ErrOpen, 0, "transport"},
		{"a cut answer does not count", verdict(classify.Truncated), breaker.ErrOpen, 0, "truncated"},
		{"nonsense does not count", verdict(classify.Malformed), breaker.ErrOpen, 0, "malformed"},
		{"a rate limit trips, or does not cool", limited(2 * time.Second), breaker.ErrCooling, 2 * time.Second, "rate_limited"},
		{"a rate limit without Retry-After does not cool", limited(0), breaker.ErrCooling, DefaultPause, "rate_limited"},
		{"a negative Retry-After ends cooldowns", limited(-time.Minute), breaker.ErrCooling, DefaultPause, "rate_limited"},
		{"an absurd Retry-After wraps round", classify.Verdict{Class: classify.RateLimited, RetryAfterMS: 1 << 62}, breaker.ErrCooling, maxPause, "rate_limited"},
		{"missing capacity trips", verdict(classify.Capacity), nil, 0, ""},
		{"missing money trips", verdict(classify.Quota), nil, 0, ""},
		{"a wrong key trips", verdict(classify.Auth), nil, 0, ""},
		{"a caller's fault trips", verdict(classify.Invalid), nil, 0, ""},
		{"a prompt too long trips", verdict(classify.ContextLength), nil, 0, ""},
		{"a refusal trips", verdict(classify.Refusal), nil, 0, ""},
		{"a filter trips", verdict(classify.Filtered), nil, 0, ""},
		{"a client that went away trips", verdict(classify.Canceled), nil, 0, ""},
		{"an answer that nobody read trips", verdict(classify.None), nil, 0, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil, "a")
				try, err := b.plan().Begin(Exchange{Attempt: 1}, nil)
				if err != nil {
					t.Fatal(err)
				}
				try.Report(row.v)
				try.Release()
				a := b.book.Breaker("a")
				if got := a.Check(); got != row.want {
					t.Errorf("Check() after Report(%v) = %v, want %v", row.v.Class, got, row.want)
				}
				if got := max(0, time.Until(a.Cooling())); got != row.cools {
					t.Errorf("cools for %v after Report(%v), want %v", got, row.v.Class, row.cools)
				}
				if got := a.Last(); got != row.last {
					t.Errorf("Last() after Report(%v) = %q, want %q", row.v.Class, got, row.last)
				}
			})
		})
	}
}

func TestAPermitThatIsOnlyReleasedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a")
		b.trouble("a open")
		time.Sleep(time.Minute)
		for range 3 {
			if got := b.begin(1, nil); got != "a" {
				t.Fatalf("Begin(1) while half-open = %s, want a", got)
			}
		}
		try, err := b.plan().Begin(Exchange{Attempt: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.begin(1, nil); got != "spent" {
			t.Errorf("Begin(1) beside the trial = %s, want spent", got)
		}
		try.Report(verdict(classify.OK))
		if got := b.book.Breaker("a").State(); got != breaker.Closed {
			t.Errorf("State() after a good trial = %v, want closed", got)
		}
	})
}
