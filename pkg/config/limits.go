package config

import (
	"maps"
	"regexp"
	"slices"
)

var tierForm = regexp.MustCompile(`^[a-z][a-z_-]*$`)

// tierName is open, as providers add tiers.
func tierName(s string) bool { return len(s) <= 32 && tierForm.MatchString(s) }

// tiers reads what a target asks for by itself, and refuses it where the platform has nothing of the kind.
func (c *compiler) tiers(path string, f *fileTarget, t *Target) {
	t.Tier, t.Speed = f.ServiceTier, f.Speed
	tier, speed := at(path, "service_tier"), at(path, "speed")
	if c.has(tier) && c.required(tier, f.ServiceTier) && !tierName(f.ServiceTier) {
		c.fault(tier, "expected a word such as flex, got %.40q", f.ServiceTier)
	}
	if c.has(speed) {
		c.oneOf(speed, f.Speed, "standard", "fast")
	}
	if p := t.Provider; p != nil && p.API != "" {
		c.knows(tier, p.hasTiers(), "service tiers", p)
		c.knows(speed, p.hasSpeeds(), "speeds", p)
	}
}

func (c *compiler) knows(path string, has bool, what string, p *Provider) {
	if c.has(path) && !c.wrong[path] && !has {
		c.fault(path, "says nothing: %s on platform %s has no %s", p.API, p.Platform, what)
	}
}

// hasTiers: Anthropic's own API (service_tier) and Bedrock's runtime (X-Amzn-Bedrock-Service-Tier, bedrockruntime/schemas)
// have them; Vertex, Foundry and Bedrock's mantle name none for Claude.
func (p *Provider) hasTiers() bool {
	return p.API != Anthropic || p.Platform == Native || p.Platform == Bedrock && p.Surface != Mantle
}

// hasSpeeds: "Claude API and Google Cloud"; Foundry has models of their own for it.
// https://platform.claude.com/docs/en/build-with-claude/fast-mode
func (p *Provider) hasSpeeds() bool {
	return p.API == Anthropic && (p.Platform == Native || p.Platform == Vertex)
}

// Needs are what a request can need of a model, and so what a model can lack (limits.lacks).
func Needs() []string {
	return []string{
		"tools", "images", "documents", "audio", "video", "thinking", "structured_outputs",
		"web_search", "web_fetch", "code_execution", "file_search", "image_generation", "maps", "mcp", "advisor",
		"computer_use", "browser_use", "shell", "tool_search",
	}
}

var (
	fieldForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	betaForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

func fieldName(s string) bool { return len(s) <= 64 && fieldForm.MatchString(s) }
func betaName(s string) bool  { return len(s) <= 128 && betaForm.MatchString(s) }

func (c *compiler) limits(p string, f *fileLimits, of *Provider) Limits {
	if f.MaxOutput < 0 {
		c.fault(at(p, "max_output"), "must be 0 (no cap) or more, got %d", f.MaxOutput)
	}
	c.dropped(at(p, "drop"), f.Drop)
	c.betas(at(p, "betas"), f.Betas, of)
	lacks := at(p, "lacks")
	c.distinct(lacks, f.Lacks)
	for i, word := range f.Lacks {
		if word != "" {
			c.oneOf(index(lacks, i), word, Needs()...)
		}
	}
	return Limits(*f)
}

// dropped refuses fields without which there is no request.
func (c *compiler) dropped(p string, f []string) {
	c.distinct(p, f)
	for i, field := range f {
		switch p := index(p, i); {
		case c.wrong[p]:
		case !fieldName(field):
			c.fault(p, "expected a field of the request's body such as temperature, got %.40q", field)
		case slices.Contains([]string{"model", "messages", "input", "contents", "stream"}, field):
			c.fault(p, "%s cannot be left out of a request", field)
		}
	}
}

func (c *compiler) betas(p string, f map[string]string, of *Provider) {
	if of != nil && of.API != "" && of.API != Anthropic && c.has(p) {
		c.fault(p, "says nothing: anthropic-beta is a header of anthropic, not of %s", of.API)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		other := f[name]
		switch here := at(p, name); {
		case c.wrong[here]:
		case !betaName(name), other != "" && !betaName(other):
			c.fault(here, "expected values of anthropic-beta, such as context-1m-2025-08-07, or \"\" to leave it out")
		case name == other:
			c.fault(here, "says nothing: it is mapped to itself")
		}
	}
}
