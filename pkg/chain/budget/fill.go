package budget

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"understudy/pkg/store"
)

// fill has an account speak with the store, unless it does so already: then it goes on with what has come up since.
func (m *Meter) fill(ctx context.Context, a *account) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	if m.closed {
		a.refuse(fmt.Errorf("%w: the meter has stopped", ErrUnsure))
		return
	}
	if a.begin() {
		ctx = context.WithoutCancel(ctx) // Others wait for it too.
		m.fills.Go(func() { a.work(ctx) })
	}
}

// fresh has an account hear of the store if it has not for a while.
func (m *Meter) fresh(ctx context.Context, a *account, age time.Duration) error {
	now := time.Now()
	a.mu.Lock()
	if a.gone || now.Sub(a.seen) < age {
		a.mu.Unlock()
		return nil
	}
	if now.Before(a.refusal.until) {
		defer a.mu.Unlock()
		return a.refusal.err
	}
	f := a.next()
	a.mu.Unlock()
	m.fill(ctx, a)
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refusal.err
}

func (a *account) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy {
		return false
	}
	a.busy = true
	return true
}

// work speaks with the store until nobody waits for it any more.
func (a *account) work(ctx context.Context) {
	for more := true; more; more = a.more() {
		a.mu.Lock()
		f := a.pending
		a.pending = nil
		a.mu.Unlock()
		_ = a.sync(ctx, false) // Those who wait find the error in a.refusal.
		if f != nil {
			close(f.done)
		}
	}
}

func (a *account) more() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = a.pending != nil
	return a.busy
}

// refuse ends the wait of all who wait.
func (a *account) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = refusal{until: time.Now().Add(refuseFor), err: err}
	if a.pending != nil && !a.busy {
		close(a.pending.done)
		a.pending = nil
	}
}

// want is what those who wait need: all of them together, and the most modest.
type want struct {
	sum, least Money
	last       bool // the replica stops: keep nothing
}

// sync brings the account and the store's record in step: tells what was spent, hears what others spent, and takes or
// gives back money.
func (a *account) sync(ctx context.Context, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.mu.Lock()
	w := want{a.need, a.needMin, last}
	a.need, a.needMin = 0, 0
	a.mu.Unlock()
	for try := 0; ; try++ {
		err := a.once(ctx, w)
		if err == nil || !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			return a.outcome(w, err)
		}
		if !pause(ctx, mrand.N(time.Duration(min(try, 8)+1)*time.Millisecond)) {
			return a.outcome(w, context.Cause(ctx))
		}
	}
}

// outcome notes what is to be told to those for whom there was no money.
func (a *account) outcome(w want, err error) error {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal, a.tried = refusal{}, now
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrUnsure, err)
		a.refusal = refusal{until: now.Add(refuseFor), err: err}
	case w.sum > 0 && w.least > a.free():
		a.refusal = refusal{until: now.Add(refuseFor), least: w.least, err: ErrSpent}
	}
	return err
}

