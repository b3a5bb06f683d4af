package config

import (
	"path"
	"slices"
	"strings"
	"time"
)

// The bounds of a chain's policy.
const (
	// maxHold bounds what one attempt keeps in memory.
	maxHold = 64 << 20
	// maxWait leaves 5 s of the 15 s that Envoy waits for an answer of ours (message_timeout): waiting for a short
	// Retry-After happens inside one such answer.
	maxWait = 10 * time.Second
)

// blips are the classes that one more try of the same target may cure. The others have a policy of their own, or
// would come again.
func blips() []string {
	return []string{"overloaded", "server_error", "timeout", "transport", "truncated", "malformed"}
}

func (c *compiler) chains() {
	if len(c.keys["chains"]) == 0 && !c.wrong["chains"] && !c.wrong[""] {
		c.fault("chains", "no chain is configured: name at least one")
	}
	for _, name := range c.keys["chains"] {
		p := at("chains", name)
		c.name(p, name)
		c.out.Chains = append(c.out.Chains, c.chain(p, c.f.Chains[name], name))
	}
}

func (c *compiler) chain(p string, f *fileChain, name string) *Chain {
	ch := &Chain{
		Name:         name,
		Default:      f.Default,
		SelectHeader: f.Select == "header",
		Commit:       Commit(f.Commit),
		Hold:         Hold{Bytes: int64(f.Hold.Bytes), Time: f.Hold.Time},
		Deadlines:    Deadlines(f.Deadlines),
		Retry:        Retry(f.Retry),
		On:           On(f.On),
		MinRate:      c.minRate(at(p, "min_rate"), &f.MinRate),
		Observe:      f.Mode == "observe" || c.f.Mode == "observe",
	}
	c.mode(at(p, "mode"), f.Mode)
	ch.Rungs = c.rungs(at(p, "targets"), f.Targets)
	ch.API = dialect(ch.Rungs)
	c.oneDialect(at(p, "targets"), ch)
	c.oneFamily(at(p, "targets"), ch, f.Targets)
	ch.Matches = c.matches(p, ch.API, f)
	c.policy(p, f)
	c.degrade(p, f, ch)
	c.deadlines(p, ch)
	return ch
}

// rungs has a rung without a target where the file names one that is not there.
func (c *compiler) rungs(p string, f []fileRung) []Rung {
	if len(f) == 0 && !c.wrong[p] {
		c.fault(p, "needs at least one target")
	}
	rungs := make([]Rung, len(f))
	for i, r := range f {
		p := index(p, i)
		if c.wrong[p] {
			continue
		}
		if long := at(p, "target"); r.Target == "" || c.has(long) {
			p = long
		}
		if !c.required(p, r.Target) {
			continue
		}
		rungs[i] = Rung{Target: c.out.Targets[r.Target], Larger: r.Larger}
		rungs[i].Members = []Member{{rungs[i].Target, 1}}
		if rungs[i].Target == nil {
			c.fault(p, "no target is named %.80q%s", r.Target, didYouMean(r.Target, c.keys["targets"]))
		} else if j := slices.IndexFunc(f, func(o fileRung) bool { return o.Target == r.Target }); j < i {
			c.fault(p, "%s is rung %d already: a chain tries a target once", r.Target, j)
		}
	}
	if len(f) > 0 && f[0].Larger {
		c.fault(at(index(p, 0), "larger"), "no rung comes before this one: remove it")
	}
	return rungs
}

// dialect is that of the first rung that has one, or "".
func dialect(rungs []Rung) API {
	for _, r := range rungs {
		if api := r.api(); api != "" {
			return api
		}
	}
	return ""
}

func (r Rung) api() API {
	if r.Target == nil || r.Target.Provider == nil {
		return ""
	}
	return r.Target.Provider.API
}

func (c *compiler) oneDialect(p string, ch *Chain) {
	for i, r := range ch.Rungs {
		if api := r.api(); api != "" && api != ch.API {
			c.fault(index(p, i), "%s speaks %s, but the chain speaks %s: nothing is translated, so keep to one",
				r.Target.Name, api, ch.API)
		}
	}
}

func (c *compiler) oneFamily(p string, ch *Chain, f []fileRung) {
	if len(ch.Rungs) == 0 || ch.Rungs[0].Target == nil {
		return
	}
	first := ch.Rungs[0].Target.Family
	for i, r := range ch.Rungs {
		if r.Target == nil || r.Target.Family == first || f[i].Validated || first == "" || r.Target.Family == "" {
			continue
		}
		c.fault(index(p, i), "%s is of another model family (%s) than rung 0 (%s): "+
			"write {target: %s, validated: true} if its answers were checked",
			r.Target.Name, r.Target.Family, first, r.Target.Name)
	}
}

