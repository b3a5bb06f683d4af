package config

import (
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
		t.Run(row.name, func(t *testing.T) {
			got := ""
			if ch, ok := c.Chain(row.path, row.model, row.header); ok {
				got = ch.Name
			}
			if got != row.want {
				t.Errorf("Chain(%q, %q, %q) = %q, want %q", row.path, row.model, row.header, got, row.want)
			}
		})
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
