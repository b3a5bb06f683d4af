package provider

import (
	"github.com/tidwall/gjson"

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
	root := r.root()
	at := func(paths ...string) int64 {
		n := int64(0)
		for _, p := range paths {
			if v := root.Get(p); v.Type == gjson.Number && v.Num > 0 {
				n = max(n, int64(min(v.Num, 1e9)))
			}
		}
		return n
	}
	switch r.route.api {
	case classify.AnthropicMessages:
		most = at("max_tokens")
	case classify.OpenAIChat:
		most, choices = at("max_tokens", "max_completion_tokens"), max(1, min(at("n"), 128))
	case classify.OpenAIResponses:
		most = at("max_output_tokens")
	case classify.Gemini:
		most = at("generationConfig.maxOutputTokens", "generationConfig.max_output_tokens", "generation_config.max_output_tokens")
		choices = max(1, min(at("generationConfig.candidateCount"), 128))
	}
	return most * choices
}
