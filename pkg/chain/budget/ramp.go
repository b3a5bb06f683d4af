package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"understudy/pkg/config"
)

const (
	// rampSpan is the time over which a target's tokens a minute may grow by its factor once.
	rampSpan = 15 // minutes
	// rampFloor is how many tokens a minute a target may have always, before the factor, so that one without a history
	// can start. It is some tens of requests, and below what the first paid tiers of the providers allow.
	rampFloor = 50_000
	// historyEvery is how old the history may be that goes by.
	historyEvery = 30 * time.Second
)

var (
	thisMinute = period{time.Minute}
	history    = period{slots * time.Minute} // in slots of a minute
)

// Ramp keeps the tokens a minute of each target from growing faster than its factor allows: in no minute more than the
// factor times the busiest of the clock's minutes that ended between 15 and 30 minutes ago, or of the floor.
//
// The minute and the history are accounts of a Meter of its own, with tokens in place of money, so that all replicas
// share them whoever gets the traffic, and they survive a restart. Where the store is down each replica keeps to the
// busiest of its own last 15 minutes, or the floor: nothing grows, and nothing stops.
//
// Ownership: who calls Start calls Stop. Concurrency: safe for all.
type Ramp struct {
	meter *Meter

	mu     sync.Mutex // guards lonely
	lonely map[string]*lonely
}

// lonely is what this replica let through by itself, in slots of a sixtieth of the two windows.
type lonely struct{ minute, history cells }

// NewRamp makes a Ramp. replica is unlike any other's, and b a bucket that no other Meter uses.
func NewRamp(replica string, b Bucket) *Ramp {
	return &Ramp{meter: New(Options{Replica: replica, Store: b}), lonely: map[string]*lonely{}}
}

// Start begins to keep in step with the other replicas, until Stop or the end of ctx.
func (r *Ramp) Start(ctx context.Context) { r.meter.Start(ctx) }

// Stop tells the others what is left to tell, and waits for all that Start began.
func (r *Ramp) Stop(ctx context.Context) error { return r.meter.Stop(ctx) }

// Admit lets tokens through to t, and counts them, or says that they are too many for now. A request that is larger than
// a whole minute's share waits for a minute without any other, or it would wait for ever. ctx bounds the wait for the
// store where it is needed.
func (r *Ramp) Admit(ctx context.Context, t *config.Target, tokens int64) bool {
	if t.MaxRamp <= 0 || tokens <= 0 {
		return true
	}
	key := Key{Chain: "ramp", Tenant: t.Name}
	limit, err := r.limit(ctx, key, t.MaxRamp)
	if err != nil {
		return r.alone(t, tokens)
	}
	ask := Ask{Worst: min(Money(tokens), limit)}
	held, err := r.meter.reserve(ctx, key, terms{limit: limit, period: thisMinute}, ask)
	switch {
	case errors.Is(err, ErrUnsure):
		return r.alone(t, tokens)
	case err != nil:
		return false
	}
	held.Settle(ask.Worst)
	r.meter.charge(key, history, Money(tokens))
	r.count(t.Name, tokens)
	return true
}

// limit is how many tokens a minute a target may have now.
func (r *Ramp) limit(ctx context.Context, key Key, by float64) (Money, error) {
	a, err := r.meter.account(key, history)
	if err != nil {
		return 0, err
	}
	if err := r.meter.fresh(ctx, a, historyEvery); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.period.slot(time.Now())
	all := slices.Clone(a.own)
	for _, c := range a.others {
		all = all.add(c.Slot, c.Sum)
	}
	return times(max(rampFloor, all.most(now-2*rampSpan-1, now-rampSpan-1)), by), nil
}

// times is a number of tokens, times a factor.
func times(tokens Money, by float64) Money { return Money(float64(tokens) * max(by, 1)) }

// most is the greatest of the slots from first to last.
func (c cells) most(first, last int64) (m Money) {
	for _, of := range c {
		if of.Slot >= first && of.Slot <= last {
			m = max(m, of.Sum)
		}
	}
	return m
}

// count notes what this replica let through.
func (r *Ramp) count(name string, tokens int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mine(name).add(time.Now(), tokens)
}

// alone lets through what does not grow.
func (r *Ramp) alone(t *config.Target, tokens int64) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.mine(t.Name)
	minute := history.slot(now)
	limit := max(rampFloor, l.history.most(minute-rampSpan, minute-1))
	if l.minute.sum(thisMinute, now).plus(Money(tokens)) > limit {
		return false
	}
	l.add(now, tokens)
	return true
}

// mine is what this replica let through to a target. Caller holds mu.
func (r *Ramp) mine(name string) *lonely {
	l := r.lonely[name]
	if l == nil {
		l = &lonely{}
		r.lonely[name] = l
	}
	return l
}

func (l *lonely) add(now time.Time, tokens int64) {
	l.minute = l.minute.drop(thisMinute, now).add(thisMinute.slot(now), Money(tokens))
	l.history = l.history.drop(history, now).add(history.slot(now), Money(tokens))
}
