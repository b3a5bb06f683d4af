package budget

import (
	"understudy/pkg/config"
)

// Request is what is known of the size of a request before it is sent.
type Request struct {
	InputTokens int64  // of a counter, images and documents included; 0: judged by InputBytes
	InputBytes  int64  // of the body, without what is base64 in it: an image is far fewer tokens than its bytes
	MaxTokens   int64  // the most that all its choices together may be; 0: the target's limit
	Tier        string // that the client asks for, "fast" of a speed; "" or auto: whatever the account gets
	GaveUp      bool   // for Cost: a deadline of ours ended the attempt, not the provider
}

const (
	// bytesPerToken is the rule of thumb for English text, for a likely bill.
	bytesPerToken = 4
	// leastBytesPerToken and overhead bound the tokens of a body from above. A byte can be a token, but prose is 4 bytes a
	// token, code 3, Chinese and Japanese 2 to 3, digits 2 to 3. The overhead is what a provider puts around a short
	// prompt: "tool use system prompt token count", some 350 for Claude.
	// https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
	leastBytesPerToken = 2
	overhead           = 512
	// unboundOutput is the most that a model without a max_output in the file is taken to write.
	unboundOutput = 128_000
)

// likely is the input that is billed where the provider does not count it.
func (q Request) likely() int64 {
	if q.InputTokens > 0 {
		return q.InputTokens
	}
	return (max(q.InputBytes, 0) + bytesPerToken - 1) / bytesPerToken
}

// most is an upper bound of the input.
func (q Request) most() int64 {
	if q.InputTokens > 0 {
		return q.InputTokens
	}
	return max(q.InputBytes, 0)/leastBytesPerToken + overhead
}

// output is the most that t will write: the request's max_tokens as the target lets it through.
func (q Request) output(t *config.Target) int64 {
	limit := int64(t.Limits.MaxOutput)
	switch {
	case q.MaxTokens > 0 && limit > 0:
		return min(q.MaxTokens, limit)
	case q.MaxTokens > 0:
		return q.MaxTokens
	case limit > 0:
		return limit
	}
	return unboundOutput
}

// Load is what a request takes of t's rate limits.
func (q Request) Load(t *config.Target) Load {
	l := Load{Input: q.likely(), Output: q.MaxTokens}
	if q.MaxTokens > 0 || t.Limits.MaxOutput > 0 {
		l.Output = q.output(t)
	}
	return l
}

// Worst is the most that an attempt at t should cost: an upper bound of the input, all of it written to the cache where
// that is dearer, and all the output it may make, at the dearest tier that can serve it.
//
// It is no bound where the bill depends on what the request does not show: earlier turns that the provider keeps, its
// own tools that call the model again, images by address.
func Worst(t *config.Target, q Request) Money {
	r, sum := ratesAt(t, dearest(t, q.Tier)), atto{}
	sum.add(q.most(), max(r.input, r.read, r.write, r.long))
	sum.add(q.output(t), r.output)
	return sum.money()
}

// dearest is the greatest factor of the tiers that may serve: one that the target or the client asks for, or the standard
// one in its place. Where nobody asks, or asks for auto, the account's own settings decide: it may be any.
func dearest(t *config.Target, asked string) uint64 {
	f := max(factor(t.Price, ""), factor(t.Price, "default"), factor(t.Price, "standard"))
	named := false
	for _, tier := range [...]string{t.Tier, t.Speed, asked} {
		if tier != "" && tier != "auto" {
			f, named = max(f, factor(t.Price, tier)), true
		}
	}
	if named {
		return f
	}
	for _, of := range t.Price.Tiers {
		f = max(f, micros(of))
	}
	return f
}
