package fleet

import (
	"context"
	"errors"
	"strconv"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

const (
	// tenure is how long the right to a generation's trial stays with the replica that took it: when it is not told
	// by then how the trial went, another may try.
	tenure = time.Minute
	// lease is how long that right stays with a replica that does not renew it, as it may be dead. It is longer than the
	// store takes for an election, and is renewed every so often.
	lease   = 10 * time.Second
	renewal = 2 * time.Second
	// handing is how long a right is still taken that its replica gives up.
	handing = time.Second
	// longest is the time that a probe needs at most; with less than that left of its tenure, none is begun.
	longest = 45 * time.Second
	// again is the pause before a trial that came to nothing is made once more, and before a taken one is asked for.
	again = 5 * time.Second
)

// trial is this replica's part in the trial of a generation.
type trial struct {
	gen   uint64
	until time.Time     // for so long the trial is this replica's
	next  time.Time     // before that there is nothing to do
	done  chan struct{} // closed at the end of the probe that runs; nil: none does
	rev   uint64        // of the right to it in the store, 0 without one
	renew time.Time     // when that is due
	vain  int           // requests that have tried in vain
}

// tryOut sees to it that one replica tries a half-open target.
func (f *Fleet) tryOut(ctx context.Context, t Target) {
	if t.Breaker.State() != breaker.HalfOpen || time.Now().Before(t.Breaker.Cooling()) {
		return
	}
	x := f.trials[t.key()]
	if gen := t.Breaker.Truth().Gen; x.gen != gen {
		x = trial{gen: gen}
	}
	x.settle()
	if vain := t.Breaker.Vain(); vain != x.vain {
		x.vain = vain
		f.handOn(ctx, t, &x)
	}
	f.renew(ctx, t, &x)
	if x.done == nil && !time.Now().Before(x.next) && f.canTry(t, x.gen) {
		f.try(ctx, t, &x)
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
func (f *Fleet) try(ctx context.Context, t Target, x *trial) {
	now := time.Now()
	if !now.Before(x.until) {
		t.Breaker.Lead(0) // another may have the trial now
		if f.taken(ctx, t, x) {
			x.next = now.Add(again)
			return
		}
		x.until = now.Add(tenure)
	}
	switch {
	case !t.Probe:
		t.Breaker.Lead(x.gen)
		x.next = x.until
	case x.until.Sub(now) < longest:
		x.next = x.until
	default:
		x.done = f.probe(ctx, t.Name, x.until)
	}
}

// taken says whether another replica has the trial; if not it is this one's. Without a store every replica has it. Who
// is alone has it in any case: what the store could name is itself, before it died.
func (f *Fleet) taken(ctx context.Context, t Target, x *trial) bool {
	if f.o.Alone {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rev, err := f.o.Trials.Create(ctx, x.key(t), []byte(f.o.Replica), lease)
	x.rev, x.renew = rev, time.Now().Add(renewal)
	return isTaken(err)
}

// renew keeps the right to the trial while this replica lives and its tenure lasts. Who was silent for longer than a lease
// has lost it; who cannot reach the store keeps it, as without a store each tries by itself.
func (f *Fleet) renew(ctx context.Context, t Target, x *trial) {
	now := time.Now()
	if x.rev == 0 || now.Before(x.renew) || !now.Before(x.until) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rev, err := f.o.Trials.Update(ctx, x.key(t), []byte(f.o.Replica), x.rev, lease)
	x.renew = now.Add(renewal)
	switch {
	case err == nil:
		x.rev = rev
	case errors.Is(err, store.ErrConflict):
		t.Breaker.Lead(0)
		x.rev, x.until, x.next = 0, time.Time{}, now.Add(again)
	}
}

func (x *trial) key(t Target) string { return t.key() + "#" + strconv.FormatUint(x.gen, 10) }

// handOn gives the right to try by a request to whoever asks first from now on: the next request may come to another
// replica.
func (f *Fleet) handOn(ctx context.Context, t Target, x *trial) {
	if t.Probe || f.o.Alone || x.rev == 0 {
		return
	}
	t.Breaker.Lead(0)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, _ = f.o.Trials.Update(ctx, x.key(t), []byte(f.o.Replica), x.rev, handing) // without it the right ends later
	x.rev, x.until, x.next = 0, time.Time{}, time.Now().Add(2*again)
}

// probe makes the deliberate trial beside the loop.
func (f *Fleet) probe(ctx context.Context, target string, until time.Time) (done chan struct{}) {
	ctx, cancel := context.WithDeadline(ctx, until)
	done = make(chan struct{})
	f.wg.Go(func() {
		defer close(done)
		defer cancel()
		f.o.Probe(ctx, target)
	})
	return done
}
