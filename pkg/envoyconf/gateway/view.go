package gateway

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
	"understudy/pkg/envoyconf/attach"
)

// view is what the template shows: Envoy's own configuration of the same Config, sorted into Envoy Gateway's resources.
type view struct {
	Options
	Port, HopPort uint32
	Pipe          string // of the hop
	BodyLimit     uint64 // room for a request, in bytes
	Counts        bool   // attempts are numbered

	Backends      []backend
	Logs          []string // backends of one replica each
	Fronts        []front
	Targets       []target
	Managers      []manager
	Nothing       *routev3.DirectResponseAction
	Strip         *corev3.TypedExtensionConfig
	Filter        *extprocv3.ExternalProcessor
	FilterPatches []filterPatch
}

// backend is a Backend and its TLS.
type backend struct {
	Name       string
	Cluster    *clusterv3.Cluster // that it is for
	H2C        bool
	TLS        *backendTLS
	ClientCert string // name of a Secret; "": none
}

type backendTLS struct {
	Name, Host string
	CA         *authority // nil: the system's
}

// authority is a ConfigMap and the file that it is made of.
type authority struct{ Name, Path string }

// target is a cluster that the service may choose.
type target struct {
	Cluster string // as x-llm-cluster names it
	Backend string
	Filters []*hcmv3.HttpFilter // of the cluster
}

// front is an HTTPRoute of paths that are treated alike.
type front struct {
	Name, Why string
	Whole     bool // the service reads requests whole
	Retry     *routev3.RetryPolicy
	Rules     []rule
	Selector  string // a regular expression for the names of its routes in Envoy
}

type rule struct {
	Matches []pathMatch
	Set     []*corev3.HeaderValue
}

type pathMatch struct{ Type, Value string }

// manager is the connection manager of a listener.
type manager struct {
	Listener string
	Manager  *hcmv3.HttpConnectionManager
}

// filterPatch sets one field of the service's filter.
type filterPatch struct {
	Path  string
	Value proto.Message
	List  bool // the field is a list, and Value all of it

	Overheard bool // attach.Observe has it too
}

// HopClusters are Envoy's clusters of the front's rules, each of which leads to the hop.
func (v *view) HopClusters() []string {
	var names []string
	for _, f := range v.Fronts {
		for i := range f.Rules {
			names = append(names, fmt.Sprintf("httproute/%s/%s/rule/%d", v.Namespace, f.Name, i))
		}
	}
	return names
}

// Everything says that passthrough has all paths: of two routes for all of them, Envoy Gateway would take the one that
// answers what nobody serves.
func (v *view) Everything() bool {
	for _, f := range v.Fronts {
		if slices.Contains(f.paths(), pathMatch{"PathPrefix", "/"}) {
			return true
		}
	}
	return false
}

// BodyMiB is BodyLimit in MiB, rounded up.
func (v *view) BodyMiB() uint64 { return (v.BodyLimit + 1<<20 - 1) >> 20 }

func newView(c *config.Config, o Options, p *envoyconf.Pieces) (*view, error) {
	filter, err := filterOf(p)
	if err != nil {
		return nil, err
	}
	v := &view{
		Options: o, Port: port(c.Envoy.Listen), HopPort: port(c.Envoy.Listen) + 1,
		Pipe:     p.Hop.GetAddress().GetPipe().GetPath(),
		Managers: []manager{{"front", p.FrontManager}, {"hop", p.HopManager}},
		Strip:    p.FrontManager.EarlyHeaderMutationExtensions[0],
		Filter:   filter, FilterPatches: filterPatches(filter),
	}
	for _, cluster := range p.Clusters {
		if o.Level == attach.Observe && !envoyconf.IsService(cluster.Name) {
			continue
		}
		if err := v.addCluster(c, cluster); err != nil {
			return nil, err
		}
	}
	if o.Level != attach.Observe {
		v.addFronts(p.FrontManager.GetRouteConfig().VirtualHosts[0].Routes)
	}
	return v, v.acceptable()
}

func filterPatches(f *extprocv3.ExternalProcessor) []filterPatch {
	service := f.GrpcService
	return []filterPatch{
		{Path: "/forward_rules", Value: f.ForwardRules, Overheard: true},
		{Path: "/mutation_rules", Value: f.MutationRules},
		{Path: "/max_message_timeout", Value: f.MaxMessageTimeout},
		{Path: "/grpc_service/timeout", Value: durationpb.New(0), Overheard: true},
		{Path: "/grpc_service/envoy_grpc/max_receive_message_length", Value: service.GetEnvoyGrpc().MaxReceiveMessageLength},
		{Path: "/grpc_service/retry_policy/retry_host_predicate", Value: service.RetryPolicy.RetryHostPredicate[0], List: true},
		{Path: "/grpc_service/retry_policy/host_selection_retry_max_attempts", Value: wrapperspb.Int64(service.RetryPolicy.HostSelectionRetryMaxAttempts)},
	}
}

