package attach

import (
	"fmt"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/envoyconf"
)

// hopListener is the hop whose clusters may come later, by CDS.
func hopListener(p *envoyconf.Pieces) (*listenerv3.Listener, error) {
	m := clone(p.HopManager)
	m.GetRouteConfig().ValidateClusters = wrapperspb.Bool(false)
	packed, err := anypb.New(m)
	l := clone(p.Hop)
	l.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
	return l, err
}

// ownFilters are the hop's without its router, off until a route switches them on, and the one that names the exchange.
func ownFilters(hop *hcmv3.HttpConnectionManager) ([]*hcmv3.HttpFilter, error) {
	names, err := filter(once, &headermutationv3.HeaderMutation{})
	if err != nil {
		return nil, err
	}
	all := []*hcmv3.HttpFilter{names}
	for _, f := range hop.HttpFilters[:len(hop.HttpFilters)-1] {
		all = append(all, clone(f))
	}
	for _, f := range all {
		f.Disabled = true
	}
	return all, nil
}

// overhearing is the service's filter as one that changes nothing.
func overhearing(hop *hcmv3.HttpConnectionManager) (*hcmv3.HttpFilter, error) {
	i := slices.IndexFunc(hop.HttpFilters, func(f *hcmv3.HttpFilter) bool { return f.Name == service })
	if i < 0 {
		return nil, fmt.Errorf("the hop has no filter %s", service)
	}
	var full extprocv3.ExternalProcessor
	if err := hop.HttpFilters[i].GetTypedConfig().UnmarshalTo(&full); err != nil {
		return nil, err
	}
	full.GrpcService.RetryPolicy = nil // what is lost is one figure
	full.ProcessingMode.RequestBodyMode = extprocv3.ProcessingMode_STREAMED
	full.ProcessingMode.ResponseBodyMode = extprocv3.ProcessingMode_STREAMED
	f, err := filter(service, &extprocv3.ExternalProcessor{
		GrpcService: full.GrpcService, ProcessingMode: full.ProcessingMode, ForwardRules: full.ForwardRules,
		ResponseAttributes: full.ResponseAttributes, ObservabilityMode: true, FailureModeAllow: true,
	})
	if err != nil {
		return nil, err
	}
	f.Disabled = true
	return f, nil
}

func filter(name string, m proto.Message) (*hcmv3.HttpFilter, error) {
	packed, err := anypb.New(m)
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed}}, err
}

// ownReplies are mappers that leave alone what happens on a user's own routes, and ask for no further attempt: the
// manager that they are for makes none.
func ownReplies(mappers []*hcmv3.ResponseMapper) ([]*hcmv3.ResponseMapper, error) {
	onRoute, err := ofRoute()
	if err != nil {
		return nil, err
	}
	var all []*hcmv3.ResponseMapper
	for i, m := range mappers {
		if i+1 < len(mappers) && sameReply(m, mappers[i+1]) {
			continue // without the further attempt, the wider one says the same
		}
		m = clone(m)
		m.HeadersToAdd = nil
		m.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
			AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{onRoute, m.Filter}},
		}}
		all = append(all, m)
	}
	return all, nil
}

func sameReply(a, b *hcmv3.ResponseMapper) bool {
	return proto.Equal(a.StatusCode, b.StatusCode) && proto.Equal(a.BodyFormatOverride, b.BodyFormatOverride)
}

// ofRoute matches what is answered on a route of ours.
func ofRoute() (*accesslogv3.AccessLogFilter, error) {
	packed, err := anypb.New(&celv3.ExpressionFilter{Expression: fmt.Sprintf("xds.route_name == '%s'", service)})
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: packed},
		},
	}}, err
}
