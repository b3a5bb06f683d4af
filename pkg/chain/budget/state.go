package budget

import (
	"fmt"
	"slices"
	"time"

	"understudy/pkg/config"
)

// State is where a budget stands, as the states of a breaker.
type State uint8

// The states. What is reserved does not count, only what is spent: a state ends when the window lets go of some of it.
const (
	Closed State = iota // all may be spent
	Soft                // the soft limit is passed: only cheaper rungs
	Open                // what is left is less than the smallest attempt that was asked for lately
)

// String is the state in words.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Soft:
		return "soft"
	case Open:
		return "open"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Transition is a change of an account's state.
type Transition struct {
	Key      Key
	From, To State
	Reopens  time.Time // when the budget will serve again, for one that is open; see Meter.Reopens
}

// State is where the budget of a key stands, as far as this replica has heard. A key that it was not asked about lately
// is closed.
func (m *Meter) State(key Key, b config.Budget) State {
	s := Closed
	m.ask(key, b, func(a *account) { s = a.state })
	return s
}

// Reopens is when the window will have let go of enough for the smallest attempt that was asked for lately, or when the
// month ends; zero for a budget that is not open.
func (m *Meter) Reopens(key Key, b config.Budget) (at time.Time) {
	m.ask(key, b, func(a *account) { at = a.reopens() })
	return at
}

// Spent is what all replicas have spent of a key's budget in its window, as far as this one has heard: what the others
// spent in the last second may be missing.
func (m *Meter) Spent(key Key, b config.Budget) (spent Money) {
	m.ask(key, b, func(a *account) { spent = a.total })
	return spent
}

// Remaining is what is left of a chain's budget; of one with a budget for each tenant, of the tenant with the least
// left, among those that this replica remembers. It is all of it where nothing was asked yet.
func (m *Meter) Remaining(chain string, b config.Budget) Money {
	limit := termsOf(b).limit
	left := limit
	m.accountsOf(chain, b, func(a *account) { left = min(left, limit-a.total) })
	return max(left, 0)
}

// Strictest is where a chain's budget stands; of one with a budget for each tenant, that of the tenant for whom it
// stands worst, among those that this replica remembers.
func (m *Meter) Strictest(chain string, b config.Budget) State {
	s := Closed
	m.accountsOf(chain, b, func(a *account) { s = max(s, a.state) })
	return s
}

// accountsOf reads the accounts of a chain.
func (m *Meter) accountsOf(chain string, b config.Budget, read func(*account)) {
	p := periodOf(b)
	for _, a := range m.all() {
		if a.key.Chain == chain && a.period == p {
			a.now(read)
		}
	}
}

// ask reads an account, if there is one.
func (m *Meter) ask(key Key, b config.Budget, read func(*account)) {
	a := m.shard(key).find(id{key, periodOf(b)})
	if a == nil {
		return
	}
	a.now(read)
}

// now reads the account as of this moment.
func (a *account) now(read func(*account)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(time.Now())
	a.judge()
	read(a)
}

// note remembers the smallest reservation of this slot and of the last one that had any. Caller holds mu.
func (a *account) note(worst Money) {
	if a.noted != a.slot {
		a.noted, a.least = a.slot, [2]Money{worst, a.least[0]}
	}
	a.least[0] = min(a.least[0], worst)
}

// atLeast is the smallest reservation asked for lately. Caller holds mu.
func (a *account) atLeast() Money {
	if a.least[1] == 0 {
		return a.least[0]
	}
	return min(a.least[0], a.least[1])
}

// judge finds the state, and notes a change. Caller holds mu.
func (a *account) judge() {
	to := Closed
	switch left := a.terms.limit - a.total; {
	case a.terms.limit == 0:
	case left <= 0, left < a.atLeast():
		to = Open
	case a.terms.soft > 0 && a.total >= a.terms.soft:
		to = Soft
	}
	if to == a.state {
		return
	}
	t := Transition{Key: a.key, From: a.state, To: to}
	a.state = to
	t.Reopens = a.reopens()
	a.meter.changed(t)
}

// reopens is when an open account will serve again. Caller holds mu.
func (a *account) reopens() (at time.Time) {
	if a.state != Open {
		return at
	}
	left, spent := a.terms.limit-a.total, slices.Clone(a.own)
	for _, c := range a.others {
		spent = spent.add(c.Slot, c.Sum)
	}
	for _, c := range spent {
		at = a.period.ends(c.Slot)
		if left += c.Sum; left > 0 && left >= a.atLeast() {
			break
		}
	}
	return at
}
