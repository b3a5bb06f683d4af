package attach

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// Names of envoyconf's.
const (
	service = "understudy"
	hop     = "hop"
)

// once is the filter that does for the service's filter what the front's routes do for the hop.
const once = service + "-once"

// frontRoutes are the front's, among a user's own.
func frontRoutes(p *envoyconf.Pieces) []*routev3.Route {
	var all []*routev3.Route
	for _, r := range theirs(p.FrontManager) {
		r = amongOthers(r)
		r.ResponseHeadersToRemove = []string{"x-llm-failover"}
		all = append(all, r)
	}
	return all
}

// ownRoutes are those by which requests begin, where the service's filter is in the user's own listener.
func ownRoutes(p *envoyconf.Pieces) ([]*routev3.Route, error) {
	var all []*routev3.Route
	for _, r := range theirs(p.HopManager) {
		if r.GetRoute().GetClusterHeader() != "" {
			continue // it is chosenHost's
		}
		on, err := switchOn(amongOthers(r))
		if err == nil {
			err = sayOnce(on, shared(p.FrontManager, r.Match))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, on)
	}
	return all, nil
}

// chosenHost takes a request on, by the cluster that the service has chosen. It has the providers' hosts for domains, so
// that a request which the service has not addressed to one of them is never routed by a header.
func chosenHost(c *config.Config, p *envoyconf.Pieces) (*routev3.VirtualHost, error) {
	host := &routev3.VirtualHost{Name: service, Domains: hosts(c)}
	for _, r := range theirs(p.HopManager) {
		if r.GetRoute().GetClusterHeader() == "" {
			continue
		}
		on, err := switchOn(amongOthers(r))
		if err != nil {
			return nil, err
		}
		host.Routes = append(host.Routes, on)
	}
	return host, nil
}

// hosts are those of providers and status feeds, as requests are addressed to them, and without their ports: where a
// user's routes have ignore_port_in_host_matching, a domain that has one matches nothing.
func hosts(c *config.Config) []string {
	all := map[string]bool{}
	add := func(u *url.URL) { all[u.Host], all[strings.TrimSuffix(u.Host, ":"+u.Port())] = true, true }
	for _, p := range c.Providers {
		add(p.Endpoint)
		if p.StatusFeed != nil {
			add(p.StatusFeed.URL)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// theirs are the routes of a manager of ours, but for its answer to unknown paths, which are the user's here.
func theirs(m *hcmv3.HttpConnectionManager) []*routev3.Route {
	var all []*routev3.Route
	for _, r := range m.GetRouteConfig().VirtualHosts[0].Routes {
		if r.GetDirectResponse() == nil || r.Match.GetPrefix() != "/" {
			all = append(all, r)
		}
	}
	return all
}

// amongOthers makes a route not take over what its virtual host and listener say: retries, the idle timeout of streams
// (five minutes unsaid), and WebSockets, of which a listener without them would know nothing. The name is how replies
// know the route.
func amongOthers(r *routev3.Route) *routev3.Route {
	r = clone(r)
	r.Name = service
	a := r.GetRoute()
	if a == nil {
		return r
	}
	a.IdleTimeout = durationpb.New(0)
	if a.RetryPolicy == nil {
		a.RetryPolicy = &routev3.RetryPolicy{}
	}
	if len(a.UpgradeConfigs) == 0 {
		a.UpgradeConfigs = []*routev3.RouteAction_UpgradeConfig{{
			UpgradeType: "websocket", Enabled: wrapperspb.Bool(r.RequestBodyBufferLimit == nil),
		}}
	}
	return r
}

// switchOn switches the service's filter on for a route.
func switchOn(r *routev3.Route) (*routev3.Route, error) {
	if r.TypedPerFilterConfig[service] != nil {
		return r, nil
	}
	return r, perRoute(r, service, &extprocv3.ExtProcPerRoute{
		Override: &extprocv3.ExtProcPerRoute_Overrides{Overrides: &extprocv3.ExtProcOverrides{}},
	})
}

// shared is what the front's route for a match adds to requests: what all attempts share, and the tenant.
func shared(front *hcmv3.HttpConnectionManager, m *routev3.RouteMatch) []*mutationv3.HeaderMutation {
	routes := theirs(front)
	i := slices.IndexFunc(routes, func(r *routev3.Route) bool { return proto.Equal(r.Match, m) })
	if i < 0 {
		return nil
	}
	var all []*mutationv3.HeaderMutation
	for _, h := range routes[i].RequestHeadersToAdd {
		all = append(all, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: h}})
	}
	return all
}

// sayOnce makes a filter set headers: what a route adds comes after all filters, too late for the service's.
func sayOnce(r *routev3.Route, ms []*mutationv3.HeaderMutation) error {
	if len(ms) == 0 {
		return nil
	}
	return perRoute(r, once, &headermutationv3.HeaderMutationPerRoute{Mutations: &headermutationv3.Mutations{RequestMutations: ms}})
}

func perRoute(r *routev3.Route, filter string, m proto.Message) error {
	packed, err := anypb.New(m)
	if err != nil {
		return err
	}
	if r.TypedPerFilterConfig == nil {
		r.TypedPerFilterConfig = map[string]*anypb.Any{}
	}
	r.TypedPerFilterConfig[filter] = packed
	return nil
}
