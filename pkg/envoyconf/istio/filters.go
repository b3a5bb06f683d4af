package istio

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"understudy/pkg/envoyconf"
	"understudy/pkg/envoyconf/attach"
)

const (
	managerName = "envoy.filters.network.http_connection_manager"
	routerName  = "envoy.filters.http.router"

	gatewayContext = "GATEWAY"
	sidecarContext = "SIDECAR_OUTBOUND"
)

// filters are the EnvoyFilters.
func (g *generator) filters() []resource {
	o := g.o
	if o.Shape != Egress {
		return []resource{envoyFilter("understudy", o.Namespace, filterWhy, o.Labels, g.atOnce())}
	}
	return []resource{
		envoyFilter("understudy-front", o.Namespace, filterWhy, o.Labels, append(g.front(), g.cluster(sharedHopWhy, g.sharedHopCluster()))),
		envoyFilter("understudy-hop", o.Hop.Namespace, sharedFilterWhy, o.Hop.Labels, g.sharedHop()),
	}
}

// atOnce is everything in one Envoy.
func (g *generator) atOnce() []patch {
	if g.o.Level != attach.SameRequest {
		return g.attached()
	}
	patches := append(g.front(), g.listener(internalHopWhy, g.p.Hop), g.cluster(hopClusterWhy, g.named(isHop)[0]))
	return slices.Concat(patches, g.serviceClusters(), g.outsideClusters())
}

// front makes the front of what clients meet.
func (g *generator) front() []patch {
	m := g.p.FrontManager
	change := &hcmv3.HttpConnectionManager{
		UseRemoteAddress:              m.UseRemoteAddress,
		NormalizePath:                 m.NormalizePath,
		MergeSlashes:                  m.MergeSlashes,
		StreamIdleTimeout:             m.StreamIdleTimeout,
		Http2ProtocolOptions:          m.Http2ProtocolOptions,
		EarlyHeaderMutationExtensions: m.EarlyHeaderMutationExtensions,
	}
	if g.o.Shape != Gateway { // where the listener is not ours alone
		change.DelayedCloseTimeout, change.LocalReplyConfig = m.DelayedCloseTimeout, m.LocalReplyConfig
	}
	return append([]patch{g.manager(frontWhy, change)}, g.vhost(g.frontHost(), retriesWhy)...)
}

// vhost gives Host its routes.
func (g *generator) vhost(v *routev3.VirtualHost, why string) []patch {
	if g.o.Shape == Gateway {
		v.Name, v.Domains = "understudy", []string{g.o.host()}
		return []patch{g.addHost(why+"\n"+gatewayHostWhy, v)}
	}
	routes := v.Routes
	v.Name, v.Domains, v.Routes = "", nil, nil // Istio's stay
	patches := []patch{{why: why, applyTo: "VIRTUAL_HOST", operation: "MERGE", value: v, match: g.atHost()}}
	return append(patches, g.routesFirst(routesWhy, routes)...)
}

// routesFirst puts routes before Istio's own.
func (g *generator) routesFirst(why string, routes []*routev3.Route) []patch {
	var patches []patch
	for i, r := range slices.Backward(routes) {
		p := patch{applyTo: "HTTP_ROUTE", operation: "INSERT_FIRST", value: r, match: g.atHost()}
		if i == len(routes)-1 {
			p.why = why
		}
		patches = append(patches, p)
	}
	return patches
}

func (g *generator) addHost(why string, v *routev3.VirtualHost) patch {
	at := match{Context: g.context(), Routes: &routesMatch{Port: g.o.Port}}
	return patch{why: why, applyTo: "VIRTUAL_HOST", operation: "ADD", value: v, match: at}
}

// atHost matches the virtual host that Istio makes for Host.
func (g *generator) atHost() match {
	return match{Context: g.context(), Routes: &routesMatch{Port: g.o.Port, Vhost: &nameMatch{g.o.vhost()}}}
}

func (g *generator) frontHost() *routev3.VirtualHost {
	return proto.CloneOf(g.p.FrontManager.GetRouteConfig().VirtualHosts[0])
}

// serviceClusters reach the service's replicas.
func (g *generator) serviceClusters() []patch {
	var patches []patch
	for _, c := range g.named(envoyconf.IsService) {
		patches = append(patches, g.cluster(serviceClusterWhy, g.inMesh(c)))
	}
	return patches
}

// inMesh gives the service's clusters the mesh's certificates.
func (g *generator) inMesh(c *clusterv3.Cluster) *clusterv3.Cluster {
	if !envoyconf.IsService(c.Name) || !g.throughMesh() {
		return c
	}
	c = proto.CloneOf(c)
	c.TransportSocket = g.o.upstreamTLS(g.o.Service.identity())
	return c
}

// outsideClusters reach providers and status feeds.
func (g *generator) outsideClusters() []patch {
	var patches []patch
	for _, c := range g.named(func(name string) bool { return !isHop(name) && !envoyconf.IsService(name) }) {
		patches = append(patches, g.cluster(outsideWhy, c))
	}
	return patches
}

// named are the clusters whose name is.
func (g *generator) named(is func(string) bool) []*clusterv3.Cluster {
	var cs []*clusterv3.Cluster
	for _, c := range g.p.Clusters {
		if is(c.Name) {
			cs = append(cs, c)
		}
	}
	return cs
}

func isHop(name string) bool { return name == "hop" }

func (g *generator) context() string {
	if g.o.Shape == Gateway {
		return gatewayContext
	}
	return sidecarContext
}

// listens matches the connection manager that clients meet, or a filter in it.
func (g *generator) listens(filter *nameMatch) match {
	return match{Context: g.context(), Listener: &listenerMatch{
		Port:  g.o.Listens,
		Chain: chainMatch{Filter: filterMatch{Name: managerName, SubFilter: filter}},
	}}
}

func (g *generator) manager(why string, change *hcmv3.HttpConnectionManager) patch {
	return patch{why: why, applyTo: "NETWORK_FILTER", operation: "MERGE", match: g.listens(nil), value: &listenerv3.Filter{
		Name: managerName, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(change)},
	}}
}

func (g *generator) cluster(why string, c *clusterv3.Cluster) patch {
	return patch{why: why, applyTo: "CLUSTER", operation: "ADD", match: match{Context: g.context()}, value: c}
}

func (g *generator) listener(why string, l *listenerv3.Listener) patch {
	return patch{why: why, applyTo: "LISTENER", operation: "ADD", match: match{Context: g.context()}, value: l}
}

// pack is for messages that are made here: none has a string that is not UTF-8, so none can fail.
func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}
