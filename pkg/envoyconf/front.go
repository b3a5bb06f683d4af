package envoyconf

import (
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
)

// frontListener is where clients come in.
func (b *builder) frontListener(m *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:         "front",
		Address:      b.listenAddress("envoy.listen", b.c.Envoy.Listen),
		FilterChains: b.filterChains(m),

		PerConnectionBufferLimitBytes: wrapperspb.UInt32(flowBuffer),
	}
}

// frontManager makes Envoy ignore a client's x-envoy-* retry and timeout headers (use_remote_address). Its
// internal_address_config stays unset: an empty one let a client on loopback buy ten paid calls for one good answer.
//
// Paths are normalised, or /v1/models/../messages would pass for a path that no chain protects.
func (b *builder) frontManager() *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:        "front",
		Tracing:           b.tracing(),
		UseRemoteAddress:  wrapperspb.Bool(true),
		NormalizePath:     wrapperspb.Bool(true),
		MergeSlashes:      true,
		StreamIdleTimeout: durationpb.New(0), // our own deadlines rule
		// An aborted answer is told at once; the rest of a second is for clients that still send when they are refused.
		DelayedCloseTimeout: durationpb.New(200 * time.Millisecond),
		UpgradeConfigs:      websockets(),
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			InitialStreamWindowSize:     wrapperspb.UInt32(1 << 20),
			InitialConnectionWindowSize: wrapperspb.UInt32(16 << 20),
		},
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{b.stripClient()},
		LocalReplyConfig:              &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{whenHopIsLost()}},
		RouteSpecifier:                &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: b.frontRoutes()},
		HttpFilters:                   []*hcmv3.HttpFilter{b.router(false)},
	}
}

// frontRoutes: paths that a chain protects are retried, those of passthrough and our own are not (with a retry policy, a POST
// whose upstream died was sent nine times), anything else is answered here.
func (b *builder) frontRoutes() *routev3.RouteConfiguration {
	var routes []*routev3.Route
	for _, path := range b.c.Protected() {
		routes = append(routes, b.frontProtected(path))
	}
	if b.hasFeeds() {
		routes = append(routes, frontPlain(inside()))
	}
	if b.c.Jobs.Expose {
		r := frontPlain(jobs())
		r.RequestHeadersToAdd = b.tenant()
		routes = append(routes, r)
	}
	for _, p := range append(b.stored(), b.passthrough()...) {
		routes = append(routes, frontPlain(under(p.Path)))
	}
	return &routev3.RouteConfiguration{
		Name: "front",
		VirtualHosts: []*routev3.VirtualHost{{
			Name:                       "llm",
			Domains:                    []string{"*"},
			IncludeRequestAttemptCount: true,
			ResponseHeadersToRemove:    []string{"x-llm-failover"},
			Routes:                     append(routes, nothingHere()),
		}},
	}
}

// frontPlain takes a request to the hop once.
func frontPlain(m *routev3.RouteMatch) *routev3.Route {
	return &routev3.Route{Match: m, Action: forward(&routev3.RouteAction{ClusterSpecifier: toCluster(hopName)})}
}

// frontProtected is a path that chains serve. Where all of them only observe, a failure must reach the client as it
// would without us: at once.
func (b *builder) frontProtected(path string) *routev3.Route {
	retry := retries(config.Retries(b.c))
	if b.onlyObserved(path) {
		retry = nil
	}
	return &routev3.Route{
		Match:                  protected(path),
		RequestBodyBufferLimit: wrapperspb.UInt64(b.bodyBuffer()),
		RequestHeadersToAdd:    append(oncePerExchange(), b.tenant()...),
		Action: forward(&routev3.RouteAction{
			ClusterSpecifier: toCluster(hopName),
			RetryPolicy:      retry,
			UpgradeConfigs:   noWebsockets(),
		}),
	}
}

// oncePerExchange are the headers that all attempts of an exchange share. Envoy evaluates a route's headers once
// for a request, before its first attempt.
func oncePerExchange() []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{
		overwrite("x-llm-exchange", "%UNIQUE_ID%"),
		overwrite("x-llm-start", "%START_TIME(%s%3f)%"), // milliseconds since the epoch
	}
}

// tenant tells the service whose request it is, as Envoy or a header that the operator vouches for says. A value that
// is absent leaves the header away; the client's own went with all of x-llm-*.
func (b *builder) tenant() []*corev3.HeaderValueOption {
	switch t := b.c.Tenant; {
	case len(t.Metadata) > 0:
		return []*corev3.HeaderValueOption{overwrite("x-llm-tenant", "%DYNAMIC_METADATA("+strings.Join(t.Metadata, ":")+")%")}
	case t.Header != "":
		return []*corev3.HeaderValueOption{overwrite("x-llm-tenant", "%REQ("+t.Header+")%")}
	}
	return nil
}

// retries moves on to the next attempt when an answer says x-llm-failover: next, or when the hop itself is lost.
func retries(n int) *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:    "retriable-headers,reset,connect-failure,refused-stream",
		NumRetries: wrapperspb.UInt32(uint32(n)),
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(time.Millisecond),
			MaxInterval:  durationpb.New(2 * time.Millisecond),
		},
		RetriableHeaders: []*routev3.HeaderMatcher{{
			Name: "x-llm-failover",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "next"},
			}},
		}},
	}
}

// nothingHere answers a path that is neither protected nor passed through, readably for the SDKs.
func nothingHere() *routev3.Route {
	return &routev3.Route{
		Match:                everything(),
		ResponseHeadersToAdd: []*corev3.HeaderValueOption{overwrite("content-type", "application/json")},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
			Status: 404,
			Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
				InlineString: problem("not_found_error", "not_found", "no chain and no passthrough of this gateway has this path").json(),
			}},
		}},
	}
}
