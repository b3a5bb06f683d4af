package config

import (
	"regexp"
	"slices"
)

// platform is what a platform serves, and what a provider says of its place there.
type platform struct {
	apis  []API
	needs []string // keys that must be there
	takes []string // keys that may be there; endpoint always may
}

func platformOf(p Platform) platform {
	switch p {
	case Native:
		return platform{apis: []API{Anthropic, OpenAI, Gemini}}
	case Bedrock:
		return platform{apis: []API{Anthropic}, needs: []string{"region"}, takes: []string{"surface"}}
	case Vertex:
		return platform{apis: []API{Anthropic, Gemini}, needs: []string{"region", "project"}}
	case Azure:
		return platform{apis: []API{OpenAI}, takes: []string{"api_version"}}
	case Foundry:
		return platform{apis: []API{Anthropic}}
	}
	return platform{}
}

// Names of a place go into hosts and paths.
var (
	regionName  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	projectName = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]*$`) // an id, a number, or an id within a domain
	versionDate = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}(-preview)?$`)
)

// place reads what is the platform's business and reports whether the platform is one.
func (c *compiler) place(path string, f *fileProvider, p *Provider) bool {
	here := at(path, "platform")
	c.oneOf(here, f.Platform, "native", "bedrock", "vertex", "azure", "foundry")
	p.Platform = Platform(f.Platform)
	rule := platformOf(p.Platform)
	if rule.apis == nil || c.wrong[here] {
		return false
	}
	if p.API != "" && !slices.Contains(rule.apis, p.API) {
		c.fault(here, "%s serves %s here, not %s", p.Platform, either(rule.apis), p.API)
	}
	p.Region = c.placed(at(path, "region"), f.Region, rule.use("region"), regionName, "us-east-1")
	p.Project = c.placed(at(path, "project"), f.Project, rule.use("project"), projectName, "acme-prod")
	p.APIVersion = c.placed(at(path, "api_version"), f.APIVersion, rule.use("api_version"), versionDate, "2024-10-21")
	if p.Platform == Bedrock && p.Region == "global" {
		c.fault(at(path, "region"), "is none of Bedrock's: name one, and a model such as global.anthropic.claude-opus-5")
	}
	c.surface(at(path, "surface"), f.Surface, rule.use("surface"), p)
	return true
}

// use is what a key is to a platform.
type use int

const (
	useless use = iota
	optional
	needed
)

func (r platform) use(key string) use {
	switch {
	case slices.Contains(r.needs, key):
		return needed
	case slices.Contains(r.takes, key):
		return optional
	}
	return useless
}

// placed is the value of a key that a platform may need, "" after a fault.
func (c *compiler) placed(p, got string, u use, form *regexp.Regexp, example string) string {
	switch {
	case !c.useful(p, u), u == optional && !c.has(p), !c.required(p, got):
	case !form.MatchString(got) || len(got) > 63:
		c.fault(p, "expected something such as %s, got %.40q", example, got)
	default:
		return got
	}
	return ""
}

// useful refuses a key that is there but says nothing.
func (c *compiler) useful(p string, u use) bool {
	if u == useless && c.has(p) {
		c.fault(p, "says nothing on this platform: remove it")
	}
	return u != useless && !c.wrong[p]
}

func (c *compiler) surface(path, got string, u use, p *Provider) {
	if c.useful(path, u) {
		c.oneOf(path, got, "invoke", "messages", "mantle")
		p.Surface = Surface(got)
	}
}

// ownHost is the platform's own, "" where each account has its own or the API is served by many.
//
// Hosts are those of the official SDKs: anthropic-sdk-go/{bedrock/bedrock,bedrock/bedrockmantle,vertex/vertex}.go and
// genai/api_client.go.
func (p *Provider) ownHost() string {
	switch {
	case p.Platform == Bedrock && p.Surface == Mantle:
		return "bedrock-mantle." + p.Region + ".api.aws"
	case p.Platform == Bedrock:
		return "bedrock-runtime." + p.Region + ".amazonaws.com"
	case p.Platform == Vertex:
		return vertexHost(p.Region)
	case p.Platform == Native && p.API == Gemini:
		return "generativelanguage.googleapis.com"
	}
	return ""
}

func vertexHost(location string) string {
	switch location {
	case "global":
		return "aiplatform.googleapis.com"
	case "us", "eu":
		return "aiplatform." + location + ".rep.googleapis.com"
	}
	return location + "-aiplatform.googleapis.com"
}
