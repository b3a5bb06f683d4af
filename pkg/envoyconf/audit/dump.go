package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// Dump is the configuration that an Envoy runs on: of static and dynamic resources those in use, none that warms.
type Dump struct {
	Version string // of Envoy, such as 1.40.0; "" is unknown

	listeners []*listenerv3.Listener
	clusters  []*clusterv3.Cluster
	routes    map[string]*routev3.RouteConfiguration       // by RDS
	endpoints map[string]*endpointv3.ClusterLoadAssignment // by cluster
	filters   map[string]*anypb.Any                        // by ECDS
	internal  bool                                         // the bootstrap has internal listeners

	unread    []string // resources that this program cannot read
	strangers []string // ext_proc filters that lead elsewhere
}

// section is any part of a /config_dump: https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump.proto
type section struct {
	Bootstrap struct {
		Extensions []struct {
			Config struct {
				Type string `json:"@type"`
			} `json:"typed_config"`
		} `json:"bootstrap_extensions"`
	} `json:"bootstrap"`
	StaticListeners  []resource `json:"static_listeners"`
	DynamicListeners []struct {
		Active resource `json:"active_state"`
	} `json:"dynamic_listeners"`
	StaticClusters   []resource `json:"static_clusters"`
	DynamicClusters  []resource `json:"dynamic_active_clusters"`
	StaticRoutes     []resource `json:"static_route_configs"`
	DynamicRoutes    []resource `json:"dynamic_route_configs"`
	StaticEndpoints  []resource `json:"static_endpoint_configs"`
	DynamicEndpoints []resource `json:"dynamic_endpoint_configs"`
	Filters          []resource `json:"ecds_filters"`
}

// resource is one entry of a section; which member it has depends on the section.
type resource struct {
	Listener  json.RawMessage `json:"listener"`
	Cluster   json.RawMessage `json:"cluster"`
	Routes    json.RawMessage `json:"route_config"`
	Endpoints json.RawMessage `json:"endpoint_config"`
	Filter    json.RawMessage `json:"ecds_filter"`
}

// Parse reads the answer of /config_dump. A resource that cannot be read is left out, and noted in the Report; an
// extension that this program does not know is taken for one without settings.
func Parse(version string, dump []byte) (*Dump, error) {
	var whole struct {
		Configs []json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(dump, &whole); err != nil {
		return nil, fmt.Errorf("the answer is no config dump: %w", err)
	}
	if len(whole.Configs) == 0 {
		return nil, errors.New("the answer is no config dump: it has no configs")
	}
	d := &Dump{
		Version: version, routes: map[string]*routev3.RouteConfiguration{},
		endpoints: map[string]*endpointv3.ClusterLoadAssignment{}, filters: map[string]*anypb.Any{},
	}
	for i, raw := range whole.Configs {
		var s section
		if err := json.Unmarshal(raw, &s); err != nil {
			d.skip(fmt.Sprintf("configs[%d]", i), err)
			continue
		}
		d.add(s)
	}
	return d, nil
}

func (d *Dump) add(s section) {
	for _, e := range s.Bootstrap.Extensions {
		d.internal = d.internal || strings.HasSuffix(e.Config.Type, ".internal_listener.v3.InternalListener")
	}
	all := append(s.StaticListeners, s.StaticClusters...)
	for _, l := range s.DynamicListeners {
		all = append(all, l.Active)
	}
	for _, more := range [][]resource{s.DynamicClusters, s.StaticRoutes, s.DynamicRoutes, s.StaticEndpoints, s.DynamicEndpoints, s.Filters} {
		all = append(all, more...)
	}
	for _, r := range all {
		d.resource(r)
	}
}

func (d *Dump) resource(r resource) {
	if l := new(listenerv3.Listener); d.read("a listener", r.Listener, l) {
		d.listeners = append(d.listeners, l)
	}
	if c := new(clusterv3.Cluster); d.read("a cluster", r.Cluster, c) {
		d.clusters = append(d.clusters, c)
	}
	if rc := new(routev3.RouteConfiguration); d.read("a route configuration", r.Routes, rc) {
		d.routes[rc.Name] = rc
	}
	if e := new(endpointv3.ClusterLoadAssignment); d.read("the endpoints of a cluster", r.Endpoints, e) {
		d.endpoints[e.ClusterName] = e
	}
	if f := new(corev3.TypedExtensionConfig); d.read("a filter", r.Filter, f) {
		d.filters[f.Name] = f.TypedConfig
	}
}

// deepest is the nesting at which reading stops. Envoy's own configurations stay below 40.
const deepest = 100

// read reads what a dump holds as an Any.
func (d *Dump) read(what string, raw json.RawMessage, into proto.Message) bool {
	if raw == nil {
		return false
	}
	lenient := protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: deepest, Resolver: types{protoregistry.GlobalTypes}}
	var packed anypb.Any
	err := lenient.Unmarshal(raw, &packed)
	if err == nil {
		err = packed.UnmarshalTo(into)
	}
	if err != nil {
		d.skip(what, err)
	}
	return err == nil
}

// skip notes what is left out. The words of the decoder are bounded: they repeat what they could not read.
func (d *Dump) skip(what string, err error) { d.passOver("%s: %.200q", what, err.Error()) }

// passOver notes what is not looked at.
func (d *Dump) passOver(format string, args ...any) {
	const most = 20
	switch {
	case len(d.unread) < most:
		d.unread = append(d.unread, "not read: "+fmt.Sprintf(format, args...))
	case len(d.unread) == most:
		d.unread = append(d.unread, "not read: more")
	}
}

// types finds a message type for every name.
type types struct{ *protoregistry.Types }

// FindMessageByURL takes a type that is not linked in for one that has no fields.
func (t types) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if known, err := t.Types.FindMessageByURL(url); err == nil {
		return known, nil
	}
	return (&corev3.AggregatedConfigSource{}).ProtoReflect().Type(), nil
}

// unpacked reads an Any that holds a T; nil is one that holds something else, or is broken.
func unpacked[T any, P interface {
	*T
	proto.Message
}](packed *anypb.Any) P {
	if m := P(new(T)); packed.MessageIs(m) && packed.UnmarshalTo(m) == nil {
		return m
	}
	return nil
}
