package xds

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

const (
	// controlPlane is the cluster through which Envoy asks. No provider can have such a name, and it is not the one
	// of the attempts, which can then follow the config.
	controlPlane = envoyconf.ServiceName + "#xds"

	hopKey = "hop" // in the node's metadata
)

// Bootstrap is the little that an Envoy must know to ask the service of c for the rest.
func Bootstrap(c *config.Config, hop envoyconf.Hop) (*bootstrapv3.Bootstrap, error) {
	p, err := envoyconf.Discovered(c, hop)
	if err != nil {
		return nil, err
	}
	service, err := asControlPlane(p.Clusters)
	if err != nil {
		return nil, err
	}
	return &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: "understudy-envoy", Cluster: envoyconf.ServiceName, Metadata: &structpb.Struct{
			Fields: map[string]*structpb.Value{hopKey: structpb.NewStringValue(string(hop))},
		}},
		Admin:               p.Admin,
		StaticResources:     &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{service}},
		BootstrapExtensions: p.Extensions,
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType:             corev3.ApiConfigSource_GRPC,
				TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
					EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: controlPlane},
				}}},
				SetNodeOnFirstMessageOnly: true,
			},
			CdsConfig: envoyconf.ADS(),
			LdsConfig: envoyconf.ADS(),
		},
	}, nil
}

// asControlPlane is the cluster of all replicas under the control plane's name.
func asControlPlane(clusters []*clusterv3.Cluster) (*clusterv3.Cluster, error) {
	for _, c := range clusters {
		if c.Name == envoyconf.ServiceName {
			c = proto.CloneOf(c)
			c.Name, c.LoadAssignment.ClusterName = controlPlane, controlPlane
			return c, nil
		}
	}
	return nil, fmt.Errorf("no cluster is called %s", envoyconf.ServiceName)
}

// hopOf is the kind of hop that a node says to have.
func hopOf(node *corev3.Node) envoyconf.Hop {
	hop, err := envoyconf.ParseHop(node.GetMetadata().GetFields()[hopKey].GetStringValue())
	if err != nil {
		return envoyconf.Internal
	}
	return hop
}

// byHop gives every node of a kind of hop the same snapshot, whatever its id.
type byHop struct{}

func (byHop) ID(node *corev3.Node) string { return string(hopOf(node)) }
