package provider

import (
	"slices"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// tierFields are where a platform is told what tier is asked for; "" is nowhere.
type tierFields struct {
	tier   string   // member of the body
	speed  string   // member of the body
	header string   // for a tier of the target's
	known  []string // values of the body's tier; nil: any
}

// openAITiers is OpenAI's, on the endpoints that have tiers (openai-go: ChatCompletionNewParams, ResponseNewParams).
func openAITiers(q *Request) tierFields {
	if q.route.api == classify.APIUnknown {
		return tierFields{}
	}
	return tierFields{tier: "service_tier"}
}

// azureTiers are what Azure documents (wire-formats 7); OpenAI's scale, fast and ultrafast are not among them.
var azureTiers = []string{"auto", "default", "priority", "flex"}

// Standard is the same request at the standard tier, for another try of a target whose discounted tier is full. No tier
// is named: absent is standard to every API that has them ("retry with service_tier: auto", OpenAI's flex guide, and
// auto is the default). What Anthropic's service_tier says is not a price, and stays.
func Standard(q Request) Request {
	q.standard = true
	return q
}

// AskedTier is the tier that a request for t asks for, as the verdict on its answer has to know it, "" for none:
// a service_tier, "fast" for Anthropic's speed, or what Vertex's headers say.
func AskedTier(t *config.Target, q Request) string {
	f := wireOf(t.Provider, t.Model, &q).tiers
	tier, speed := q.asked(t, f)
	switch {
	case f.speed != "" && speed == "fast":
		return speed
	case f.header != "" && t.Tier != "" && !q.standard:
		return headerTier(f.header, t.Tier)
	case f.header == sharedHeader && !q.standard && q.header.Get(dedicatedHeader) == "dedicated":
		return "provisioned"
	case f.header == sharedHeader && !q.standard && q.header.Get(sharedHeader) != "":
		return q.header.Get(sharedHeader)
	case f.tier != "":
		return tier
	}
	return ""
}

// asked is the tier and the speed that a request for t asks for in its body.
func (r *Request) asked(t *config.Target, f tierFields) (tier, speed string) {
	tier, speed = r.tier, r.speed
	if t.Tier != "" {
		tier = t.Tier
	}
	if t.Speed != "" {
		speed = t.Speed
	}
	if r.standard {
		speed = ""
		if r.route.api != classify.AnthropicMessages {
			tier = ""
		}
	}
	if f.known != nil && tier != "" && !slices.Contains(f.known, tier) {
		tier = ""
	}
	return tier, speed
}

// planTiers has the body ask for what t and the client ask for. What nobody changes keeps its bytes.
func (r *Request) planTiers(p *plan, t *config.Target, f tierFields) {
	tier, speed := r.asked(t, f)
	if f.header != "" && t.Tier != "" {
		tier = "" // the header says it
	}
	put := func(name, value string, changed bool) {
		switch {
		case name == "" || !changed:
		case value == "":
			p.put(name, change{drop: true})
		default:
			p.put(name, set(quoted(value)))
		}
	}
	put(f.tier, tier, t.Tier != "" || r.standard || tier != r.tier)
	put(f.speed, speed, t.Speed != "" || r.standard)
	if p.has("serviceTier") { // proto JSON takes both spellings
		p.put("service_tier", change{drop: true})
	}
}

// tierHeader adds what a platform wants in a header.
func (r *Request) tierHeader(rw *Rewrite, t *config.Target, f tierFields) {
	if f.header == "" {
		return
	}
	switch value := headerTier(f.header, t.Tier); {
	case r.standard, t.Tier != "" && value == "":
		rw.Remove = append(rw.Remove, f.header)
	case value != "":
		rw.Set = append(rw.Set, Header{f.header, value})
	}
}

// headerTier is a tier as a platform's header spells it: Bedrock's are "priority | default | flex | reserved", Vertex's
// "priority | flex" and nothing for the standard tier.
func headerTier(header, tier string) string {
	standard := slices.Contains([]string{"auto", "standard", "standard_only", "default"}, tier)
	switch {
	case standard && header == bedrockTier && tier != "auto":
		return "default"
	case standard:
		return ""
	}
	return tier
}
