package config

import (
	"maps"
	"slices"
	"testing"
)

const manyChains = `
providers:
  a: {api: anthropic, endpoint: https://a.example, auth: {from: client}}
  o: {api: openai, endpoint: https://o.example, auth: {from: client}}
passthrough:
  - {path: /v1/models, provider: o}
  - {path: /v1, provider: a}
  - {path: /v1/models/tuned, provider: a}
targets:
  a/x: {provider: a, model: x}
  o/x: {provider: o, model: x}
chains:
  rest:
    match:
      - {path: /v1/messages}
      - {path: /team/v1/messages, model: big-*}
    targets: [a/x]
  big:
    match:
      - {path: /v1/messages, model: big-*}
    select: header
    targets: [a/x]
  mini:
    match:
      - {path: /v1/messages, model: "*-mini"}
      - {path: /team/v1/messages, model: small}
    targets: [a/x]
  team:
    match: [{path: /team/v1/messages, model: medium}]
    default: true
    targets: [a/x]
  openai:
    select: header
    targets: [o/x]
`

func TestChainOfARequest(t *testing.T) {
	c := mustParse(t, manyChains)
	for _, row := range []struct{ name, path, model, header, want string }{
		{"no rule with a model fits", "/v1/messages", "other", "", "rest"},
		{"a rule with a model beats one without, even an earlier one", "/v1/messages", "big-1", "", "big"},
		{"the first of two rules that fit wins", "/v1/messages", "big-mini", "", "big"},
		{"a later rule fits", "/v1/messages", "small-mini", "", "mini"},
		{"a request without a model goes to the default", "/v1/messages", "", "", "rest"},
		{"a query is not part of the path", "/v1/messages?beta=true", "big-1", "", "big"},
		{"the default chain of another path is not this path's", "/team/v1/messages", "other", "", "team"},
		{"rules belong to their path", "/team/v1/messages", "small", "", "mini"},
		{"paths are compared whole", "/v1/messages/count_tokens", "big-1", "", ""},
		{"paths are compared with their case", "/V1/messages", "big-1", "", ""},
		{"the header picks a chain", "/v1/messages", "other", "big", "big"},
		{"the header picks a chain whose rules do not know the path", "/team/v1/messages", "other", "big", "big"},
		{"the header cannot pick a chain that does not say select", "/v1/messages", "other", "mini", "rest"},
		{"the header cannot pick a chain of another dialect", "/v1/messages", "other", "openai", "rest"},
		{"the header cannot pick a chain for a path that is no model call", "/v1/models", "other", "big", ""},
		{"the header names nobody", "/v1/messages", "other", "nobody", "rest"},
		{"a chain by header takes each path of its dialect", "/v1/responses", "", "openai", "openai"},
		{"a path for the header only, without it", "/v1/responses", "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) { checkChain(t, c, row.path, row.model, row.header, row.want) })
	}
}

const geminiAndVectors = `
providers:
  g: {api: gemini, auth: {from: client}}
  o: {api: openai, endpoint: https://o.example, auth: {from: client}}
passthrough:
  - {path: /v1beta/models, provider: g}
targets:
  g/x: {provider: g, model: x}
  g/y: {provider: g, model: y}
  o/x: {provider: o, model: x}
chains:
  pro:
    match: [{path: /v1beta/models, model: "gemini-*-pro"}]
    targets: [g/x]
  rest:
    match: [{path: /v1beta/models}, {path: /team/v1/models}]
    targets: [g/y]
  named: {select: header, targets: [g/x]}
  vectors:
    match: [{path: /team/v1/embeddings}]
    select: header
    targets: [o/x]
  chat: {select: header, default: true, targets: [o/x]}
`

func TestChainOfAPathThatNamesTheModel(t *testing.T) {
	c := mustParse(t, geminiAndVectors)
	for _, row := range []struct{ name, path, model, header, want string }{
		{"a rule with the model", "/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro", "", "pro"},
		{"of a stream, with a query", "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "gemini-3-pro", "", "pro"},
		{"another model", "/v1beta/models/gemini-3-flash:generateContent", "gemini-3-flash", "", "rest"},
		{"before the model is known", "/v1beta/models/gemini-3-pro:generateContent", "", "", "rest"},
		{"the place of any model", "/v1beta/models/{model}:generateContent", "", "", "rest"},
		{"under a prefix, in the other version", "/team/v1/models/gemini-3-pro:generateContent", "gemini-3-pro", "", "rest"},
		{"under a prefix that no rule has", "/other/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro", "", ""},
		{"a header picks a chain under any prefix", "/other/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro", "named", "named"},
		{"another call of the model", "/v1beta/models/gemini-3-pro:countTokens", "gemini-3-pro", "named", ""},
		{"the list of models", "/v1beta/models", "", "named", ""},
		{"a model's own page", "/v1beta/models/gemini-3-pro", "", "named", ""},
		{"no model", "/v1beta/models/:generateContent", "", "named", ""},
		{"a path without any slash", "x:generateContent", "x", "named", ""},
		{"more than the model", "/v1beta/models/gemini-3-pro/x:generateContent", "gemini-3-pro", "named", ""},
	} {
		t.Run(row.name, func(t *testing.T) { checkChain(t, c, row.path, row.model, row.header, row.want) })
	}
}

func TestChainOfAnotherEndpoint(t *testing.T) {
	c := mustParse(t, geminiAndVectors)
	for _, row := range []struct{ name, path, header, want string }{
		{"its rule", "/team/v1/embeddings", "", "vectors"},
		{"a header picks it on its own endpoint", "/v1/embeddings", "vectors", "vectors"},
		{"a header cannot pick it for a model call", "/v1/responses", "vectors", "chat"},
		{"a header cannot pick it for yet another endpoint", "/v1/moderations", "vectors", ""},
		{"a chain of model calls is nothing for it", "/v1/embeddings", "chat", ""},
		{"the default of model calls is none of it", "/v1/embeddings", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) { checkChain(t, c, row.path, "x", row.header, row.want) })
	}
}

func checkChain(t *testing.T, c *Config, path, model, header, want string) {
	t.Helper()
	got := ""
	if ch, ok := c.Chain(path, model, header); ok {
		got = ch.Name
	}
	if got != want {
		t.Errorf("Chain(%q, %q, %q) = %q, want %q", path, model, header, got, want)
	}
}

func TestEveryProtectedPathHasAPrimary(t *testing.T) {
	c := mustParse(t, geminiAndVectors)
	got := map[string]string{}
	for _, path := range c.Protected() {
		got[path] = c.Primary(path).Name
	}
	want := map[string]string{
		"/v1beta/models/{model}:generateContent":        "g/y",
		"/v1beta/models/{model}:streamGenerateContent":  "g/y",
		"/team/v1/models/{model}:generateContent":       "g/y",
		"/team/v1/models/{model}:streamGenerateContent": "g/y",
		"/team/v1/embeddings":                           "o/x",
		"/v1/embeddings":                                "o/x",
		"/v1/chat/completions":                          "o/x",
		"/v1/responses":                                 "o/x",
	}
	if !maps.Equal(got, want) {
		t.Errorf("primaries of Protected() = %q, want %q", got, want)
	}
	if got := c.Primary("/v1/files"); got != nil {
		t.Errorf("Primary(/v1/files) = %v, want none", got)
	}
}

func TestStandardPathIsWithoutThePrefix(t *testing.T) {
	for _, row := range []struct {
		api        API
		path, want string
	}{
		{Anthropic, "/v1/messages", "/v1/messages"},
		{Anthropic, "/a/b/v1/messages", "/v1/messages"},
		{Anthropic, "/v1/embeddings", ""},
		{OpenAI, "/a/v1/embeddings", "/v1/embeddings"},
		{OpenAI, "/a/v1/responses", "/v1/responses"},
		{OpenAI, "/v1/responses/resp_1", ""},
		{Gemini, "/a/v1beta/models/m:generateContent", "/v1beta/models/m:generateContent"},
		{Gemini, "/a/v1/models/{model}:streamGenerateContent", "/v1/models/{model}:streamGenerateContent"},
		{Gemini, "/v1beta/models", ""},
		{"", "/v1/messages", ""},
	} {
		if got := row.api.Standard(row.path); got != row.want {
			t.Errorf("%s.Standard(%q) = %q, want %q", row.api, row.path, got, row.want)
		}
		if got, want := row.api.Has(row.path), row.want != "" && !slices.Contains(row.api.Others(), row.want); got != want {
			t.Errorf("%s.Has(%q) = %t, want %t", row.api, row.path, got, want)
		}
	}
}

func TestChainByHeaderCanBeTheDefaultOfItsDialect(t *testing.T) {
	c := mustParse(t, `
providers: {o: {api: openai, endpoint: https://o.example, auth: {from: client}}}
targets: {o/x: {provider: o, model: x}}
chains: {only: {select: header, default: true, targets: [o/x]}}
`)
	for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
		if ch, ok := c.Chain(path, "x", ""); !ok || ch.Name != "only" {
			t.Errorf("Chain(%q) = %v, %t, want only", path, ch, ok)
		}
	}
}

