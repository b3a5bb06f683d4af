package rehearse

import (
	"encoding/json"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// call is one way in which clients call a chain.
type call struct {
	chain  string
	pick   bool   // by x-llm-chain
	path   string // with the query
	api    classify.API
	model  string
	stream bool
	tier   string // asked for; "" is none
	prompt string
}

// String is the call for a report.
func (c call) String() string {
	path, _, _ := strings.Cut(c.path, "?")
	if c.stream {
		return "POST " + path + ", streamed"
	}
	return "POST " + path
}

// calls are the ways in which clients can call ch for a model's answer, one for each endpoint: not streamed, and streamed.
func calls(cfg *config.Config, ch *config.Chain) []call {
	var all []call
	seen := map[classify.API]bool{}
	for _, rule := range rules(ch) {
		for _, model := range models(ch, rule.Model) {
			c, ok := callOf(cfg, ch, rule.Path, model)
			if !ok || seen[c.api] {
				continue
			}
			seen[c.api] = true
			all = append(all, c, streamed(c))
		}
	}
	return all
}

// rules are a chain's match rules, and where it can be picked by name the standard paths of its dialect.
func rules(ch *config.Chain) []config.Match {
	list := ch.Matches
	if ch.SelectHeader || len(list) == 0 {
		for _, path := range ch.API.Paths() {
			path, _, _ = strings.Cut(path, "/{model}")
			list = append(list[:len(list):len(list)], config.Match{Path: path})
		}
	}
	return list
}

// models are names that may fit a rule.
func models(ch *config.Chain, glob string) []string {
	names := []string{strings.ReplaceAll(glob, "*", "")}
	for _, r := range ch.Rungs {
		names = append(names, r.Target.Model)
	}
	return append(names, strings.ReplaceAll(glob, "*", "x"), "drill") // the last one where the others are of other chains
}

// callOf is the call on a rule's path, if it leads to ch.
func callOf(cfg *config.Config, ch *config.Chain, path, model string) (call, bool) {
	c := call{chain: ch.Name, pick: ch.SelectHeader, path: path, model: model}
	switch {
	case model == "":
		return c, false
	case ch.API == config.Gemini:
		c.api, c.path = classify.Gemini, path+"/"+model+":generateContent"
	case strings.HasSuffix(path, "/messages"):
		c.api = classify.AnthropicMessages
	case strings.HasSuffix(path, "/chat/completions"):
		c.api = classify.OpenAIChat
	case strings.HasSuffix(path, "/responses"):
		c.api = classify.OpenAIResponses
	default:
		return c, false
	}
	name := ""
	if c.pick {
		name = ch.Name
	}
	got, ok := cfg.Chain(c.path, model, name)
	return c, ok && got == ch
}

func streamed(c call) call {
	c.stream = true
	if c.api == classify.Gemini {
		c.path = strings.Replace(c.path, ":generateContent", ":streamGenerateContent", 1) + "?alt=sse"
	}
	return c
}

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type part struct {
	Text string `json:"text"`
}

type geminiTurn struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// request is the smallest body of each dialect.
type request struct {
	Model     string       `json:"model,omitempty"`
	MaxTokens int          `json:"max_tokens,omitempty"`
	Messages  []turn       `json:"messages,omitempty"`
	Input     string       `json:"input,omitempty"`
	Contents  []geminiTurn `json:"contents,omitempty"`
	Stream    bool         `json:"stream,omitempty"`
	Tier      string       `json:"service_tier,omitempty"`
}

// longest is how many tokens an answer may have where the dialect wants that said.
const longest = 64

func (c call) body() []byte {
	q := request{Model: c.model, Stream: c.stream, Tier: c.tier}
	switch c.api {
	case classify.AnthropicMessages:
		q.MaxTokens, q.Messages = longest, []turn{{"user", c.prompt}}
	case classify.OpenAIResponses:
		q.Input = c.prompt
	case classify.Gemini:
		q = request{Contents: []geminiTurn{{"user", []part{{c.prompt}}}}}
	default:
		q.Messages = []turn{{"user", c.prompt}}
	}
	js, _ := json.Marshal(q) // strings and numbers always marshal
	return js
}
