package provider

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// caps are the members that bound an answer's tokens.
var caps = map[classify.API][]string{
	classify.AnthropicMessages: {"max_tokens"},
	classify.OpenAIChat:        {"max_tokens", "max_completion_tokens"},
	classify.OpenAIResponses:   {"max_output_tokens"},
	classify.Gemini:            {"maxOutputTokens", "max_output_tokens"}, // of generationConfig
}

// added is the one of them that bounds an answer which the request does not bound: what a budget sets aside for the
// answer has to be all that it can be.
var added = map[classify.API]string{
	classify.AnthropicMessages: "max_tokens", // Anthropic requires it
	classify.OpenAIChat:        "max_completion_tokens",
	classify.OpenAIResponses:   "max_output_tokens",
	classify.Gemini:            "maxOutputTokens",
}

// generation are the spellings of Gemini's object of sampling parameters.
var generation = []string{"generationConfig", "generation_config"}

// planLimits leaves out what the model does not take, and caps its answer. Gemini's sampling parameters stand one level
// deeper than those of others.
func (r *Request) planLimits(p *plan, l config.Limits) {
	inner := p
	if r.route.api == classify.Gemini {
		inner = &plan{}
	}
	if l.MaxOutput > 0 {
		for _, name := range caps[r.route.api] {
			inner.put(name, change{inside: capped(l.MaxOutput)})
		}
	}
	if l.MaxOutput > 0 && !r.limited() {
		name := added[r.route.api]
		inner.put(name, change{inside: capped(l.MaxOutput), add: strconv.Itoa(l.MaxOutput)})
	}
	for _, name := range l.Drop {
		p.put(name, change{drop: true})
		inner.put(name, change{drop: true})
	}
	if r.route.api != classify.Gemini || len(*inner) == 0 {
		return
	}
	for _, name := range generation {
		if !p.of(name).drop {
			p.put(name, change{inside: func(e *editor, v value) { e.object(v, *inner) }})
		}
	}
	if l.MaxOutput > 0 && !r.root().get(generation[0]).exists() && !r.root().get(generation[1]).exists() {
		p.put(generation[0], change{add: `{"maxOutputTokens":` + strconv.Itoa(l.MaxOutput) + `}`})
	}
}

// limited says that the request bounds its answer.
func (r *Request) limited() bool {
	_, known := added[r.route.api]
	return !known || r.MaxTokens() > 0
}

// capped lowers a number to most.
func capped(most int) func(*editor, value) {
	return func(e *editor, v value) {
		if v.isNumber() && v.num() > float64(most) {
			e.replace(v, strconv.Itoa(most))
		}
	}
}

// betas says anthropic-beta where the platform wants it, without what the model lacks.
func (r *Request) betas(rw *Rewrite, p *plan, t *config.Target, w wire) {
	if r.route.api != classify.AnthropicMessages {
		return
	}
	asked := betasOf(r.header)
	kept := mapped(asked, t.Limits.Betas)
	switch {
	case w.betas:
		rw.Remove = append(rw.Remove, betaHeader)
		if len(kept) > 0 {
			list, _ := json.Marshal(kept) // strings always marshal
			p.put("anthropic_beta", set(string(list)))
		}
	case slices.Equal(asked, kept):
	case len(kept) == 0:
		rw.Remove = append(rw.Remove, betaHeader)
	default:
		rw.Set = append(rw.Set, Header{betaHeader, strings.Join(kept, ",")})
	}
}

// betasOf are the values of anthropic-beta, a list that may stand in several headers.
func betasOf(h http.Header) []string {
	var betas []string
	for _, line := range h.Values(betaHeader) {
		for beta := range strings.SplitSeq(line, ",") {
			if beta = strings.TrimSpace(beta); beta != "" {
				betas = append(betas, beta)
			}
		}
	}
	return betas
}

// mapped are betas by their names at another model; "" is none.
func mapped(betas []string, names map[string]string) []string {
	var out []string
	for _, beta := range betas {
		if name, ok := names[beta]; ok {
			beta = name
		}
		if beta != "" && !slices.Contains(out, beta) {
			out = append(out, beta)
		}
	}
	return out
}
