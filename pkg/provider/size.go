package provider

import (
	"slices"

	"understudy/pkg/classify"
)

// longRun is how long a run of base64's characters must be to be taken for an image or a file rather than for text.
const longRun = 2048

// TextBytes is the size of the body without what is base64 in it: an image is far fewer tokens than its bytes.
func (r *Request) TextBytes() int64 {
	total, run := int64(len(r.body)), int64(0)
	for _, c := range r.body {
		if base64Char(c) {
			run++
			continue
		}
		if run >= longRun {
			total -= run
		}
		run = 0
	}
	return total
}

func base64Char(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

// MaxTokens is the most tokens that all answers which the request asks for may have together, 0 where it does not say.
func (r *Request) MaxTokens() int64 {
	most, choices := int64(0), int64(1)
	at := func(names ...string) int64 { return largest(r.root(), names) }
	switch r.route.api {
	case classify.AnthropicMessages:
		most = at("max_tokens")
	case classify.OpenAIChat:
		most, choices = at("max_tokens", "max_completion_tokens"), max(1, min(at("n"), 128))
	case classify.OpenAIResponses:
		most = at("max_output_tokens")
	case classify.Gemini:
		for name, v := range r.root().members {
			if slices.Contains(generation, name.str()) {
				most = max(most, largest(v, caps[classify.Gemini]))
				choices = max(choices, min(largest(v, []string{"candidateCount", "candidate_count"}), 128))
			}
		}
	}
	return most * choices
}

// largest is the largest number of the members of an object with these names: of several with one name a provider may
// take any.
func largest(object value, names []string) (n int64) {
	for name, v := range object.members {
		if v.num() > 0 && slices.Contains(names, name.str()) {
			n = max(n, int64(min(v.num(), 1e9)))
		}
	}
	return n
}
