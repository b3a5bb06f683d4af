package config

import (
	"slices"
	"strings"
)

// tenant comes after the providers, whose credentials it may not be told by.
func (c *compiler) tenant() {
	f := &c.f.Tenant
	metadata, header := c.has("tenant.metadata"), c.has("tenant.header")
	switch {
	case !c.has("tenant") || c.wrong["tenant"]:
	case metadata == header:
		c.fault("tenant", "needs exactly one of: metadata; header and trusted_header")
	case header:
		c.out.Tenant.Header = c.tenantHeader("tenant.header", strings.ToLower(f.Header))
	default:
		c.out.Tenant.Metadata = c.tenantMetadata("tenant.metadata", f.Metadata)
	}
}

func (c *compiler) tenantMetadata(p, s string) []string {
	if c.wrong[p] || !c.required(p, s) {
		return nil
	}
	if c.has("tenant.trusted_header") {
		c.fault("tenant.trusted_header", "says nothing without header: remove it")
	}
	parts := strings.Split(s, ":")
	if len(parts) < 2 || slices.Contains(parts, "") {
		c.fault(p, "expected NAMESPACE:KEY[:KEY…], such as envoy.filters.http.jwt_authn:claims:org")
	}
	return parts
}

func (c *compiler) tenantHeader(p, name string) string {
	switch {
	case c.wrong[p] || !c.required(p, name):
	case !headerName.MatchString(name):
		c.fault(p, "is no header name")
	case reservedHeader(name), slices.Contains(c.credentialHeaders(), name):
		c.fault(p, "%s names no tenant: it is a credential, or belongs to the connection, to Envoy or to this service", name)
	case !c.f.Tenant.TrustedHeader && !c.wrong["tenant.trusted_header"]:
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
