package budget

import (
	"maps"
	"slices"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Bill is what a provider asks for one attempt.
type Bill struct {
	Amount    Money
	Estimated bool // counts were missing: the answer was cut, or nobody asked for them
	Assumed   bool // a call of the provider's own used a model without a known price; the target's own was taken
}

// Prices is the price list of a config.
//
// Ownership: made once for a config, and never changed. Concurrency: safe for all.
type Prices struct{ models map[model]*config.Target }

type model struct{ provider, name string }

// NewPrices makes the price list. Of several targets with one provider and model the first by name has the say.
func NewPrices(cfg *config.Config) *Prices {
	p := &Prices{models: map[model]*config.Target{}}
	for _, name := range slices.Sorted(maps.Keys(cfg.Targets)) {
		t := cfg.Targets[name]
		key := model{t.Provider.Name, undated(t.Model)}
		if _, has := p.models[key]; !has && t.Price.Known {
			p.models[key] = t
		}
	}
	return p
}

// Cost is what the provider bills for an attempt at t that came to v, by the tier that really served it. q tells the
// size of the request, for the cases in which the provider is known to bill and does not say how much.
//
// What is billed: a complete answer, a refused one too ("output tokens billed up to the refusal", wire-formats 1c);
// what came of an answer that was cut; the prompt that Azure's filter turned away ("billed for prompt evaluation", 7);
// the prompt of a call that we or the client gave up on, as the provider was at work. What is not: errors, rate
// limits, and a discounted tier without capacity ("not charged", 5a), unless content came before; a connection that
// brought no answer.
//
// Sound, images and web searches have no price in the file and are billed as their tokens, or not at all.
func (p *Prices) Cost(t *config.Target, v classify.Verdict, q Request) Bill {
	b := Bill{Estimated: v.Usage.Estimated}
	u := v.Usage
	switch {
	case !billed(t, v, q):
		return Bill{}
	case u.Input+u.CacheRead+u.CacheWrite == 0:
		u.Input, b.Estimated = q.likely(), true
	}
	tier := served(t, v)
	var whole, calls atto
	ratesAt(t, factor(t.Price, tier)).add(&whole, u)
	b.Amount = whole.money()
	if len(v.Iterations) == 0 {
		return b
	}
	for _, call := range v.Iterations {
		of, known := p.target(t, call)
		b.Assumed = b.Assumed || !known
		ratesAt(of, factor(of.Price, tier)).add(&calls, call.Usage)
	}
	// "A compaction entry's tokens are not included in the top-level usage fields" (Anthropic's SDK, BetaUsage): the calls
	// are the bill. Of an answer that was cut they may be short of what the whole says.
	if sum := calls.money(); !v.Usage.Estimated || sum > b.Amount {
		b.Amount = sum
	}
	return b
}

// billed says whether the provider asks for money at all. See Cost.
func billed(t *config.Target, v classify.Verdict, q Request) bool {
	if v.Complete || v.Partial {
		return true
	}
	switch v.Class {
	case classify.OK, classify.Refusal, classify.Truncated, classify.Canceled:
		return true
	case classify.Timeout:
		return q.GaveUp
	case classify.Transport:
		return v.Phase != classify.PhaseTransport
	case classify.Filtered:
		return counted(v) || t.Provider.Platform == config.Azure
	case classify.Malformed:
		return counted(v)
	}
	return false
}

func counted(v classify.Verdict) bool {
	u := v.Usage
	return u.Input+u.CacheRead+u.CacheWrite+u.Output > 0
}

// target is whose price one of the provider's own calls has: that of the target of the same provider with its model. A
// call without a model is one of the target's own.
func (p *Prices) target(t *config.Target, call classify.IterationUsage) (*config.Target, bool) {
	name := undated(call.Model)
	if name == "" || name == undated(t.Model) {
		return t, true
	}
	if p != nil {
		if other := p.models[model{t.Provider.Name, name}]; other != nil {
			return other, true
		}
	}
	return t, false
}

// undated is a model's name without its date: "response model may be the canonical id when an alias was sent"
// (wire-formats 1i), claude-haiku-4-5-20251001 for claude-haiku-4-5; Vertex writes @20251001.
func undated(name string) string {
	cut := len(name) - len("-20251001")
	if cut <= 0 || name[cut] != '-' && name[cut] != '@' || strings.Trim(name[cut+1:], "0123456789") != "" {
		return name
	}
	return name[:cut]
}

// served is the tier that is billed: the one the provider says, the one that was asked for where it says nothing.
func served(t *config.Target, v classify.Verdict) string {
	for _, tier := range []string{v.ServedTier, v.AskedTier, t.Tier, t.Speed} {
		if tier != "" {
			return tier
		}
	}
	return ""
}

// factor is what a tier does to the price, in millionths. Google writes its tiers in other words than it takes them:
// SERVICE_TIER_FLEX and ON_DEMAND_FLEX are flex (wire-formats 8).
func factor(p config.Price, tier string) uint64 {
	plain := strings.ToLower(tier)
	for _, prefix := range []string{"service_tier_", "on_demand_"} {
		plain = strings.TrimPrefix(plain, prefix)
	}
	for _, name := range []string{tier, plain} {
		if f, ok := p.Tiers[name]; ok {
			return micros(f)
		}
	}
	return 1e6
}

// rates are what a target bills a token at one tier, in atto-dollars.
type rates struct{ input, output, read, write, long uint64 }

// longWrite is what Anthropic asks for a cache write that lasts an hour, of the price of input: "1-hour cache write =
// 2 × input". https://platform.claude.com/docs/en/build-with-claude/prompt-caching
const longWrite = 2

// ratesAt are the rates of t at a tier's factor.
func ratesAt(t *config.Target, f uint64) rates {
	r := rates{
		input:  rate(micros(t.Price.Input), f),
		output: rate(micros(t.Price.Output), f),
		read:   rate(micros(t.Price.CacheRead), f),
		write:  rate(micros(t.Price.CacheWrite), f),
	}
	r.long = r.write
	if t.Provider.API == config.Anthropic {
		r.long = max(r.write, rate(longWrite*micros(t.Price.Input), f))
	}
	return r
}

// add adds what one call used. Reasoning and sound are parts of other counts.
func (r rates) add(sum *atto, u classify.Usage) {
	long := min(u.CacheWriteLong, u.CacheWrite)
	sum.add(u.Input, r.input)
	sum.add(u.Output, r.output)
	sum.add(u.CacheRead, r.read)
	sum.add(u.CacheWrite-long, r.write)
	sum.add(long, r.long)
}
