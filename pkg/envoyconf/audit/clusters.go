package audit

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
)

// checkClusters looks at what leads to the hop, to the service and to the providers.
func (a *auditor) checkClusters() {
	for _, name := range a.toHop() {
		a.checkHopCluster(name)
	}
	for _, name := range a.toService() {
		a.checkServiceCluster(name)
	}
	if len(a.hops) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.c.Providers)) {
		a.checkProvider(a.c.Providers[name])
	}
}

func (a *auditor) toHop() []string {
	var names []string
	for _, m := range a.fronts {
		names = append(names, m.ways...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *auditor) toService() []string {
	var names []string
	for _, h := range a.hops {
		if name := h.filter.GetGrpcService().GetEnvoyGrpc().GetClusterName(); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *auditor) checkHopCluster(name string) {
	c, where := a.dump.cluster(name), "cluster "+name
	if c == nil {
		a.conflict(where, "it does not exist", "no request reaches the hop", lines("clusters", a.want.cluster("hop")))
		return
	}
	for _, at := range a.dump.addresses(name) {
		if to := at.GetEnvoyInternalAddress().GetServerListenerName(); to != "" && !a.leadsToHop(name) {
			a.conflict(where, "its endpoint is the internal listener "+to+", which has no filter of ours or does not exist", "no request reaches the hop",
				line("load_assignment", a.want.cluster("hop").LoadAssignment))
		}
	}
	if c.OutlierDetection != nil {
		a.conflict(where, "outlier_detection is set", "a hop that passes on a provider's failures is ejected, and with it every provider", "outlier_detection: null")
	}
	a.checkCeilings(c, true)
	a.checkUpstream(c)
	if http2(c) != nil {
		a.advice(where, "it speaks HTTP/2", "one slow stream can hold up others of its connection, and WebSockets do not pass",
			"explicit_http_config: {http_protocol_options: {}}")
	}
}

func (a *auditor) checkServiceCluster(name string) {
	c, where := a.dump.cluster(name), "cluster "+name
	want := a.want.cluster(ours)
	if c == nil {
		a.conflict(where, "it does not exist", "the service is never asked", lines("clusters", want))
		return
	}
	if c.OutlierDetection != nil {
		a.conflict(where, "outlier_detection is set", "streams that end early by design eject the service's replicas, up to the last", "outlier_detection: null")
	}
	a.checkCeilings(c, true)
	a.checkUpstream(c)
	if a.c.Envoy.TLS != nil && c.TransportSocket == nil && len(c.TransportSocketMatches) == 0 {
		a.conflict(where, "it has no transport_socket, and server.tls is set", "the service lets nobody in", line("transport_socket", want.TransportSocket))
	}
	h2 := http2(c)
	if h2 == nil {
		a.conflict(where, "it does not speak HTTP/2", "gRPC needs it: the service is never asked", options(want))
		return
	}
	set := line("http2_protocol_options", http2(want))
	if h2.GetConnectionKeepalive().GetInterval() == nil {
		a.conflict(where, "it has no connection_keepalive", "a frozen replica of the service is never noticed: its attempts end in a 504, which is not retried", set)
	}
	if narrow(h2) {
		a.advice(where, "initial_connection_window_size has no room for many initial_stream_window_size",
			"forty slow readers stall every exchange for seconds", set)
	}
	if len(c.HealthChecks) == 0 && len(a.dump.addresses(name)) > 1 {
		a.advice(where, "it has no health_checks", "a lost replica is tried again and again", lines("health_checks", want.HealthChecks...))
	}
}

// narrow says whether a few slow streams fill the connection's window. Envoy's defaults are one size for both, or
// nearly.
func narrow(h *corev3.Http2ProtocolOptions) bool {
	stream, conn := h.GetInitialStreamWindowSize(), h.GetInitialConnectionWindowSize()
	return stream == nil || conn == nil || uint64(conn.Value) < 64*uint64(stream.Value)
}

// ceiling is what Envoy allows at once of everything but retries where nothing is said. Streams are long here, and
// what is beyond a ceiling is refused.
const ceiling = 1024

// checkCeilings looks at Envoy's circuit breakers, which count and know nothing.
func (a *auditor) checkCeilings(c *clusterv3.Cluster, retried bool) {
	t := &clusterv3.CircuitBreakers_Thresholds{}
	for _, own := range c.GetCircuitBreakers().GetThresholds() {
		if own.Priority == corev3.RoutingPriority_DEFAULT {
			t = own
		}
	}
	where, set := "cluster "+c.Name, line("circuit_breakers", a.want.cluster(ours).CircuitBreakers)
	if n := limit(t.MaxRetries, 3); retried && t.RetryBudget == nil && n <= ceiling {
		a.conflict(where, fmt.Sprintf("circuit_breakers: max_retries is %d%s", n, unset(t.MaxRetries == nil)),
			"more failovers at once than that are dropped, in exactly the outage they are for", set)
	}
	if retried && t.RetryBudget != nil {
		a.conflict(where, "circuit_breakers: a retry_budget is set", "failovers beyond a share of the traffic are dropped, in exactly the outage they are for", set)
	}
	for _, m := range []struct {
		name string
		n    uint32
	}{
		{"max_connections", limit(t.MaxConnections, ceiling)},
		{"max_pending_requests", limit(t.MaxPendingRequests, ceiling)},
		{"max_requests", limit(t.MaxRequests, ceiling)},
	} {
		if m.n <= ceiling {
			a.conflict(where, fmt.Sprintf("circuit_breakers: %s is %d", m.name, m.n), "what is beyond is refused at once, in no dialect", set)
		}
	}
}

// limit is a threshold, or Envoy's where it is not set.
func limit(own *wrapperspb.UInt32Value, otherwise uint32) uint32 {
	if own == nil {
		return otherwise
	}
	return own.Value
}

// checkUpstream looks at what ends streams of a cluster, whatever it leads to.
func (a *auditor) checkUpstream(c *clusterv3.Cluster) {
	where := "cluster " + c.Name
	if d := httpOptions(c).GetCommonHttpProtocolOptions().GetMaxStreamDuration().AsDuration(); a.cuts(d) {
		a.conflict(where, fmt.Sprintf("max_stream_duration is %s", d), fmt.Sprintf("an exchange is cut then; those of the chains may take %s", a.longest),
			"common_http_protocol_options: {max_stream_duration: 0s}")
	}
	if n := c.GetPerConnectionBufferLimitBytes().GetValue(); n > defaultBuffer {
		a.advice(where, fmt.Sprintf("per_connection_buffer_limit_bytes is %d", n), "each slow reader may hold as much of Envoy's memory",
			fmt.Sprintf("per_connection_buffer_limit_bytes: %d", a.want.Front.GetPerConnectionBufferLimitBytes().GetValue()))
	}
	for _, f := range httpOptions(c).GetHttpFilters() {
		if p := unpacked[extprocv3.ExternalProcessor](f.GetTypedConfig()); p != nil && a.isOurs(f.Name, p) {
			a.conflict(where, "the service's filter is in the cluster", "Envoy 1.39 and 1.40 crash there under slow readers and large bodies, and local replies are never retried",
				"put the filter into a listener of its own: see `extproc envoy`")
		}
	}
}

func (a *auditor) checkProvider(p *config.Provider) {
	c, where, want := a.dump.cluster(p.Cluster), "cluster "+p.Cluster, a.want.cluster(p.Cluster)
	if c == nil {
		a.conflict(where, "it does not exist", "provider "+p.Name+" is never reached: each of its attempts is a 503 of Envoy's", lines("clusters", want))
		return
	}
	a.checkCeilings(c, false)
	a.checkUpstream(c)
	if c.OutlierDetection != nil {
		a.advice(where, "outlier_detection is set", "it hides the provider from the breaker that watches it, and delays its return", "outlier_detection: null")
	}
	const stale = 5 * time.Minute
	if d := httpOptions(c).GetCommonHttpProtocolOptions().GetIdleTimeout(); d == nil || d.AsDuration() == 0 || d.AsDuration() > stale {
		a.advice(where, "idle connections are kept for an hour or so", "one that the provider has closed meanwhile resets the next request",
			line("common_http_protocol_options", httpOptions(want).GetCommonHttpProtocolOptions()))
	}
	if p.Endpoint.Scheme == "https" {
		a.checkTLS(c, want, p.Endpoint.Hostname())
	}
}

// checkTLS looks at whether a provider is who it should be: Envoy checks no name by itself. What comes by SDS cannot
// be seen here, and is taken to be right.
func (a *auditor) checkTLS(c, want *clusterv3.Cluster, host string) {
	where, set := "cluster "+c.Name, line("transport_socket", want.TransportSocket)
	if c.TransportSocket == nil && len(c.TransportSocketMatches) == 0 {
		a.conflict(where, "it has no TLS, and the endpoint is https", "keys and prompts travel in the clear, if the provider answers at all", set)
		return
	}
	t := unpacked[tlsv3.UpstreamTlsContext](c.GetTransportSocket().GetTypedConfig())
	if t == nil {
		return // a kind that this program does not know
	}
	auto := httpOptions(c).GetUpstreamHttpProtocolOptions()
	if _, named := netip.ParseAddr(host); named != nil && t.Sni != host && !t.GetAutoHostSni() && !auto.GetAutoSni() {
		a.conflict(where, fmt.Sprintf("sni is %q, the provider is %s", t.Sni, host), "the provider shows another certificate, or none", set)
	}
	v := t.GetCommonTlsContext().GetValidationContext()
	if combined := t.GetCommonTlsContext().GetCombinedValidationContext(); combined != nil {
		v = combined.GetDefaultValidationContext()
	}
	secret := t.GetCommonTlsContext().GetValidationContextSdsSecretConfig() != nil
	if len(v.GetMatchTypedSubjectAltNames()) == 0 && !secret && !t.GetAutoSniSanValidation() && !auto.GetAutoSanValidation() {
		a.conflict(where, "no name is matched in the provider's certificate", "anybody with some certificate of a trusted authority can take the provider's place, and its key", set)
	}
}

// httpOptions are a cluster's, empty where it has none.
func httpOptions(c *clusterv3.Cluster) *upstreamv3.HttpProtocolOptions {
	for name, packed := range c.GetTypedExtensionProtocolOptions() {
		if o := unpacked[upstreamv3.HttpProtocolOptions](packed); strings.HasSuffix(name, ".HttpProtocolOptions") && o != nil {
			return o
		}
	}
	return &upstreamv3.HttpProtocolOptions{}
}

// http2 are the settings of a cluster that speaks HTTP/2 and nothing else; nil is any other.
func http2(c *clusterv3.Cluster) *corev3.Http2ProtocolOptions {
	if h := httpOptions(c).GetExplicitHttpConfig(); h != nil {
		return h.GetHttp2ProtocolOptions()
	}
	//lint:ignore SA1019 running Envoys still have it
	return c.GetHttp2ProtocolOptions()
}

// options are a cluster's HTTP options as YAML.
func options(c *clusterv3.Cluster) string {
	return "typed_extension_protocol_options:\n  " + indent(line("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]))
}