func TestProtectedPaths(t *testing.T) {
	got := mustParse(t, manyChains).Protected()
	want := []string{"/team/v1/messages", "/v1/chat/completions", "/v1/messages", "/v1/responses"}
	if !slices.Equal(got, want) {
		t.Errorf("Protected() = %q, want %q", got, want)
	}
}

func TestPassthruTakesTheLongestPrefixThatEndsAtASlash(t *testing.T) {
	c := mustParse(t, manyChains)
	for path, want := range map[string]string{
		"/v1/models":         "o",
		"/v1/models/x":       "o",
		"/v1/models?limit=1": "o",
		"/v1/models/tuned":   "a",
		"/v1/models/tuned2":  "o",
		"/v1/modelsx":        "a",
		"/v1":                "a",
		"/v1/":               "a",
		"/v10":               "",
		"/":                  "",
		"":                   "",
	} {
		got := ""
		if p, ok := c.Passthru(path); ok {
			got = p.Name
		}
		if got != want {
			t.Errorf("Passthru(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestPassthruOfTheRootTakesEverything(t *testing.T) {
	c := &Config{Passthrough: []Passthrough{{"/", &Provider{Name: "a"}}}}
	for _, path := range []string{"/", "/x", "/v1/models"} {
		if _, ok := c.Passthru(path); !ok {
			t.Errorf("Passthru(%q) = false, want true", path)
		}
	}
}

func TestMatchModel(t *testing.T) {
	for _, row := range []struct {
		glob, model string
		want        bool
	}{
		{"", "x", true},
		{"", "", true},
		{"*", "", true},
		{"*", "x", true},
		{"x", "x", true},
		{"x", "xy", false},
		{"x", "", false},
		{"x", "X", false},
		{"claude-*", "claude-", true},
		{"claude-*", "claude", false},
		{"*-mini", "gpt-mini", true},
		{"*-mini", "gpt-mini-2", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "a-c", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "a1b2c3c", true},
		{"*a*b*", "ba", false},
		{"*ab*ab*", "ab", false},
		{"**", "", true},
		{"a**b", "ab", true},
		{"a?", "ab", false},
		{"a.c", "abc", false},
		{"claude-*", "claude-*-x", true},
	} {
		if got := MatchModel(row.glob, row.model); got != row.want {
			t.Errorf("MatchModel(%q, %q) = %t, want %t", row.glob, row.model, got, row.want)
		}
	}
}
