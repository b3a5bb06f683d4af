package envoyconf

import (
	"cmp"
	"net/url"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
)

const (
	connectTimeout = 5 * time.Second
	maxWindow      = 1<<31 - 1

	// flowBuffer bounds what one connection holds, in bytes, where a slow reader holds up an answer; large request
	// bodies have limits of their own. A hop listener with room for a whole request grew Envoy to 2 GB under forty
	// slow readers, the default of 1 MiB to 380 MB, this to 200 MB.
	flowBuffer = 256 << 10
)

// providerCluster reaches one provider.
func (b *builder) providerCluster(p *config.Provider) *clusterv3.Cluster {
	return b.outside(origin{
		name: p.Cluster, url: p.Endpoint, key: "providers." + p.Name + ".endpoint",
		ca: cmp.Or(p.CA, b.c.Envoy.CAFile), filters: b.providerFilters(p),
	})
}

// origin is a server outside.
type origin struct {
	name    string   // of its cluster
	url     *url.URL // its path does not matter here
	key     string   // of url in the config file
	ca      string   // path of the trusted authorities
	filters []*hcmv3.HttpFilter
}

// outside reaches one origin.
func (b *builder) outside(o origin) *clusterv3.Cluster {
	host, port := o.url.Hostname(), b.port(o)
	c := &clusterv3.Cluster{
		Name:                 o.name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS},
		DnsLookupFamily:      clusterv3.Cluster_ALL,
		ConnectTimeout:       durationpb.New(connectTimeout),
		CircuitBreakers:      unlimited(),

		PerConnectionBufferLimitBytes: wrapperspb.UInt32(flowBuffer),

		LoadAssignment: endpoints(o.name, socket(host, port)),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveTime:     wrapperspb.UInt32(15),
			KeepaliveInterval: wrapperspb.UInt32(5),
			KeepaliveProbes:   wrapperspb.UInt32(3),
		}},
	}
	if isIP(host) {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.DnsLookupFamily = clusterv3.Cluster_AUTO
	}
	options := http1()
	if o.url.Scheme == "https" {
		options = negotiated()
		c.TransportSocket = b.originTLS(host, o.ca)
	}
	options.HttpFilters = o.filters
	c.TypedExtensionProtocolOptions = b.protocol(options)
	return c
}

func (b *builder) port(o origin) uint32 {
	switch {
	case o.url.Port() != "":
		_, port, err := split(o.url.Host)
		if err != nil {
			b.fault("%s: %w", o.key, err)
		}
		return port
	case o.url.Scheme == "https":
		return 443
	}
	return 80
}

// providerFilters run inside the provider's cluster.
func (b *builder) providerFilters(p *config.Provider) []*hcmv3.HttpFilter {
	if !b.injects(p) {
		return []*hcmv3.HttpFilter{b.border(), b.codec()}
	}
	fs := []*hcmv3.HttpFilter{b.border(credential(p)), b.codec()}
	if _, ok := inFile(p); ok {
		fs = append([]*hcmv3.HttpFilter{b.injector(p)}, fs...)
	}
	return fs
}

// codec comes last in a cluster, as Envoy wants it.
func (b *builder) codec() *hcmv3.HttpFilter {
	return b.filter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{})
}

// unlimited lifts Envoy's own ceilings. The default of 3 concurrent retries switches failover off in exactly the
// outage it is for: 57 of 60 concurrent failovers were lost.
func unlimited() *clusterv3.CircuitBreakers {
	n := wrapperspb.UInt32(1_000_000)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		Priority:       corev3.RoutingPriority_DEFAULT,
		MaxConnections: n, MaxPendingRequests: n, MaxRequests: n, MaxRetries: n,
	}}}
}

// http1 closes idle connections after 30 s, before the other side does: a stale one resets the request it is given.
func http1() *upstreamv3.HttpProtocolOptions {
	return &upstreamv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: shortIdle(),
		UpstreamProtocolOptions: explicit(&upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
			},
		}),
	}
}

// negotiated speaks what the provider picks by ALPN. Envoy's default window would let one slow reader park 256 MiB
// here.
func negotiated() *upstreamv3.HttpProtocolOptions {
	return &upstreamv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: shortIdle(),
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_AutoConfig{
			AutoConfig: &upstreamv3.HttpProtocolOptions_AutoHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
					InitialStreamWindowSize:     wrapperspb.UInt32(1 << 20),
					InitialConnectionWindowSize: wrapperspb.UInt32(maxWindow),
				},
			},
		},
	}
}

func shortIdle() *corev3.HttpProtocolOptions {
	return &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(30 * time.Second)}
}

func explicit(c *upstreamv3.HttpProtocolOptions_ExplicitHttpConfig) *upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: c}
}

func (b *builder) protocol(o *upstreamv3.HttpProtocolOptions) map[string]*anypb.Any {
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": b.pack(o)}
}

func (b *builder) filter(name string, m proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.pack(m)}}
}

// router ends a filter chain. A quiet one adds no x-envoy-* header of its own.
func (b *builder) router(quiet bool) *hcmv3.HttpFilter {
	return b.filter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: quiet})
}

func (b *builder) filterChains(m *hcmv3.HttpConnectionManager) []*listenerv3.FilterChain {
	return []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: b.pack(m)},
	}}}}
}
