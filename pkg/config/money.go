package config

import (
	"maps"
	"math"
	"slices"
	"time"
)

// The bounds of money. A price of the dearest models is in the hundreds; with these, no attempt is too dear to be counted.
const (
	maxPrice  = 10_000        // USD per million tokens
	maxTier   = 100           // factor of a tier
	maxUSD    = 1_000_000_000 // of a budget
	maxFactor = 1000          // of max_premium and max_ramp
)

// price has to say input and output, as what is left out by mistake would be free.
func (c *compiler) price(p string, f *filePrice, of *Provider) Price {
	if !c.has(p) || c.wrong[p] {
		return Price{}
	}
	price := Price{Known: true, Input: f.Input, Output: f.Output, CacheRead: f.CacheRead, CacheWrite: f.CacheWrite}
	for _, key := range []string{"input", "output"} {
		c.present(at(p, key))
	}
	c.amount(at(p, "input"), f.Input, maxPrice)
	c.amount(at(p, "output"), f.Output, maxPrice)
	c.amount(at(p, "cache_read"), f.CacheRead, maxPrice)
	c.amount(at(p, "cache_write"), f.CacheWrite, maxPrice)
	if !c.has(at(p, "cache_read")) {
		price.CacheRead = f.Input
	}
	if !c.has(at(p, "cache_write")) {
		price.CacheWrite = f.Input
	}
	price.Tiers = c.factors(at(p, "tiers"), f.Tiers, of)
	return price
}

// factors are those of tiers and, as the client's or the target's speed is one of billing, of speeds.
func (c *compiler) factors(p string, f map[string]float64, of *Provider) map[string]float64 {
	if of != nil && of.API != "" {
		c.knows(p, of.hasTiers() || of.hasSpeeds(), "service tiers", of)
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		here := at(p, name)
		if !tierName(name) && !c.wrong[here] {
			c.fault(here, "expected a word such as flex, got %.40q", name)
		}
		c.someAmount(here, f[name], maxTier)
	}
	return f
}

// amount checks dollars, or a factor of them. All are counted in millionths.
func (c *compiler) amount(p string, got, most float64) {
	switch {
	case c.wrong[p]:
	case !(got >= 0 && got <= most): // NaN is neither
		c.fault(p, "must be 0 to %.0f, got %v", most, got)
	case math.Round(got*1e6)/1e6 != got:
		c.fault(p, "must have at most six places behind the point, got %v", got)
	}
}

// someAmount checks an amount that may not be nothing.
func (c *compiler) someAmount(p string, got, most float64) {
	if got == 0 && !c.wrong[p] {
		c.fault(p, "must be more than 0")
	}
	c.amount(p, got, most)
}

// maxRamp refuses a bound below which nothing could grow.
func (c *compiler) maxRamp(p string, got float64) float64 {
	if got != 0 && !(got > 1 && got <= maxFactor) && !c.wrong[p] { // NaN is neither
		c.fault(p, "must be 0 (no bound), or more than 1 and at most %d, got %v", maxFactor, got)
	}
	return got
}

func (c *compiler) budget(p string, f *fileBudget, ch *Chain) Budget {
	if !c.has(p) || c.wrong[p] {
		return Budget{}
	}
	if usd := at(p, "usd"); c.present(usd) {
		c.someAmount(usd, f.USD, maxUSD)
	}
	if soft := at(p, "soft"); !(f.Soft >= 0 && f.Soft < 1) && !c.wrong[soft] { // NaN is neither
		c.fault(soft, "must be 0 (none) or more, and less than 1, got %v", f.Soft)
	}
	if per := at(p, "per"); f.Per == "tenant" && !c.tenantsTold() {
		c.fault(per, "nothing says who the tenant is: set tenant, or name it here: metadata:NAMESPACE:KEY or header:NAME")
	}
	b := Budget{USD: f.USD, Soft: f.Soft, Tenant: f.Per != "chain", MaxPremium: f.MaxPremium}
	b.Window, b.Month = c.window(at(p, "window"), f.Window)
	c.premium(at(p, "max_premium"), f.MaxPremium, ch)
	return b
}

func (c *compiler) window(p, s string) (rolling time.Duration, month bool) {
	if !c.required(p, s) || s == "month" {
		return 0, s == "month"
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		c.fault(p, "expected a duration such as 24h, or month, got %.40q", s)
	case d < time.Minute || d > 31*24*time.Hour:
		c.fault(p, "must be 1m to 744h (31 days), or month, got %.40s", s)
	}
	return d, false
}

// premium refuses a bound that bounds nothing.
func (c *compiler) premium(p string, got float64, ch *Chain) {
	if got != 0 && !(got >= 1 && got <= maxFactor) && !c.wrong[p] { // NaN is neither
		c.fault(p, "must be 0 (no bound), or 1 to %d, got %v", maxFactor, got)
	}
	targets := ch.targets()
	if got == 0 || len(targets) == 0 || c.wrong[p] {
		return
	}
	switch first := targets[0].Price; {
	case len(ch.Rungs) == 1 && len(ch.Rungs[0].Members) == 1:
		c.fault(p, "says nothing, as the chain has no fallback: remove it")
	case first.Known && max(first.Input, first.Output, first.CacheRead, first.CacheWrite) == 0:
		c.fault(p, "says nothing, as %s costs nothing: remove it", targets[0].Name)
	}
}

// priced wants to know of each target of a chain with a budget what an attempt can cost. A request of Anthropic's has
// max_tokens always, one of the others may have none.
func (c *compiler) priced(list string, ch *Chain) {
	if ch.Budget == (Budget{}) || ch.Endpoint != "" {
		return
	}
	for here, t := range ch.places(list) {
		target := at("targets", t.Name)
		limits := at(target, "limits")
		if !c.has(at(target, "price")) && !c.wrong[target] {
			c.fault(here, "%s has no price, so that the budget cannot count it: give it one, such as price: {input: 3, output: 15}", t.Name)
		}
		if t.Limits.MaxOutput == 0 && t.api() != Anthropic && t.api() != "" && !c.wrong[limits] && !c.wrong[at(limits, "max_output")] {
			c.fault(here, "%s has no limits.max_output, and a request may have no max_tokens: "+
				"the budget could not reserve what its answer may cost", t.Name)
		}
	}
}

// idempotency is the window in which a key is known again, 0 when there is none.
func (c *compiler) idempotency(p string, f *fileIdempotency) time.Duration {
	if !c.has(p) || c.wrong[p] {
		return 0
	}
	window := at(p, "window")
	if c.present(window) && (f.Window < time.Second || f.Window > 24*time.Hour) {
		c.fault(window, "must be 1s to 24h, got %s", f.Window)
	}
	return f.Window
}
