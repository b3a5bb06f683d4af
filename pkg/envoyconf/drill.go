package envoyconf

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"understudy/pkg/config"
)

// drillCluster reaches where the replicas play faults. It is as a provider's would be, so that a played fault takes a real
// one's way.
func (b *builder) drillCluster() *clusterv3.Cluster {
	var as []*corev3.Address
	for _, a := range b.c.Drill.Services {
		as = append(as, b.remoteAddress("drill.services", a))
	}
	options := http1()
	options.HttpFilters = b.providerFilters(&config.Provider{Auth: config.Auth{None: true}})
	return &clusterv3.Cluster{
		Name:                 config.DrillCluster,
		ClusterDiscoveryType: b.discovery(b.c.Drill.Services),
		DnsLookupFamily:      clusterv3.Cluster_V4_PREFERRED,
		ConnectTimeout:       durationpb.New(connectTimeout),
		CircuitBreakers:      unlimited(),
		LoadAssignment:       endpoints(config.DrillCluster, as...),

		TypedExtensionProtocolOptions: b.protocol(options),
	}
}
