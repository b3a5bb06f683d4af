package budget

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

const (
	// flushEvery is how soon the others hear what was spent here, and get back what is not needed.
	flushEvery = time.Second
	// restFor is how long an account that is not asked keeps a slice.
	restFor = 5 * time.Second
	// idleFor is how long an account that has nothing open is remembered; idleCrowded, when there are many.
	idleFor     = 10 * time.Minute
	idleCrowded = 2 * time.Second
	// refuseFor is how long a refusal holds without asking the store again, so that a spent budget costs it little.
	refuseFor = 250 * time.Millisecond
)

// account is this replica's part in one budget, and what it knows of the others'.
//
// Concurrency: safe for all. No lock is held while the store is asked.
type account struct {
	meter  *Meter
	key    Key
	period period
	name   string // in the store; it does not tell the tenant

	mu    sync.Mutex // guards the fields below
	terms terms
	gone  bool // forgotten: look it up anew

	// What this replica did. gen counts how often it was buried: what was reserved before is then counted as spent.
	own      cells
	spent    Money // all of it, ever
	reserved Money
	open     int // reservations
	gen      int
	asked    time.Time

	// What it may do: reserved and spent together may come to bound, until then.
	bound Money
	until time.Time
	doubt bool // nobody knows whether the last write was made

	// What the store said: this replica's total, and the others.
	known  bool   // the record has or had a share of this replica
	record string // the record's ID
	told   Money
	claim  Money
	others cells
	held   []claim
	seen   time.Time
	tried  time.Time // the last exchange, whatever came of it

	// What follows from it, as of slot.
	slot   int64
	total  Money // spent by all
	theirs Money // claims of others
	state  State
	least  [2]Money // the smallest reservation asked for in the slot noted, and in the one before it
	noted  int64

	// The next exchange with the store.
	pending *fill
	busy    bool  // it is going on
	need    Money // of all who wait for it, and the smallest of them
	needMin Money
	slice   Money // to be taken ahead of need
	filled  time.Time
	taken   Money // what was taken ahead, the last time
	refusal refusal
}

// fill is an exchange with the store that somebody may wait for.
type fill struct{ done chan struct{} }

// again is no exchange: the account was forgotten, look it up anew.
var again = &fill{}

// refusal is what the store said to a reservation of at least so much.
type refusal struct {
	until time.Time
	least Money
	err   error
}

func newAccount(m *Meter, key Key, p period) *account {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", key.Chain, key.Tenant, p.window))
	return &account{meter: m, key: key, period: p, name: hex.EncodeToString(sum[:16])}
}

// reserve takes the money from the slice, or says why not, or which exchange with the store to wait for.
func (a *account) reserve(t terms, ask Ask) (*Reservation, *fill, error) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return nil, again, nil
	}
	a.terms, a.asked = t, now
	a.roll(now)
	if t.limit == 0 || ask.Worst == 0 {
		return a.reservation(0), nil, nil
	}
	a.note(ask.Worst)
	a.judge()
	switch {
	case !a.known: // Nobody has looked yet what was spent before.
	case t.soft > 0 && a.total >= t.soft && ask.dear():
		return nil, nil, ErrDear
	case now.Before(a.until) && ask.Worst <= a.free():
		return a.reservation(ask.Worst), nil, nil
	}
	if now.Before(a.refusal.until) && ask.Worst >= a.refusal.least {
		return nil, nil, a.refusal.err
	}
	a.need = a.need.plus(ask.Worst)
	if a.needMin == 0 || ask.Worst < a.needMin {
		a.needMin = ask.Worst
	}
	return nil, a.next(), nil
}

// agree takes a budget's terms; each reservation does, too, as a reload may change them.
func (a *account) agree(t terms) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.terms, a.asked = t, now
	a.roll(now)
}

// next is the exchange with the store that will see what is asked now. Caller holds mu.
func (a *account) next() *fill {
	if a.pending == nil {
		a.pending = &fill{done: make(chan struct{})}
	}
	return a.pending
}

