package audit

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// matches says whether a route may get requests on path, by the path alone. "{model}" in it is a segment.
func matches(m *routev3.RouteMatch, path string) bool {
	path = strings.ReplaceAll(path, "{model}", "model")
	given := func(s string) string { return s }
	if m.GetCaseSensitive() != nil && !m.GetCaseSensitive().Value {
		given = strings.ToLower
		path = strings.ToLower(path)
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(path, given(p.Prefix))
	case *routev3.RouteMatch_Path:
		return path == given(p.Path)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		prefix := given(p.PathSeparatedPrefix)
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	case *routev3.RouteMatch_SafeRegex:
		re, err := regexp.Compile("^(?:" + p.SafeRegex.GetRegex() + ")$")
		return err == nil && re.MatchString(path)
	}
	return false
}

// original is the path of a request that r passes on with path, "" where there is none: a gateway may have the chains
// below a prefix of its own.
func original(r *routev3.Route, path string) string {
	to := r.GetRoute().GetPrefixRewrite()
	if to == "" {
		return path
	}
	rest, ok := strings.CutPrefix(path, to)
	switch p := r.GetMatch().GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		if ok {
			return p.Prefix + rest
		}
	case *routev3.RouteMatch_PathSeparatedPrefix:
		if ok {
			return p.PathSeparatedPrefix + rest
		}
	case *routev3.RouteMatch_Path:
		if path == to {
			return p.Path
		}
	}
	return ""
}

// unconditional says whether a route gets all requests on its paths.
func unconditional(m *routev3.RouteMatch) bool {
	return len(m.GetHeaders()) == 0 && len(m.GetQueryParameters()) == 0 && len(m.GetDynamicMetadata()) == 0 &&
		m.GetRuntimeFraction() == nil && m.GetGrpc() == nil && m.GetTlsContext() == nil
}

// broad says whether a route gets more paths than can be listed.
func broad(m *routev3.RouteMatch) bool {
	return m.GetPathSeparatedPrefix() != "" || m.GetPrefix() != ""
}

// pattern is a match as a message names it.
func pattern(m *routev3.RouteMatch) string {
	text := "?"
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		text = p.Prefix + "*"
	case *routev3.RouteMatch_Path:
		text = p.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		text = p.PathSeparatedPrefix + "/*"
	case *routev3.RouteMatch_SafeRegex:
		text = p.SafeRegex.GetRegex()
	}
	for _, h := range m.GetHeaders() {
		text += " with " + h.Name
	}
	return text
}

// retriesFailover says whether p retries what the service wants retried.
func retriesFailover(p *routev3.RetryPolicy) bool {
	for _, h := range p.GetRetriableHeaders() {
		if strings.EqualFold(h.Name, "x-llm-failover") && equals(h, "next") {
			return true
		}
	}
	return false
}

// equals says whether a header of that value fits h.
func equals(h *routev3.HeaderMatcher, value string) bool {
	s := h.GetStringMatch()
	if s == nil {
		return h.GetPresentMatch() && !h.InvertMatch
	}
	return fits(s, value) != h.InvertMatch
}

// fits says whether a matcher of names or values takes s.
func fits(m *matcherv3.StringMatcher, s string) bool {
	given := func(s string) string { return s }
	if m.GetIgnoreCase() {
		given, s = strings.ToLower, strings.ToLower(s)
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return s == given(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(s, given(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(s, given(p.Suffix))
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(s, given(p.Contains))
	case *matcherv3.StringMatcher_SafeRegex:
		re, err := regexp.Compile("^(?:" + p.SafeRegex.GetRegex() + ")$")
		return err == nil && re.MatchString(s)
	}
	return false
}

// sets says whether a list of headers to add has one of that name.
func sets(hs []*corev3.HeaderValueOption, name string) bool {
	for _, h := range hs {
		if strings.EqualFold(h.GetHeader().GetKey(), name) {
			return true
		}
	}
	return false
}
