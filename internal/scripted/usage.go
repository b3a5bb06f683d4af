package scripted

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Tokens is what an answer says that it used, counted as Anthropic does: the four do not overlap.
type Tokens struct{ Input, Output, CacheRead, CacheWrite int }

// Call is a call that a provider makes of itself to answer.
type Call struct {
	Model string
	Tokens
}

// parseTokens reads IN/OUT/READ/WRITE.
func parseTokens(s string) (*Tokens, error) {
	var t Tokens
	into := []*int{&t.Input, &t.Output, &t.CacheRead, &t.CacheWrite}
	counts := strings.Split(s, "/")
	if len(counts) < 2 || len(counts) > len(into) {
		return nil, fmt.Errorf("want IN/OUT/READ/WRITE, got %q", s)
	}
	for i, count := range counts {
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, err
		}
		*into[i] = n
	}
	return &t, nil
}

// used is what the message counts.
func (m message) used() Tokens {
	if m.tokens != nil {
		return *m.tokens
	}
	return Tokens{Input: 11, Output: len(m.texts)}
}

// anthropicInput is the part of Anthropic's usage that is known before the answer.
func (t Tokens) anthropicInput() string {
	return fmt.Sprintf(`"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d`, t.Input, t.CacheWrite, t.CacheRead)
}

// iterations are the calls behind an answer of Anthropic's, a last one for the answer itself, as a member to follow
// another; "" without any.
func (m message) iterations() string {
	if len(m.calls) == 0 {
		return ""
	}
	var list []string
	for _, c := range append(m.calls[:len(m.calls):len(m.calls)], Call{m.model, m.used()}) {
		list = append(list, fmt.Sprintf(`{"type":"message","model":%s,%s,"output_tokens":%d}`, quote(c.Model), c.anthropicInput(), c.Output))
	}
	return `,"iterations":[` + strings.Join(list, ",") + `]`
}

// openAIUsage is the usage of Chat Completions or Responses, which count what was cached in the whole.
func (t Tokens) openAIUsage(in, out string) string {
	whole := t.Input + t.CacheRead + t.CacheWrite
	return fmt.Sprintf(`{"%[1]s_tokens":%[3]d,"%[1]s_tokens_details":{"cached_tokens":%[4]d},"%[2]s_tokens":%[5]d,"%[2]s_tokens_details":{"reasoning_tokens":0},"total_tokens":%[6]d}`,
		in, out, whole, t.CacheRead, t.Output, whole+t.Output)
}

// tellLimits sets the rate-limit headers of requests as both dialects have them; each client reads its own.
func tellLimits(h http.Header, limits string) {
	parts := strings.Split(limits, "/")
	if len(parts) != 3 {
		return
	}
	h.Set("x-ratelimit-remaining-requests", parts[0])
	h.Set("x-ratelimit-limit-requests", parts[1])
	h.Set("x-ratelimit-reset-requests", parts[2])
	if reset, err := time.ParseDuration(parts[2]); err == nil {
		h.Set("anthropic-ratelimit-requests-remaining", parts[0])
		h.Set("anthropic-ratelimit-requests-limit", parts[1])
		h.Set("anthropic-ratelimit-requests-reset", time.Now().Add(reset).UTC().Format(time.RFC3339))
	}
}
