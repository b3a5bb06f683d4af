package istio

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
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
	switch g.o.Level {
	case Observe:
		return append(g.inline(), g.serviceClusters()...)
	case NextRequest:
		patches := append(g.inline(), g.strip())
		patches = append(patches, g.vhost(g.hopHost(), nextRequestWhy)...)
		return slices.Concat(patches, g.serviceClusters(), g.outsideClusters())
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

// strip is the least that a front needs where the service chooses by a header.
func (g *generator) strip() patch {
	return g.manager(stripWhy, &hcmv3.HttpConnectionManager{
		NormalizePath:                 g.p.FrontManager.NormalizePath,
		MergeSlashes:                  g.p.FrontManager.MergeSlashes,
		EarlyHeaderMutationExtensions: g.p.FrontManager.EarlyHeaderMutationExtensions,
	})
}

// inline puts the service's filters into what clients meet. Each goes before the router, so they keep their order.
func (g *generator) inline() []patch {
	m := g.p.HopManager
	change := &hcmv3.HttpConnectionManager{AccessLog: m.AccessLog}
	filters := m.HttpFilters[:len(m.HttpFilters)-1] // without its router
	if g.o.Level == Observe {
		filters = g.failingOpen(filters)
	} else {
		change.LocalReplyConfig = m.LocalReplyConfig
	}
	patches := []patch{g.manager(accessLogWhy, change)}
	for _, f := range filters {
		patches = append(patches, patch{
			why: filterWhyOf(f.Name), applyTo: "HTTP_FILTER", operation: "INSERT_BEFORE", value: f,
			match: g.listens(&nameMatch{routerName}),
		})
	}
	return patches
}

// failingOpen are filters that stand in nobody's way: who only observes must not fail a request.
func (g *generator) failingOpen(filters []*hcmv3.HttpFilter) []*hcmv3.HttpFilter {
	var open []*hcmv3.HttpFilter
	for _, f := range filters {
		processor := &extprocv3.ExternalProcessor{}
		if err := f.GetTypedConfig().UnmarshalTo(processor); err != nil {
			open = append(open, f)
			continue
		}
		processor.FailureModeAllow = true
		f = proto.CloneOf(f)
		f.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(processor)}
		open = append(open, f)
	}
	return open
}

// vhost gives Host its routes.
func (g *generator) vhost(v *routev3.VirtualHost, why string) []patch {
	if g.o.Shape == Gateway {
		v.Domains = []string{g.o.host()}
		return []patch{{
			why: why + "\n" + gatewayHostWhy, applyTo: "VIRTUAL_HOST", operation: "ADD", value: v,
			match: match{Context: gatewayContext, Routes: &routesMatch{Port: g.o.Port}},
		}}
	}
	at := match{Context: sidecarContext, Routes: &routesMatch{Port: g.o.Port, Vhost: &nameMatch{g.o.vhost()}}}
	routes := v.Routes
	v.Name, v.Domains, v.Routes = "", nil, nil // Istio's stay
	patches := []patch{{why: why, applyTo: "VIRTUAL_HOST", operation: "MERGE", value: v, match: at}}
	for i, r := range slices.Backward(routes) {
		p := patch{applyTo: "HTTP_ROUTE", operation: "INSERT_FIRST", value: r, match: at}
		if i == len(routes)-1 {
			p.why = routesWhy
		}
		patches = append(patches, p)
	}
	return patches
}

func (g *generator) frontHost() *routev3.VirtualHost {
	return proto.CloneOf(g.p.FrontManager.GetRouteConfig().VirtualHosts[0])
}

// hopHost is the hop's where no front follows.
func (g *generator) hopHost() *routev3.VirtualHost {
	v := proto.CloneOf(g.p.HopManager.GetRouteConfig().VirtualHosts[0])
	front := g.frontHost()
	v.ResponseHeadersToRemove = front.ResponseHeadersToRemove
	v.Routes = append(v.Routes, front.Routes[len(front.Routes)-1]) // what nobody serves is answered here
	return v
}

// serviceClusters reach the service's replicas.
func (g *generator) serviceClusters() []patch {
	var patches []patch
	for _, c := range g.named(isService) {
		if g.throughMesh() {
			c = proto.CloneOf(c)
			c.TransportSocket = g.o.upstreamTLS(g.o.Service.identity())
		}
		patches = append(patches, g.cluster(serviceClusterWhy, c))
	}
	return patches
}

// outsideClusters reach providers and status feeds.
func (g *generator) outsideClusters() []patch {
	var patches []patch
	for _, c := range g.named(func(name string) bool { return !isHop(name) && !isService(name) }) {
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

// isService: of several replicas each has a cluster of its own for its access log.
func isService(name string) bool {
	return name == "understudy" || strings.HasPrefix(name, "understudy#")
}

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
