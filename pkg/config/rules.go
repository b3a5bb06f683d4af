package config

import "slices"

// rules checks what only all chains together show.
func (c *compiler) rules() {
	c.reachableRules()
	c.onlyDefault()
	c.someDefault()
	c.apartFromChains()
	c.failOpen()
}

// rule is a match rule with its place in the file.
type rule struct {
	Match
	at string
}

// matchRules is every sound rule, in the order of the file.
func (c *compiler) matchRules() []rule {
	var rules []rule
	for _, name := range c.keys["chains"] {
		list := at(at("chains", name), "match")
		for i, m := range c.f.Chains[name].Match {
			here := index(list, i)
			if !c.wrong[here] && !c.wrong[at(here, "path")] && !c.wrong[at(here, "model")] {
				rules = append(rules, rule{Match(m), here})
			}
		}
	}
	return rules
}

// reachableRules refuses a rule whose requests an earlier one takes.
func (c *compiler) reachableRules() {
	rules := c.matchRules()
	for i, r := range rules {
		for _, before := range rules[:i] {
			if before.Path == r.Path && before.any() == r.any() && c.shadowed(r, before) {
				break
			}
		}
	}
}

func (c *compiler) shadowed(r, before rule) bool {
	switch {
	case r.any() || before.Model == r.Model:
		c.fault(r.at, "the same rule as %s: remove one", before.at)
	case MatchModel(before.Model, r.Model): // only a * of before can match one of r, so this is containment
		c.fault(r.at, "never reached: %s takes every model it names: put it before that one", before.at)
	default:
		return false
	}
	return true
}

// onlyDefault refuses a second default of a path. Two rules without a model are the same rule, and told as such.
func (c *compiler) onlyDefault() {
	owner := map[string]*Chain{}
	for _, ch := range c.out.Chains {
		for _, path := range ch.defaultPaths() {
			first := owner[path]
			switch {
			case first == nil:
				owner[path] = ch
			case !first.takesAny(path) || !ch.takesAny(path):
				c.fault(at(at("chains", ch.Name), "default"),
					"chain %s is the default of %s already: a path has one (a rule without a model makes one, too)",
					first.Name, path)
			}
		}
	}
}

// someDefault refuses a path of match rules without a chain for what they leave. Where a path can be reached by header
// only, a request without that header is nobody's.
func (c *compiler) someDefault() {
	told := map[string]bool{}
	for _, r := range c.matchRules() {
		if told[r.Path] || slices.ContainsFunc(c.out.Chains, func(ch *Chain) bool {
			return ch.defaultFor(r.Path) || c.wrong[at(at("chains", ch.Name), "default")]
		}) {
			continue
		}
		told[r.Path] = true
		c.fault(r.at, "no chain takes the other models of %s: say default: true in one, or match it without a model", r.Path)
	}
}

// defaultPaths is every path that ch is the default of, once.
func (ch *Chain) defaultPaths() []string {
	paths := slices.DeleteFunc(slices.Concat(ch.paths(), ch.standard()), func(p string) bool { return !ch.defaultFor(p) })
	slices.Sort(paths)
	return slices.Compact(paths)
}

// takesAny reports whether a rule of ch takes every model of path.
func (ch *Chain) takesAny(path string) bool {
	return slices.ContainsFunc(ch.Matches, func(m Match) bool { return m.Path == path && m.any() })
}

func (c *compiler) passthrough() {
	first := map[string]string{}
	for i, f := range c.f.Passthrough {
		p := index("passthrough", i)
		provider := c.lookupProvider(at(p, "provider"), f.Provider)
		if !c.plainPath(at(p, "path"), f.Path) {
			continue
		}
		if before, ok := first[f.Path]; ok {
			c.fault(at(p, "path"), "%s passes already, by %s: remove one", f.Path, before)
			continue
		}
		if provider != nil && provider.Auth.AWS != "" {
			c.fault(at(p, "provider"), "%s signs each body, and one that passes is not read: name a provider with another credential, "+
				"such as bearer: env:NAME", provider.Name)
		}
		first[f.Path] = p
		c.out.Passthrough = append(c.out.Passthrough, Passthrough{Path: f.Path, Provider: provider})
	}
}

// apartFromChains refuses a passthrough path that a chain protects. A prefix of one is fine: the chain's path is exact
// and goes first.
func (c *compiler) apartFromChains() {
	protected := c.out.Protected()
	for i, f := range c.f.Passthrough {
		if path := at(index("passthrough", i), "path"); slices.Contains(protected, f.Path) && !c.wrong[path] {
			c.fault(path, "%s is protected by a chain: remove one of the two", f.Path)
		}
	}
}

// failOpen refuses when_service_down: open where Envoy alone could not complete a request: other platforms than native
// want it rewritten, and signed.
func (c *compiler) failOpen() {
	if !c.out.Envoy.FailOpen {
		return
	}
	const key = "envoy.when_service_down"
	told := map[*Target]bool{}
	for _, path := range c.out.Protected() {
		t := c.out.Primary(path)
		if t == nil || told[t] || !t.Provider.foreign() {
			continue
		}
		told[t] = true
		c.fault(key, "open: Envoy alone cannot write a request for %s, the first target for %s, as it is on platform %s: "+
			"put a native one first, or use closed", t.Name, path, t.Provider.Platform)
	}
	for _, p := range c.out.Passthrough {
		if p.Provider != nil && (p.Provider.Auth.GCP != "" || p.Provider.Auth.Entra != "") {
			c.fault(key, "open: Envoy alone has no credential for %s, to which %s passes: use closed", p.Provider.Name, p.Path)
		}
	}
}

// foreign reports whether p is known to be on another platform than its dialect's own.
func (p *Provider) foreign() bool {
	return p != nil && p.Platform != Native && platformOf(p.Platform).apis != nil
}
