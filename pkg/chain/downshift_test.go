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

func fromB(c *config.Chain) { c.Downshift = 1 }

func TestADownshiftHasItsTurnAndItsCallers(t *testing.T) {
	rows := []struct {
		name     string
		change   func(*config.Chain)
		trouble  []string
		attempt  int
		unwanted bool
		want     string
	}{
		{"a downshift is not offered to a caller who takes it", fromB, []string{"a open"}, 1, false, "skip"},
		{"a downshift is not made", fromB, nil, 2, false, "b, downshift"},
		{"a chain without one has a downshift", nil, nil, 2, false, "b"},
		{"a caller who does not take it gets a downshift", fromB, nil, 2, true, "spent"},
		{"a caller who does not take it is sent on for one", fromB, []string{"a open"}, 1, true, "spent"},
		{"the walk beyond the last slot downshifts a caller who does not take it", fromB, []string{"a open"}, 4, true, "spent"},
		{"without an attempt count a caller who does not take it is downshifted", fromB, []string{"a open"}, 0, true, "spent"},
		{"without an attempt count there is no downshift", fromB, []string{"a open"}, 0, false, "b, downshift"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a", "b", "c")
				b.trouble(row.trouble...)
				try, err := b.plan().Begin(Exchange{ID: "x", Attempt: row.attempt, NoDownshift: row.unwanted}, nil)
				got := "spent"
				switch {
				case err == nil && try.Downshift:
					got = try.Target.Name + ", downshift"
				case err == nil:
					got = try.Target.Name
				case errors.Is(err, ErrSkip):
					got = "skip"
				}
				if got != row.want {
					t.Errorf("Begin(attempt %d, unwanted %v) = %s, want %s", row.attempt, row.unwanted, got, row.want)
				}
			})
		})
	}
}

func TestAFailureGoesOnToADownshiftThatIsWanted(t *testing.T) {
	for _, unwanted := range []bool{false, true} {
		b := newBench(t, fromB, "a", "b")
		try, err := b.plan().Begin(Exchange{ID: "x", Attempt: 1, NoDownshift: unwanted}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := try.More(verdict(classify.ServerError)); got == unwanted {
			t.Errorf("More() = %v where the downshift is unwanted: %v", got, unwanted)
		}
		try.Release()
	}
}

func TestARateLimitThatIsQueuedDoesNotGoOn(t *testing.T) {
	b := newBench(t, func(c *config.Chain) { c.On.RateLimited = "queue" }, "a", "b")
	if p := b.plan(); p.advances(limited(time.Second), &p.slots[0]) {
		t.Error("advances(rate_limited) = true with on.rate_limited: queue, want false")
	}
}

func TestLiveTrafficIsThatOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a")
		for i := range 200 {
			if try, err := b.plan().Begin(Exchange{ID: "x", Attempt: 1, Own: i%2 == 0}, nil); err == nil {
				try.Release()
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := b.plan().Live(); got < 4.5 || got > 5.5 {
			t.Errorf("Live() = %v after 5 requests of clients and 5 of ours a second, want 5", got)
		}
	})
}

// TestCallsOfOursMakeTheTrialAndKeepToTheRampByThemselves: without clients nobody else would.
func TestCallsOfOursMakeTheTrialAndKeepToTheRampByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a")
		for _, target := range b.cfg.Targets {
			target.Breaker.Ramp = config.Ramp{Interval: 10 * time.Second, Share: 0.1}
		}
		b.book = NewBook(b.cfg, nil, func(breaker.Transition) {})
		b.trouble("a open")
		if got := b.plan().Pace(); got != 0 {
			t.Errorf("Pace() = %v while the target is open, want 0", got)
		}
		time.Sleep(time.Hour)
		for _, want := range []float64{0.1, 0.1, 0.2} { // the trial, the first interval, the second
			if got := b.plan().Pace(); got != want {
				t.Errorf("Pace() = %v, want %v", got, want)
			}
			try, err := b.plan().Begin(Exchange{ID: "x", Attempt: 1, Own: true}, nil)
			if err != nil {
				t.Fatalf("Begin() = %v, want a permit for a call of ours", err)
			}
			try.Report(verdict(classify.OK))
			if want == 0.1 && b.book.Breaker("a").State() != breaker.Closed {
				t.Fatal("the trial of a call of ours does not close the breaker")
			}
			time.Sleep(6 * time.Second)
		}
	})
}

func TestThePaceOfAChainIsItsBestTargets(t *testing.T) {
	rows := []struct {
		name    string
		change  func(*config.Chain)
		trouble []string
		want    float64
	}{
		{"a chain that is well has less than all", nil, nil, 1},
		{"an open primary closes the chain", nil, []string{"a open"}, 1},
		{"a chain without a target has a share", nil, []string{"a open", "b open"}, 0},
		{"a downshift counts as the chain", fromB, []string{"a open"}, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a", "b")
				b.trouble(row.trouble...)
				if got := b.plan().Pace(); got != row.want {
					t.Errorf("Pace() = %v, want %v", got, row.want)
				}
			})
		})
	}
}
