package config

import (
	"net/url"
	"strings"
)

func (c *compiler) providers() {
	c.out.Providers = map[string]*Provider{}
	users := map[string]string{"hop": "the hop itself", "understudy": "this service", DrillCluster: "drills", CollectorCluster: "tracing"} // of Envoy's clusters
	for _, name := range c.keys["providers"] {
		path := at("providers", name)
		c.name(path, name)
		p := c.provider(path, name)
		if user, ok := users[p.Cluster]; ok {
			c.fault(at(path, "cluster"), "%s is taken by %s: choose another", p.Cluster, user)
		}
		users[p.Cluster] = path
		c.out.Providers[name] = p
	}
}

func (c *compiler) provider(path, name string) *Provider {
	f := c.f.Providers[name]
	p := &Provider{
		Name: name, API: API(f.API), TierCheck: f.TierCheck, Cluster: f.Cluster, CA: f.CA,
		SharedLimits: f.RateLimits == "account",
		StatusFeed:   c.statusFeed(at(path, "status_feed"), &f.StatusFeed),
	}
	if c.required(at(path, "api"), f.API) {
		c.oneOf(at(path, "api"), f.API, "anthropic", "openai", "gemini")
	}
	if p.API.Paths() == nil {
		p.API = ""
	}
	if p.Cluster == "" {
		p.Cluster = "llm-" + name
	} else {
		c.name(at(path, "cluster"), p.Cluster)
	}
	c.oneOf(at(path, "rate_limits"), f.RateLimits, "account", "model")
	if c.place(path, f, p) { // an unknown platform has endpoints and credentials of its own kind
		c.endpoint(path, f, p)
		p.Auth = c.auth(at(path, "auth"), &f.Auth, p.Platform)
		p.Shape = c.shape(at(path, "shape"), &f.Shape, p)
	}
	return p
}

func (c *compiler) endpoint(path string, f *fileProvider, p *Provider) {
	here := at(path, "endpoint")
	if host := p.ownHost(); host != "" && !c.has(here) {
		p.Endpoint = &url.URL{Scheme: "https", Host: host}
		return
	}
	p.Endpoint = c.baseURL(here, f.Endpoint)
	switch u := p.Endpoint; {
	case u == nil:
	case strings.HasSuffix(u.Path, "/v1"):
		c.fault(here, "ends in /v1, which the path of a request begins with: remove it")
	case u.Scheme == "http" && p.CA != "":
		c.fault(at(path, "ca"), "says nothing for a plain http endpoint: remove it")
	case u.Scheme == "http" && !localHost(u.Hostname()) && !f.Insecure:
		c.fault(here, "plain http would send the credential in clear text over the network: "+
			"use https, or insist with insecure: true")
	}
}

// shape refuses to shape what no header tells the limits of.
func (c *compiler) shape(p string, f *fileShape, of *Provider) Shape {
	switch wait := at(p, "max_wait"); {
	case !c.has(p) || c.wrong[p]:
		return Shape{}
	case of.Auth.FromClient:
		c.fault(p, "the accounts are the clients' own (auth.from: client), each with limits of its own: remove it")
	case of.API != "" && !of.tellsLimits():
		c.fault(p, "says nothing: %s on platform %s tells no rate limits before they are met", of.API, of.Platform)
	case f.MaxWait > maxWait:
		c.fault(wait, "must be at most %s, as Envoy waits 15s for the service, got %s", maxWait, f.MaxWait)
	}
	return Shape{On: true, MaxWait: f.MaxWait}
}

// tellsLimits: Anthropic's own API sends anthropic-ratelimit-*, OpenAI, Azure and compatible servers x-ratelimit-*
// (wire-formats 1e, 5e and 7). Gemini, Bedrock and Vertex name no such header, and "Foundry does not include Anthropic's
// standard rate limit headers".
// https://platform.claude.com/docs/en/build-with-claude/claude-in-microsoft-foundry
func (p *Provider) tellsLimits() bool {
	return p.API == OpenAI || p.API == Anthropic && p.Platform == Native
}

// statusFeed is nil when there is none, and after a fault.
func (c *compiler) statusFeed(p string, f *fileFeed) *StatusFeed {
	if !c.has(p) || c.wrong[p] {
		return nil
	}
	if part := at(p, "component"); c.has(part) {
		c.required(part, f.Component)
	}
	kind, address := "statuspage", f.Statuspage
	if c.has(at(p, "incidentio")) {
		kind, address = "incidentio", f.IncidentIO
	}
	if c.has(at(p, "statuspage")) == c.has(at(p, "incidentio")) {
		c.fault(p, "needs exactly one of: statuspage; incidentio")
		return nil
	}
	here := at(p, kind)
	u := c.plainURL(here, address, web("https://status.example.com/api/v2/summary.json"))
	switch {
	case u == nil:
		return nil
	case u.Path == "" || u.Path == "/":
		c.fault(here, "needs the path of the page's JSON, such as /api/v2/summary.json")
	}
	return &StatusFeed{Kind: kind, URL: u, Component: f.Component}
}

// lookupProvider is nil after a fault.
func (c *compiler) lookupProvider(path, name string) *Provider {
	if !c.required(path, name) {
		return nil
	}
	p, ok := c.out.Providers[name]
	if !ok {
		c.fault(path, "no provider is named %.80q%s", name, didYouMean(name, c.keys["providers"]))
	}
	return p
}
