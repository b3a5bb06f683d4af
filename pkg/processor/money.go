package processor

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// errRamp says why a target is passed over.
var errRamp = errors.New("the target's tokens a minute would grow too fast")

// errShaped says why a target is passed over.
var errShaped = errors.New("the account's rate limit has no room for the request")

// Money is what attempts cost, and what keeps that in bounds. Nil fields bound nothing.
//
// Ownership: the app makes it, starts and stops what is in it. Concurrency: safe for all.
type Money struct {
	Meter *budget.Meter
	Ramp  *budget.Ramp
	Spend budget.Spend

	shapers sync.Map // *budget.Shaper by the provider's name
}

func (m *Money) shaper(p *config.Provider) *budget.Shaper {
	s, ok := m.shapers.Load(p.Name)
	if !ok {
		s, _ = m.shapers.LoadOrStore(p.Name, &budget.Shaper{})
	}
	return s.(*budget.Shaper)
}

// size is what is known of the request's cost before it is sent. It is asked for while the body is here.
func (a *attempt) size() budget.Request {
	if a.cost.size == (budget.Request{}) {
		a.cost.size = budget.Request{InputBytes: a.body.TextBytes(), MaxTokens: a.body.MaxTokens(), Tier: a.body.Tier()}
	}
	return a.cost.size
}

// sizeUp notes the size while the body is here, where a bill may have to go by it.
func (a *attempt) sizeUp() {
	if a.p.money != nil && a.try.Target.Price.Known {
		a.size()
	}
}

// costs is what an attempt costs.
type costs struct {
	size   budget.Request
	held   *budget.Reservation // nil: nothing is set aside
	since  time.Time           // when Envoy began to wait for word of this attempt
	until  time.Time           // how long the request may be held back for the account's rate limit
	shaper *budget.Shaper      // takes the request for one on its way; nil: none does
	load   budget.Load         // what it takes the request for
	broken bool                // the budget kept a target out
	bill   budget.Bill         // what it came to; zero before the verdict, and without a price
	again  time.Time           // when a target has room that would have grown too fast; zero: none kept out for that
}

const (
	// heldMost is how long an attempt may be held back, for one reason or several: it leaves 5 s of the 15 s that Envoy
	// waits for an answer of ours.
	heldMost = 10 * time.Second
	// rampWait is when a target's tokens of this minute are those of the last.
	rampWait = time.Minute
)

func (a *attempt) account() budget.Key {
	key := budget.Key{Chain: a.chain.Name}
	if a.chain.Budget.Tenant {
		key.Tenant = a.head.tenant
	}
	return key
}

// afford sets aside what an attempt at try's target may cost, or says why it is not made.
func (a *attempt) afford(try *chain.Try) error {
	m, t := a.p.money, try.Target
	if m == nil {
		return nil
	}
	if b := a.chain.Budget; b.USD > 0 && m.Meter != nil {
		q := a.size()
		ask := budget.Ask{Worst: budget.Worst(t, q), Primary: budget.Worst(a.chain.Rungs[0].Target, q)}
		if b.Soft > 0 { // what the soft limit alone asks for
			ask.Cheapest = cheapest(a.chain, q)
		}
		held, err := m.Meter.Reserve(a.ctx, a.account(), b, ask)
		if err != nil {
			a.cost.broken = true
			return err
		}
		a.cost.held = held
	}
	if t.MaxRamp > 0 && m.Ramp != nil {
		l := a.size().Load(t)
		if !m.Ramp.Admit(a.ctx, t, l.Input+l.Output) {
			a.cost.again = time.Now().Add(rampWait)
			return errRamp
		}
	}
	return nil
}

// cheapest is the least that the request can cost at a target of the chain, if it comes to the worst there.
func cheapest(c *config.Chain, q budget.Request) (least budget.Money) {
	for _, r := range c.Rungs {
		for _, m := range r.All() {
			if worst := budget.Worst(m.Target, q); least == 0 || worst < least {
				least = worst
			}
		}
	}
	return least
}

// giveBack gives back what was set aside for an attempt that is not made.
func (a *attempt) giveBack() {
	if a.cost.shaper != nil {
		a.cost.shaper.Return(a.cost.load)
		a.cost.shaper = nil
	}
	if a.cost.held != nil {
		a.cost.held.Release()
		a.cost.held = nil
	}
}