// addCluster makes a Backend of a cluster, and a target of those that the service may choose.
func (v *view) addCluster(c *config.Config, cluster *clusterv3.Cluster) error {
	switch name := cluster.Name; {
	case name == "hop":
		return nil
	case envoyconf.IsService(name):
		return v.addService(c, cluster)
	}
	b := backend{Name: kubernetesName(cluster.Name), Cluster: cluster}
	options := &upstreamv3.HttpProtocolOptions{}
	if err := cluster.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(options); err != nil {
		return fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if err := b.secure(c, cluster); err != nil {
		return err
	}
	v.Backends = append(v.Backends, b)
	v.Targets = append(v.Targets, target{Cluster: cluster.Name, Backend: b.Name, Filters: options.HttpFilters})
	return nil
}

// addService: of several replicas each has a backend of its own for its access log, besides the one of all.
func (v *view) addService(c *config.Config, cluster *clusterv3.Cluster) error {
	_, replica, one := strings.Cut(cluster.Name, "#")
	b := backend{Name: "understudy-service", Cluster: cluster, H2C: cluster.TransportSocket == nil}
	if one {
		b.Name += "-" + replica
	}
	if err := b.secure(c, cluster); err != nil {
		return err
	}
	if t := c.Envoy.TLS; t != nil && t.Cert != "" {
		b.ClientCert = "understudy-envoy"
	}
	v.Backends = append(v.Backends, b)
	if one || len(c.Envoy.Services) <= 1 {
		v.Logs = append(v.Logs, b.Name)
	}
	return nil
}

// secure takes the trust of a cluster's TLS.
func (b *backend) secure(c *config.Config, cluster *clusterv3.Cluster) error {
	if cluster.TransportSocket == nil {
		return nil
	}
	up := &tlsv3.UpstreamTlsContext{}
	if err := cluster.TransportSocket.GetTypedConfig().UnmarshalTo(up); err != nil {
		return fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if up.Sni == "" {
		return fmt.Errorf("cluster %s: a BackendTLSPolicy checks a host name, not an IP address: give the endpoint a name", cluster.Name)
	}
	b.TLS = &backendTLS{Name: b.Name, Host: strings.ToLower(up.Sni)}
	if path := up.CommonTlsContext.GetValidationContext().GetTrustedCa().GetFilename(); path != c.Envoy.CAFile {
		b.TLS.CA = &authority{Name: b.Name + "-ca", Path: path}
	}
	return nil
}

// The HTTPRoutes of the front.
const (
	retriedWhy  = "Paths that chains protect."
	observedWhy = "Paths whose chains only observe: a failure reaches the client as it would without us."
	plainWhy    = "Paths that no chain protects, and our own. They have no retry: a POST must not be sent twice."
)

// addFronts sorts the front's routes, of which the last answers what nobody serves.
func (v *view) addFronts(routes []*routev3.Route) {
	retried := front{Name: "understudy-front", Why: retriedWhy, Whole: true}
	observed := front{Name: "understudy-front-observed", Why: observedWhy, Whole: true}
	plain := front{Name: "understudy-front-plain", Why: plainWhy}
	for _, r := range routes[:len(routes)-1] {
		switch {
		case r.GetRoute().RetryPolicy != nil && v.Level == attach.SameRequest:
			retried.Retry, v.Counts = r.GetRoute().RetryPolicy, true
			retried.add(r)
		case r.GetRoute().RetryPolicy != nil:
			retried.add(r)
		case r.RequestBodyBufferLimit != nil:
			observed.add(r)
		default:
			plain.add(r)
		}
		v.BodyLimit = max(v.BodyLimit, r.RequestBodyBufferLimit.GetValue())
	}
	for _, f := range []front{retried, observed, plain} {
		for _, part := range f.parts() {
			part.Selector = fmt.Sprintf("^httproute.%s.%s.rule", v.Namespace, part.Name)
			v.Fronts = append(v.Fronts, part)
		}
	}
	v.Nothing = routes[len(routes)-1].GetDirectResponse()
}

// An HTTPRoute of the Gateway API has at most 16 rules, and at most 128 matches in all of them.
const (
	maxRules   = 16
	maxMatches = 128 / maxRules
)

// parts are f as HTTPRoutes that are not too large.
func (f *front) parts() []front {
	var parts []front
	for rules := range slices.Chunk(f.Rules, maxRules) {
		part := *f
		part.Rules = rules
		if len(parts) > 0 {
			part.Name += fmt.Sprintf("-%d", len(parts)+1)
		}
		parts = append(parts, part)
	}
	return parts
}

// add gives the front one more path, in the rule before where both set the same headers.
func (f *front) add(r *routev3.Route) {
	set := []*corev3.HeaderValue{{Key: "x-understudy-hop", Value: "plain"}}
	if f.Whole {
		set[0].Value = "whole"
	}
	for _, h := range r.RequestHeadersToAdd {
		set = append(set, h.Header)
	}
	if last := len(f.Rules) - 1; last >= 0 && same(f.Rules[last].Set, set) && len(f.Rules[last].Matches) < maxMatches {
		f.Rules[last].Matches = append(f.Rules[last].Matches, matchOf(r.Match))
		return
	}
	f.Rules = append(f.Rules, rule{Matches: []pathMatch{matchOf(r.Match)}, Set: set})
}

func same(a, b []*corev3.HeaderValue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func matchOf(m *routev3.RouteMatch) pathMatch {
	switch {
	case m.GetPath() != "":
		return pathMatch{"Exact", m.GetPath()}
	case m.GetSafeRegex() != nil:
		return pathMatch{"RegularExpression", m.GetSafeRegex().Regex}
	case m.GetPathSeparatedPrefix() != "":
		return pathMatch{"PathPrefix", m.GetPathSeparatedPrefix()}
	}
	return pathMatch{"PathPrefix", m.GetPrefix()}
}
