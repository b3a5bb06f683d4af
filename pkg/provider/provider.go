// Package provider rewrites a client's request for one target: host, path, model, credential.
//
// It always starts from the client's original request, so nothing of an earlier attempt can reach a provider.
package provider

import (
	"net/url"
	"slices"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Header is one header to set; Name is lower case.
type Header struct{ Name, Value string }

// Rewrite is what to change in a request on its way to a target.
type Rewrite struct {
	Authority string
	Path      string // with the query
	Set       []Header
	Remove    []string
	Body      []byte // nil: unchanged
}

// Credentials are the headers in which clients authenticate to one of the dialects, or name their own account
// there; they go to a provider only where the config says `auth: {from: client}`.
func Credentials() []string {
	return []string{
		"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "proxy-authorization", "cookie",
		"openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id",
	}
}

// queryCredentials are the query parameters that do the same.
var queryCredentials = []string{"key", "api-key", "api_key", "subscription-key", "access_token"}

// endpoints are the standard paths of the endpoints that can be protected.
var endpoints = []struct {
	path string
	api  classify.API
}{
	{"/v1/messages", classify.AnthropicMessages},
	{"/v1/chat/completions", classify.OpenAIChat},
	{"/v1/responses", classify.OpenAIResponses},
}

// Endpoint tells which endpoint a request path names, and its standard path; a prefix before it is the client's.
func Endpoint(path string) (api classify.API, standard string) {
	for _, e := range endpoints {
		if strings.HasSuffix(path, e.path) {
			return e.api, e.path
		}
	}
	return classify.APIUnknown, ""
}

// ForTarget rewrites a request for a protected path. The answer is asked for unencoded, since it has to be read.
// The error names a secret that is absent.
func ForTarget(t *config.Target, pathAndQuery string, q Request) (Rewrite, error) {
	path, query, _ := strings.Cut(pathAndQuery, "?")
	_, standard := Endpoint(path)
	rw, err := base(t.Provider, standard, query)
	if err != nil {
		return Rewrite{}, err
	}
	rw.Set = append(rw.Set, Header{"accept-encoding", "identity"})
	if body, changed := q.withModel(t.Model); changed {
		rw.Body = body
		rw.Remove = append(rw.Remove, "content-encoding")
	}
	return rw, nil
}

// ForPassthrough rewrites a request for a path that no chain protects: host and credential only.
func ForPassthrough(p *config.Provider, pathAndQuery string) (Rewrite, error) {
	path, query, _ := strings.Cut(pathAndQuery, "?")
	return base(p, path, query)
}

func base(p *config.Provider, path, query string) (Rewrite, error) {
	rw := Rewrite{Authority: p.Endpoint.Host, Path: p.Endpoint.EscapedPath() + path}
	if p.Auth.FromClient {
		rw.Path += withMark(query)
		return rw, nil
	}
	secret, err := p.Auth.Secret.Value()
	if err != nil {
		return Rewrite{}, err
	}
	rw.Path += withMark(withoutCredentials(query))
	rw.Remove = Credentials()
	rw.Set = []Header{{p.Auth.Header, p.Auth.Prefix + secret}}
	return rw, nil
}

// Anonymous is a path and query without what carries a credential in the query.
func Anonymous(pathAndQuery string) string {
	path, query, _ := strings.Cut(pathAndQuery, "?")
	return path + withMark(withoutCredentials(query))
}

func withMark(query string) string {
	if query == "" {
		return ""
	}
	return "?" + query
}

// withoutCredentials is query without the parameters that carry a credential. The others keep place and bytes.
func withoutCredentials(query string) string {
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		name, _, _ := strings.Cut(parameter, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		return slices.ContainsFunc(queryCredentials, func(c string) bool { return strings.EqualFold(c, name) })
	})
	return strings.Join(kept, "&")
}
