package audit

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"understudy/pkg/config"
)

// ours is the name by which the service's filter, cluster and metadata go.
const ours = "understudy"

// manager is an HTTP connection manager with what it routes by.
type manager struct {
	listener *listenerv3.Listener
	hcm      *hcmv3.HttpConnectionManager
	routes   []*route // all of them, in order
	ways     []string // the clusters by which it leads to a hop
}

// hop is a manager with the service's filter.
type hop struct {
	*manager
	name   string // of the filter
	filter *extprocv3.ExternalProcessor
	off    bool // the filter is disabled where no route enables it
	copies int  // of the filter that act on the same requests; 1 is right
}

// asksForNext says whether Envoy's own replies ask a front for the next attempt.
func (h *hop) asksForNext() bool { return len(failovers(h.hcm.GetLocalReplyConfig())) > 0 }

// on says whether the service sees what takes r, and how r changes what it sees. A route that says anything of the
// filter switches it on, or off.
func (h *hop) on(r *route) (on bool, changes *extprocv3.ExtProcOverrides) {
	own := r.filterOf(h.name)
	flag := unpacked[routev3.FilterConfig](own)
	per := unpacked[extprocv3.ExtProcPerRoute](own)
	if per == nil {
		per = unpacked[extprocv3.ExtProcPerRoute](flag.GetConfig())
	}
	return !per.GetDisabled() && !flag.GetDisabled() && (own != nil || !h.off), per.GetOverrides()
}

// route is a route in its place.
type route struct {
	in   *manager
	conf *routev3.RouteConfiguration
	host *routev3.VirtualHost
	*routev3.Route

	toHop  bool     // it leads to a hop
	takes  []string // the protected paths that it gets
	behind bool     // another route before it gets a protected path that it asks for
}

func (m *manager) where() string {
	return "listener " + cmp.Or(m.listener.Name, address(m.listener.Address))
}

func (r *route) where() string {
	text := fmt.Sprintf("route %q", pattern(r.Match))
	if r.Name != "" {
		text += " (" + r.Name + ")"
	}
	return text + " of " + r.in.where()
}

// fails says whether the manager's routes to the hop count attempts or retry failures: whether it is a front.
func (m *manager) fails() bool {
	return slices.ContainsFunc(m.routes, func(r *route) bool {
		return r.toHop && (r.host.IncludeRequestAttemptCount || retriesFailover(r.retryPolicy()))
	})
}

// discover finds hops and fronts.
func (a *auditor) discover() {
	managers := a.dump.managers()
	for _, m := range managers {
		if h := a.hop(m); h != nil {
			a.hops = append(a.hops, h)
			a.note("hop: filter %q of %s", h.name, m.where())
		}
	}
	for _, m := range managers {
		if !slices.ContainsFunc(a.hops, func(h *hop) bool { return h.manager == m }) {
			a.front(m)
		}
		m.share(a.c.Protected())
	}
}

// front marks what of m leads to a hop: where a route of it does so, or retries our way to a hop elsewhere, all that go
// to its cluster.
func (a *auditor) front(m *manager) {
	for _, r := range m.routes {
		to := destinations(r.GetRoute())
		if here := slices.DeleteFunc(slices.Clone(to), func(c string) bool { return !a.leadsToHop(c) }); len(here) > 0 {
			to = here
		} else if !retriesFailover(r.retryPolicy()) {
			continue
		}
		m.ways = append(m.ways, to...)
	}
	if len(m.ways) == 0 {
		return
	}
	slices.Sort(m.ways)
	m.ways = slices.Compact(m.ways)
	for _, r := range m.routes {
		r.toHop = slices.ContainsFunc(destinations(r.GetRoute()), func(c string) bool { return slices.Contains(m.ways, c) })
	}
	a.fronts = append(a.fronts, m)
	a.note("front: %s, by cluster %s", m.where(), strings.Join(m.ways, ", "))
}

// managers are those of every filter chain.
func (d *Dump) managers() []*manager {
	var ms []*manager
	for _, l := range d.listeners {
		for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
			for _, f := range chain.GetFilters() {
				hcm := unpacked[hcmv3.HttpConnectionManager](f.GetTypedConfig())
				if hcm != nil {
					ms = append(ms, d.manager(l, hcm))
				}
			}
		}
	}
	return ms
}

func (d *Dump) manager(l *listenerv3.Listener, hcm *hcmv3.HttpConnectionManager) *manager {
	m := &manager{listener: l, hcm: hcm}
	conf := hcm.GetRouteConfig()
	switch rds := hcm.GetRds(); {
	case rds != nil && d.routes[rds.RouteConfigName] == nil:
		d.passOver("the routes %q of %s, which Envoy does not have", rds.RouteConfigName, m.where())
	case rds != nil:
		conf = d.routes[rds.RouteConfigName]
	case hcm.GetScopedRoutes() != nil:
		d.passOver("the scoped routes of %s", m.where())
	}
	if conf.GetVhds() != nil {
		d.passOver("what %s routes by VHDS", m.where())
	}
	for _, host := range conf.GetVirtualHosts() {
		if host.Matcher != nil {
			d.passOver("the matcher of virtual host %s of %s", host.Name, m.where())
		}
		for _, r := range host.Routes {
			m.routes = append(m.routes, &route{in: m, conf: conf, host: host, Route: r})
		}
	}
	return m
}

