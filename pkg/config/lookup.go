package config

import (
	"maps"
	"slices"
	"strings"
)

// Paths are the paths of a dialect that can be protected. A proxy may put a prefix before them.
func (a API) Paths() []string {
	switch a {
	case Anthropic:
		return []string{"/v1/messages"}
	case OpenAI:
		return []string{"/v1/chat/completions", "/v1/responses"}
	}
	return nil
}

// Has reports whether path is one of the dialect's, with or without a prefix.
func (a API) Has(path string) bool {
	return slices.ContainsFunc(a.Paths(), func(p string) bool { return strings.HasSuffix(path, p) })
}

// Chain finds the chain of a request: the one that header (x-llm-chain) names, if that chain says `select: header` and
// speaks the dialect of path; else the first whose rule fits path and model; else the default of the path.
// A query in path is not looked at.
func (c *Config) Chain(path, model, header string) (*Chain, bool) {
	path, _, _ = strings.Cut(path, "?")
	return c.first(
		func(ch *Chain) bool { return ch.SelectHeader && ch.Name == header && ch.API.Has(path) },
		func(ch *Chain) bool { return ch.matches(path, model) },
		func(ch *Chain) bool { return ch.defaultFor(path) },
	)
}

// ChainNamed is the chain of that name, nil when there is none.
func (c *Config) ChainNamed(name string) *Chain {
	ch, _ := c.first(func(ch *Chain) bool { return ch.Name == name })
	return ch
}

// first is the first chain that fits the first rule that fits any.
func (c *Config) first(rules ...func(*Chain) bool) (*Chain, bool) {
	for _, fits := range rules {
		if i := slices.IndexFunc(c.Chains, fits); i >= 0 {
			return c.Chains[i], true
		}
	}
	return nil, false
}

func (ch *Chain) matches(path, model string) bool {
	return slices.ContainsFunc(ch.Matches, func(m Match) bool {
		return m.Path == path && !m.any() && MatchModel(m.Model, model)
	})
}

// defaultFor reports whether ch takes what no rule with a model takes on path.
func (ch *Chain) defaultFor(path string) bool {
	if len(ch.Matches) == 0 {
		return ch.Default && slices.Contains(ch.API.Paths(), path)
	}
	return slices.ContainsFunc(ch.Matches, func(m Match) bool {
		return m.Path == path && (ch.Default || m.any())
	})
}

// any reports whether the rule names no model. Such a rule comes after those that do, wherever it stands.
func (m Match) any() bool { return strings.Trim(m.Model, "*") == "" }

// Protected is every exact path that a chain serves, sorted: those of match rules, and where a chain can be selected
// by header the standard ones of its dialect.
func (c *Config) Protected() []string {
	paths := map[string]bool{}
	for _, ch := range c.Chains {
		for _, p := range ch.paths() {
			paths[p] = true
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

func (ch *Chain) paths() []string {
	var paths []string
	for _, m := range ch.Matches {
		paths = append(paths, m.Path)
	}
	if ch.SelectHeader {
		paths = append(paths, ch.API.Paths()...)
	}
	return paths
}

// Passthru finds the provider of a path that no chain protects: the longest prefix that ends at a "/" wins.
// A query in path is not looked at.
func (c *Config) Passthru(path string) (*Provider, bool) {
	path, _, _ = strings.Cut(path, "?")
	var best Passthrough
	for _, p := range c.Passthrough {
		if p.covers(path) && len(p.Path) > len(best.Path) {
			best = p
		}
	}
	return best.Provider, best.Provider != nil
}

func (p Passthrough) covers(path string) bool {
	return p.Path == path || strings.HasPrefix(path, strings.TrimSuffix(p.Path, "/")+"/")
}

// MatchModel reports whether glob fits model: "*" stands for any run of characters, also none; "" fits any model.
func MatchModel(glob, model string) bool {
	if glob == "" {
		return true
	}
	parts := strings.Split(glob, "*")
	head, tail := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return glob == model
	}
	if len(model) < len(head)+len(tail) || !strings.HasPrefix(model, head) || !strings.HasSuffix(model, tail) {
		return false
	}
	rest := model[len(head) : len(model)-len(tail)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}
