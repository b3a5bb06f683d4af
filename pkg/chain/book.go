// Package chain decides which target an attempt goes to: slots, permits, policies and deadlines.
//
// Attempt N of an exchange is slot N of its chain, on every replica, whatever this process has seen before;
// what it has seen (Memo) is only a hint.
package chain

import (
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

// Book joins one Config with the live state of its targets.
//
// Ownership: the service swaps one pointer to it; an attempt keeps the Book it began with.
// Concurrency: immutable; the breakers in it are safe for all.
type Book struct {
	Config *config.Config

	breakers map[string]*breaker.Breaker
	plans    map[string]*Plan
	attempts int // most attempts the front makes of one exchange
}

// NewBook makes the Book of cfg. Targets that prev (may be nil) had keep their breakers and cooldowns.
func NewBook(cfg *config.Config, prev *Book, listen func(breaker.Transition)) *Book {
	b := &Book{
		Config:   cfg,
		breakers: make(map[string]*breaker.Breaker, len(cfg.Targets)),
		plans:    make(map[string]*Plan, len(cfg.Chains)),
		attempts: config.Retries(cfg) + 1,
	}
	for name, t := range cfg.Targets {
		b.breakers[name] = carry(prev, name, breaker.Settings(t.Breaker), listen)
	}
	for _, c := range cfg.Chains {
		b.plans[c.Name] = newPlan(c, b)
	}
	return b
}

func carry(prev *Book, name string, s breaker.Settings, listen func(breaker.Transition)) *breaker.Breaker {
	if prev != nil {
		if old := prev.breakers[name]; old != nil {
			return old.Renew(s)
		}
	}
	return breaker.New(name, s, listen)
}

// Breaker is the breaker of a target, nil when the config has no such target.
func (b *Book) Breaker(target string) *breaker.Breaker { return b.breakers[target] }

// Plan is the plan of a chain of this Book's Config.
func (b *Book) Plan(c *config.Chain) *Plan { return b.plans[c.Name] }

// Plan is a chain laid out as slots, one an attempt.
type Plan struct {
	Chain *config.Chain

	slots    []Slot
	attempts int
	retryOn  map[string]bool
}

// Slot is what one attempt number means: a rung of the chain, for the first or once more for the same target.
type Slot struct {
	Rung    int
	Again   bool // only after an attempt at the same target that may be repeated
	Target  *config.Target
	Larger  bool
	breaker *breaker.Breaker
}

func newPlan(c *config.Chain, b *Book) *Plan {
	p := &Plan{Chain: c, attempts: b.attempts, retryOn: make(map[string]bool)}
	for _, class := range c.Retry.On {
		p.retryOn[class] = true
	}
	twice := config.Slots(c) > len(c.Rungs)
	for i, r := range c.Rungs {
		s := Slot{Rung: i, Target: r.Target, Larger: r.Larger, breaker: b.breakers[r.Target.Name]}
		p.slots = append(p.slots, s)
		if twice {
			s.Again = true
			p.slots = append(p.slots, s)
		}
	}
	return p
}

// Returns is the earliest time at which a target of the chain may be tried again; the past means now.
func (p *Plan) Returns() time.Time {
	var first time.Time
	for _, s := range p.slots {
		if at := s.breaker.Returns(); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