// share gives each protected path to the routes that get requests on it: in each virtual host, all up to the first
// that asks for nothing but the path. A route that rewrites paths gets those that it passes on as protected ones.
func (m *manager) share(paths []string) {
	for _, p := range paths {
		var taken *routev3.VirtualHost
		for _, r := range m.routes {
			asked := original(r.Route, p)
			if asked == "" || !matches(r.Match, asked) {
				continue
			}
			if r.host == taken && asked == p {
				r.behind = true
				continue
			}
			r.takes = append(r.takes, p)
			if unconditional(r.Match) && asked == p {
				taken = r.host
			}
		}
	}
}

// hop looks for the service's filter in m.
func (a *auditor) hop(m *manager) (found *hop) {
	for _, f := range m.hcm.HttpFilters {
		packed := f.GetTypedConfig()
		if f.GetConfigDiscovery() != nil {
			packed = a.dump.filters[f.Name]
		}
		filter := unpacked[extprocv3.ExternalProcessor](packed)
		switch {
		case filter == nil:
		case a.isOurs(f.Name, filter) && found == nil:
			found = &hop{manager: m, name: f.Name, filter: filter, off: f.Disabled, copies: 1}
		case a.isOurs(f.Name, filter):
			if f.Name == found.name || !f.Disabled && !found.off {
				found.copies++
			}
		default:
			a.dump.strangers = append(a.dump.strangers, fmt.Sprintf("%q of %s", f.Name, m.where()))
		}
	}
	return found
}

func (a *auditor) isOurs(name string, f *extprocv3.ExternalProcessor) bool {
	cluster := f.GetGrpcService().GetEnvoyGrpc().GetClusterName()
	return strings.Contains(name, ours) || strings.Contains(cluster, ours) ||
		slices.Contains(f.GetMetadataOptions().GetReceivingNamespaces().GetUntyped(), ours) ||
		slices.ContainsFunc(a.dump.addresses(cluster), a.isService)
}

// isService says whether the config names at as a replica of the service.
func (a *auditor) isService(at *corev3.Address) bool {
	return slices.ContainsFunc(a.c.Envoy.Services, func(s config.Address) bool { return s.Addr == address(at) })
}

func (a *auditor) leadsToHop(cluster string) bool {
	return slices.ContainsFunc(a.dump.addresses(cluster), func(at *corev3.Address) bool {
		return slices.ContainsFunc(a.hops, func(h *hop) bool { return listens(h.listener, at) })
	})
}

// listens says whether what connects to at reaches l.
func listens(l *listenerv3.Listener, at *corev3.Address) bool {
	if name := at.GetEnvoyInternalAddress().GetServerListenerName(); name != "" {
		return l.GetInternalListener() != nil && l.Name == name
	}
	if address(at) == address(l.Address) {
		return address(at) != ""
	}
	to, on := at.GetSocketAddress(), l.GetAddress().GetSocketAddress()
	local, _ := netip.ParseAddr(to.GetAddress())
	any, _ := netip.ParseAddr(on.GetAddress())
	return local.IsLoopback() && any.IsUnspecified() && to.GetPortValue() == on.GetPortValue()
}

// address is at as net.Listen takes it, "" for kinds that nobody listens at.
func address(at *corev3.Address) string {
	if p := at.GetPipe(); p != nil {
		return p.Path
	}
	if s := at.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.Address, strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	return ""
}

func (d *Dump) cluster(name string) *clusterv3.Cluster {
	for _, c := range d.clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// addresses are the endpoints of a cluster, as configured or discovered.
func (d *Dump) addresses(cluster string) []*corev3.Address {
	c := d.cluster(cluster)
	load := c.GetLoadAssignment()
	for _, name := range []string{cluster, c.GetEdsClusterConfig().GetServiceName()} {
		if found := d.endpoints[name]; found != nil && load == nil {
			load = found
		}
	}
	return hosts(load)
}

func hosts(load *endpointv3.ClusterLoadAssignment) []*corev3.Address {
	var all []*corev3.Address
	for _, l := range load.GetEndpoints() {
		for _, e := range l.LbEndpoints {
			if at := e.GetEndpoint().GetAddress(); at != nil {
				all = append(all, at)
			}
		}
	}
	return all
}

// destinations are the clusters that an action names, and sends anything to.
func destinations(a *routev3.RouteAction) []string {
	if c := a.GetCluster(); c != "" {
		return []string{c}
	}
	var names []string
	for _, w := range a.GetWeightedClusters().GetClusters() {
		if w.GetWeight().GetValue() > 0 {
			names = append(names, w.Name)
		}
	}
	return names
}

// retryPolicy is the one in force.
func (r *route) retryPolicy() *routev3.RetryPolicy {
	if p := r.GetRoute().GetRetryPolicy(); p != nil {
		return p
	}
	return r.host.GetRetryPolicy()
}

// filterOf is what a route says of a filter by name, the nearest first.
func (r *route) filterOf(name string) *anypb.Any {
	for _, conf := range []map[string]*anypb.Any{r.TypedPerFilterConfig, r.host.TypedPerFilterConfig, r.conf.TypedPerFilterConfig} {
		if conf[name] != nil {
			return conf[name]
		}
	}
	return nil
}
