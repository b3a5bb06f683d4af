package fleet

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/chain/breaker"
)

// few is some beats, in which everything that can be told has been.
const few = 5 * beat

// in runs f in a bubble with a world and n replicas of it, and a provider that is down.
func in(t *testing.T, s breaker.Settings, n int, f func(t *testing.T, w *world, p *provider, r []*replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(), &provider{answer: breaker.Failure, takes: time.Second}
		var all []*replica
		for range n {
			all = append(all, w.replica(t, s, p))
		}
		f(t, w, p, all)
	})
}

func TestWhatOneReplicaOpensIsOpenOnAll(t *testing.T) {
	in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		time.Sleep(few)
		expect(t, breaker.Open, r...)
		for _, x := range r {
			if x.call(breaker.Success) || x.went(breaker.Open) != 1 {
				t.Errorf("%s lets a call pass, or has told of %d openings; want none and 1", x.name, x.went(breaker.Open))
			}
		}
		stop(r...)
	})
}

func TestFailuresOnDifferentReplicasAddUpToOneTrip(t *testing.T) {
	for name, ratio := range map[string]float64{"in a row": 0, "of a ratio": 0.5} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			if ratio > 0 {
				s.Failures, s.Ratio, s.Window, s.MinCalls = 1000, ratio, time.Minute, 10
			}
			in(t, s, 3, func(t *testing.T, w *world, p *provider, r []*replica) {
				if ratio > 0 {
					for i := range 5 {
						r[i%3].call(breaker.Success)
					}
				}
				r[0].fail(2)
				time.Sleep(few)
				r[1].fail(2)
				time.Sleep(few)
				expect(t, breaker.Closed, r...)
				r[2].fail(1)
				time.Sleep(few)
				expect(t, breaker.Open, r...)
				if got := r[0].breaker.Truth(); got.Gen != 1 || got.Streak != 1 {
					t.Errorf("truth = %+v, want the first generation's first opening", got)
				}
				stop(r...)
			})
		})
	}
}

func TestFailuresOfOneMomentOpenOnce(t *testing.T) {
	in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		for _, x := range r {
			x.fail(4)
		}
		time.Sleep(few)
		expect(t, breaker.Open, r...)
		for _, x := range r {
			if x.went(breaker.Open) != 1 || x.breaker.Truth().Gen != 1 {
				t.Errorf("%s told of %d openings, the last of generation %d; want 1 of the first", x.name, x.went(breaker.Open), x.breaker.Truth().Gen)
			}
		}
		stop(r...)
	})
}

func TestAnIdleReplicaDoesNotTripFromABusyOnesMixedResults(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		w.rough(0, 15*time.Millisecond)
		for i := range 200 {
			r[0].fail(1 + i%4)
			if i%5 < 3 { // mostly in a beat of its own
				time.Sleep(2 * few)
			}
			r[0].call(breaker.Success)
			time.Sleep(time.Duration(i%7) * 10 * time.Millisecond)
		}
		time.Sleep(few)
		expect(t, breaker.Closed, r...)
		stop(r...)
	})
}

func TestASuccessAnywhereEndsTheRowEverywhere(t *testing.T) {
	in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(4)
		time.Sleep(few)
		r[1].call(breaker.Success)
		time.Sleep(few)
		r[2].fail(4)
		time.Sleep(few)
		expect(t, breaker.Closed, r...)
		before := w.asked()
		for range 100 {
			r[1].call(breaker.Success)
			time.Sleep(beat)
		}
		if got := w.asked() - before; got != 0 {
			t.Errorf("calls of the store for a hundred successes = %d, want 0", got)
		}
		stop(r...)
	})
}

func TestALateStarterLearnsTheState(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		r[1].breaker.Cool(time.Now().Add(100 * time.Second))
		time.Sleep(40 * time.Second)
		late := w.replica(t, settings(), p)
		time.Sleep(few)
		expect(t, breaker.Open, append(r, late)...)
		left := time.Until(late.breaker.Returns())
		if want := 60 * time.Second; left > want || left < want-time.Second {
			t.Errorf("Returns() of the late one in %s, want in about %s: the cooldown's rest", left, want)
		}
		time.Sleep(20*time.Second - few - 10*time.Millisecond)
		if got := late.breaker.State(); got != breaker.Open {
			t.Errorf("state just before the open period is over = %s, want open", got)
		}
		time.Sleep(20 * time.Millisecond)
		if got := late.breaker.State(); got != breaker.HalfOpen {
			t.Errorf("state just after = %s, want half-open", got)
		}
		stop(append(r, late)...)
	})
}

