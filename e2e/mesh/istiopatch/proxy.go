package main

import (
	"fmt"
	"os"
	"strings"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
	strict "sigs.k8s.io/yaml"

	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core/envoyfilter"
)

// proxy is what Istio configures.
type proxy struct {
	bootstrap *bootstrap.Bootstrap
	listeners []*listener.Listener
	routes    []*route.RouteConfiguration
	clusters  []*cluster.Cluster
}

func readProxy(path string) (*proxy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var raw struct {
		Bootstrap jsonText   `json:"bootstrap"`
		Listeners []jsonText `json:"listeners"`
		Routes    []jsonText `json:"routes"`
		Clusters  []jsonText `json:"clusters"`
	}
	if err := strict.UnmarshalStrict(data, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p := &proxy{bootstrap: &bootstrap.Bootstrap{}}
	if err := protojson.Unmarshal(raw.Bootstrap, p.bootstrap); err != nil {
		return nil, fmt.Errorf("%s: bootstrap: %w", path, err)
	}
	if p.listeners, err = each(raw.Listeners, func() *listener.Listener { return &listener.Listener{} }); err != nil {
		return nil, fmt.Errorf("%s: listeners: %w", path, err)
	}
	if p.routes, err = each(raw.Routes, func() *route.RouteConfiguration { return &route.RouteConfiguration{} }); err != nil {
		return nil, fmt.Errorf("%s: routes: %w", path, err)
	}
	if p.clusters, err = each(raw.Clusters, func() *cluster.Cluster { return &cluster.Cluster{} }); err != nil {
		return nil, fmt.Errorf("%s: clusters: %w", path, err)
	}
	return p, nil
}

// jsonText is json.RawMessage.
type jsonText []byte

// UnmarshalJSON keeps the text.
func (j *jsonText) UnmarshalJSON(text []byte) error {
	*j = append((*j)[:0], text...)
	return nil
}

func each[M proto.Message](texts []jsonText, empty func() M) ([]M, error) {
	var all []M
	for _, text := range texts {
		m := empty()
		if err := protojson.Unmarshal(text, m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// patch is core/listener_builder.go's patchListeners, core/httproute.go's calls for routes, and core/cluster.go's for
// clusters.
func (p *proxy) patch(node *model.Proxy, efw *model.MergedEnvoyFilterWrapper) {
	outbound := networking.EnvoyFilter_SIDECAR_OUTBOUND
	if node.Type == model.Router {
		outbound = networking.EnvoyFilter_GATEWAY
		p.listeners = envoyfilter.ApplyListenerPatches(outbound, efw, p.listeners, false)
	} else {
		p.patchSidecarListeners(efw)
	}
	for i, rc := range p.routes {
		context := outbound
		if strings.HasPrefix(rc.Name, "inbound|") {
			context = networking.EnvoyFilter_SIDECAR_INBOUND
		}
		p.routes[i] = envoyfilter.ApplyRouteConfigurationPatches(context, node, efw, rc)
	}
	var kept []*cluster.Cluster
	for _, c := range p.clusters {
		context := outbound
		if strings.HasPrefix(c.Name, "inbound|") {
			context = networking.EnvoyFilter_SIDECAR_INBOUND
		}
		if c = envoyfilter.ApplyClusterMerge(context, efw, c, nil); c != nil {
			kept = append(kept, c)
		}
	}
	p.clusters = append(kept, envoyfilter.InsertedClusters(outbound, efw)...)
	if node.Type != model.Router {
		p.clusters = append(p.clusters, envoyfilter.InsertedClusters(networking.EnvoyFilter_SIDECAR_INBOUND, efw)...)
	}
}

// patchSidecarListeners: the two virtual listeners are patched one by one, without what is added.
func (p *proxy) patchSidecarListeners(efw *model.MergedEnvoyFilterWrapper) {
	var virtual, inbound, outbound []*listener.Listener
	for _, l := range p.listeners {
		switch l.Name {
		case model.VirtualInboundListenerName:
			virtual = append(virtual, envoyfilter.ApplyListenerPatches(networking.EnvoyFilter_SIDECAR_INBOUND, efw, []*listener.Listener{l}, true)...)
		case model.VirtualOutboundListenerName:
			virtual = append(virtual, envoyfilter.ApplyListenerPatches(networking.EnvoyFilter_SIDECAR_OUTBOUND, efw, []*listener.Listener{l}, true)...)
		default:
			outbound = append(outbound, l)
		}
	}
	outbound = envoyfilter.ApplyListenerPatches(networking.EnvoyFilter_SIDECAR_OUTBOUND, efw, outbound, false)
	inbound = envoyfilter.ApplyListenerPatches(networking.EnvoyFilter_SIDECAR_INBOUND, efw, inbound, false)
	p.listeners = append(append(outbound, inbound...), virtual...)
}

// bootstrapped is everything in one static bootstrap.
func (p *proxy) bootstrapped() ([]byte, error) {
	for _, l := range p.listeners {
		for _, fc := range append(l.FilterChains, l.DefaultFilterChain) {
			if err := p.inlineRoutes(fc); err != nil {
				return nil, fmt.Errorf("listener %s: %w", l.Name, err)
			}
		}
	}
	static := p.bootstrap.StaticResources
	static.Listeners = append(static.Listeners, p.listeners...)
	static.Clusters = append(static.Clusters, p.clusters...)
	js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.bootstrap)
	if err != nil {
		return nil, err
	}
	return strict.JSONToYAML(js)
}

func (p *proxy) inlineRoutes(fc *listener.FilterChain) error {
	for _, f := range fc.GetFilters() {
		m := &hcm.HttpConnectionManager{}
		if !f.GetTypedConfig().MessageIs(m) {
			continue
		}
		if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
			return err
		}
		if m.GetRds() == nil {
			continue
		}
		rc := p.routesNamed(m.GetRds().RouteConfigName)
		if rc == nil {
			return fmt.Errorf("no routes are named %s", m.GetRds().RouteConfigName)
		}
		m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: rc}
		packed, err := anypb.New(m)
		if err != nil {
			return err
		}
		f.ConfigType = &listener.Filter_TypedConfig{TypedConfig: packed}
	}
	return nil
}

func (p *proxy) routesNamed(name string) *route.RouteConfiguration {
	for _, rc := range p.routes {
		if rc.Name == name {
			return rc
		}
	}
	return nil
}
