package config

import "slices"

// spare is how many retries the front may spend beyond a chain's slots: a fault of the service consumes an attempt
// number, and four of them in a row are answered with a final 503.
const spare = 4

// Discounted says whether a service tier costs less and may lack capacity for it: OpenAI's, Gemini's, Bedrock's and
// Groq's flex.
func Discounted(tier string) bool { return tier == "flex" }

// All is the members of a rung; a rung without Members is its Target alone.
func (r Rung) All() []Member {
	if len(r.Members) == 0 {
		return []Member{{r.Target, 1}}
	}
	return r.Members
}

// Has says whether t is a member of the rung.
func (r Rung) Has(t *Target) bool {
	return slices.ContainsFunc(r.All(), func(m Member) bool { return m.Target == t })
}

// Has says whether a target of that name is a member of one of the chain's rungs.
func (ch *Chain) Has(target string) bool {
	return slices.ContainsFunc(ch.Rungs, func(r Rung) bool {
		return slices.ContainsFunc(r.All(), func(m Member) bool { return m.Target.Name == target })
	})
}

// Repeats says whether each of the chain's targets has a slot for one more try: after a blip (retry.same_target), or
// once a short rate limit is over (on.rate_limited: wait).
func (ch *Chain) Repeats() bool { return ch.Retry.SameTarget > 0 || ch.On.RateLimited == "wait" }

// Resubmits says whether t has a slot in the chain for one more try at the standard tier, after a discounted one
// lacked capacity (on.capacity: standard): where t asks for a discounted tier, or leaves the tier to the client. A
// client of the Anthropic dialect knows no such tier.
func (ch *Chain) Resubmits(t *Target) bool {
	if ch.On.Capacity != "standard" || t == nil {
		return false
	}
	return Discounted(t.Tier) || t.Tier == "" && ch.API != Anthropic
}

// Slots is the most attempts of an exchange when nothing goes wrong with the service: for each target one, and those
// that Repeats and Resubmits say. In a sticky chain each target has one more: replicas that know different targets of
// one conversation pass others over, which the end of the chain makes good.
func Slots(ch *Chain) int {
	each := 1
	if ch.Repeats() {
		each++
	}
	if ch.Sticky.For > 0 {
		each++
	}
	slots := 0
	for _, r := range ch.Rungs {
		for _, m := range r.All() {
			slots += each
			if ch.Resubmits(m.Target) {
				slots++
			}
		}
	}
	return slots
}

// Retries is num_retries of the front's retry policy: enough for the longest chain. An attempt number above
// Retries+1 never arrives.
func Retries(c *Config) int {
	longest := 0
	for _, ch := range c.Chains {
		longest = max(longest, Slots(ch))
	}
	return longest + spare
}
