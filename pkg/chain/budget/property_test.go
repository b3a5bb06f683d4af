//go:build !race

// The race detector itself runs out of room in a bubble that lives through this many goroutines and timers.

package budget

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"understudy/pkg/config"
)

// check runs a property in a bubble. Its replicas belong to the bubble's test, not to a single run.
func check(t *testing.T, property func(t *testing.T, r *rapid.T)) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a testing.T for its deadline, which a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(r *rapid.T) { property(t, r) })
	})
}

// purchase is an attempt as the provider knows it.
type purchase struct {
	began time.Time
	cost  Money // the worst case while it is under way, and for ever if nobody lived to hear the end
	held  *Reservation
	by    *replica
}

// life is a fleet to which all that happens in a fleet's life happens, and what it spent.
type life struct {
	t       *testing.T
	r       *rapid.T
	w       *world
	b       config.Budget
	all     []*replica
	dead    []*replica
	bought  []*purchase
	started int
}

func newLife(t *testing.T, r *rapid.T) *life {
	l := &life{t: t, r: r, w: newWorld(), b: config.Budget{USD: 10, Window: rapid.SampledFrom([]time.Duration{time.Minute, 10 * time.Minute}).Draw(r, "window")}}
	for range rapid.IntRange(1, 3).Draw(r, "replicas") {
		l.start()
	}
	return l
}

func (l *life) start() {
	l.started++
	l.all = append(l.all, l.w.replica(l.t, fmt.Sprint("r", l.started), nil))
}

func (l *life) cents(name string, most int) Money {
	return Money(rapid.IntRange(1, most).Draw(l.r, name)) * Dollar / 100
}

// step is one thing that happens.
func (l *life) step() {
	i := rapid.IntRange(0, len(l.all)-1).Draw(l.r, "replica")
	x := l.all[i]
	switch rapid.IntRange(0, 11).Draw(l.r, "step") {
	case 0, 1, 2:
		for range rapid.IntRange(1, 20).Draw(l.r, "attempts") {
			l.buy(x, l.cents("worst", 50))
		}
	case 3:
		l.buy(x, l.cents("worst", 900))
	case 4, 5, 6:
		l.settle(rapid.IntRange(1, 30).Draw(l.r, "settled"))
	case 7:
		x.link.set(rapid.Bool().Draw(l.r, "down"), 0)
	case 8:
		x.link.set(false, rapid.SampledFrom([]float64{0, 0.3, 0.9}).Draw(l.r, "doubt"))
	case 9: // kill -9, and another in its place
		x.halt()
		l.dead = append(l.dead, x)
		l.all[i] = l.all[len(l.all)-1]
		l.all = l.all[:len(l.all)-1]
		l.start()
	default:
		time.Sleep(time.Duration(rapid.IntRange(1, 20_000).Draw(l.r, "pause")) * time.Millisecond)
	}
}

func (l *life) buy(x *replica, worst Money) {
	began := time.Now()
	held, err := x.Reserve(l.t.Context(), support, l.b, Ask{Worst: worst})
	if err == nil {
		l.bought = append(l.bought, &purchase{began: began, cost: worst, held: held, by: x})
		return
	}
	if !errors.Is(err, ErrSpent) && !errors.Is(err, ErrUnsure) {
		l.r.Fatalf("Reserve(%s) = %v, want a reservation, %v or %v", worst, err, ErrSpent, ErrUnsure)
	}
}

// settle ends some attempts; those of the dead never end.
func (l *life) settle(n int) {
	for _, p := range l.bought {
		if n == 0 {
			return
		}
		if p.held == nil || l.isDead(p.by) {
			continue
		}
		if rapid.Bool().Draw(l.r, "billed") {
			p.cost = Money(rapid.Int64Range(0, int64(p.cost)).Draw(l.r, "real"))
		} else {
			p.cost = 0
		}
		p.held.Settle(p.cost)
		p.held = nil
		n--
	}
}

func (l *life) isDead(x *replica) bool {
	for _, d := range l.dead {
		if d == x {
			return true
		}
	}
	return false
}

// within checks that the window that ends now has no more in it than the limit, even if everything that is under way, or
// was when its replica died, costs all that it may.
func (l *life) within() {
	now, sum := time.Now(), Money(0)
	for _, p := range l.bought {
		if p.began.After(now.Add(-l.b.Window)) {
			sum += p.cost
		}
	}
	if limit := FromUSD(l.b.USD); sum > limit {
		l.r.Fatalf("in the last %s %s were spent or under way, want at most %s", l.b.Window, sum, limit)
	}
}

// TestNoWindowHasMoreInItThanTheLimit, whatever dies or is cut off, and in the end everything may be spent again.
func TestNoWindowHasMoreInItThanTheLimit(t *testing.T) {
	check(t, func(t *testing.T, r *rapid.T) {
		l := newLife(t, r)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			l.step()
			l.within()
		}
		for _, x := range l.all {
			x.link.set(false, 0)
		}
		l.settle(len(l.bought))
		l.within()
		time.Sleep(2*l.b.Window + time.Minute)
		l.buy(l.all[0], FromUSD(l.b.USD))
		if p := l.bought; len(p) == 0 || p[len(p)-1].held == nil || p[len(p)-1].cost != FromUSD(l.b.USD) {
			r.Fatalf("two windows after the last attempt the whole budget is not there")
		}
		l.settle(len(l.bought))
		for _, x := range l.all {
			x.halt()
		}
	})
}
