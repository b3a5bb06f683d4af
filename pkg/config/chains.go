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
	// maxSticky is how long the replicas remember whom a conversation is with.
	maxSticky = 24 * time.Hour
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
	ch.API = ch.dialect()
	c.observable(p, ch)
	c.oneDialect(at(p, "targets"), ch)
	c.matches(p, ch, f)
	c.oneFamily(at(p, "targets"), ch, f.Targets)
	c.policy(p, f)
	c.degrade(p, f, ch)
	ch.Budget = c.budget(at(p, "budget"), &f.Budget, ch)
	ch.Idempotency = c.idempotency(at(p, "idempotency"), &f.Idempotency)
	c.priced(at(p, "targets"), ch)
	c.ownAccounts(p, ch)
	ch.Sticky = c.sticky(at(p, "sticky"), &f.Sticky)
	c.unread(p, f, ch)
	c.deadlines(p, ch)
	return ch
}

func (c *compiler) matches(p string, ch *Chain, f *fileChain) {
	sel, list := at(p, "select"), at(p, "match")
	if c.has(sel) {
		c.oneOf(sel, f.Select, "header")
	}
	if len(f.Match) == 0 && !c.has(sel) && !c.wrong[list] {
		c.fault(p, "no request can reach it: add match rules, or select: header")
	}
	for i, m := range f.Match {
		p := index(list, i)
		if c.has(at(p, "model")) && !c.wrong[at(p, "model")] {
			c.required(at(p, "model"), m.Model)
		}
		if c.matchPath(at(p, "path"), m.Path, ch) {
			ch.Matches = append(ch.Matches, Match(m))
		}
	}
}

// matchPath refuses a path that is not one of ch's dialect and, after its first rule, of its endpoint.
func (c *compiler) matchPath(p, got string, ch *Chain) bool {
	if !c.plainPath(p, got) {
		return false
	}
	endpoint, ok := ch.API.endpoint(got)
	switch {
	case ch.API == "":
	case !ok:
		c.fault(p, "not supported yet: the paths of %s end in %s", ch.API, either(ch.API.ends()))
		return false
	case len(ch.Matches) == 0:
		ch.Endpoint = endpoint
	case endpoint != ch.Endpoint:
		c.fault(p, "is of another kind than %s: a chain serves model calls, or one other endpoint", ch.Matches[0].Path)
		return false
	}
	return true
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
	c.oneOf(at(p, "commit"), f.Commit, "headers", "first_content", "complete")
	c.oneOf(at(on, "capacity"), f.On.Capacity, "standard", "next")
	c.oneOf(at(on, "rate_limited"), f.On.RateLimited, "next", "wait", "return", "queue")
	c.oneOf(at(on, "refusal"), f.On.Refusal, "next", "return")
	c.oneOf(at(on, "filtered"), f.On.Filtered, "next", "return")
	c.oneOf(at(on, "tier_downgrade"), f.On.TierDowngrade, "observe", "next")
	c.oneOf(at(on, "context_length"), f.On.ContextLength, "next", "return", "larger")
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
	if f.Client < 0 {
		c.fault(at(p, "client"), "must be 0 (no retry of a client's is refused) or more, got %d", f.Client)
	}
	c.distinct(at(p, "on"), f.On)
	for i, class := range f.On {
		if class != "" {
			c.oneOf(index(at(p, "on"), i), class, blips()...)
		}
	}
}

func (c *compiler) minRate(p string, f *fileMinRate) MinRate {
	if !c.has(p) || c.wrong[p] {
		return MinRate{}
	}
	c.present(at(p, "bytes_per_second"))
	return MinRate{BytesPerSecond: int64(f.BytesPerSecond), Window: f.Window}
}

// unread refuses what would need the answers of an endpoint that are not read.
func (c *compiler) unread(p string, f *fileChain, ch *Chain) {
	if ch.Endpoint == "" {
		return
	}
	for _, key := range []string{
		at(p, "commit"), at(p, "hold"), at(p, "min_rate"), at(at(p, "deadlines"), "first_content"),
		at(at(p, "on"), "refusal"), at(at(p, "on"), "tier_downgrade"), at(p, "budget"), at(p, "idempotency"),
	} {
		if c.has(key) {
			c.fault(key, "says nothing for %s, whose answers are judged by their status alone: remove it", ch.Endpoint)
		}
	}
	for i, mode := range f.Degrade {
		if here := index(at(p, "degrade"), i); mode != "off" && !c.wrong[here] {
			c.fault(here, "%s is for model calls: %s has off", mode, ch.Endpoint)
		}
	}
	if ch.Off.Answer {
		c.fault(at(at(p, "off"), "as"), "%s has no answer with a sentence in it: use error", ch.Endpoint)
	}
	for _, t := range ch.targets() {
		c.probeModel(at("targets", t.Name), t, ch)
	}
}

// probeModel wants a model that talks: a probe is a model call.
func (c *compiler) probeModel(p string, t *Target, ch *Chain) {
	here := at(at(p, "breaker"), "half_open")
	if t.Breaker.Probe && !c.has(at(at(p, "probe"), "model")) && !c.wrong[here] {
		c.fault(here, "a probe is a model call, which %s of chain %s is not: name a model for it in probe.model", ch.Endpoint, ch.Name)
	}
}

func (c *compiler) sticky(p string, f *fileSticky) Sticky {
	if !c.has(p) || c.wrong[p] {
		return Sticky{}
	}
	name, header := strings.ToLower(f.Header), at(p, "header")
	c.present(at(p, "for"))
	if f.For > maxSticky {
		c.fault(at(p, "for"), "must be at most %s, as long as conversations are remembered, got %s", maxSticky, f.For)
	}
	switch {
	case !c.required(header, name):
	case !headerName.MatchString(name):
		c.fault(header, "is no header name")
	case reservedHeader(name), slices.Contains(c.credentialHeaders(), name):
		c.fault(header, "%s names no conversation: it is a credential, or belongs to the connection, to Envoy or to this service", name)
	}
	return Sticky{For: f.For, Header: name}
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

// observable refuses to only watch a primary that requests do not reach as they came.
func (c *compiler) observable(p string, ch *Chain) {
	if !ch.Observe || len(ch.Rungs) == 0 || ch.Rungs[0].Target == nil || ch.Rungs[0].Target.Provider == nil {
		return
	}
	if platform := ch.Rungs[0].Target.Provider.Platform; platform != Native && platform != "" {
		c.fault(p, "mode: observe sends requests as they came, which platform %s does not take: put a native provider first, or enforce", platform)
	}
}
