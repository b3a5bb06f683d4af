package config

import (
	"maps"
	"slices"
	"strings"
)

// Chain finds the chain of a request: the one that header (x-llm-chain) names, if that chain says `select: header` and
// path is a call of its kind; else the first whose rule fits path and model; else the default of the path.
// A query in path is not looked at.
func (c *Config) Chain(path, model, header string) (*Chain, bool) {
	path, _, _ = strings.Cut(path, "?")
	return c.first(
		func(ch *Chain) bool { return ch.SelectHeader && ch.Name == header && ch.has(path) },
		func(ch *Chain) bool { return ch.matches(ch.API.ruled(path), model) },
		func(ch *Chain) bool { return ch.defaultFor(ch.API.ruled(path)) },
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

// Primary is the target of a request on path that nobody else has a say in: the first of the path's default chain, or
// where there is none of the first chain that can be selected there. It is nil where no chain is.
func (c *Config) Primary(path string) *Target {
	ch, ok := c.Chain(path, "", "")
	if !ok {
		ch, ok = c.first(func(ch *Chain) bool { return ch.MayTake(path) })
	}
	if !ok || len(ch.Rungs) == 0 {
		return nil
	}
	return ch.Rungs[0].Target
}

// MayTake reports whether ch gets some of the requests on path: by a rule, by x-llm-chain, or as the default.
func (ch *Chain) MayTake(path string) bool {
	ruled := ch.API.ruled(path)
	return ch.SelectHeader && ch.has(path) || ch.defaultFor(ruled) ||
		slices.ContainsFunc(ch.Matches, func(m Match) bool { return m.Path == ruled })
}

// matches, as all that follow, takes a path as rules name it.
func (ch *Chain) matches(path, model string) bool {
	return slices.ContainsFunc(ch.Matches, func(m Match) bool {
		return m.Path == path && !m.any() && MatchModel(m.Model, model)
	})
}

// defaultFor reports whether ch takes what no rule with a model takes on path.
func (ch *Chain) defaultFor(path string) bool {
	if len(ch.Matches) == 0 {
		return ch.Default && slices.Contains(ch.API.roots(), path)
	}
	return slices.ContainsFunc(ch.Matches, func(m Match) bool {
		return m.Path == path && (ch.Default || m.any())
	})
}

// any reports whether the rule names no model. Such a rule comes after those that do, wherever it stands.
func (m Match) any() bool { return strings.Trim(m.Model, "*") == "" }

// Protected is every path that a chain serves, sorted: those of match rules, and where a chain can be selected by
// header the standard ones of its kind. It is exact, but for "{model}" of Gemini's, which stands for one segment.
func (c *Config) Protected() []string {
	paths := map[string]bool{}
	for _, ch := range c.Chains {
		for _, rule := range ch.paths() {
			for _, p := range ch.API.calls(rule) {
				paths[p] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// paths may hold one twice.
func (ch *Chain) paths() []string {
	var paths []string
	for _, m := range ch.Matches {
		paths = append(paths, m.Path)
	}
	if ch.SelectHeader {
		paths = append(paths, ch.standard()...)
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
