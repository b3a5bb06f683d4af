package envoyconf

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
)

// Hop is the kind of listener between front and hop.
type Hop string

// The kinds of hop.
const (
	// Internal is a listener inside the Envoy process that nothing else can reach, and the cheapest.
	Internal Hop = "internal"
	// TCP is 127.0.0.1, one port above the front's.
	TCP Hop = "tcp"
	// UDS is a socket in Linux's abstract namespace, "@understudy-hop-" and the front's port: no file is left
	// behind and no directory is needed.
	UDS Hop = "uds"
)

// ParseHop reads the value of `extproc envoy --hop`; "" is Internal.
func ParseHop(s string) (Hop, error) {
	switch h := Hop(s); h {
	case "":
		return Internal, nil
	case Internal, TCP, UDS:
		return h, nil
	}
	return "", fmt.Errorf("hop %q: write internal, tcp or uds", s)
}

const hopName = "hop" // the listener's and the cluster's

// hopAddress is where the front meets a TCP or UDS hop.
func (b *builder) hopAddress() *corev3.Address {
	_, port, _ := split(b.c.Envoy.Listen.Addr)
	if b.hop == UDS {
		return pipe(fmt.Sprintf("@understudy-hop-%d", port))
	}
	return socket("127.0.0.1", port+1)
}

// checkHop finds what stands in the way of hopAddress.
func (b *builder) checkHop() {
	if b.hop == Internal {
		return
	}
	if b.c.Envoy.Listen.Network == "unix" {
		b.fault("envoy.listen: a unix socket has no port to derive a %s hop from; use the internal hop", b.hop)
		return
	}
	if _, port, err := split(b.c.Envoy.Listen.Addr); err == nil && b.hop == TCP {
		b.checkHopPort(port + 1)
	}
}

func (b *builder) checkHopPort(port uint32) {
	if port > 65535 {
		b.fault("envoy.listen: port %d leaves none above it for the tcp hop", port-1)
	}
	taken := map[string]config.Address{
		"envoy.admin": b.c.Envoy.Admin, "server.grpc": b.c.Server.GRPC, "server.admin": b.c.Server.Admin,
	}
	for key, a := range taken {
		if _, p, err := split(a.Addr); a.Network != "unix" && err == nil && p == port {
			b.fault("%s: port %d is the tcp hop's, one above envoy.listen; move one of them", key, port)
		}
	}
}

// hopListener carries one attempt.
func (b *builder) hopListener(m *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	l := &listenerv3.Listener{
		Name:                          hopName,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(flowBuffer),
		FilterChains:                  b.filterChains(m),
	}
	if b.hop == Internal {
		l.ListenerSpecifier = &listenerv3.Listener_InternalListener{
			InternalListener: &listenerv3.Listener_InternalListenerConfig{},
		}
		return l
	}
	l.Address = b.hopAddress()
	return l
}

// hopCluster is how the front reaches the hop: over HTTP/1, where a slow stream holds up no other.
func (b *builder) hopCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          hopName,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(connectTimeout),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(flowBuffer),
		CircuitBreakers:               unlimited(),
		LoadAssignment:                b.hopEndpoint(),
		TypedExtensionProtocolOptions: b.protocol(http1()),
	}
}

func (b *builder) hopEndpoint() *endpointv3.ClusterLoadAssignment {
	if b.hop != Internal {
		return endpoints(hopName, b.hopAddress())
	}
	return endpoints(hopName, &corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{
		EnvoyInternalAddress: &corev3.EnvoyInternalAddress{
			AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: hopName},
		},
	}})
}
