package chain

import (
	"sync"
	"time"
)

const (
	// budgetWindow is the time over which a retry budget counts.
	budgetWindow = 10 * time.Second
	// budgetFloor is how many attempts beyond the first are always allowed in a window, or a chain with little traffic
	// could never fail over.
	budgetFloor = 10
)

// budget bounds the attempts beyond the first of a chain while more than one of its targets fails: then failing over
// multiplies the load on providers that cannot carry it.
//
// Concurrency: safe for all.
type budget struct {
	share float64

	mu    sync.Mutex // guards the fields below
	since time.Time
	// Counts of this window and the one before, which fades out as this one goes on.
	requests, extras         float64
	lastRequests, lastExtras float64
}

func newBudget(share float64) *budget { return &budget{share: share} }

// request counts a client's request.
func (b *budget) request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll(time.Now())
	b.requests++
}

// extra counts an attempt beyond the first.
func (b *budget) extra() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll(time.Now())
	b.extras++
}

// spent says whether another attempt beyond the first would exceed the budget.
func (b *budget) spent() bool {
	if b.share >= 1 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.roll(now)
	fading := 1 - float64(now.Sub(b.since))/float64(budgetWindow)
	requests, extras := b.requests+fading*b.lastRequests, b.extras+fading*b.lastExtras
	return extras+1 > max(budgetFloor, b.share*requests)
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
