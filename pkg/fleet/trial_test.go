package fleet

import (
	"testing"
	"time"

	"understudy/pkg/chain/breaker"
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
		w.change(func() { // its lease ran out, and another has taken the trial
			for key, e := range w.data("trials").entries {
				e.Revision, e.Value = e.Revision+1, []byte("another")
				w.data("trials").entries[key] = e
			}
		})
		time.Sleep(renewal + few)
		if err := r[0].breaker.Check(); err == nil {
			t.Error("Check() of a replica that has lost its lease = nil, want that it no longer leads")
		}
		stop(r...)
	})
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