func TestCooldownsAreSharedAndTheLaterEndHolds(t *testing.T) {
	in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		long := time.Now().Add(time.Minute)
		r[0].breaker.Cool(long)
		r[1].breaker.Cool(time.Now().Add(5 * time.Second))
		time.Sleep(few)
		r[2].breaker.Cool(time.Now().Add(5 * time.Second))
		time.Sleep(few)
		for _, x := range r {
			if d := x.breaker.Cooling().Sub(long).Abs(); d > slack {
				t.Errorf("%s cools until %s off the longest, want within %s", x.name, d, slack)
			}
		}
		before := w.asked()
		time.Sleep(50 * time.Second)
		if got := w.asked() - before; got != 0 {
			t.Errorf("calls of the store in 50 s in which nothing is new = %d, want 0", got)
		}
		time.Sleep(11 * time.Second)
		if !r[2].call(breaker.Success) {
			t.Error("after the cooldown no call passes, want one")
		}
		w.change(func() {
			if n := len(w.data("cooldowns").entries); n != 0 {
				t.Errorf("cooldowns kept after their end = %d, want 0", n)
			}
		})
		stop(r...)
	})
}

func TestLostNewsDelaysATripButDoesNotPreventIt(t *testing.T) {
	for _, loss := range []float64{0.5, 1} {
		in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
			w.rough(loss, 30*time.Millisecond)
			calls := 0
			for r[0].breaker.State() == breaker.Closed {
				r[calls%3].fail(1)
				if calls++; calls > 15 {
					t.Fatalf("%d failures on three replicas with %v of the news lost, and no trip", calls, loss)
				}
				time.Sleep(few)
			}
			time.Sleep(2 * few)
			expect(t, breaker.Open, r...)
			stop(r...)
		})
	}
}

func TestOneProbeAPeriodForTheWholeFleet(t *testing.T) {
	in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		w.rough(0, 20*time.Millisecond)
		began := time.Now()
		r[0].fail(5)
		time.Sleep(10*time.Minute - time.Second)
		// Open for 60 s, then for 120 s, which is the most; each probe takes a second.
		want := []time.Duration{60 * time.Second, 181 * time.Second, 302 * time.Second, 423 * time.Second, 544 * time.Second}
		if len(p.probed()) != len(want) {
			t.Fatalf("probes in ten minutes = %d, want %d", len(p.probed()), len(want))
		}
		for i, at := range p.probed() {
			if d := at.Sub(began) - want[i]; d < 0 || d > 10*few {
				t.Errorf("probe %d at %s, want at about %s", i, at.Sub(began), want[i])
			}
		}
		expect(t, breaker.Open, r...)
		p.is(breaker.Success, time.Second)
		time.Sleep(2 * time.Minute)
		expect(t, breaker.Closed, r...)
		if len(p.probed()) != len(want)+1 {
			t.Errorf("probes = %d, want one more", len(p.probed()))
		}
		stop(r...)
	})
}

func TestOneProbeAPeriodHoweverShort(t *testing.T) {
	s := settings()
	s.OpenFor, s.MaxOpenFor = 2*time.Second, 2*time.Second
	in(t, s, 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		w.rough(0, 10*time.Millisecond)
		p.is(breaker.Failure, 500*time.Millisecond)
		r[0].fail(5)
		time.Sleep(100 * time.Second)
		gen, probes := r[0].breaker.Truth().Gen, len(p.probed())
		if d := int(gen) - probes; d < 0 || d > 1 || p.atOnce() != 1 {
			t.Errorf("%d probes, at most %d at once, in %d open periods; want one each", probes, p.atOnce(), gen)
		}
		stop(r...)
	})
}

