package fleet

import (
	"context"
	"strconv"
	"time"

	"understudy/pkg/chain/breaker"
)

const (
	// tenure is how long the right to a generation's trial stays with the replica that took it: when it is not told
	// by then how the trial went, another may try.
	tenure = time.Minute
	// lease is how long that right stays with a replica that does not renew it, as it may be dead: longer than the store
	// takes for an election, which is up to 9 s.
	lease   = 15 * time.Second
	renewal = 2 * time.Second
	// handing is how long a right is still taken that its replica gives up.
	handing = time.Second
	// longest is the time that a probe needs at most; with less than that left of its tenure, none is begun.
	longest = 45 * time.Second
	// again is the pause before a trial that came to nothing is made once more, and before one is asked for that is
	// taken, or was this replica's.
	again = 5 * time.Second
)

// trial is this replica's part in the trial of a generation.
type trial struct {
	gen   uint64
	until time.Time     // for so long the trial is this replica's; zero: it is not
	next  time.Time     // before that there is nothing to do
	done  chan struct{} // closed at the end of the probe that runs; nil: none does
	quit  func()        // ends that probe
	rev   uint64        // of the right to it in the store, 0 while none is known
	renew time.Time     // when that is due
	vain  int           // requests that have tried in vain
}

// tryOut sees to it that one replica tries a half-open target. What it waits for in the store ends with brief.
func (f *Fleet) tryOut(ctx, brief context.Context, t Target) {
	if t.Breaker.State() != breaker.HalfOpen {
		return
	}
	x := f.trials[t.key()]
	if gen := t.Breaker.Truth().Gen; x.gen != gen {
		x = trial{gen: gen}
	}
	x.settle()
	if vain := t.Breaker.Vain(); vain != x.vain {
		x.vain = vain
		f.handOn(brief, t, &x)
	}
	f.keep(brief, t, &x)
	if now := time.Now(); x.done == nil && !now.Before(x.next) && !now.Before(t.Breaker.Cooling()) && f.canTry(t, x.gen) {
		f.try(ctx, brief, t, &x)
	}
	f.trials[t.key()] = x
}

// canTry says whether a trial that is this replica's would be made: an ordinary request's only where one comes by. Of
// two replicas behind a round-robin, one may get the first attempts of all exchanges and the other the second ones.
func (f *Fleet) canTry(t Target, gen uint64) bool {
	return t.Probe || f.o.Alone || t.Breaker.Asked(gen)
}

// settle notes the end of a probe.
func (x *trial) settle() {
	select {
	case <-x.done:
		x.done, x.next = nil, time.Now().Add(again)
	default:
	}
}

// try makes the trial if it is this replica's, or asks whether it may be.
func (f *Fleet) try(ctx, brief context.Context, t Target, x *trial) {
	now := time.Now()
	if !now.Before(x.until) {
		x.until = now.Add(tenure)
		if f.taken(brief, t, x) {
			f.lose(t, x)
			return
		}
	}
	switch {
	case !t.Probe:
		t.Breaker.Lead(x.gen)
		x.next = x.until
	case x.until.Sub(now) < longest:
		x.next = x.until
	default:
		f.probe(ctx, t.Name, x)
	}
}

// keep renews the right to the trial while this replica lives and its tenure lasts. Who cannot reach the store keeps it, as
// without a store each tries by itself.
func (f *Fleet) keep(ctx context.Context, t Target, x *trial) {
	now := time.Now()
	switch {
	case f.o.Alone, x.until.IsZero():
	case !now.Before(x.until):
		f.lose(t, x)
	case !now.Before(x.renew) && f.taken(ctx, t, x):
		f.lose(t, x)
	}
}

// lose leaves the trial to others.
func (f *Fleet) lose(t Target, x *trial) {
	t.Breaker.Lead(0)
	if x.done != nil {
		x.quit()
	}
	x.rev, x.until, x.next = 0, time.Time{}, time.Now().Add(again)
}

// taken takes or renews the right to the trial, and says whether another replica has it; if not it is this one's. Without a
// store every replica has it. Who is alone has it in any case: what the store could name is itself, before it died.
func (f *Fleet) taken(ctx context.Context, t Target, x *trial) bool {
	if f.o.Alone {
		return false
	}
	x.renew = time.Now().Add(renewal)
	var err error
	x.rev, err = put(ctx, f.o.Trials, x.key(t), []byte(f.o.Replica), x.rev, x.left())
	if isTaken(err) { // maybe by an earlier call of this replica, whose answer was lost
		e, lost := f.o.Trials.Get(ctx, x.key(t))
		if lost == nil && string(e.Value) == f.o.Replica {
			x.rev, err = f.o.Trials.Update(ctx, x.key(t), []byte(f.o.Replica), e.Revision, x.left())
		}
	}
	return isTaken(err)
}

// left is how long the right to the trial is taken or renewed for. It is never 0, which the store takes for ever.
func (x *trial) left() time.Duration { return max(handing, min(lease, time.Until(x.until))) }

func (x *trial) key(t Target) string { return t.key() + "#" + strconv.FormatUint(x.gen, 10) }

// handOn gives the right to try by a request to whoever asks first from now on: the next request may come to another
// replica.
func (f *Fleet) handOn(ctx context.Context, t Target, x *trial) {
	if t.Probe || f.o.Alone || x.rev == 0 {
		return
	}
	rev := x.rev
	f.lose(t, x)
	_, _ = f.o.Trials.Update(ctx, x.key(t), []byte(f.o.Replica), rev, handing) // without it the right ends later
	x.next = time.Now().Add(2 * again)
}

// probe makes the deliberate trial beside the loop.
func (f *Fleet) probe(ctx context.Context, target string, x *trial) {
	ctx, cancel := context.WithDeadline(ctx, x.until)
	done := make(chan struct{})
	x.done, x.quit = done, cancel
	f.wg.Go(func() {
		defer close(done)
		defer cancel()
		f.o.Probe(ctx, target)
	})
}
