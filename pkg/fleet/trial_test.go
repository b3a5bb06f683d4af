package fleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

// Behind a round-robin, a replica may get none of the requests for a target for as long as it likes.
func TestAReplicaThatIsNotAskedKeepsNobodyFromTrying(t *testing.T) {
	for asked := range 2 {
		s := settings()
		s.Probe = false
		in(t, s, 2, func(t *testing.T, w *world, p *provider, r []*replica) {
			r[0].fail(5)
			time.Sleep(time.Minute + few)
			if r[asked].call(breaker.Success) {
				t.Error("the first request passes, want that it only asks")
			}
			time.Sleep(few)
			if !r[asked].call(breaker.Success) {
				t.Error("the second request does not pass, want that it is the trial")
			}
			time.Sleep(few)
			expect(t, breaker.Closed, r...)
			stop(r...)
		})
	}
}

func TestAfterATrialInVainAnotherReplicaMayTry(t *testing.T) {
	s := settings()
	s.Probe = false
	in(t, s, 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		time.Sleep(time.Minute + few)
		r[0].call(breaker.Success) // asks
		time.Sleep(few)
		if !r[0].call(breaker.Excluded) {
			t.Fatal("the second request does not pass, want that it is the trial")
		}
		for waited := 0; !r[1].call(breaker.Success); waited++ {
			if waited > 10 {
				t.Fatalf("no trial in %d s on the replica that is asked", waited)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(few)
		expect(t, breaker.Closed, r...)
		stop(r...)
	})
}

func TestAReplicaThatWasSilentForTooLongDoesNotTry(t *testing.T) {
	s := settings()
	s.Probe = false
	in(t, s, 2, func(t *testing.T, w *world, p *provider, r []*replica) {
		r[0].fail(5)
		time.Sleep(time.Minute + few)
		r[0].call(breaker.Success) // asks
		time.Sleep(lease + few)
		if err := r[0].breaker.Check(); err != nil {
			t.Fatalf("Check() of the replica that leads = %v after %s, want nil: it lives", err, lease)
		}
		w.change(func() { w.data("trials").takeOver() }) // its lease ran out, and another has taken it
		time.Sleep(renewal + few)
		if err := r[0].breaker.Check(); err == nil {
			t.Error("Check() of a replica that has lost its lease = nil, want that it no longer leads")
		}
		stop(r...)
	})
}

// forgetful is a bucket that makes the next write of a kind and loses its answer.
type forgetful struct {
	bucket
	create, update *atomic.Bool
}

func (b forgetful) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	rev, err := b.bucket.Create(ctx, key, value, ttl)
	if err == nil && b.create.Swap(false) {
		return 0, store.ErrDown
	}
	return rev, err
}

func (b forgetful) Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	rev, err := b.bucket.Update(ctx, key, value, rev, ttl)
	if err == nil && b.update.Swap(false) {
		return 0, store.ErrDown
	}
	return rev, err
}

func TestTheTrialIsOneReplicasWhateverAnswersAreLost(t *testing.T) {
	for name, row := range map[string]struct {
		create, update bool
		cools          time.Duration // from when the trial has begun
	}{
		"none is lost": {}, "the taking's": {create: true}, "a renewal's": {update: true}, "it cools meanwhile": {cools: 2 * lease},
	} {
		for _, probe := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", by a probe ", probe), func(t *testing.T) {
				s := settings()
				s.Probe = probe
				in(t, s, 0, func(t *testing.T, w *world, p *provider, _ []*replica) {
					var create, update atomic.Bool
					create.Store(row.create)
					update.Store(row.update)
					var r []*replica
					for _, name := range []string{"a", "b"} {
						r = append(r, start(t, name, w.node(), s, p, func(o *Options) {
							o.Trials = forgetful{o.Trials.(bucket), &create, &update}
						}))
					}
					p.is(breaker.Success, 44*time.Second)
					r[0].fail(5)
					time.Sleep(time.Minute + few)
					r[0].breaker.Missed() // asks
					time.Sleep(few)
					r[0].breaker.Cool(time.Now().Add(row.cools))
					for range 42 {
						time.Sleep(time.Second)
						r[1].breaker.Missed()
						if r[0].breaker.Check() == nil && r[1].breaker.Check() == nil {
							t.Fatal("both replicas lead, want one")
						}
					}
					if err := r[0].breaker.Check(); !probe && err != nil {
						t.Errorf("Check() of the replica that had the trial = %v, want that it has it still", err)
					}
					if probe {
						time.Sleep(2*time.Second + few)
						expect(t, breaker.Closed, r...)
					}
					if probe && len(p.probed()) != 1 {
						t.Errorf("probes = %d, want 1", len(p.probed()))
					}
					stop(r...)
				})
			})
		}
	}
}

func TestAReplicaThatLosesTheTrialEndsItsProbe(t *testing.T) {
	in(t, settings(), 1, func(t *testing.T, w *world, p *provider, r []*replica) {
		p.is(breaker.Success, 44*time.Second)
		r[0].fail(5)
		time.Sleep(time.Minute + few)
		w.change(func() { w.data("trials").takeOver() })
		time.Sleep(renewal + few)
		if by := p.by(); len(by) != 0 {
			t.Errorf("%v probe though another has the trial", by)
		}
		stop(r...)
	})
}

// takeOver makes everything another's. Caller holds the world's mu.
func (d *bucketData) takeOver() {
	for key, e := range d.entries {
		d.seq++
		e.Revision, e.Value = d.seq, []byte("another")
		d.entries[key] = e
	}
}

func TestASingleNodeThatWasKilledTriesAgainAtOnce(t *testing.T) {
	for _, probe := range []bool{false, true} {
		s := settings()
		s.Probe = probe
		in(t, s, 0, func(t *testing.T, w *world, p *provider, _ []*replica) {
			alone := func(o *Options) { o.Alone = true }
			p.is(breaker.Success, 20*time.Second)
			first := start(t, "first", w.node(), s, p, alone)
			first.fail(5)
			time.Sleep(time.Minute + few) // it is half-open, and the trial is its own
			first.kill()
			p.is(breaker.Success, 0)
			again := start(t, "again", w.node(), s, p, alone)
			time.Sleep(few / beat * beatAlone)
			if !probe && !again.call(breaker.Success) {
				t.Error("the first request after the restart does not pass, want that it is the trial")
			}
			expect(t, breaker.Closed, again)
			stop(again)
		})
	}
}
