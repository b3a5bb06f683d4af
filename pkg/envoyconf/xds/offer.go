package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// kinds are the hops that an Envoy may have. Which one it has, its node says.
var kinds = []envoyconf.Hop{envoyconf.Internal, envoyconf.TCP, envoyconf.UDS}

// short names the types that are served, as Envoy's own statistics do.
var short = map[resource.Type]string{
	resource.ClusterType: "cds", resource.RouteType: "rds", resource.ListenerType: "lds",
	resource.ExtensionConfigType: "ecds", resource.SecretType: "sds",
}

// named are resources by name.
type named map[string]types.Resource

// offer is what an Envoy may ask for, by type. It is not changed once it is made.
type offer map[resource.Type]named

// offers are one for each kind of hop that a Config can have.
type offers map[envoyconf.Hop]offer

// impossible says of kinds of hop why a Config cannot have them: the port is taken, for one.
type impossible map[envoyconf.Hop]error

// build makes the offers of c. A hop that c cannot have has none.
func build(c *config.Config) (all offers, not impossible, err error) {
	all, not = offers{}, impossible{}
	for _, hop := range kinds {
		if all[hop], not[hop] = newOffer(c, hop); not[hop] != nil {
			delete(all, hop)
		}
	}
	return all, not, not[envoyconf.Internal]
}

func newOffer(c *config.Config, hop envoyconf.Hop) (offer, error) {
	p, err := envoyconf.Discovered(c, hop)
	if err != nil {
		return nil, err
	}
	filter, err := byName(p.HopManager)
	if err != nil {
		return nil, err
	}
	o := offer{
		resource.ClusterType:         {},
		resource.SecretType:          {},
		resource.ExtensionConfigType: {filter.Name: filter},
		resource.RouteType:           {},
		resource.ListenerType:        {},
	}
	for _, cl := range p.Clusters {
		o[resource.ClusterType][cl.Name] = cl
	}
	for _, s := range p.Secrets {
		o[resource.SecretType][s.Name] = s
	}
	for l, m := range map[*listenerv3.Listener]*hcmv3.HttpConnectionManager{p.Front: p.FrontManager, p.Hop: p.HopManager} {
		routes := m.GetRouteConfig()
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			ConfigSource: envoyconf.ADS(), RouteConfigName: routes.Name,
		}}
		packed, err := envoyconf.Pack(m)
		if err != nil {
			return nil, err
		}
		l.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
		o[resource.RouteType][routes.Name], o[resource.ListenerType][l.Name] = routes, l
	}
	return o, nil
}

// byName lets m ask for the service's filter by its name, and is that filter.
func byName(m *hcmv3.HttpConnectionManager) (*corev3.TypedExtensionConfig, error) {
	for _, f := range m.HttpFilters {
		if f.Name != envoyconf.ServiceName {
			continue
		}
		ours := &corev3.TypedExtensionConfig{Name: f.Name, TypedConfig: f.GetTypedConfig()}
		f.ConfigType = &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
			ConfigSource: envoyconf.ADS(), TypeUrls: []string{ours.TypedConfig.TypeUrl},
		}}
		return ours, nil
	}
	return nil, errors.New("the hop has no filter of the service")
}

// snapshot is o with a version for each type: the hash of what is of that type, so that it is the same on every replica
// with the same config, and an Envoy that moves between them has nothing to do.
func (o offer) snapshot() (*cache.Snapshot, error) {
	s := &cache.Snapshot{}
	for kind, resources := range o {
		version, err := resources.version()
		if err != nil {
			return nil, err
		}
		s.Resources[cache.GetResponseType(kind)] = cache.NewResources(version, slices.Collect(maps.Values(resources)))
	}
	return s, nil
}

func (n named) version() (string, error) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(n)) {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(n[name])
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(h, "%d:%s%d:%s", len(name), name, len(data), data)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// withClusters is o with other clusters.
func (o offer) withClusters(clusters named) offer {
	o = maps.Clone(o)
	o[resource.ClusterType] = clusters
	return o
}

// over is the clusters of both, those of o where both have one.
func (o offer) over(below offer) named { return o.both(below, resource.ClusterType) }

func (o offer) both(below offer, kind resource.Type) named {
	both := named{}
	maps.Copy(both, below[kind])
	maps.Copy(both, o[kind])
	return both
}

// beyond are the clusters that o has and other has not.
func (o offer) beyond(other offer) named {
	rest := maps.Clone(o[resource.ClusterType])
	maps.DeleteFunc(rest, func(name string, _ types.Resource) bool { return other[resource.ClusterType][name] != nil })
	return rest
}

// resolves says that Envoy looks up a name before it uses some of the clusters.
func (n named) resolves() bool {
	for _, r := range n {
		if c, ok := r.(*clusterv3.Cluster); ok && c.GetType() != clusterv3.Cluster_STATIC {
			return true
		}
	}
	return false
}
