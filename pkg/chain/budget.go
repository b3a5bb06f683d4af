package chain

import (
	"sync"
	"time"

	"understudy/pkg/config"
)

const (
	// budgetWindow is the time over which a retry budget counts.
	budgetWindow = 10 * time.Second
	// budgetFloor is how many attempts beyond the first are always allowed in a window, or a chain with little traffic
	// could never fail over.
	budgetFloor = 10
)

// budget bounds the attempts beyond the first of a chain while more than one of its targets fails: then failing over
// multiplies the load on providers that cannot carry it. Only attempts made in that state count, so that a blip of
// the fallback does not find the budget spent by the primary's outage alone.
//
// Concurrency: safe for all.
type budget struct {
	mu    sync.Mutex // guards the fields below
	share float64    // of the requests; 1: no bound
	since time.Time
	// Counts of this window and the one before, which fades out as this one goes on.
	requests, extras         float64
	lastRequests, lastExtras float64
}

func newBudget(share float64) *budget { return &budget{share: share} }

// renew changes the share, for a reload.
func (b *budget) renew(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share = share
}

// request counts a client's request.
func (b *budget) request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll(time.Now())
	b.requests++
}

// take counts an attempt beyond the first, if there is room for it.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok := b.room()
	if ok {
		b.extras++
	}
	return ok
}

// back takes back an attempt that was not made after all.
func (b *budget) back() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extras = max(0, b.extras-1)
}

// spent says whether take would find no room.
func (b *budget) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.room()
}

// room says whether another attempt beyond the first is within the budget. Caller holds mu.
func (b *budget) room() bool {
	requests, extras := b.recent()
	return b.share >= 1 || extras+1 <= max(budgetFloor, b.share*requests)
}

// recent is the counts of the last window, as far as two whole ones tell. Caller holds mu.
func (b *budget) recent() (requests, extras float64) {
	now := time.Now()
	b.roll(now)
	fading := 1 - float64(now.Sub(b.since))/float64(budgetWindow)
	return b.requests + fading*b.lastRequests, b.extras + fading*b.lastExtras
}

// rate is the clients' requests a second.
func (b *budget) rate() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, _ := b.recent()
	return requests / budgetWindow.Seconds()
}

// roll begins the window that now is in. Caller holds mu.
func (b *budget) roll(now time.Time) {
	switch age := now.Sub(b.since); {
	case age < budgetWindow:
		return
	case age < 2*budgetWindow:
		b.lastRequests, b.lastExtras = b.requests, b.extras
		b.since = b.since.Add(budgetWindow)
	default:
		b.lastRequests, b.lastExtras = 0, 0
		b.since = now
	}
	b.requests, b.extras = 0, 0
}

// budget is the retry budget of a chain, that of the chain of the same name where there was one.
func (b *Book) budget(c *config.Chain) *budget {
	if b != nil && b.plans[c.Name] != nil {
		kept := b.plans[c.Name].budget
		kept.renew(c.Retry.Budget)
		return kept
	}
	return newBudget(c.Retry.Budget)
}

// beyond says whether an attempt at slot i is not the exchange's first call of a provider: one is remembered, or a
// slot before it may be tried and so has been, here or by another replica.
func (c *course) beyond(i int) bool {
	if len(c.past) > 0 {
		return true
	}
	for j := range i {
		if s := c.slot(j); !s.onceMore() && c.fits(j) == nil && c.ready(s) == nil {
			return true
		}
	}
	return false
}

// bounded says whether the budget has a say in an attempt at slot i: failing over has become part of the problem.
func (c *course) bounded(i int) bool {
	if !c.beyond(i) {
		return false
	}
	failing := 0
	for i := range c.groups {
		if c.slots[c.groups[i].first].breaker.Failing() {
			failing++
		}
	}
	return failing > 1
}

// affordable says whether the budget lets slot i be tried.
func (c *course) affordable(i int) bool { return !c.bounded(i) || !c.budget.spent() }

// Live is how many requests of clients this replica has seen a second, lately.
func (p *Plan) Live() float64 { return p.budget.rate() }