func TestAProbeThatSaysNothingIsRepeatedByOneReplica(t *testing.T) {
	in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		p.is(breaker.Excluded, time.Second)
		r[0].fail(5)
		time.Sleep(time.Minute + 5*time.Minute)
		for i, at := range p.probed()[1:] {
			if d := at.Sub(p.probed()[i]); d < again {
				t.Errorf("probe %d is made %s after the one before, want at least %s", i+1, d, again)
			}
		}
		if n := len(p.probed()); n < 5 || n > 30 {
			t.Errorf("probes in five minutes half-open = %d, want 5 to 30", n)
		}
		expect(t, breaker.HalfOpen, r...)
		stop(r...)
	})
}

func TestAProbeThatTakesTooLongIsTheNextReplicasToMake(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		p.is(breaker.Failure, time.Hour)
		r[0].fail(5)
		time.Sleep(3*time.Minute + 30*time.Second)
		for i, at := range p.probed()[1:] {
			if d := at.Sub(p.probed()[i]); d < tenure {
				t.Errorf("probe %d begins %s after the one before, want at least %s: never two at once", i+1, d, tenure)
			}
		}
		if n := len(p.probed()); n < 2 || n > 3 {
			t.Errorf("probes in two and a half minutes = %d, want 2 or 3", n)
		}
		if p.atOnce() != 1 {
			t.Errorf("probes at once = %d, want 1", p.atOnce())
		}
		stop(r...)
	})
}

func TestAnotherReplicaTakesOverFromOneThatDies(t *testing.T) {
	for name, probe := range map[string]bool{"in its probe": true, "as it leads": false} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			s.Probe = probe
			in(t, s, 3, func(t *testing.T, w *world, p *provider, r []*replica) {
				p.is(breaker.Success, 30*time.Second)
				r[0].fail(5)
				time.Sleep(time.Minute + few)
				for _, x := range r {
					if !probe {
						x.call(breaker.Success) // asks
					}
				}
				time.Sleep(few)
				var alive []*replica
				for _, x := range r {
					if x.breaker.Check() == nil || slices.Contains(p.by(), x.name) {
						x.kill()
						continue
					}
					alive = append(alive, x)
				}
				if len(alive) != 2 {
					t.Fatalf("replicas without the trial = %d, want 2; states %v, Check() of one %v", len(alive), states(r...), r[0].breaker.Check())
				}
				if probe {
					time.Sleep(lease + again + 30*time.Second + few)
					expect(t, breaker.Closed, alive...)
				} else {
					time.Sleep(lease + again + few)
					if a, b := alive[0].breaker.Check(), alive[1].breaker.Check(); (a == nil) == (b == nil) {
						t.Errorf("Check() of the two that are left = %v and %v, want that one of them leads", a, b)
					}
				}
				stop(alive...)
			})
		})
	}
}

func TestAnOrdinaryRequestTriesOnOneReplicaAlone(t *testing.T) {
	s := settings()
	s.Probe = false
	in(t, s, 3, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		for range 3 * 60 { // the leader has no traffic for a while
			time.Sleep(time.Second)
			leads := 0
			for _, x := range r {
				if x.breaker.State() == breaker.HalfOpen && x.breaker.Check() == nil {
					leads++
				}
			}
			if leads > 1 {
				t.Fatalf("replicas that would try = %d, want at most 1", leads)
			}
		}
		passed := 0
		for range 20 {
			for _, x := range r {
				if x.call(breaker.Success) {
					passed++
					time.Sleep(few)
					expect(t, breaker.Closed, r...)
				}
			}
			time.Sleep(time.Second)
		}
		if passed < 20 {
			t.Errorf("calls that passed = %d, want the trial and all after it", passed)
		}
		stop(r...)
	})
}

func TestACoolingTargetIsNotProbed(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		r[1].breaker.Cool(time.Now().Add(100 * time.Second))
		time.Sleep(99 * time.Second)
		if len(p.probed()) != 0 {
			t.Errorf("probes while it cools = %d, want 0", len(p.probed()))
		}
		time.Sleep(2 * time.Second)
		if len(p.probed()) != 1 {
			t.Errorf("probes after that = %d, want 1", len(p.probed()))
		}
		time.Sleep(time.Second)
		stop(r...)
	})
}
