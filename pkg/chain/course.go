package chain

import (
	"errors"
	"slices"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
)

// course is one exchange on its way along a chain, as one attempt sees it. What it calls i is a place in the order,
// from 0.
type course struct {
	*Plan
	x     Exchange
	past  []Past
	order []int // slots; attempt N is at place N-1
}

func (p *Plan) course(x Exchange, past []Past) course {
	return course{Plan: p, x: x, past: past, order: p.order(&x, past)}
}

func (c *course) slot(i int) *Slot { return &c.slots[c.order[i]] }

// proper is how many slots there are before the second round of a sticky chain.
func (c *course) proper() int { return c.round(c.order) }

func (c *course) firstAllowed() (*Try, error) {
	var all obstacles
	for i := range c.proper() {
		s := c.slot(i)
		if s.onceMore() {
			continue
		}
		t, why := c.at(i)
		if why == nil {
			return t, nil
		}
		all = append(all, obstacle{s.Target.Name, why})
	}
	return nil, all.spent()
}

// serviceFaults is how many attempts the hop passes on when the service is gone; the reply to the next one is final.
const serviceFaults = 4

// place is what an attempt number means: the slot of that number, and beyond the last one, as a fault of the
// service consumes a number too, one more walk along the slots that may be tried.
func (c *course) place(attempt int) (i int, ok bool) {
	n := len(c.order)
	switch {
	case attempt > c.attempts:
		return 0, false
	case attempt <= n:
		return attempt - 1, true
	}
	walk := c.walk()
	i = max(0, attempt-n-1-len(c.past))
	if i >= len(walk) && attempt > 1+serviceFaults || len(walk) == 0 {
		return 0, false
	}
	// So far faults alone may have consumed the numbers, those of a short chain more than once.
	return walk[i%len(walk)], true
}

// walk is the slots beyond the last one, in order, that are still to be walked: none when an attempt before that
// is known to have reached its target, as then nobody knows which others have, too.
func (c *course) walk() []int {
	if slices.ContainsFunc(c.past, func(was Past) bool { return was.Attempt <= len(c.order) }) {
		return nil
	}
	var open []int
	for i := range c.proper() {
		s := c.slot(i)
		walked := slices.ContainsFunc(c.past, func(was Past) bool { return was.Target == s.Target.Name })
		if !s.onceMore() && !walked && c.fits(i) == nil && c.ready(s) == nil {
			open = append(open, i)
		}
	}
	return open
}

// at tries slot i, or says why not.
func (c *course) at(i int) (*Try, error) {
	if err := c.fits(i); err != nil {
		return nil, err
	}
	s := c.slot(i)
	t := &Try{Slot: *s, Index: i, Wait: c.wait(i), course: *c}
	if t.Wait > 0 {
		return t, nil
	}
	if err := c.book.credential(s.Target.Provider); err != nil {
		return nil, err
	}
	permit, err := c.allow(s)
	if err != nil {
		return nil, err
	}
	t.permit = permit
	return t, nil
}

// allow takes a permit for the exchange. A rehearsal needs none: it would take the one trial of a half-open breaker away.
func (c *course) allow(s *Slot) (*breaker.Permit, error) {
	if c.multiplies(s) {
		return nil, errRetry
	}
	if c.x.Drill {
		return nil, s.breaker.Check()
	}
	if c.x.Own {
		return s.breaker.AllowPaced()
	}
	return s.breaker.Allow()
}

// multiplies says that an attempt at the slot would make a client's retries times ours: a dead chain is to see one
// attempt more for all of them.
func (c *course) multiplies(s *Slot) bool {
	return c.x.Retry && len(c.past) > 0 && s.breaker.Troubled()
}

// ready says why a first try at the slot's target would get no permit now, nil when it would.
func (c *course) ready(s *Slot) error {
	if err := c.book.credential(s.Target.Provider); err != nil {
		return err
	}
	if c.multiplies(s) {
		return errRetry
	}
	err := s.breaker.Check()
	if c.x.Own && errors.Is(err, breaker.ErrRamping) {
		return nil
	}
	return err
}

// repeats says whether the last attempt was at slot i's target, for the first time, and may be made once more.
func (c *course) repeats(i int) bool {
	past := latest(c.past)
	target := c.slot(i).Target.Name
	if len(past) == 0 || past[len(past)-1].Target != target || count(past, target) > 1 {
		return false
	}
	last := past[len(past)-1]
	if last.Verdict.Class == classify.RateLimited {
		return c.Chain.On.RateLimited == "wait" && c.cooldown(i, last) <= c.Chain.On.MaxWait
	}
	return c.Chain.Retry.SameTarget > 0 && c.retryOn[last.Verdict.Class.String()]
}

func count(past []Past, target string) (n int) {
	for i := range past {
		if past[i].Target == target {
			n++
		}
	}
	return n
}

// resubmits says whether the last attempt was at slot i's target and lacked capacity, for the first time: at the
// discounted tier, as the order has a Standard slot only where that was asked for.
func (c *course) resubmits(i int) bool {
	past := latest(c.past)
	lacked := func(was Past) bool {
		return was.Target == c.slot(i).Target.Name && was.Verdict.Class == classify.Capacity
	}
	return len(past) > 0 && slices.IndexFunc(past, lacked) == len(past)-1
}

// cooldown is how long slot i's target cools down, counted from its answer last. Other exchanges may lengthen it.
func (c *course) cooldown(i int, last Past) time.Duration {
	cooling := c.slot(i).breaker.Cooling().Sub(last.At)
	// The answer and its cooldown were noted a moment apart.
	return max(cooling.Truncate(100*time.Millisecond), pause(last.Verdict))
}

// waits says whether slot i, which fits, is one that waits for its target's cooldown: only once more after a short
// rate limit.
func (c *course) waits(i int) bool {
	return c.slot(i).Again && c.past[len(c.past)-1].Verdict.Class == classify.RateLimited
}

// wait is how long slot i waits for its target's cooldown.
func (c *course) wait(i int) time.Duration {
	if !c.waits(i) {
		return 0
	}
	return time.Until(c.slot(i).breaker.Cooling())
}

// more says whether an attempt after this one, which was slot i, has a slot that it may try.
func (c *course) more(i int) bool {
	if c.x.Attempt <= 0 {
		return false
	}
	if c.x.Attempt > len(c.order) {
		next, ok := c.place(c.x.Attempt + 1)
		return ok && c.affordable(next)
	}
	for j := i + 1; j < len(c.order); j++ {
		if c.fits(j) != nil {
			continue
		}
		// What waits for its cooldown is not ready yet.
		if c.waits(j) || c.ready(c.slot(j)) == nil {
			return c.affordable(j)
		}
	}
	c.miss(i)
	return false
}

// miss tells the targets after slot i, none of which may be tried, of a request that ends for it. Nobody else does:
// without an attempt their breakers are not asked, and would never count the requests that a ramp has its share of.
func (c *course) miss(i int) {
	if c.x.Drill {
		return
	}
	for j := i + 1; j < c.proper() && !c.Chain.Observe; j++ {
		if s := c.slot(j); !s.onceMore() && c.fits(j) == nil && c.book.credential(s.Target.Provider) == nil {
			s.breaker.Missed()
		}
	}
}