// shape is how long the request is to be held back for the account's rate limit; an error says that it is too long, and
// that another target may do better.
func (a *attempt) shape(try *chain.Try) (time.Duration, error) {
	p := try.Target.Provider
	if a.p.money == nil || !p.Shape.On || a.run || a.drill.marked {
		return 0, nil
	}
	now := time.Now()
	shaper, load := a.p.money.shaper(p), a.size().Load(try.Target)
	wait := shaper.Wait(now, load)
	if wait <= 0 {
		a.cost.shaper, a.cost.load = shaper, load
		return 0, nil
	}
	if a.cost.until.IsZero() {
		a.cost.until = now.Add(p.Shape.MaxWait)
		if last := a.cost.since.Add(heldMost); last.Before(a.cost.until) {
			a.cost.until = last
		}
	}
	if now.Add(wait).After(a.cost.until) {
		return 0, errShaped
	}
	return wait, nil
}

// take sends the request to the target of try, unless money or a rate limit speaks against it: then the next target has its turn.
func (a *attempt) take(try *chain.Try) {
	elsewhere := func() bool { return try.More(classify.Verdict{Class: classify.Quota}) }
	wait, why := a.shape(try)
	switch {
	case wait > 0:
		a.try, a.state = try, waiting
		a.clock.wait(time.Now().Add(wait))
		return
	case why != nil && elsewhere():
		a.passOver(try, why)
		return
	}
	if why := a.afford(try); why != nil {
		a.giveBack()
		if elsewhere() {
			a.passOver(try, why)
			return
		}
		try.Release()
		a.try = nil
		a.p.log.Debug("no target", "exchange", a.head.exchange.ID, "chain", a.chain.Name, "reason", why)
		a.refused = shown(why)
		a.spent()
		return
	}
	a.try = try
	a.upstream()
}

// shown is what a client is told of why money kept a target out: neither a price nor what the store says.
func shown(why error) string {
	for _, known := range []error{budget.ErrSpent, budget.ErrDear, budget.ErrPremium, budget.ErrUnsure} {
		if errors.Is(why, known) {
			return known.Error()
		}
	}
	return why.Error()
}

// passOver goes on to the next slot without an attempt.
func (a *attempt) passOver(try *chain.Try, why error) {
	try.Release()
	a.try = nil
	a.skip(why)
}

// bill counts what the attempt cost, and settles what was set aside for it.
func (a *attempt) bill(v classify.Verdict) {
	m, t := a.p.money, a.try.Target
	if m == nil {
		return
	}
	if a.drill.fault != "" { // nobody was called
		a.giveBack()
		return
	}
	if a.cost.shaper != nil { // no answer has told the account's limits
		a.cost.shaper.Lost(time.Now())
		a.cost.shaper = nil
	}
	q := a.cost.size
	q.GaveUp = v.Class == classify.Timeout || v.Class == classify.Canceled
	bill := budget.Bill{}
	if t.Price.Known {
		asked := *t
		asked.Tier, asked.Speed = a.call.tier, "" // an answer that tells no tier was made at the one that was asked for
		bill = a.prices.Cost(&asked, v, q)
		m.Spend.Add(a.chain.Name, t.Name, bill)
	}
	a.cost.bill = bill
	if a.cost.held != nil {
		a.cost.held.Settle(bill.Amount)
		a.cost.held = nil
	}
	a.usage = usageOf(t.Name, a.try.Rung, v, bill)
}

// reopens is when the chain's budget serves again, and the ramp of its target, zero where they are not what keeps the
// chain from serving.
func (a *attempt) reopens() time.Time {
	if !a.cost.broken || a.p.money == nil || a.p.money.Meter == nil {
		return a.cost.again
	}
	at := a.p.money.Meter.Reopens(a.account(), a.chain.Budget)
	if at.Before(a.cost.again) {
		return a.cost.again
	}
	return at
}

func retryCount(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// observeLimits reads what an answer's headers say of the account's rate limits.
func (a *attempt) observeLimits(fields map[string]string) {
	a.cost.shaper = nil
	if p := a.try.Target.Provider; a.p.money != nil && p.Shape.On && a.drill.fault == "" {
		a.p.money.shaper(p).Observe(time.Now(), func(name string) string { return fields[name] })
	}
}
