package config

import (
	"regexp"
	"strings"
)

func (c *compiler) providers() {
	c.out.Providers = map[string]*Provider{}
	users := map[string]string{"hop": "the hop itself", "understudy": "this service"} // of Envoy's clusters
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
		c.oneOf(at(path, "api"), f.API, []string{"anthropic", "openai"}, []string{"gemini"})
	}
	if p.API.Paths() == nil {
		p.API = ""
	}
	if p.Cluster == "" {
		p.Cluster = "llm-" + name
	} else {
		c.name(at(path, "cluster"), p.Cluster)
	}
	c.oneOf(at(path, "rate_limits"), f.RateLimits, []string{"account", "model"}, nil)
	c.oneOf(at(path, "platform"), f.Platform, []string{"native"}, []string{"bedrock", "vertex", "azure", "foundry"})
	if f.Platform == "native" { // others have ends and credentials of their own kind
		c.endpoint(path, f, p)
		p.Auth = c.auth(at(path, "auth"), &f.Auth)
	}
	return p
}

func (c *compiler) endpoint(path string, f *fileProvider, p *Provider) {
	here := at(path, "endpoint")
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

func (c *compiler) auth(path string, f *fileAuth) Auth {
	key := func(k string) string { return at(path, k) }
	if c.has(key("aws")) || c.has(key("gcp")) || c.wrong[path] {
		return Auth{}
	}
	header, bearer, from := c.has(key("header")) || c.has(key("secret")), c.has(key("bearer")), c.has(key("from"))
	switch {
	case header && !bearer && !from:
		return c.headerAuth(key, f)
	case bearer && !header && !from:
		return Auth{Header: "authorization", Prefix: "Bearer ", Secret: c.secret(key("bearer"), f.Bearer)}
	case from && !header && !bearer:
		if f.From != "client" && !c.wrong[key("from")] { // not repeated: it may be a credential in the wrong place
			c.fault(key("from"), "expected client")
		}
		return Auth{FromClient: true}
	}
	c.fault(path, "needs exactly one of: header and secret; bearer; from: client")
	return Auth{}
}

var headerName = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]+$") // RFC 9110, 5.6.2: token

func (c *compiler) headerAuth(key func(string) string, f *fileAuth) Auth {
	name := strings.ToLower(f.Header)
	switch {
	case !c.required(key("header"), name):
	case !headerName.MatchString(name):
		c.fault(key("header"), "is no header name")
	case reservedHeader(name):
		c.fault(key("header"), "%s carries no credential: name the provider's header, such as x-api-key", name)
	}
	return Auth{Header: name, Secret: c.secret(key("secret"), f.Secret)}
}

// secret never repeats what it refuses: it may be the secret itself.
func (c *compiler) secret(path, ref string) Secret {
	if c.wrong[path] || !c.required(path, ref) {
		return Secret{}
	}
	if s, ok := c.secrets[ref]; ok {
		return s
	}
	s, err := ReadSecret(ref)
	if err != nil {
		c.fault(path, "%s", err)
		return Secret{}
	}
	c.secrets[ref] = s
	return s
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
