package breaker

import (
	"sync"
	"sync/atomic"
)

// news holds transitions from the moment that gobreaker tells them, under its lock, until they can be acted on.
type news struct {
	some atomic.Bool // pending is not empty

	mu sync.Mutex // guards the fields below
	// telling: somebody is in tell and will also tell what comes meanwhile, so that the order is kept.
	telling bool
	pending []Transition
}

func (n *news) add(t Transition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = append(n.pending, t)
	n.some.Store(true)
}

// tell tells listen what is pending, with no lock held.
func (n *news) tell(listen func(Transition)) {
	for t, ok := n.next(false); ok; t, ok = n.next(true) {
		listen(t)
	}
}

// next is the next transition to tell. mine says that the caller has told the one before.
func (n *news) next(mine bool) (t Transition, ok bool) {
	if !n.some.Load() && !mine {
		return t, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.telling && !mine {
		return t, false
	}
	if n.telling = len(n.pending) > 0; !n.telling {
		n.pending = nil
		n.some.Store(false)
		return t, false
	}
	t, n.pending = n.pending[0], n.pending[1:]
	return t, true
}
