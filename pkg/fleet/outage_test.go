package fleet

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/chain/breaker"
)

func TestWithoutAStoreEachReplicaDecidesAlone(t *testing.T) {
	for name, l := range map[string]link{"that fails": down, "that hangs": hanging} {
		t.Run(name, func(t *testing.T) {
			in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
				for _, x := range r {
					x.node.set(l)
				}
				r[0].fail(5)
				time.Sleep(30 * time.Second)
				if got := states(r...); got[0] != "open" || got[1] != "closed" {
					t.Errorf("states = %v, want open and closed", got)
				}
				if !r[1].call(breaker.Success) {
					t.Error("the other replica refuses a call, want it served")
				}
				p.is(breaker.Success, time.Second)
				time.Sleep(40 * time.Second)
				if got := states(r...); got[0] != "closed" || len(p.probed()) != 1 {
					t.Errorf("states = %v after %d probes, want closed after one", got, len(p.probed()))
				}
				r[1].fail(5)
				time.Sleep(few)
				for _, x := range r { // the store is back
					x.node.set(up)
				}
				time.Sleep(2*patience + few)
				expect(t, breaker.Closed, r...) // the second generation of the one beats the first of the other
				stop(r...)
			})
		})
	}
}

func TestAReplicaThatWasCutOffComesBackToTheFleetsTruth(t *testing.T) {
	for name, l := range map[string]link{"and got errors": down, "and got no answers": hanging, "and wrote unheard": deaf} {
		t.Run(name, func(t *testing.T) {
			in(t, settings(), 3, func(t *testing.T, w *world, p *provider, r []*replica) {
				r[2].node.set(l)
				r[0].fail(5)
				time.Sleep(few)
				expect(t, breaker.Open, r[:2]...)
				r[2].fail(5)
				time.Sleep(5 * time.Second)
				r[2].node.set(up)
				time.Sleep(2*patience + few)
				expect(t, breaker.Open, r...)
				if got := r[2].went(breaker.Open); got != 1 {
					t.Errorf("openings of the one that was cut off = %d, want 1: to open a little longer is no transition", got)
				}
				stop(r...)
			})
		})
	}
}

func TestASingleNodeThatRestartsIsStillOpen(t *testing.T) {
	in(t, settings(), 1, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		opened := time.Now()
		time.Sleep(25 * time.Second)
		r[0].kill()
		again := start(t, "again", w.node(), settings(), p)
		time.Sleep(few)
		if got := again.breaker.State(); got != breaker.Open {
			t.Fatalf("state after the restart = %s, want open", got)
		}
		if got := again.breaker.Returns().Sub(opened); got > time.Minute || got < 59*time.Second {
			t.Errorf("Returns() = %s after the opening, want the minute that it began with", got)
		}
		if got := again.breaker.Last(); got != r[0].breaker.Last() {
			t.Errorf("Last() = %q, want %q", got, r[0].breaker.Last())
		}
		time.Sleep(36*time.Second + few)
		if got := again.breaker.Truth(); len(p.probed()) != 1 || got.Gen != 2 || got.Streak != 2 {
			t.Errorf("after %d probes the truth = %+v, want one probe and the second opening in a row", len(p.probed()), got)
		}
		stop(again)
	})
}

func TestAStoreThatIsLostIsFilledAgain(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		r[1].breaker.Cool(time.Now().Add(time.Hour))
		time.Sleep(few)
		w.change(func() { w.buckets = map[string]*bucketData{} })
		time.Sleep(few)
		late := w.replica(t, settings(), p)
		time.Sleep(few)
		expect(t, breaker.Open, append(r, late)...)
		if left := time.Until(late.breaker.Cooling()); left < 59*time.Minute {
			t.Errorf("the late one cools for %s, want about an hour", left)
		}
		stop(append(r, late)...)
	})
}

// late is a bucket whose answers take their time.
type late struct{ bucket }

func (b late) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	rev, err := b.bucket.Create(ctx, key, value, ttl)
	time.Sleep(500 * time.Millisecond)
	return rev, err
}

