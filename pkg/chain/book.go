// Package chain decides which target an attempt goes to: slots, permits and policies.
//
// Attempt N of an exchange is slot N of its chain, on every replica, whatever this process has seen before;
// what it has seen (Memo) is only a hint. Where targets share a rung, or a conversation stays with a target, the order
// of the slots is the exchange's own (order.go).
package chain

import (
	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

// Book joins one Config with the live state of its targets.
//
// Ownership: the service swaps one pointer to it; an attempt keeps the Book it began with.
// Concurrency: immutable once it is used; the breakers in it are safe for all.
type Book struct {
	Config *config.Config

	// Ready says why no call of a provider can be given its credential now. It is set before the Book is used, if at
	// all; nil: Secret.Value says so. It is not asked where Auth is FromClient or None, and asked often otherwise.
	Ready func(*config.Provider) error

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
	if old == nil || old.Model != t.Model || old.Provider.Place() != t.Provider.Place() {
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

// credential says what is missing without which a call of p cannot succeed.
func (b *Book) credential(p *config.Provider) error {
	switch {
	case p.Auth.FromClient || p.Auth.None:
		return nil
	case b.Ready != nil:
		return b.Ready(p)
	}
	_, err := p.Auth.Secret.Value()
	return err
}
