package audit

import (
	"encoding/json"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"understudy/pkg/envoyconf"
)

// wanted is what `extproc envoy` writes for the config, from which the lines to change are taken.
type wanted struct{ *envoyconf.Pieces }

func (w wanted) httpFilter() *hcmv3.HttpFilter {
	for _, f := range w.HopManager.HttpFilters {
		if unpacked[extprocv3.ExternalProcessor](f.GetTypedConfig()) != nil {
			return f
		}
	}
	return nil
}

func (w wanted) filter() *extprocv3.ExternalProcessor {
	return unpacked[extprocv3.ExternalProcessor](w.httpFilter().GetTypedConfig())
}

// protected is a route of the front that retries, or any where all chains only observe.
func (w wanted) protected() *routev3.Route {
	routes := w.FrontManager.GetRouteConfig().GetVirtualHosts()[0].Routes
	i := slices.IndexFunc(routes, func(r *routev3.Route) bool { return r.GetRoute().GetRetryPolicy() != nil })
	return routes[max(i, 0)]
}

func (w wanted) retry() string {
	return line("retry_policy", w.protected().GetRoute().GetRetryPolicy())
}

// chosen is the hop's route of what the service has chosen.
func (w wanted) chosen() *routev3.Route {
	return w.HopManager.GetRouteConfig().GetVirtualHosts()[0].Routes[0]
}

func (w wanted) cluster(name string) *clusterv3.Cluster {
	for _, c := range w.Clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// line is a message as YAML under a key.
func line(key string, m proto.Message) string { return written(key, asJSON(m)) }

// lines is a list of messages as YAML under a key.
func lines[M proto.Message](key string, ms ...M) string {
	items := make([]string, len(ms))
	for i, m := range ms {
		items[i] = string(asJSON(m))
	}
	return written(key, []byte("["+strings.Join(items, ",")+"]"))
}

func asJSON(m proto.Message) json.RawMessage {
	js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return json.RawMessage("null")
	}
	return js
}

func written(key string, value json.RawMessage) string {
	js, err := json.Marshal(map[string]json.RawMessage{key: value})
	if err != nil {
		return ""
	}
	y, err := yaml.JSONToYAML(js)
	if err != nil {
		return ""
	}
	return string(y)
}
