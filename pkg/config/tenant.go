package config

import (
	"slices"
	"strings"
)

// tenant comes after the providers, whose credentials it may not be told by, and before the chains, which ask for it.
func (c *compiler) tenant() {
	f, said := &c.f.Tenant, ""
	metadata, header := c.has("tenant.metadata"), c.has("tenant.header")
	if c.has("tenant") {
		said = "tenant"
	}
	switch {
	case said == "" || c.wrong["tenant"]:
	case metadata == header:
		c.fault("tenant", "needs exactly one of: metadata; header and trusted_header")
	case header:
		if c.required("tenant.header", f.Header) {
			c.out.Tenant.Header = c.tenantHeader("tenant.header", f.Header, "tenant.trusted_header", f.TrustedHeader)
		}
	default:
		c.untrusted("tenant.trusted_header", "header")
		if c.required("tenant.metadata", f.Metadata) {
			c.out.Tenant.Metadata = c.tenantMetadata("tenant.metadata", f.Metadata)
		}
	}
	if c.wrong["tenant.header"] || c.wrong["tenant.metadata"] {
		c.out.Tenant = Tenant{}
	}
	c.budgetTenants(said)
}

// budgetTenants lets budgets say it in place of tenant, as long as all say the same. said is where it is said already.
func (c *compiler) budgetTenants(said string) {
	for _, name := range c.keys["chains"] {
		p := at(at("chains", name), "budget")
		t, per := c.budgetTenant(p, &c.f.Chains[name].Budget), at(p, "per")
		switch {
		case !t.told():
		case said == "":
			c.out.Tenant, said = t, per
		case c.out.Tenant.told() && !t.same(c.out.Tenant) && !c.wrong[per]:
			c.fault(per, "tells tenants by something else than %s: a file has one source of them", said)
		}
	}
}

// budgetTenant is the source of tenants that the budget at p names itself.
func (c *compiler) budgetTenant(p string, f *fileBudget) (t Tenant) {
	per, trusted := at(p, "per"), at(p, "trusted_header")
	kind, source, named := strings.Cut(f.Per, ":")
	if kind != "header" && !c.wrong[per] {
		c.untrusted(trusted, "per: header:NAME")
	}
	switch {
	case c.wrong[per], f.Per == "chain", f.Per == "tenant":
	case kind == "metadata" && named:
		t.Metadata = c.tenantMetadata(per, source)
	case kind == "header" && named:
		t.Header = c.tenantHeader(per, source, trusted, f.TrustedHeader)
	default:
		c.fault(per, "expected chain, tenant, metadata:NAMESPACE:KEY or header:NAME, got %.80q", f.Per)
	}
	return t
}

func (t Tenant) told() bool { return t.Header != "" || len(t.Metadata) > 0 }

func (t Tenant) same(other Tenant) bool {
	return t.Header == other.Header && slices.Equal(t.Metadata, other.Metadata)
}

// tenantsTold reports whether anything keeps tenants apart, rightly or wrongly.
func (c *compiler) tenantsTold() bool { return c.has("tenant") || c.out.Tenant.told() }

func (c *compiler) untrusted(p, without string) {
	if c.has(p) && !c.wrong[p] {
		c.fault(p, "says nothing without %s: remove it", without)
	}
}

func (c *compiler) tenantMetadata(p, s string) []string {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || slices.Contains(parts, "") {
		c.fault(p, "expected NAMESPACE:KEY[:KEY…], such as envoy.filters.http.jwt_authn:claims:org")
	}
	return parts
}

// tenantHeader is the name at p in lower case; trusted is where the file vouches for it.
func (c *compiler) tenantHeader(p, name, trusted string, vouched bool) string {
	name = strings.ToLower(name)
	switch {
	case !headerName.MatchString(name):
		c.fault(p, "is no header name")
	case reservedHeader(name), slices.Contains(c.credentialHeaders(), name):
		c.fault(p, "%s names no tenant: it is a credential, or belongs to the connection, to Envoy or to this service", name)
	case !vouched && !c.wrong[trusted]:
		c.fault(p, "a client can send any %s, and would be given the answers of another tenant: say trusted_header: true "+
			"if what stands before Envoy always sets or removes it", name)
	}
	return name
}

// credentialHeaders are those that providers, and clients of theirs, send secrets in.
func (c *compiler) credentialHeaders() []string {
	names := []string{"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"}
	for _, f := range c.f.Providers {
		names = append(names, strings.ToLower(f.Auth.Header))
	}
	return names
}

// reservedHeader reports whether a header belongs to the connection (RFC 9110, 7.6.1), to the framing of the message, to
// Envoy, or to this service.
func reservedHeader(name string) bool {
	taken := []string{
		"host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "content-type",
	}
	return slices.Contains(taken, name) || strings.HasPrefix(name, "x-llm-") || strings.HasPrefix(name, "x-envoy-")
}
