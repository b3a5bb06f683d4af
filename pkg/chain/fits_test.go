package chain

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

var errBound = errors.New("the request names previous_response_id, which lives at openai")

// bound makes the exchange one that fits no target but these.
func (b *bench) bound(to ...string) {
	b.x.Fits = func(t *config.Target) error {
		if slices.Contains(to, t.Name) {
			return nil
		}
		return errBound
	}
}

func TestATargetThatTheExchangeDoesNotFitIsSkipped(t *testing.T) {
	rows := []struct {
		name    string
		to      []string
		trouble []string
		attempt int
		want    string
	}{
		{"an exchange bound to the primary leaves it", []string{"a"}, nil, 1, "a"},
		{"an exchange bound to the primary goes on", []string{"a"}, nil, 2, "spent"},
		{"a skip promises a target that the exchange does not fit", []string{"a"}, []string{"a open"}, 1, "spent"},
		{"an exchange that does not fit the primary is not passed on", []string{"c"}, nil, 1, "skip"},
		{"an exchange that does not fit a target goes there", []string{"a", "c"}, nil, 2, "skip"},
		{"an exchange does not reach the target it fits", []string{"a", "c"}, nil, 3, "c"},
		{"the walk beyond the last slot goes where the exchange does not fit", []string{"c"}, nil, 4, "c"},
		{"without an attempt count an exchange goes where it does not fit", []string{"b"}, nil, 0, "b"},
		{"without an attempt count an exchange that fits nothing goes somewhere", nil, nil, 0, "spent"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil, "a", "b", "c")
				b.bound(row.to...)
				b.trouble(row.trouble...)
				if got := b.begin(row.attempt, nil); got != row.want {
					t.Errorf("Begin(attempt %d) of an exchange that fits %v = %s, want %s", row.attempt, row.to, got, row.want)
				}
			})
		})
	}
}

func TestAFailureOfABoundExchangeIsItsEnd(t *testing.T) {
	b := newBench(t, nil, "a", "b", "c")
	b.bound("a")
	if got := b.goes(verdict(classify.Overloaded)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("an exchange bound to a goes to %v, want a, and no skips after it", got)
	}
}

// TestATargetThatIsNotEligibleMissesNothing: a ramp would take the requests that cannot come for its share of the rest.
func TestATargetThatIsNotEligibleMissesNothing(t *testing.T) {
	for _, bound := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := fallback(t, nil, config.Ramp{})
			br := b.book.Breaker("b")
			br.Fleet(true)
			if bound {
				b.bound("a")
			}
			b.begin(1, nil)
			if got := br.Asked(br.Truth().Gen); got == bound {
				t.Errorf("bound to a: %v; b is asked for its trial: %v", bound, got)
			}
		})
	}
}

func TestATargetThatIsNotEligibleSpendsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a", "b", "c")
		b.extras(200, time.Second, "a", "b")
		b.bound("b")
		if got := b.begin(2, nil); got != "b" {
			t.Errorf("Begin(2) of an exchange bound to b with the budget spent = %s, want b: it is the first call", got)
		}
	})
}

func TestWhatIsToldOfTheTargetsThatCannotBeTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fromD, "a", "b", "c", "d", "e")
		b.x.NoDownshift = true
		b.bound("a", "c", "d", "e")
		b.trouble("c cooling")
		past := []Past{b.past(1, 0, verdict(classify.Overloaded))}
		want := []string{
			"a: this exchange has tried it: overloaded",
			"b: the request names previous_response_id, which lives at openai",
			"c: target may not be tried: it is cooling down after a rate limit",
			"d: the caller does not accept a downshift",
			"e: the caller does not accept a downshift",
		}
		if got := b.plan().Obstacles(b.x, past); !slices.Equal(got, want) {
			t.Errorf("Obstacles() = %q, want %q", got, want)
		}
		x := b.x
		x.Attempt = 2
		_, err := b.plan().Begin(x, past)
		if !errors.Is(err, errBound) || !errors.Is(err, breaker.ErrCooling) {
			t.Errorf("Begin(2) = %v, want the reasons of b and of c in it", err)
		}
	})
}

// TestTheReasonPassesOverWhatTheExchangeDoesNotFit: no replica can have tried it.
func TestTheReasonPassesOverWhatTheExchangeDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a", "b", "c")
		b.bound("a", "c")
		past := []Past{b.past(1, 0, verdict(classify.Overloaded))}
		if got := b.plan().Reason(b.x, 2, past); got != "overloaded" {
			t.Errorf("Reason(2) = %q, want overloaded, of a", got)
		}
	})
}

func TestAnExchangeThatFitsHasNoObstacles(t *testing.T) {
	b := newBench(t, nil, "a+b", "c")
	if got := b.plan().Obstacles(b.x, nil); len(got) != 0 {
		t.Errorf("Obstacles() = %q, want none", got)
	}
}

func fromD(c *config.Chain) { c.Downshift = 3 }
