package istio

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"understudy/pkg/envoyconf/attach"
)

// attached brings the levels without a hop into the listener that clients meet.
func (g *generator) attached() []patch {
	var patches []patch
	for _, piece := range g.pieces {
		patches = append(patches, g.placed(piece)...)
	}
	return patches
}

// placed is a piece as patches. Istio's connection managers have no early header mutations and no reply mappers of their
// own, so what is appended there is also first.
func (g *generator) placed(p attach.Piece) []patch {
	switch p.Place {
	case "static_resources.clusters":
		return each(p, func(why string, c *clusterv3.Cluster) patch { return g.cluster(why, g.inMesh(c)) })
	case "http_connection_manager":
		return each(p, g.manager)
	case "http_connection_manager.early_header_mutation_extensions":
		return []patch{g.manager(p.Why, &hcmv3.HttpConnectionManager{EarlyHeaderMutationExtensions: values[*corev3.TypedExtensionConfig](p)})}
	case "http_connection_manager.local_reply_config.mappers":
		return []patch{g.manager(p.Why, &hcmv3.HttpConnectionManager{LocalReplyConfig: &hcmv3.LocalReplyConfig{Mappers: values[*hcmv3.ResponseMapper](p)}})}
	case "http_connection_manager.access_log":
		return []patch{g.manager(p.Why, &hcmv3.HttpConnectionManager{AccessLog: values[*accesslogv3.AccessLog](p)})}
	case "http_connection_manager.http_filters":
		return each(p, func(why string, f *hcmv3.HttpFilter) patch {
			return patch{why: why, applyTo: "HTTP_FILTER", operation: "INSERT_BEFORE", value: f, match: g.listens(&nameMatch{routerName})}
		})
	case "route_config.virtual_hosts":
		return each(p, func(why string, v *routev3.VirtualHost) patch { return g.addHost(why, v) })
	case "virtual_host.routes":
		if g.o.Shape == Gateway {
			return g.vhost(&routev3.VirtualHost{Routes: values[*routev3.Route](p)}, p.Why)
		}
		return g.routesFirst(p.Why, values[*routev3.Route](p))
	case "route":
		return each(p, func(why string, r *routev3.Route) patch {
			return patch{why: why, applyTo: "HTTP_ROUTE", operation: "MERGE", value: r, match: g.atHost()}
		})
	}
	g.fault("%s: no EnvoyFilter reaches there", p.Place)
	return nil
}

// each makes a patch of each value; the reason stands above the first.
func each[M proto.Message](p attach.Piece, build func(why string, m M) patch) []patch {
	var patches []patch
	why := p.Why
	for _, m := range values[M](p) {
		patches = append(patches, build(why, m))
		why = ""
	}
	return patches
}

func values[M proto.Message](p attach.Piece) []M {
	var all []M
	for _, m := range p.Value {
		all = append(all, m.(M))
	}
	return all
}
