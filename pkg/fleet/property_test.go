//go:build !race

// The race detector itself runs out of room in a bubble that lives through this many goroutines and timers.

package fleet

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"understudy/pkg/chain/breaker"
)

// check runs a property in a bubble. Its replicas belong to the bubble's test, not to a single run.
func check(t *testing.T, property func(t *testing.T, r *rapid.T)) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a testing.T for its deadline, which a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(r *rapid.T) { property(t, r) })
	})
}

// life is a fleet to which all that happens in a fleet's life happens.
type life struct {
	t        *testing.T
	r        *rapid.T
	w        *world
	p        *provider
	s        breaker.Settings
	replicas []*replica
	started  int
}

func newLife(t *testing.T, r *rapid.T) *life {
	s := settings()
	s.Failures = rapid.IntRange(1, 5).Draw(r, "failures")
	s.Probe = rapid.Bool().Draw(r, "probe")
	if rapid.Bool().Draw(r, "ratio") {
		s.Ratio, s.Window, s.MinCalls = 0.5, time.Minute, 4
	}
	if rapid.Bool().Draw(r, "ramp") {
		s.Ramp = breaker.Ramp{Interval: 10 * time.Second, Share: 0.1}
	}
	l := &life{t: t, r: r, w: newWorld(), p: &provider{answer: breaker.Failure, takes: time.Second}, s: s}
	for range rapid.IntRange(1, 4).Draw(r, "replicas") {
		l.start()
	}
	return l
}

func (l *life) start() {
	l.started++
	l.replicas = append(l.replicas, start(l.t, fmt.Sprint("r", l.started), l.w.node(), l.s, l.p))
}

// step is one thing that happens.
func (l *life) step() {
	i := rapid.IntRange(0, len(l.replicas)-1).Draw(l.r, "replica")
	x := l.replicas[i]
	switch rapid.IntRange(0, 9).Draw(l.r, "step") {
	case 0, 1:
		x.fail(rapid.IntRange(1, 5).Draw(l.r, "failures"))
	case 2:
		x.call(breaker.Success)
	case 3:
		x.breaker.Cool(time.Now().Add(time.Duration(rapid.IntRange(1, 100).Draw(l.r, "cooling")) * time.Second))
	case 4:
		x.node.set(link(rapid.IntRange(0, 3).Draw(l.r, "link")))
	case 5:
		l.w.rough(rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(l.r, "loss"), time.Duration(rapid.IntRange(0, 100).Draw(l.r, "delay"))*time.Millisecond)
	case 6: // dies, and comes back with nothing
		x.kill()
		l.replicas[i] = l.replicas[len(l.replicas)-1]
		l.replicas = l.replicas[:len(l.replicas)-1]
		l.start()
	case 7:
		l.p.is(rapid.SampledFrom([]breaker.Outcome{breaker.Excluded, breaker.Success, breaker.Failure}).Draw(l.r, "answer"), time.Second)
	default:
		time.Sleep(time.Duration(rapid.IntRange(1, 4000).Draw(l.r, "sleep")) * 20 * time.Millisecond)
	}
}

// heal lets everybody reach the store again, and nothing new happen.
func (l *life) heal() {
	l.p.is(breaker.Excluded, time.Second)
	l.w.rough(0, 0)
	for _, x := range l.replicas {
		x.node.set(up)
	}
	time.Sleep(3*patience + few)
}

// stored is what the store says of the target's truth.
func (l *life) stored() (t breaker.Truth) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if e, ok := l.w.data("truths").entries[target]; ok {
		if err := json.Unmarshal(e.Value, &t); err != nil {
			l.r.Fatal(err)
		}
	}
	return t
}

func TestAFleetThatMeetsAgainHasOneTruth(t *testing.T) {
	check(t, func(t *testing.T, r *rapid.T) {
		l := newLife(t, r)
		defer func() { stop(l.replicas...) }()
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			l.step()
		}
		l.heal()
		want, cools := l.stored(), l.replicas[0].breaker.Cooling()
		for _, x := range l.replicas {
			if got := x.breaker.Truth(); got != want {
				r.Fatalf("truth of %s = %+v, want the store's: %+v", x.name, got, want)
			}
			if got, want := x.breaker.State(), l.replicas[0].breaker.State(); got != want {
				r.Fatalf("state of %s = %s, want %s as of %s", x.name, got, want, l.replicas[0].name)
			}
			if now := time.Now(); max(0, x.breaker.Cooling().Sub(now))-max(0, cools.Sub(now)) > slack {
				r.Fatalf("%s cools until %s, want about %s", x.name, x.breaker.Cooling(), cools)
			}
		}
	})
}

func TestAFleetAtRestAsksTheStoreForNothing(t *testing.T) {
	check(t, func(t *testing.T, r *rapid.T) {
		l := newLife(t, r)
		defer func() { stop(l.replicas...) }()
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			l.step()
		}
		l.heal()
		before := l.w.asked()
		const rest = 20 * time.Second
		time.Sleep(rest)
		// Half-open, each replica asks for the trial every few seconds, and who has it renews it.
		if got, most := l.w.asked()-before, len(l.replicas)*int(rest/again+2)+int(rest/renewal); got > most {
			r.Fatalf("calls of the store in %s = %d, want at most %d", rest, got, most)
		}
	})
}

func TestATripIsNeverPreventedNorATrialLost(t *testing.T) {
	check(t, func(t *testing.T, r *rapid.T) {
		l := newLife(t, r)
		defer func() { stop(l.replicas...) }()
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			l.step()
		}
		for _, x := range l.replicas { // whatever has happened, and though nothing is healed
			l.p.is(breaker.Failure, time.Second)
			deadline := time.Now().Add(10 * time.Minute)
			for x.breaker.State() == breaker.Closed && time.Now().Before(deadline) {
				x.fail(1)
				time.Sleep(time.Second)
			}
			if got := x.breaker.State(); got == breaker.Closed {
				r.Fatalf("state of %s after ten minutes of failures = closed, want not", x.name)
			}
			l.p.is(breaker.Success, time.Second)
			deadline = time.Now().Add(30 * time.Minute)
			for x.breaker.State() != breaker.Closed && time.Now().Before(deadline) {
				for _, any := range l.replicas {
					any.call(breaker.Success)
				}
				time.Sleep(time.Second)
			}
			if got := x.breaker.State(); got != breaker.Closed {
				r.Fatalf("state of %s after thirty minutes of a healthy provider = %s, want closed", x.name, got)
			}
		}
	})
}
