// Package provider rewrites a client's request for one target: host, path, model, credential, and what the target's
// platform, tier and model want otherwise. It says which targets an exchange can go to, and turns what other platforms
// answer into what the client expects.
//
// Rewriting always starts from the client's original request, so nothing of an earlier attempt can reach a provider.
// Bodies are edited by their pieces: what need not change keeps its place and bytes.
package provider

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Header is one header to set; Name is lower case.
type Header struct{ Name, Value string }

// Rewrite is what to change in a request on its way to a target. A credential that is fetched or signed (AWS, GCP,
// Entra) is not in it: it is made of what the rewriting comes to.
type Rewrite struct {
	Authority string
	Path      string // with the query
	Set       []Header
	Remove    []string
	Body      []byte       // nil: unchanged
	Answer    classify.API // how the answer is to be read; a stream of BedrockInvoke has to be converted by Frames
}

// Credentials are the headers in which clients authenticate to one of the dialects, or name their own account
// there; they go to a provider only where the config says `auth: {from: client}`.
func Credentials() []string {
	return []string{
		"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "proxy-authorization", "cookie",
		"openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id", "x-goog-user-project",
	}
}

// CredentialsIn are Credentials and the headers in which providers of cfg want theirs.
func CredentialsIn(cfg *config.Config) []string {
	names := Credentials()
	for _, name := range slices.Sorted(maps.Keys(cfg.Providers)) {
		if h := cfg.Providers[name].Auth.Header; h != "" && !slices.Contains(names, h) {
			names = append(names, h)
		}
	}
	return names
}

// queryCredentials are the query parameters that do the same.
var queryCredentials = []string{"key", "api-key", "api_key", "subscription-key", "access_token", "oauth_token", "x-amz-credential", "x-amz-signature", "x-amz-security-token"}

// ForTarget rewrites a request for t, of a chain whose first target is first. The answer is asked for unencoded, since
// it has to be read. The error names a secret that is absent.
func ForTarget(t, first *config.Target, q Request) (Rewrite, error) {
	w := wireOf(t.Provider, t.Model, &q)
	path := q.route.path
	if w.path != "" {
		path = w.path
	}
	rw, err := base(t.Provider, path, withParameter(q.query, w.query))
	if err != nil {
		return Rewrite{}, err
	}
	rw.Answer = w.answer
	rw.Set = append(rw.Set, Header{"accept-encoding", "identity"})
	var p plan
	q.headers(&rw, &p, t, w)
	q.members(&p, t, first, w)
	if body, changed := q.edited(p); changed {
		rw.Body = body
		rw.Remove = append(rw.Remove, "content-encoding")
	}
	return rw, nil
}

// headers changes the request's headers, and the members of the body that some of them become.
func (r *Request) headers(rw *Rewrite, p *plan, t *config.Target, w wire) {
	if t.Provider.Platform == config.Azure {
		rw.Remove = append(rw.Remove, notAzures...)
	}
	if w.accept != "" {
		rw.Set = append(rw.Set, Header{"accept", w.accept})
	}
	if w.version != "" {
		rw.Remove = append(rw.Remove, versionHeader)
		p.put("anthropic_version", change{add: quoted(w.version)}) // what the client says in the body stays
	}
	if profile := r.header.Get(profileHeader); w.profile && profile != "" {
		rw.Remove = append(rw.Remove, profileHeader)
		p.put("user_profile_id", change{add: quoted(profile)})
	}
	r.betas(rw, p, t, w)
	r.tierHeader(rw, t, w.tiers)
}

// members plans what becomes of the body.
func (r *Request) members(p *plan, t, first *config.Target, w wire) {
	switch {
	case r.route.api == classify.Gemini:
	case w.inPath:
		p.put("model", change{drop: true})
	default:
		// A request that names no model is left to the provider's own complaint.
		p.put("model", change{inside: func(e *editor, v value) {
			if !v.isString() || v.str() != t.Model {
				e.replace(v, quoted(t.Model))
			}
		}})
	}
	for _, name := range w.drop {
		p.put(name, change{drop: true})
	}
	r.planTiers(p, t, w.tiers)
	r.planHistory(p, t, first)
	r.planLimits(p, t.Limits)
}

// ForPassthrough rewrites a request for a path that no chain protects: host and credential only.
func ForPassthrough(p *config.Provider, pathAndQuery string) (Rewrite, error) {
	path, query, _ := strings.Cut(pathAndQuery, "?")
	return base(p, path, query)
}

func base(p *config.Provider, path, query string) (Rewrite, error) {
	rw := Rewrite{Authority: p.Endpoint.Host, Path: address(p, path)}
	if p.Auth.FromClient {
		rw.Path += withMark(query)
		return rw, nil
	}
	rw.Path += withMark(without(query, queryCredentials))
	rw.Remove = Credentials()
	if p.Auth.Header == "" {
		return rw, nil
	}
	secret, err := p.Auth.Secret.Value()
	if err != nil {
		return Rewrite{}, err
	}
	rw.Set = []Header{{p.Auth.Header, p.Auth.Prefix + secret}}
	return rw, nil
}

// Kept is a path and query as a queued request keeps it: without what carries a credential, and where the path says so,
// asking for the answer in one piece.
func Kept(pathAndQuery string) string {
	path, query, _ := strings.Cut(pathAndQuery, "?")
	query = without(query, queryCredentials)
	if routeOf(path).stream {
		path, query = strings.TrimSuffix(path, ":streamGenerateContent")+":generateContent", without(query, []string{"alt", "$alt"})
	}
	return path + withMark(query)
}

// address is a path at p's endpoint.
func address(p *config.Provider, path string) string {
	base := p.Endpoint.EscapedPath()
	if p.Platform == "" || p.Platform == config.Native {
		return base + path
	}
	return below(base, path)
}

func withMark(query string) string {
	if query == "" {
		return ""
	}
	return "?" + query
}

// without is query without the parameters of some names. The others keep place and bytes.
func without(query string, names []string) string {
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		name, _, _ := strings.Cut(parameter, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	})
	return strings.Join(kept, "&")
}

// withParameter is query with a parameter, instead of others of its name; "" is none.
func withParameter(query, parameter string) string {
	name, _, _ := strings.Cut(parameter, "=")
	if parameter == "" {
		return query
	}
	if query = without(query, []string{name}); query == "" {
		return parameter
	}
	return query + "&" + parameter
}