func TestAnAnswerThatComesAfterNewerNewsIsOld(t *testing.T) {
	in(t, settings(), 1, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fleet.Stop()
		r[0].fleet.o.Truths = late{bucket{r[0].node, "truths"}}
		r[0].fleet.Start(t.Context())
		r[0].fail(5)
		time.Sleep(few)
		newer := breaker.Truth{Gen: 7, Since: time.Now().UTC()}
		data, err := json.Marshal(newer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (bucket{r[0].node, "truths"}).Update(t.Context(), target, data, 1, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := w.asked()
		time.Sleep(time.Second)
		if got := w.asked() - before; got != 0 || r[0].breaker.Truth() != newer {
			t.Errorf("calls of the store = %d, truth = %+v; want none and %+v", got, r[0].breaker.Truth(), newer)
		}
		stop(r...)
	})
}

func TestTwoTargetsOfOneNameHaveNothingToDoWithEachOther(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		s := settings()
		other := breaker.New(target, s, func(breaker.Transition) {})
		r[1].fleet.Stop()
		r[1].breaker, r[1].target.Breaker, r[1].target.Key = other, other, "a/sonnet of the new config"
		r[1].fleet.Start(t.Context())
		r[0].fail(5)
		r[0].breaker.Cool(time.Now().Add(time.Minute))
		time.Sleep(few)
		if got := other.Check(); got != nil {
			t.Errorf("Check() of the one with another key = %v, want nil", got)
		}
		stop(r...)
	})
}

func TestATargetThatAReloadBringsFollowsAtOnce(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		var has atomic.Bool
		r[1].fleet.Stop()
		r[1].fleet.o.Targets = func() []Target {
			if has.Load() {
				return []Target{r[1].target}
			}
			return nil
		}
		r[1].fleet.Start(t.Context())
		r[0].fail(5)
		r[0].breaker.Cool(time.Now().Add(time.Minute))
		time.Sleep(few)
		has.Store(true)
		time.Sleep(few)
		expect(t, breaker.Open, r...)
		if left := time.Until(r[1].breaker.Cooling()); left < 59*time.Second {
			t.Errorf("it cools for %s, want about a minute", left)
		}
		stop(r...)
	})
}

func TestWhatIsNotOursIsNotRead(t *testing.T) {
	in(t, settings(), 1, func(t *testing.T, w *world, p *provider, r []*replica) {
		for _, name := range []string{"truths", "cooldowns"} {
			if _, err := (bucket{r[0].node, name}).Create(t.Context(), target, []byte(`{"gen":`), 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range []string{"", "{", `[]`, `{"replica":"x","items":[{"target":"gone","tally":{"failed":9,"trailing":9}}]}`} {
			r[0].node.Publish(subject, []byte(text))
		}
		time.Sleep(few)
		expect(t, breaker.Closed, r...)
		stop(r...)
	})
}

func TestWhoLeavesTheFleetDecidesAlone(t *testing.T) {
	s := settings()
	s.Probe = false
	in(t, s, 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		time.Sleep(few)
		stop(r...)
		time.Sleep(time.Minute)
		for _, x := range r {
			if !x.call(breaker.Success) {
				t.Errorf("%s lets no call try, want one", x.name)
			}
		}
	})
}

func TestTheEndOfItsContextEndsAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(), &provider{takes: time.Hour}
		r := w.replica(t, settings(), p)
		stop(r)
		ctx, cancel := context.WithCancel(t.Context())
		r.fleet.Start(ctx)
		r.fail(5)
		time.Sleep(61 * time.Second)
		cancel()
		r.fleet.wg.Wait() // the probe that runs included
		if len(p.probed()) != 1 {
			t.Errorf("probes = %d, want the one that was ended", len(p.probed()))
		}
	})
}

func TestAReloadThatShortensTheOpenPeriodDoesSoForAll(t *testing.T) {
	in(t, settings(), 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		time.Sleep(few)
		short := settings()
		short.OpenFor = 10 * time.Second
		r[0].breaker.Renew(short)
		time.Sleep(few)
		expect(t, breaker.Open, r...)
		for _, x := range r {
			if left := time.Until(x.breaker.Returns()); left > short.OpenFor {
				t.Errorf("%s is open for %v more, want at most %v", x.name, left, short.OpenFor)
			}
		}
		stop(r...)
	})
}