// free is what may be reserved without asking. Caller holds mu.
func (a *account) free() Money { return a.bound - a.reserved.plus(a.spent) }

// reservation sets money aside. Caller holds mu.
func (a *account) reservation(worst Money) *Reservation {
	a.reserved += worst
	a.open++
	return &Reservation{account: a, worst: worst, slot: a.slot, gen: a.gen}
}

// low says whether the slice is nearly used up.
func (a *account) low() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken > 0 && !a.busy && a.free() < a.taken/4
}

// Reservation is money set aside for one attempt. It must be settled or released; the first of the two holds, and what
// comes after it does nothing. It never expires while its replica lives.
type Reservation struct {
	account *account
	worst   Money
	slot    int64
	gen     int
	done    bool // guarded by the account
}

// Settle spends what the provider bills, and gives back the rest.
func (r *Reservation) Settle(real Money) {
	a := r.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.done {
		return
	}
	r.done = true
	a.open--
	real = max(real, 0)
	if r.gen == a.gen {
		a.reserved -= r.worst
	} else {
		real = max(real-r.worst, 0) // Its worst case was spent when the replica was taken for dead.
	}
	a.spend(r.slot, real)
}

// Release gives all of it back: the attempt was not made, or is not billed.
func (r *Reservation) Release() { r.Settle(0) }

// spend counts what was spent in a slot. Caller holds mu.
func (a *account) spend(slot int64, m Money) {
	if m == 0 {
		return
	}
	a.own = a.own.add(slot, m)
	a.spent = a.spent.plus(m)
	a.total = a.total.plus(m)
	a.judge()
}

// charge counts what was spent without a reservation; it is false for an account that was forgotten.
func (a *account) charge(m Money) bool {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return false
	}
	a.asked = now
	a.roll(now)
	a.spend(a.slot, max(m, 0))
	return true
}

// roll brings what follows from the time up to date. Caller holds mu.
func (a *account) roll(now time.Time) {
	if slot := a.period.slot(now); slot > a.slot {
		a.slot = slot
		a.reckon(now)
	}
}

// reckon sums up. A claim of another replica that has lapsed counts as spent. Caller holds mu.
func (a *account) reckon(now time.Time) {
	live := a.held[:0]
	a.theirs = 0
	for _, c := range a.held {
		if now.Before(c.until) {
			live = append(live, c)
			a.theirs = a.theirs.plus(c.sum)
		} else {
			a.others = a.others.add(a.period.slot(c.until), c.sum)
		}
	}
	a.held = live
	a.own, a.others = a.own.drop(a.period, now), a.others.drop(a.period, now)
	a.total = a.own.sum(a.period, now).plus(a.others.sum(a.period, now))
}

// room is what nobody has spent or taken, and this replica has not reserved. Caller holds mu.
func (a *account) room() Money {
	return a.terms.limit - a.total.plus(a.theirs).plus(a.reserved)
}

// due is what the loop should do about an account.
type due int

const (
	dueNothing due = iota
	dueFill
	dueClose
)

func (a *account) due(now time.Time, idle time.Duration) due {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(now)
	a.judge()
	since := now.Sub(a.seen)
	switch {
	case a.pending != nil || a.busy || now.Sub(a.tried) < refuseFor:
		return dueNothing
	case a.doubt, a.claim > 0 && a.until.Sub(now) < a.period.lease()/2:
		return dueFill
	case since < flushEvery:
		return dueNothing
	case a.spent != a.told, a.free() > 0 && a.claim > 0, a.state != Closed && now.Sub(a.asked) < restFor:
		return dueFill
	case a.state == Closed && a.open == 0 && a.claim == 0 && now.Sub(a.asked) > idle:
		return dueClose
	}
	return dueNothing
}

// close forgets the account if nothing happened meanwhile.
func (a *account) close() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = a.open == 0 && a.claim == 0 && a.spent == a.told && a.pending == nil && !a.busy && !a.doubt
	return a.gone
}
