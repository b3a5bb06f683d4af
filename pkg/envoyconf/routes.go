package envoyconf

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
	"understudy/pkg/provider"
)

// hopRoutes: where the service has chosen, its choice; before that, and with the service gone, the primary of the
// path's default chain. The latter routes also bring the settings under which the service first sees the request.
func (b *builder) hopRoutes() *routev3.RouteConfiguration {
	routes := []*routev3.Route{b.chosen()}
	for _, path := range b.c.Protected() {
		routes = append(routes, b.tooLarge(path), b.unchosen(path))
	}
	if b.hasFeeds() {
		routes = append(routes, b.answered(inside()))
	}
	if b.c.Jobs.Expose {
		routes = append(routes, b.answered(jobs()))
	}
	for _, p := range b.stored() {
		routes = append(routes, b.passed(p, p.Provider.API.Standard(p.Path)))
	}
	for _, p := range b.passthrough() {
		routes = append(routes, b.passed(p, p.Path))
	}
	return &routev3.RouteConfiguration{
		Name: hopName,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "llm",
			Domains: []string{"*"},
			Routes:  routes,
		}},
	}
}

// chosen matches any path: the service has rewritten it for the target.
func (b *builder) chosen() *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
			Headers: []*routev3.HeaderMatcher{{
				Name:                 "x-llm-cluster",
				HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
			}},
		},
		RequestBodyBufferLimit: wrapperspb.UInt64(b.bodyBuffer()),
		Action: forward(&routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x-llm-cluster"},
		}),
	}
}

// unchosen is a protected path without the service's choice. Where Envoy may go on alone, its primary is of the
// dialect's own platform (config refuses others), which takes the request as it is.
func (b *builder) unchosen(path string) *routev3.Route {
	t := b.c.Primary(path)
	if t == nil {
		b.fault("no chain has the path %s", path)
		return &routev3.Route{Match: protected(path)}
	}
	r := b.straightTo(t.Provider, path, t.Provider.API.Standard(path))
	r.Match = protected(path)
	r.RequestBodyBufferLimit = wrapperspb.UInt64(b.bodyBuffer())
	r.TypedPerFilterConfig = map[string]*anypb.Any{wholeBodyName: b.pack(b.whole())}
	return r
}

// tooLarge is a protected path with a body that says to be larger than the service takes: nothing waits for it, so
// that the service's 413 comes at once.
func (b *builder) tooLarge(path string) *routev3.Route {
	r := b.unchosen(path)
	r.Match.Headers = []*routev3.HeaderMatcher{{
		Name: "content-length",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{
			RangeMatch: &typev3.Int64Range{Start: b.c.Server.MaxBody + 1, End: math.MaxInt64},
		},
	}}
	r.TypedPerFilterConfig = nil
	return r
}

// passed is a passthrough path, which is to in the provider's eyes: the service sees the request's headers only, so uploads, downloads and WebSockets
// flow by.
func (b *builder) passed(pt config.Passthrough, to string) *routev3.Route {
	r := b.straightTo(pt.Provider, pt.Path, to)
	r.Match = under(pt.Path)
	r.TypedPerFilterConfig = map[string]*anypb.Any{ServiceName: b.pack(headersOnly())}
	return r
}

// jobs matches the paths of queued requests.
func jobs() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/jobs/"}}
}

// answered is a path that the service itself answers, or sends where it has signed to. Where it chose nothing, as it
// is gone and Envoy goes on without it, nobody is asked.
func (b *builder) answered(m *routev3.RouteMatch) *routev3.Route {
	r := nothingHere()
	r.Match = m
	r.TypedPerFilterConfig = map[string]*anypb.Any{ServiceName: b.pack(headersOnly())}
	return r
}

// straightTo sends a request to p as the service would, without its help: p's host, from's place in the path taken
// by to under p's base path, and no credential that was meant for somebody else. p's own is added by its cluster.
func (b *builder) straightTo(p *config.Provider, from, to string) *routev3.Route {
	a := &routev3.RouteAction{
		ClusterSpecifier:     toCluster(p.Cluster),
		HostRewriteSpecifier: &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: p.Endpoint.Host},
	}
	if to = p.Endpoint.EscapedPath() + to; to != from {
		swap(a, from, to)
	}
	r := &routev3.Route{Action: forward(a)}
	if !p.Auth.FromClient {
		r.RequestHeadersToRemove = provider.CredentialsIn(b.c)
	}
	return r
}

