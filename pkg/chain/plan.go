package chain

import (
	"slices"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

// Plan is a chain laid out as slots, one an attempt.
type Plan struct {
	Chain *config.Chain

	book     *Book
	slots    []Slot  // of all targets, in the order of the file
	groups   []group // the slots of each target, in the order of the file
	shared   bool    // a rung has several members
	plain    []int   // the order of exchanges that have none of their own
	flex     []int   // the same, where the client asks for a discounted tier
	attempts int     // most that the front makes of one exchange
	retryOn  map[string]bool
	budget   *budget
}

// Slot is what one attempt number means: a target of the chain, for the first time or once more.
type Slot struct {
	Rung      int
	Again     bool // only after an attempt at the same target that may be repeated
	Standard  bool // only after the same target lacked capacity at a discounted tier: ask for the standard one
	Downshift bool // a rung of the downshift mode
	Target    *config.Target
	Larger    bool
	asked     bool // Standard, and only for a client that asks for the discounted tier itself
	breaker   *breaker.Breaker
	account   []*breaker.Breaker // of all targets that share the target's rate limits, its own included
}

// onceMore says whether the slot is one more try of the target of the slot before it, which memory alone allows.
func (s *Slot) onceMore() bool { return s.Again || s.Standard }

func newPlan(c *config.Chain, b *Book, limit *budget) *Plan {
	p := &Plan{Chain: c, book: b, attempts: b.attempts, retryOn: make(map[string]bool), budget: limit}
	for _, class := range c.Retry.On {
		p.retryOn[class] = true
	}
	for i, r := range c.Rungs {
		p.shared = p.shared || len(r.Members) > 1
		for _, m := range r.All() {
			p.add(Slot{Rung: i, Downshift: c.Downshift > 0 && i >= c.Downshift, Target: m.Target, Larger: r.Larger,
				breaker: b.breakers[m.Target.Name], account: b.account(m.Target)}, m.Weight)
		}
	}
	p.plain, p.flex = p.lay(p.groups, p.groups, false), p.lay(p.groups, p.groups, true)
	return p
}

// add gives a target its slots.
func (p *Plan) add(s Slot, weight float64) {
	first := len(p.slots)
	p.slots = append(p.slots, s)
	if p.Chain.Repeats() {
		again := s
		again.Again = true
		p.slots = append(p.slots, again)
	}
	if p.Chain.Resubmits(s.Target) {
		standard := s
		standard.Standard, standard.asked = true, s.Target.Tier == ""
		p.slots = append(p.slots, standard)
	}
	p.groups = append(p.groups, group{rung: s.Rung, first: first, end: len(p.slots), weight: weight})
}

// find is a slot of the target with that name, nil when a reload has removed it.
func (p *Plan) find(target string) *Slot {
	for i := range p.slots {
		if s := &p.slots[i]; s.Target.Name == target {
			return s
		}
	}
	return nil
}

// members is how many targets share a rung.
func (p *Plan) members(rung int) int { return len(p.Chain.Rungs[rung].All()) }

// Returns is when the first of the chain's targets that are open or cooling may be tried again; zero when there is
// none, as nobody knows what another one needs.
func (p *Plan) Returns() time.Time {
	var first time.Time
	now := time.Now()
	for i := range p.slots {
		if at := p.slots[i].breaker.Returns(); at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Troubled says whether every target of the chain failed or was rate-limited lately.
func (p *Plan) Troubled() bool {
	return !slices.ContainsFunc(p.slots, func(s Slot) bool { return !s.breaker.Troubled() })
}

// Pace is the share of the usual rate that the best of the chain's targets takes now, downshift rungs aside, of calls of
// ours: 0 when none may be tried, less than 1 while it comes back.
func (p *Plan) Pace() float64 {
	share := 0.0
	for i := range p.slots {
		if s := &p.slots[i]; !s.Downshift && p.book.credential(s.Target.Provider) == nil {
			share = max(share, s.breaker.Pace())
		}
	}
	return share
}
