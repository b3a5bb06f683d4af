package classify

import "understudy/pkg/classify/jsonscan"

// Usage is what the provider says was used, in tokens, counted alike for all: Anthropic's way. Input, CacheRead and
// CacheWrite do not overlap, so that each has its price; OpenAI's prompt_tokens, which include the cached ones, are
// taken apart. Of a stream the last count holds, as counts go on from event to event.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Reasoning  int64 `json:"reasoning"` // a part of Output

	CacheWriteLong int64 `json:"cache_write_long,omitempty"` // the part of CacheWrite kept for longer: Anthropic's 1 h, OpenAI's 12 h
	InputAudio     int64 `json:"input_audio,omitempty"`      // the part of Input, or of what was read from the cache, that is sound
	OutputAudio    int64 `json:"output_audio,omitempty"`     // the part of Output that is sound
	Searches       int64 `json:"searches,omitempty"`         // web searches by the provider; not tokens

	// Estimated says that no count covers all of the answer: it was cut, or counts were not asked for. Output has
	// then a quarter of a token for each byte of text behind the last count. Input is not estimated.
	Estimated bool `json:"estimated,omitempty"`
}

// IterationUsage is one of the calls that a provider made of itself to answer: a turn with its own tools, a
// compaction, or a fallback to another model after a refusal. Each has its own price.
type IterationUsage struct {
	Type  string `json:"type"`            // message, compaction, advisor_message or fallback_message; more may come
	Model string `json:"model,omitempty"` // "" is the verdict's
	Usage
}

// bytesPerToken is the rule of thumb for English text.
const bytesPerToken = 4

// maxIterations bounds the list of a provider's own calls; of more than that the last takes the place of the one before.
const maxIterations = 64

// tokens are the counts of one call, by fact.
type tokens [firstText]int64

// usage is what was counted. cached says that the provider's input includes the cached tokens.
func (t *tokens) usage(cached bool) Usage {
	u := Usage{
		Input:          t[factInput] + t[factToolInput],
		Output:         t[factOutput] + t[factThoughts],
		CacheRead:      t[factCacheRead],
		CacheWrite:     t[factCacheWrite],
		Reasoning:      t[factReasoning] + t[factThoughts],
		CacheWriteLong: t[factCacheLong],
		InputAudio:     t[factInputAudio],
		OutputAudio:    t[factOutputAudio],
		Searches:       t[factSearches],
	}
	if cached {
		u.Input = max(0, u.Input-u.CacheRead-u.CacheWrite)
	}
	return u
}

// estimate adds to u what made bytes of text that no count covers come to.
func (u *Usage) estimate(made int64) {
	if made > 0 {
		u.Output += (made + bytesPerToken - 1) / bytesPerToken
		u.Estimated = true
	}
}

// uncounted is how many bytes of generated text came behind the last count of output.
func (f *facts) uncounted() int64 {
	if f.has(factOutput) {
		return 0
	}
	return f.made
}

// iteration is one of the provider's own calls.
type iteration struct {
	kind, model string
	tokens      tokens
}

// iterate follows the list of the provider's own calls: it is told whole each time, and the last one holds.
func (f *facts) iterate(k jsonscan.Kind) {
	switch {
	case k == jsonscan.Array:
		f.iterations = f.iterations[:0]
	case k == jsonscan.Object:
		f.iterations = append(f.iterations[:min(len(f.iterations), maxIterations-1)], iteration{})
		f.iterating = true
	case k == jsonscan.End:
		f.iterating = false
	}
}

// take takes one fact of a provider's own call.
func (i *iteration) take(what jsonscan.Field, k jsonscan.Kind, b []byte) {
	switch {
	case what == factType && k == jsonscan.String:
		i.kind = string(b)
	case what == factModel && k == jsonscan.String:
		i.model = string(b)
	case what < firstText && k == jsonscan.Number:
		i.tokens[what] = number(b)
	}
}

// calls are the provider's own calls, nil if it told none.
func (f *facts) calls(cached bool) []IterationUsage {
	if len(f.iterations) == 0 {
		return nil
	}
	out := make([]IterationUsage, 0, len(f.iterations))
	for i := range f.iterations {
		it := &f.iterations[i]
		out = append(out, IterationUsage{Type: it.kind, Model: it.model, Usage: it.tokens.usage(cached)})
	}
	return out
}

// fallback is the model that answered after another had refused, "" if none did. "The signal for whether a fallback
// model served the response is the presence of a fallback_message entry in usage.iterations" (Anthropic's SDK; wire-formats 1c).
func (f *facts) fallback() string {
	for i := len(f.iterations) - 1; i >= 0; i-- {
		if f.iterations[i].kind == "fallback_message" {
			return f.iterations[i].model
		}
	}
	return ""
}