// swap puts to in the place of from in a path that begins with it. Of Gemini's, what comes before the model is swapped.
func swap(a *routev3.RouteAction, from, to string) {
	before, _, named := strings.Cut(from, model)
	if !named {
		a.PrefixRewrite = to
		return
	}
	to, _, _ = strings.Cut(to, model)
	a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
		Pattern:      &matcherv3.RegexMatcher{Regex: "^" + regexp.QuoteMeta(before)},
		Substitution: to,
	}
}

// onlyObserved says that no chain that may take a request on path acts.
func (b *builder) onlyObserved(path string) bool {
	return !slices.ContainsFunc(b.c.Chains, func(ch *config.Chain) bool { return !ch.Observe && ch.MayTake(path) })
}

// stored are the paths below those on which responses are made that a provider keeps: the service knows where.
func (b *builder) stored() []config.Passthrough {
	var all []config.Passthrough
	for _, path := range b.c.Protected() {
		made, _ := provider.StoredResponse(http.MethodGet, path+"/resp_1")
		if t := b.c.Primary(path); t != nil && made == path {
			all = append(all, config.Passthrough{Path: path, Provider: t.Provider})
		}
	}
	return all
}

// passthrough is in the order in which Envoy's first match is the service's longest.
func (b *builder) passthrough() []config.Passthrough {
	return slices.SortedStableFunc(slices.Values(b.c.Passthrough), func(x, y config.Passthrough) int {
		return cmp.Compare(len(y.Path), len(x.Path))
	})
}

// providers are those of the config, by name.
func (b *builder) providers() []*config.Provider {
	var ps []*config.Provider
	for _, name := range slices.Sorted(maps.Keys(b.c.Providers)) {
		ps = append(ps, b.c.Providers[name])
	}
	return ps
}

// bodyBuffer is the room for a request body: what the service accepts, and some for its complaint about more.
func (b *builder) bodyBuffer() uint64 { return uint64(b.c.Server.MaxBody) + 4<<20 }

func (b *builder) whole() *bufferv3.BufferPerRoute {
	return &bufferv3.BufferPerRoute{Override: &bufferv3.BufferPerRoute_Buffer{Buffer: b.buffer()}}
}

func (b *builder) buffer() *bufferv3.Buffer {
	return &bufferv3.Buffer{MaxRequestBytes: wrapperspb.UInt32(uint32(b.bodyBuffer()))}
}

// headersOnly is for paths that the service must not slow down or buffer.
func headersOnly() *extprocv3.ExtProcPerRoute {
	return &extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Overrides{
		Overrides: &extprocv3.ExtProcOverrides{ProcessingMode: &extprocv3.ProcessingMode{
			RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
			RequestBodyMode:     extprocv3.ProcessingMode_NONE,
			RequestTrailerMode:  extprocv3.ProcessingMode_SKIP,
			ResponseHeaderMode:  extprocv3.ProcessingMode_SKIP,
			ResponseBodyMode:    extprocv3.ProcessingMode_NONE,
			ResponseTrailerMode: extprocv3.ProcessingMode_SKIP,
		}},
	}}
}

// model stands in a protected path for one segment, or its beginning.
const model = "{model}"

// protected matches a path of Config.Protected. Envoy compares a regex with the whole path, without the query.
func protected(path string) *routev3.RouteMatch {
	before, after, named := strings.Cut(path, model)
	if !named {
		return exactly(path)
	}
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
		Regex: regexp.QuoteMeta(before) + "[^/]+" + regexp.QuoteMeta(after),
	}}}
}

func exactly(path string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: path}}
}

// under matches path and what is below it on a "/" border.
func under(path string) *routev3.RouteMatch {
	if path == "/" {
		return everything()
	}
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: path}}
}

func everything() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}

func toCluster(name string) *routev3.RouteAction_Cluster {
	return &routev3.RouteAction_Cluster{Cluster: name}
}

// forward switches Envoy's route timeout (15 s) off: our own deadlines rule.
func forward(a *routev3.RouteAction) *routev3.Route_Route {
	a.Timeout = durationpb.New(0)
	return &routev3.Route_Route{Route: a}
}

func websockets() []*hcmv3.HttpConnectionManager_UpgradeConfig {
	return []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}
}

// noWebsockets: where a request is read whole before it goes on, an upgraded connection would hang for ever.
func noWebsockets() []*routev3.RouteAction_UpgradeConfig {
	return []*routev3.RouteAction_UpgradeConfig{{UpgradeType: "websocket", Enabled: wrapperspb.Bool(false)}}
}

func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
