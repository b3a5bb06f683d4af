// Package chain decides which target an attempt goes to: slots, permits and policies.
//
// Attempt N of an exchange is slot N of its chain, on every replica, whatever this process has seen before;
// what it has seen (Memo) is only a hint.
package chain

import (
	"errors"
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

// NewBook makes the Book of cfg. Targets that prev (may be nil) had keep their breakers and cooldowns, and chains
// their retry budgets, which the attempts of prev go on using.
func NewBook(cfg *config.Config, prev *Book, listen func(breaker.Transition)) *Book {
	b := &Book{
		Config:   cfg,
		breakers: make(map[string]*breaker.Breaker, len(cfg.Targets)),
		plans:    make(map[string]*Plan, len(cfg.Chains)),
		attempts: config.Retries(cfg) + 1,
	}
	for name, t := range cfg.Targets {
		b.breakers[name] = prev.carry(t)
		if b.breakers[name] == nil {
			b.breakers[name] = breaker.New(name, settings(t.Breaker), listen)
		}
	}
	for _, c := range cfg.Chains {
		b.plans[c.Name] = newPlan(c, b, prev.budget(c))
	}
	return b
}

// carry is the breaker of a target that stays, nil for another one. Another model or endpoint makes another target
// whatever its name: its predecessor's failures say nothing about it.
func (b *Book) carry(t *config.Target) *breaker.Breaker {
	if b == nil {
		return nil
	}
	old := b.Config.Targets[t.Name]
	if old == nil || old.Model != t.Model || old.Provider.Endpoint.String() != t.Provider.Endpoint.String() {
		return nil
	}
	kept := b.breakers[t.Name]
	kept.Renew(settings(t.Breaker))
	return kept
}

func settings(c config.Breaker) breaker.Settings {
	return breaker.Settings{
		Failures:   c.Failures,
		Ratio:      c.Ratio.Share,
		Window:     c.Ratio.Window,
		MinCalls:   c.Ratio.MinCalls,
		OpenFor:    c.OpenFor,
		MaxOpenFor: c.MaxOpenFor,
		Probe:      c.Probe,
		Ramp:       breaker.Ramp(c.Ramp),
	}
}

// Breakers are the breakers of all targets, by name. The map must not be changed.
func (b *Book) Breakers() map[string]*breaker.Breaker { return b.breakers }

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
	budget   *budget
}

// Slot is what one attempt number means: a rung of the chain, for the first or once more for the same target.
type Slot struct {
	Rung      int
	Again     bool // only after an attempt at the same target that may be repeated
	Downshift bool // a rung of the downshift mode
	Target    *config.Target
	Larger    bool
	breaker   *breaker.Breaker
	account   []*breaker.Breaker // of all targets that share the target's rate limits, its own included
}

func newPlan(c *config.Chain, b *Book, limit *budget) *Plan {
	p := &Plan{Chain: c, attempts: b.attempts, retryOn: make(map[string]bool), budget: limit}
	for _, class := range c.Retry.On {
		p.retryOn[class] = true
	}
	twice := config.Slots(c) > len(c.Rungs)
	for i, r := range c.Rungs {
		s := Slot{Rung: i, Downshift: c.Downshift > 0 && i >= c.Downshift, Target: r.Target, Larger: r.Larger, breaker: b.breakers[r.Target.Name], account: b.account(r.Target)}
		p.slots = append(p.slots, s)
		if twice {
			s.Again = true
			p.slots = append(p.slots, s)
		}
	}
	return p
}

// account is the breakers of all targets that a rate limit of t cools.
func (b *Book) account(t *config.Target) []*breaker.Breaker {
	if !t.Provider.SharedLimits {
		return []*breaker.Breaker{b.breakers[t.Name]}
	}
	var all []*breaker.Breaker
	for name, other := range b.Config.Targets {
		if other.Provider == t.Provider {
			all = append(all, b.breakers[name])
		}
	}
	return all
}

// ready says why a first try of x at the slot's target would get no permit now, nil when it would.
func (s *Slot) ready(x Exchange) error {
	if err := s.credential(); err != nil {
		return err
	}
	err := s.breaker.Check()
	if x.Own && errors.Is(err, breaker.ErrRamping) {
		return nil
	}
	return err
}

// allow takes a permit for x.
func (s *Slot) allow(x Exchange) (*breaker.Permit, error) {
	if x.Own {
		return s.breaker.AllowPaced()
	}
	return s.breaker.Allow()
}

// credential says which secret is absent without which a call cannot succeed.
func (s *Slot) credential() error {
	auth := s.Target.Provider.Auth
	if auth.FromClient {
		return nil
	}
	_, err := auth.Secret.Value()
	return err
}

// Returns is when the first of the chain's targets that are open or cooling may be tried again; zero when there is
// none, as nobody knows what another one needs.
func (p *Plan) Returns() time.Time {
	var first time.Time
	now := time.Now()
	for _, s := range p.slots {
		if at := s.breaker.Returns(); at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Pace is the share of the usual rate that the best of the chain's targets takes now, downshift rungs aside, of calls of
// ours: 0 when none may be tried, less than 1 while it comes back.
func (p *Plan) Pace() float64 {
	share := 0.0
	for i := range p.slots {
		if s := &p.slots[i]; !s.Downshift && s.credential() == nil {
			share = max(share, s.breaker.Pace())
		}
	}
	return share
}