func (c *compiler) matches(p string, api API, f *fileChain) []Match {
	sel, list := at(p, "select"), at(p, "match")
	if c.has(sel) {
		c.oneOf(sel, f.Select, []string{"header"}, nil)
	}
	if len(f.Match) == 0 && !c.has(sel) && !c.wrong[list] {
		c.fault(p, "no request can reach it: add match rules, or select: header")
	}
	var out []Match
	for i, m := range f.Match {
		p := index(list, i)
		if c.has(at(p, "model")) && !c.wrong[at(p, "model")] {
			c.required(at(p, "model"), m.Model)
		}
		if c.matchPath(at(p, "path"), m.Path, api) {
			out = append(out, Match(m))
		}
	}
	return out
}

func (c *compiler) matchPath(p, got string, api API) bool {
	if !c.plainPath(p, got) {
		return false
	}
	if api == "" || api.Has(got) {
		return true
	}
	c.fault(p, "not supported yet: the paths of %s end in %s", api, either(api.Paths()))
	return false
}

// plainPath checks a path that is compared byte by byte.
func (c *compiler) plainPath(p, got string) bool {
	if !c.required(p, got) {
		return false
	}
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`?#*%\`, r) }
	if !path.IsAbs(got) || path.Clean(got) != got || strings.ContainsFunc(got, odd) {
		c.fault(p, "expected a plain path such as /v1/messages: no query, wildcard, escape or final slash")
		return false
	}
	return true
}

func (c *compiler) policy(p string, f *fileChain) {
	on := at(p, "on")
	c.oneOf(at(p, "commit"), f.Commit, []string{"headers", "first_content", "complete"}, nil)
	c.oneOf(at(on, "capacity"), f.On.Capacity, []string{"standard", "next"}, nil)
	c.oneOf(at(on, "rate_limited"), f.On.RateLimited, []string{"next", "wait", "return", "queue"}, nil)
	c.oneOf(at(on, "refusal"), f.On.Refusal, []string{"next", "return"}, nil)
	c.oneOf(at(on, "filtered"), f.On.Filtered, []string{"next", "return"}, nil)
	c.oneOf(at(on, "tier_downgrade"), f.On.TierDowngrade, []string{"observe", "next"}, nil)
	c.oneOf(at(on, "context_length"), f.On.ContextLength, []string{"next", "return", "larger"}, nil)
	if f.On.MaxWait > maxWait {
		c.fault(at(on, "max_wait"), "must be at most %s, as Envoy waits 15s for the service, got %s", maxWait, f.On.MaxWait)
	}
	if f.Hold.Bytes > maxHold {
		c.fault(at(at(p, "hold"), "bytes"), "must be at most 64MiB for each attempt")
	}
	c.retry(at(p, "retry"), &f.Retry)
}

func (c *compiler) retry(p string, f *fileRetry) {
	if f.SameTarget < 0 || f.SameTarget > 1 {
		c.fault(at(p, "same_target"), "must be 0 or 1, got %d", f.SameTarget)
	}
	if len(f.On) == 0 && !c.wrong[at(p, "on")] {
		c.fault(at(p, "on"), "is empty: name the classes to retry, or remove it")
	}
	c.share(at(p, "budget"), f.Budget)
	c.distinct(at(p, "on"), f.On)
	for i, class := range f.On {
		if class != "" {
			c.oneOf(index(at(p, "on"), i), class, blips(), nil)
		}
	}
}

func (c *compiler) minRate(p string, f *fileMinRate) MinRate {
	if !c.has(p) || c.wrong[p] {
		return MinRate{}
	}
	if rate := at(p, "bytes_per_second"); !c.has(rate) {
		c.fault(rate, "required, but missing")
	}
	return MinRate{BytesPerSecond: int64(f.BytesPerSecond), Window: f.Window}
}

// deadlines refuses one that the total always beats, where the file sets both.
func (c *compiler) deadlines(p string, ch *Chain) {
	list, d := at(p, "deadlines"), ch.Deadlines
	if !c.has(at(list, "total")) {
		return
	}
	for _, one := range []struct {
		path string
		d    time.Duration
	}{
		{at(list, "first_content"), d.FirstContent},
		{at(list, "answer"), d.Answer},
		{at(list, "idle"), d.Idle},
		{at(at(p, "min_rate"), "window"), ch.MinRate.Window},
	} {
		if c.has(one.path) && one.d > d.Total {
			c.fault(one.path, "%s never comes, as total is %s: shorten it or lengthen total", one.d, d.Total)
		}
	}
}
