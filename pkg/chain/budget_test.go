package chain

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// tenth gives a chain the default retry budget.
func tenth(c *config.Chain) { c.Retry.Budget = 0.1 }

// patient makes a bench whose breakers do not open, with the default budget unless change says otherwise.
func patient(t *testing.T, change func(*config.Chain), names ...string) *bench {
	rungs := targets(names...)
	for _, r := range rungs {
		for _, m := range r.Members {
			m.Target.Breaker = config.Breaker{Failures: 1 << 20, OpenFor: time.Minute}
		}
	}
	b := &bench{t: t, cfg: conf(func(c *config.Chain) {
		tenth(c)
		if change != nil {
			change(c)
		}
	}, rungs), memo: NewMemo(), x: Exchange{ID: "x"}}
	b.book = NewBook(b.cfg, nil, func(breaker.Transition) {})
	return b
}

// exchange makes the attempts of one exchange, in which the failing targets fail, and counts the calls of providers.
func (b *bench) exchange(failing ...string) (calls int) {
	return b.exchangeOf(Exchange{ID: "x"}, failing...)
}

func (b *bench) exchangeOf(x Exchange, failing ...string) (calls int) {
	var past []Past
	for x.Attempt = 1; ; x.Attempt++ {
		attempt := x.Attempt
		try, err := b.plan().Begin(x, past)
		if errors.Is(err, ErrSkip) {
			continue
		}
		if err != nil {
			return calls
		}
		calls++
		v := verdict(classify.OK)
		for _, name := range failing {
			if name == try.Target.Name {
				v = verdict(classify.ServerError)
			}
		}
		try.Report(v)
		if !try.More(v) {
			return calls
		}
		past = append(past, b.past(attempt, try.Index, v))
	}
}

func TestAClientsRetryIsNotTakenToTargetsInTrouble(t *testing.T) {
	for _, row := range []struct {
		name    string
		failing []string
		want    int
	}{
		{"the retry of a dead chain is as many attempts as targets", []string{"a", "b", "c"}, 1},
		{"the retry does not reach a target that is well", []string{"a", "b"}, 2},
		{"the retry is an error where one target is in trouble", []string{"a"}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := patient(t, nil, "a", "b", "c")
				b.exchange(row.failing...)
				if got := b.plan().Troubled(); got != (len(row.failing) == 3) {
					t.Errorf("Troubled() = %v with %q failing", got, row.failing)
				}
				if got := b.exchangeOf(Exchange{ID: "x", Retry: true}, row.failing...); got != row.want {
					t.Errorf("the retry made %d calls, want %d", got, row.want)
				}
			})
		})
	}
}

// extras runs exchanges, evenly over d, and counts the calls beyond each one's first.
func (b *bench) extras(n int, d time.Duration, failing ...string) (extras int) {
	for range n {
		extras += max(0, b.exchange(failing...)-1)
		time.Sleep(d / time.Duration(n))
	}
	return extras
}

func TestHowManyAttemptsBeyondTheFirstThereAre(t *testing.T) {
	none := func(c *config.Chain) { c.Retry.Budget = 1 }
	rows := []struct {
		name     string
		change   func(*config.Chain)
		failing  []string
		requests int
		least    int
		most     int
	}{
		{"a single failing primary is throttled", nil, []string{"a"}, 2000, 2000, 2000},
		{"two failing targets multiply the load", nil, []string{"a", "b"}, 2000, 150, 205},
		{"a whole chain that fails multiplies the load", nil, []string{"a", "b", "c"}, 2000, 150, 205},
		{"a chain with little traffic never fails over", nil, []string{"a", "b"}, 15, 10, 12},
		{"a budget of 1 is a bound", none, []string{"a", "b"}, 2000, 4000, 4000},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := patient(t, r.change, "a", "b", "c")
				if got := b.extras(r.requests, 10*time.Second, r.failing...); got < r.least || got > r.most {
					t.Errorf("attempts beyond the first of %d requests = %d, want %d to %d", r.requests, got, r.least, r.most)
				}
			})
		})
	}
}

func TestABlipOfTheFallbackFindsTheBudgetUnspent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b")
		b.extras(1000, 10*time.Second, "a")
		b.exchange("a", "b") // the blip
		if got := b.exchange("a"); got != 2 {
			t.Errorf("calls of the exchange after the blip = %d, want 2: the fallback is well", got)
		}
	})
}

// Nothing shows that the last target is well again while the one before it answers.
func TestATargetThatFailedLongAgoThrottlesNobody(t *testing.T) {
	for _, how := range []string{"failed once", "is half-open"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := patient(t, nil, "a", "b", "c")
				c := b.book.Breaker("c")
				c.Observe(breaker.Tally{Failed: 1, Trailing: 1})
				if how == "is half-open" {
					c.Follow(breaker.Truth{Gen: 1, Open: true, Until: time.Now().Add(time.Minute)})
				}
				time.Sleep(3 * time.Minute)
				if got := b.extras(1000, 10*time.Second, "a"); got != 1000 {
					t.Errorf("attempts beyond the first of 1000 requests = %d, want 1000: a alone fails now", got)
				}
			})
		})
	}
}

func TestASpentBudgetStillAllowsTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b", "c")
		b.extras(200, time.Second, "a", "b")
		b.book.Breaker("a").Follow(breaker.Truth{Gen: 1, Open: true, Until: time.Now().Add(time.Minute)})
		if got := b.begin(1, nil); got != "skip" {
			t.Fatalf("Begin(1) with the primary open = %s, want skip: the fallback would be the first call", got)
		}
		if got := b.begin(2, nil); got != "b" {
			t.Errorf("Begin(2) = %s, want b", got)
		}
		if got := b.begin(2, []Past{b.past(1, 0, verdict(classify.ServerError))}); got != "spent" {
			t.Errorf("Begin(2) after the call that opened the primary = %s, want spent", got)
		}
		if got := b.begin(3, nil); got != "spent" {
			t.Errorf("Begin(3), beyond the first, = %s, want spent", got)
		}
	})
}

func TestASpentBudgetEndsTheExchangeAtItsFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b")
		b.extras(200, time.Second, "a", "b")
		try, err := b.plan().Begin(Exchange{Attempt: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer try.Release()
		if try.More(verdict(classify.ServerError)) {
			t.Errorf("More(server_error) = true, want false: another attempt would be refused")
		}
	})
}

func TestABudgetComesBackWithTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b")
		b.exchange("a", "b") // from here on both are known to fail
		if got := b.extras(100, time.Second, "a", "b"); got != budgetFloor {
			t.Fatalf("attempts beyond the first in a second = %d, want %d", got, budgetFloor)
		}
		time.Sleep(2 * budgetWindow)
		if got := b.extras(100, time.Second, "a", "b"); got != budgetFloor {
			t.Errorf("attempts beyond the first after two quiet windows = %d, want %d", got, budgetFloor)
		}
	})
}

func TestASpentBudgetFadesRatherThanJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(0.1)
		b.request()
		time.Sleep(budgetWindow - time.Second)
		taken := func() (n int) {
			for b.take() {
				n++
			}
			return n
		}
		if got := taken(); got != budgetFloor {
			t.Fatalf("attempts taken = %d, want %d", got, budgetFloor)
		}
		time.Sleep(time.Second)
		if got := taken(); got != 0 {
			t.Errorf("attempts taken as the next window begins = %d, want 0", got)
		}
		time.Sleep(budgetWindow / 2)
		if got := taken(); got != budgetFloor/2 {
			t.Errorf("attempts taken in its middle = %d, want %d", got, budgetFloor/2)
		}
	})
}

func TestAReloadKeepsTheBudgetAndBringsItsNewShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b")
		b.extras(100, time.Second, "a", "b")
		reload := func(share float64) {
			cfg := conf(func(c *config.Chain) { c.Retry.Budget = share }, b.cfg.Chains[0].Rungs)
			b.book, b.cfg = NewBook(cfg, b.book, func(breaker.Transition) {}), cfg
		}
		reload(0.1)
		if got := b.exchange("a", "b"); got != 1 {
			t.Errorf("calls after a reload that changes nothing = %d, want 1: the budget is spent", got)
		}
		reload(1)
		if got := b.exchange("a", "b"); got != 2 {
			t.Errorf("calls after a reload that lifts the bound = %d, want 2", got)
		}
	})
}

func TestAnAttemptThatOnlyWaitsCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, waitWhenLimited, "a", "b")
		for _, name := range []string{"a", "b"} {
			b.book.Breaker(name).Observe(breaker.Tally{Failed: 1, Trailing: 1})
		}
		b.trouble("a cooling")
		past := []Past{b.past(1, 0, limited(2*time.Second))}
		for range 3 * budgetFloor {
			if got := b.begin(2, past); got != "a again in 2s" {
				t.Fatalf("Begin(2) after a short rate limit = %s, want a again in 2s", got)
			}
		}
	})
}

func TestNoWindowHasMoreExtrasThanItsBudget(t *testing.T) {
	check(t, func(t *rapid.T) {
		share := rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "share")
		b := newBudget(share)
		start := time.Now()
		requests, extras := map[int]float64{}, map[int]float64{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			w := int(time.Since(start) / budgetWindow)
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				time.Sleep(time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond)
			case 1, 2, 3, 4:
				b.request()
				requests[w]++
			default:
				spent := b.spent()
				ok := b.take()
				if ok == spent {
					t.Fatalf("take() = %t after spent() = %t", ok, spent)
				}
				if ok {
					extras[w]++
				}
			}
		}
		for w, n := range extras {
			// A window of the budget begins with its first use, so it may reach over two of these.
			if most := 2 * max(budgetFloor, share*(requests[w-2]+requests[w-1]+requests[w])); n > most {
				t.Fatalf("extras in window %d = %v, want at most %v", w, n, most)
			}
		}
	})
}

func TestWhatIsPassedOverAfterItsTurnTakesNothingOfTheRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b", "c")
		b.extras(5, time.Second, "a", "b") // both fail, so that attempts beyond the first are counted
		for i := range 50 {
			try, err := b.plan().Begin(Exchange{ID: "y", Attempt: 2}, []Past{b.past(1, 0, verdict(classify.ServerError))})
			if err != nil {
				t.Fatalf("Begin() of attempt 2 of exchange %d = %v, want a try: none was made yet", i+1, err)
			}
			try.Release()
			try.Release()
		}
	})
}
