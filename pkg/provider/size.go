package provider

import (
	"slices"

	"understudy/pkg/classify"
)

// longRun is how long a run of base64's characters must be to be taken for an image or a file rather than for text.
const longRun = 2048

// TextBytes is the size of the body without what is base64 in it: an image is far fewer tokens than its bytes. No run of
// longRun passes between two bytes that are so far apart: where the body is text, no more of it is looked at.
func (r *Request) TextBytes() int64 {
	total := int64(len(r.body))
	for end, at := 0, longRun-1; at < len(r.body); at = max(at, end) + longRun {
		if !base64Chars[r.body[at]] {
			continue
		}
		from := at
		for from > end && base64Chars[r.body[from-1]] {
			from--
		}
		for end = at + 1; end < len(r.body) && base64Chars[r.body[end]]; {
			end++
		}
		if end-from >= longRun && end < len(r.body) {
			total -= int64(end - from)
		}
	}
	return total
}

// base64Chars are those of both alphabets of RFC 4648.
var base64Chars = func() (is [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=") {
		is[c] = true
	}
	return is
}()

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
