package envoyconf

import (
	"fmt"
	"strings"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
	"understudy/pkg/provider"
)

// ServiceName is ours: of the ext_proc filter, the cluster, the access log and the dynamic metadata's namespace.
const ServiceName = "understudy"

const wholeBodyName = "whole-body"

// hopManager trusts the front: request ids and addresses stay as they come. Its scheme follows the provider's
// connection, or a provider with TLS would be told ":scheme: http".
func (b *builder) hopManager() *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:                hopName,
		GenerateRequestId:         wrapperspb.Bool(false),
		PreserveExternalRequestId: true,
		StreamIdleTimeout:         durationpb.New(0),
		// An aborted answer must not wait a second for the front; at 0, a 413 that comes while the front is still sending
		// is lost with its connection.
		DelayedCloseTimeout:           durationpb.New(100 * time.Millisecond),
		UpgradeConfigs:                websockets(),
		SchemeHeaderTransformation:    &corev3.SchemeHeaderTransformation{MatchUpstream: true},
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{b.stripHop()},
		LocalReplyConfig:              b.hopReplies(),
		AccessLog:                     b.accessLogs(),
		RouteSpecifier:                &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: b.hopRoutes()},
		HttpFilters:                   []*hcmv3.HttpFilter{b.wholeBody(), b.serviceFilter(), b.router(true)},
	}
}

// wholeBody makes room for a large request body where a route asks for it. From 1.37 on, request_body_buffer_limit
// of the route alone would do; 1.36 answers 413 to what exceeds the listener's buffer unless this filter comes first.
func (b *builder) wholeBody() *hcmv3.HttpFilter {
	f := b.filter(wholeBodyName, b.buffer())
	f.Disabled = true
	return f
}

// serviceFilter shows each attempt to the service: the request's body whole (a full-duplex request body could not
// fail open), the response's as it streams, and no client's credential: it can replace and remove what it cannot see.
func (b *builder) serviceFilter() *hcmv3.HttpFilter {
	return b.filter(ServiceName, &extprocv3.ExternalProcessor{
		GrpcService:      b.service(ServiceName),
		FailureModeAllow: b.c.Envoy.FailOpen,
		StatusOnError:    &typev3.HttpStatus{Code: serviceFailed},
		// Above the sum of the keep-alive's times, which frees the attempts of a frozen replica: the 504 that
		// follows this timeout is not retried.
		MessageTimeout: durationpb.New(15 * time.Second),
		// A request that waits for another with its idempotency key says how long. An hour is the most that Envoy takes.
		MaxMessageTimeout: durationpb.New(time.Hour),
		ProcessingMode: &extprocv3.ProcessingMode{
			RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
			RequestBodyMode:     extprocv3.ProcessingMode_BUFFERED,
			RequestTrailerMode:  extprocv3.ProcessingMode_SKIP,
			ResponseHeaderMode:  extprocv3.ProcessingMode_SEND,
			ResponseBodyMode:    extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseTrailerMode: extprocv3.ProcessingMode_SEND, // full duplex wants it
		},
		ResponseAttributes: []string{"response.code_details"},
		ForwardRules:       &extprocv3.HeaderForwardingRules{DisallowedHeaders: named(append(provider.CredentialsIn(b.c), "set-cookie")...)},
		MutationRules:      &mutationv3.HeaderMutationRules{AllowAllRouting: wrapperspb.Bool(true)},
		MetadataOptions: &extprocv3.MetadataOptions{
			ReceivingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{ServiceName}},
		},
	})
}

// service is the gRPC connection to a cluster of the service's replicas. A stream that a dying or restarting
// replica drops is tried again inside the attempt.
func (b *builder) service(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName:             cluster,
			MaxReceiveMessageLength: wrapperspb.UInt32(uint32(max(64<<20, 2*b.bodyBuffer()))),
		}},
		RetryPolicy: &corev3.RetryPolicy{
			RetryOn:    "connect-failure,refused-stream,reset,unavailable",
			NumRetries: wrapperspb.UInt32(4),
			RetryBackOff: &corev3.BackoffStrategy{
				BaseInterval: durationpb.New(25 * time.Millisecond),
				MaxInterval:  durationpb.New(500 * time.Millisecond),
			},
			// Without these all five tries can go to the one replica that is down: of 2,000 exchanges after a kill -9, 60
			// passed over a healthy primary, with them none.
			RetryHostPredicate:            b.anotherHost(),
			HostSelectionRetryMaxAttempts: 5,
		},
	}
}

func (b *builder) anotherHost() []*corev3.RetryPolicy_RetryHostPredicate {
	return []*corev3.RetryPolicy_RetryHostPredicate{{
		Name:       "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &corev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: b.pack(&previoushostsv3.PreviousHostsPredicate{})},
	}}
}