// once is one compare-and-set.
func (a *account) once(ctx context.Context, w want) error {
	bucket := a.meter.o.Store
	e, err := bucket.Get(ctx, a.name)
	r := record{}
	switch {
	case errors.Is(err, store.ErrNotFound):
		r.ID = rand.Text()
	case err != nil:
		return err
	default:
		if r, err = decodeRecord(e.Value); err != nil {
			return fmt.Errorf("the record %s: %w", a.name, err)
		}
	}
	p := a.propose(&r, w)
	if !p.changes {
		return nil
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if e.Revision == 0 {
		_, err = bucket.Create(ctx, a.name, value, p.ttl)
	} else {
		_, err = bucket.Update(ctx, a.name, value, e.Revision, p.ttl)
	}
	a.conclude(p, err)
	return err
}

// proposal is what a write would bring about.
type proposal struct {
	share
	changes bool
	doubt   bool // as it was before
	record  string
	ttl     time.Duration
}

// propose adopts what the store says and puts this replica's new share into the record. From here on the account keeps
// within both the share that is in the store and the new one, as nobody knows which holds until the write is answered.
func (a *account) propose(r *record, w want) proposal {
	now := time.Now()
	me := a.meter.o.Replica
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopt(r, now)
	was := r.Replicas[me]
	s := share{Told: a.spent, Claim: a.reserved.plus(a.forecast(now, w)), Until: now.Add(a.period.lease())}
	p := proposal{share: s, doubt: a.doubt, record: r.ID, ttl: a.period.ends(a.period.slot(s.Until)).Sub(now) + time.Hour}
	renew := s.Claim > 0 && was.Until.Sub(now) < a.period.lease()/2
	p.changes = a.doubt || renew || s.Claim != was.Claim || s.Told != was.Told
	if !p.changes {
		return p
	}
	if r.Replicas == nil {
		r.Replicas = map[string]share{}
	}
	s.Spent = slices.Clone(a.own) // It is read without the lock.
	r.Replicas[me] = s
	a.bound = min(a.bound, s.Claim.plus(s.Told))
	a.doubt = true
	return p
}

// conclude takes the answer to a write.
func (a *account) conclude(p proposal, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.bound, a.until, a.doubt = p.Claim.plus(p.Told), p.Until, false
		a.known, a.record, a.told, a.claim = true, p.record, p.Told, p.Claim
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists):
		a.doubt = p.doubt // It was not made.
	}
}

// adopt takes over what the record says. Caller holds mu.
func (a *account) adopt(r *record, now time.Time) {
	me := a.meter.o.Replica
	mine, have := r.Replicas[me]
	switch {
	case have && !a.known && !a.doubt: // The account had been forgotten here.
		a.spent = a.spent.plus(mine.Told)
		for _, c := range mine.Spent {
			a.own = a.own.add(c.Slot, c.Sum)
		}
	case !have && a.known && a.record == r.ID:
		a.buried()
	}
	stored := mine.Claim.plus(mine.Told)
	if a.doubt {
		stored = min(a.bound, stored)
	}
	a.bound, a.told, a.claim = stored, mine.Told, mine.Claim
	if have {
		a.until, a.record, a.known = mine.Until, r.ID, true
	}
	r.bury(a.period, now, me)
	a.others, a.held = r.rest(a.period, now, me)
	a.seen = now
	a.reckon(now)
	a.judge()
}

// buried begins anew after the others took this replica for dead: what it had told is with the buried, and all that it
// had claimed was counted as spent. Only what went beyond that is still to be told. Caller holds mu.
func (a *account) buried() {
	beyond := max(a.reserved.plus(a.spent)-a.bound, 0)
	a.own, a.spent, a.reserved, a.known = nil, 0, 0, false
	a.gen++
	if beyond > 0 {
		a.own, a.spent = a.own.add(a.slot, beyond), beyond
	}
}

// forecast is how much to have at hand beyond what is reserved: what is asked for now, and a slice for what comes next,
// of at most an eighth of what is left then. Caller holds mu.
func (a *account) forecast(now time.Time, w want) Money {
	a.taken = 0
	room := max(a.room(), 0)
	if w.last || a.terms.limit == 0 {
		return 0
	}
	a.pace(now, w)
	need := w.sum
	if need > room {
		if w.least > room {
			return 0
		}
		return room
	}
	if ahead := min(a.slice, (room-need)/8); ahead >= a.atLeast() {
		a.taken = ahead
	}
	return need + a.taken
}

// pace finds how large a slice pays: twice as large if the last one held for less than a second, half as large if
// nothing was missing for one, none for who does not ask. Caller holds mu.
func (a *account) pace(now time.Time, w want) {
	floor := a.atLeast().plus(a.atLeast())
	switch short := w.sum > 0 || a.free() < a.taken/4; {
	case now.Sub(a.asked) > restFor:
		a.slice = 0
	case short && now.Sub(a.filled) < time.Second:
		a.slice = max(a.slice.plus(a.slice), floor)
		a.filled = now
	case short:
		a.slice = max(a.slice, floor)
		a.filled = now
	case now.Sub(a.filled) >= time.Second:
		a.slice = max(a.slice/2, floor)
	}
}

// pause waits for d, or less when ctx ends: then it is false.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
