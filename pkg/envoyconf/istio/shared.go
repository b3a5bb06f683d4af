package istio

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// sharedHop is what the gateway of Egress gets.
func (g *generator) sharedHop() []patch {
	there := *g
	there.o.Shape = Gateway // of the patches' context
	patches := []patch{there.listener(sharedListenerWhy, g.sharedListener())}
	patches = append(patches, there.serviceClusters()...)
	return append(patches, there.outsideClusters()...)
}

// sharedListener takes nobody's word but that of a caller with a certificate of the mesh.
func (g *generator) sharedListener() *listenerv3.Listener {
	l := proto.CloneOf(g.p.Hop)
	l.ListenerSpecifier = nil
	l.Address = address("0.0.0.0", hopPort)
	l.FilterChains[0].TransportSocket = g.o.downstreamTLS()
	return l
}

// sharedHopCluster finds the pods of the hop.
func (g *generator) sharedHopCluster() *clusterv3.Cluster {
	c := proto.CloneOf(g.named(isHop)[0])
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	c.DnsLookupFamily = clusterv3.Cluster_V4_PREFERRED
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(g.o.hopHost(), hopPort)}},
		}}}},
	}
	c.TransportSocket = g.o.upstreamTLS(g.o.Hop.identity())
	return c
}

func address(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// throughMesh says that the service is met over the network, and has no certificates of its own.
func (g *generator) throughMesh() bool {
	if g.c.Envoy.TLS != nil {
		return false
	}
	for _, s := range g.c.Envoy.Services {
		if !s.Local() {
			return true
		}
	}
	return false
}

// upstreamTLS is a connection with the mesh's certificates to one identity. Istio gives them to no cluster that an
// EnvoyFilter adds, so this asks the pod's agent for them as Istio's own clusters do.
func (o Options) upstreamTLS(identity string) *corev3.TransportSocket {
	common := meshTLS(o.spiffe(identity))
	common.AlpnProtocols = []string{"istio", "h2"} // what Istio's inbound listeners know a peer by
	if identity == o.Hop.identity() {
		common.AlpnProtocols = []string{"http/1.1"}
	}
	return transport(pack(&tlsv3.UpstreamTlsContext{CommonTlsContext: common}))
}

// downstreamTLS lets in Callers only.
func (o Options) downstreamTLS() *corev3.TransportSocket {
	var who []string
	for _, caller := range o.Callers {
		who = append(who, o.spiffe(caller))
	}
	common := meshTLS(who...)
	common.AlpnProtocols = []string{"http/1.1"}
	return transport(pack(&tlsv3.DownstreamTlsContext{
		CommonTlsContext:         common,
		RequireClientCertificate: wrapperspb.Bool(true),
	}))
}

func transport(config *anypb.Any) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}
}

func (o Options) spiffe(identity string) string { return "spiffe://" + o.principal(identity) }

// meshTLS is the pod's own certificate, and trust in those of the mesh that name one of uris.
func meshTLS(uris ...string) *tlsv3.CommonTlsContext {
	var who []*tlsv3.SubjectAltNameMatcher
	for _, uri := range uris {
		who = append(who, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: uri}},
		})
	}
	return &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{agentSecret("default")},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: who},
				ValidationContextSdsSecretConfig: agentSecret("ROOTCA"),
			},
		},
	}
}

// agentSecret is served by the pod's agent; every bootstrap of Istio has the cluster sds-grpc.
func agentSecret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ResourceApiVersion:  corev3.ApiVersion_V3,
		InitialFetchTimeout: durationpb.New(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "sds-grpc"},
			}}},
		}},
	}}
}