// accessLogs tell an upstream that died from a client that hung up after commit, by response flags. An access log
// stream stays with one replica, and only the one that served an attempt knows it: so each gets every entry.
func (b *builder) accessLogs() []*accesslogv3.AccessLog {
	var logs []*accesslogv3.AccessLog
	for _, cluster := range b.logClusters() {
		logs = append(logs, &accesslogv3.AccessLog{
			Name:   "envoy.access_loggers.http_grpc",
			Filter: ofLost(),
			ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: b.pack(&grpclogv3.HttpGrpcAccessLogConfig{
				CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
					LogName:             ServiceName,
					GrpcService:         &corev3.GrpcService{TargetSpecifier: b.service(cluster).TargetSpecifier},
					TransportApiVersion: corev3.ApiVersion_V3,
					BufferFlushInterval: durationpb.New(100 * time.Millisecond),
					BufferSizeBytes:     wrapperspb.UInt32(1 << 10),
				},
			})},
		})
	}
	return logs
}

// ofLost lets pass what tells which side of an exchange was lost, and nothing else: an entry for each exchange cost every
// replica some 30 µs.
func ofLost() *accesslogv3.AccessLogFilter {
	lost := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"UF", "UC", "UR", "UPE", "DC"}},
	}}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{lost, ofExchange()}},
	}}
}

// ofExchange leaves out what the service did not name, passthrough above all.
func ofExchange() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_MetadataFilter{
		MetadataFilter: &accesslogv3.MetadataFilter{
			Matcher: &matcherv3.MetadataMatcher{
				Filter: ServiceName,
				Path: []*matcherv3.MetadataMatcher_PathSegment{{
					Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: "exchange"},
				}},
				Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}},
			},
			MatchIfKeyNotFound: wrapperspb.Bool(false),
		},
	}}
}

// IsService says whether a cluster leads to replicas of the service: to all of them, or to one for its access log.
func IsService(cluster string) bool {
	return cluster == ServiceName || strings.HasPrefix(cluster, ServiceName+"#")
}

// logClusters are the clusters of one replica each. No provider can have such a name.
func (b *builder) logClusters() []string {
	n := len(b.c.Envoy.Services)
	if n <= 1 {
		return []string{ServiceName}
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s#%d", ServiceName, i+1))
	}
	return names
}

func (b *builder) serviceClusters() []*clusterv3.Cluster {
	all := b.c.Envoy.Services
	cs := []*clusterv3.Cluster{b.serviceCluster(ServiceName, all)}
	if len(all) > 1 {
		for i, name := range b.logClusters() {
			cs = append(cs, b.serviceCluster(name, all[i:i+1]))
		}
	}
	return cs
}

// serviceCluster finds a frozen or lost replica within two seconds (keep-alive, health check). A stream's window is
// small and the connection's vast: with the defaults, forty slow readers stalled every exchange for five seconds.
func (b *builder) serviceCluster(name string, replicas []config.Address) *clusterv3.Cluster {
	var as []*corev3.Address
	for _, r := range replicas {
		as = append(as, b.remoteAddress("envoy.services", r))
	}
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: b.discovery(replicas),
		DnsLookupFamily:      clusterv3.Cluster_V4_PREFERRED, // "localhost" is ::1 first, where the service is not
		ConnectTimeout:       durationpb.New(time.Second),
		CircuitBreakers:      unlimited(),

		PerConnectionBufferLimitBytes: wrapperspb.UInt32(flowBuffer),

		LoadAssignment:  endpoints(name, as...),
		TransportSocket: b.serviceTLS(),
		HealthChecks: []*corev3.HealthCheck{{
			Timeout:            durationpb.New(time.Second),
			Interval:           durationpb.New(time.Second),
			NoTrafficInterval:  durationpb.New(time.Second),
			UnhealthyThreshold: wrapperspb.UInt32(2),
			HealthyThreshold:   wrapperspb.UInt32(1),
			HealthChecker:      &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
		}},
		TypedExtensionProtocolOptions: b.protocol(&upstreamv3.HttpProtocolOptions{
			UpstreamProtocolOptions: explicit(&upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
						InitialStreamWindowSize:     wrapperspb.UInt32(64 << 10),
						InitialConnectionWindowSize: wrapperspb.UInt32(maxWindow),
						// Finds a frozen replica in at most 4 s. One second for the answer cut healthy connections on a starved
						// machine.
						ConnectionKeepalive: &corev3.KeepaliveSettings{
							Interval: durationpb.New(time.Second),
							Timeout:  durationpb.New(3 * time.Second),
						},
					},
				},
			}),
		}),
	}
}

// discovery resolves names where there are any; Envoy mixes them with unix sockets in no cluster.
func (b *builder) discovery(replicas []config.Address) *clusterv3.Cluster_Type {
	kind, sockets := clusterv3.Cluster_STATIC, false
	for _, r := range replicas {
		host, _, _ := split(r.Addr)
		switch {
		case r.Network == "unix":
			sockets = true
		case !isIP(host):
			kind = clusterv3.Cluster_STRICT_DNS
		}
	}
	if sockets && kind == clusterv3.Cluster_STRICT_DNS {
		b.fault("envoy.services: Envoy takes unix sockets or host names in one cluster, not both")
	}
	return &clusterv3.Cluster_Type{Type: kind}
}
