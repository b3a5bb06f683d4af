package audit

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// envoy is a configuration that tests break.
type envoy struct {
	*envoyconf.Pieces
	t testing.TB
}

// built is what `extproc envoy` writes.
func built(t testing.TB, c *config.Config, hop envoyconf.Hop) envoy {
	t.Helper()
	p, err := envoyconf.Build(c, hop)
	if err != nil {
		t.Fatal(err)
	}
	return envoy{p, t}
}

func parsed(t testing.TB, edits ...string) *config.Config {
	t.Helper()
	data, err := os.ReadFile("../testdata/closed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i+1 < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			t.Fatalf("the config has no %q", edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e envoy) pack(m proto.Message) *anypb.Any {
	e.t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		e.t.Fatal(err)
	}
	return a
}

// route is the first of a manager that fits.
func (e envoy) route(m *hcmv3.HttpConnectionManager, path string) *routev3.Route {
	e.t.Helper()
	for _, r := range m.GetRouteConfig().GetVirtualHosts()[0].Routes {
		if pattern(r.Match) == path {
			return r
		}
	}
	e.t.Fatalf("no route %q", path)
	return nil
}

func (e envoy) front(path string) *routev3.RouteAction {
	return e.route(e.FrontManager, path).GetRoute()
}

func (e envoy) hop(path string) *routev3.Route { return e.route(e.HopManager, path) }

// chat is a path that chains protect, choice the route of the service's choice.
const (
	chat   = "/v1/messages"
	choice = "/* with x-llm-cluster"
)

func (e envoy) retry() *routev3.RetryPolicy { return e.front(chat).RetryPolicy }

func (e envoy) filter(edit func(*extprocv3.ExternalProcessor)) {
	e.t.Helper()
	for _, f := range e.HopManager.HttpFilters {
		if p := unpacked[extprocv3.ExternalProcessor](f.GetTypedConfig()); p != nil {
			edit(p)
			f.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: e.pack(p)}
			return
		}
	}
	e.t.Fatal("no filter")
}

func (e envoy) cluster(name string) *clusterv3.Cluster {
	e.t.Helper()
	for _, c := range e.Clusters {
		if c.Name == name {
			return c
		}
	}
	e.t.Fatalf("no cluster %q", name)
	return nil
}

const optionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func (e envoy) options(cluster string, edit func(*upstreamv3.HttpProtocolOptions)) {
	c := e.cluster(cluster)
	o := httpOptions(c)
	edit(o)
	c.TypedExtensionProtocolOptions[optionsName] = e.pack(o)
}

func (e envoy) tls(cluster string, edit func(*tlsv3.UpstreamTlsContext)) {
	c := e.cluster(cluster)
	t := unpacked[tlsv3.UpstreamTlsContext](c.TransportSocket.GetTypedConfig())
	edit(t)
	c.TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: e.pack(t)}
}

// repack puts the managers, which tests edit, back into their listeners.
func (e envoy) repack() {
	for l, m := range map[*listenerv3.Listener]*hcmv3.HttpConnectionManager{e.Front: e.FrontManager, e.Hop: e.HopManager} {
		l.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: e.pack(m)}
	}
}

// dump is what Envoy's /config_dump would say of a static configuration.
func (e envoy) dump() []byte {
	e.t.Helper()
	e.repack()
	listeners, clusters := &adminv3.ListenersConfigDump{}, &adminv3.ClustersConfigDump{}
	for _, l := range []*listenerv3.Listener{e.Front, e.Hop} {
		listeners.StaticListeners = append(listeners.StaticListeners, &adminv3.ListenersConfigDump_StaticListener{Listener: e.pack(l)})
	}
	for _, c := range e.Clusters {
		clusters.StaticClusters = append(clusters.StaticClusters, &adminv3.ClustersConfigDump_StaticCluster{Cluster: e.pack(c)})
	}
	return e.sections(&adminv3.BootstrapConfigDump{Bootstrap: &bootstrapv3.Bootstrap{BootstrapExtensions: e.Extensions}}, listeners, clusters)
}

func (e envoy) sections(ms ...proto.Message) []byte {
	e.t.Helper()
	all := &adminv3.ConfigDump{}
	for _, m := range ms {
		all.Configs = append(all.Configs, e.pack(m))
	}
	js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(all)
	if err != nil {
		e.t.Fatal(err)
	}
	return js
}

func run(t testing.TB, c *config.Config, version string, dump []byte) Report {
	t.Helper()
	d, err := Parse(version, dump)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(d, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func told(r Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(f.String())
	}
	return b.String()
}

func TestNothingIsWrongWithWhatWeWrite(t *testing.T) {
	for _, file := range []string{"closed", "open", "replicas", "sockets", "platforms"} {
		for _, hop := range []envoyconf.Hop{envoyconf.Internal, envoyconf.TCP, envoyconf.UDS} {
			for _, version := range []string{"1.40.0", "1.36.4", ""} {
				c, err := config.Load("../testdata/" + file + ".yaml")
				if err != nil {
					t.Fatal(err)
				}
				p, err := envoyconf.Build(c, hop)
				if err != nil {
					continue // this config has no such hop
				}
				r := run(t, c, version, envoy{p, t}.dump())
				if r.Level != SameRequest || len(r.Findings) > 0 || len(r.Notes) != 2 {
					t.Errorf("Run(%s, %s, %q) = %s, %q:\n%s", file, hop, version, r.Level, r.Notes, told(r))
				}
			}
		}
	}
}

func seconds(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }

// Each row breaks one setting of what `extproc envoy` writes, and wants that told, and nothing else.
func TestEachSettingThatDefeatsFailoverIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		edit     func(e envoy)
		severity Severity
		where    string
		is       string
		set      string
	}{
		{"outlier detection ejects the hop", func(e envoy) { e.cluster("hop").OutlierDetection = &clusterv3.OutlierDetection{} },
			Conflict, "cluster hop", "outlier_detection is set", "outlier_detection: null"},
		{"outlier detection ejects the service", func(e envoy) { e.cluster("understudy").OutlierDetection = &clusterv3.OutlierDetection{} },
			Conflict, "cluster understudy", "outlier_detection is set", "outlier_detection: null"},
		{"outlier detection ejects a provider", func(e envoy) { e.cluster("llm-local").OutlierDetection = &clusterv3.OutlierDetection{} },
			Advice, "cluster llm-local", "outlier_detection is set", "outlier_detection: null"},

		{"a front route has Envoy's timeout", func(e envoy) { e.front(chat).Timeout = nil },
			Conflict, `route "/v1/messages" of listener front`, "timeout is 15s, Envoy's default", "route: {timeout: 0s}"},
		{"a hop route has a timeout as long as an exchange", func(e envoy) { e.hop(choice).GetRoute().Timeout = seconds(300) },
			Conflict, `route "/* with x-llm-cluster" of listener hop`, "timeout is 5m0s", "route: {timeout: 0s}"},
		{"a passed path has Envoy's timeout", func(e envoy) { e.front("/v1/models/*").Timeout = nil },
			Advice, `route "/v1/models/*" of listener front`, "timeout is 15s, Envoy's default", "route: {timeout: 0s}"},
		{"the front has Envoy's idle timeout", func(e envoy) { e.FrontManager.StreamIdleTimeout = nil },
			Conflict, "listener front", "stream_idle_timeout is 5m0s, Envoy's default", "stream_idle_timeout: 0s"},
		{"the hop has an idle timeout", func(e envoy) { e.HopManager.StreamIdleTimeout = seconds(60) },
			Conflict, "listener hop", "stream_idle_timeout is 1m0s", "stream_idle_timeout: 0s"},
		{"a route has an idle timeout", func(e envoy) { e.front(chat).IdleTimeout = seconds(60) },
			Conflict, `route "/v1/messages" of listener front`, "idle_timeout is 1m0s", "route: {idle_timeout: 0s}"},
		{"a front has a longest stream", func(e envoy) {
			e.FrontManager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxStreamDuration: seconds(60)}
		}, Conflict, "listener front", "max_stream_duration is 1m0s", "common_http_protocol_options: {max_stream_duration: 0s}"},
		{"a route has a longest stream", func(e envoy) {
			e.hop(choice).GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: seconds(60)}
		}, Conflict, `route "/* with x-llm-cluster" of listener hop`, "max_stream_duration is 1m0s", "route: {max_stream_duration"},
		{"the service's cluster has a longest stream", func(e envoy) {
			e.options("understudy", func(o *upstreamv3.HttpProtocolOptions) {
				o.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxStreamDuration: seconds(60)}
			})
		}, Conflict, "cluster understudy", "max_stream_duration is 1m0s", "max_stream_duration: 0s"},
		{"a connection has an end", func(e envoy) {
			e.HopManager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxConnectionDuration: seconds(600)}
		}, Conflict, "listener hop", "max_connection_duration is 10m0s", "max_connection_duration: 0s"},
		{"a request has an end", func(e envoy) { e.FrontManager.RequestTimeout = seconds(30) },
			Advice, "listener front", "request_timeout is 30s", "request_timeout: 0s"},
		{"requests are mirrored", func(e envoy) {
			e.front(chat).RequestMirrorPolicies = []*routev3.RouteAction_RequestMirrorPolicy{{Cluster: "hop"}}
		}, Conflict, `route "/v1/messages" of listener front`, "request_mirror_policies are set", "request_mirror_policies: []"},
		{"a route is hedged", func(e envoy) { e.front(chat).HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true} },
			Conflict, `route "/v1/messages" of listener front`, "a hedge_policy is set", "hedge_policy: null"},

		{"a front route has no retries", func(e envoy) { e.front(chat).RetryPolicy = nil },
			Conflict, `route "/v1/messages" of listener front`, "there is no retry_policy", "num_retries: 8"},
		{"a chain is longer than the retries", func(e envoy) { e.retry().NumRetries = wrapperspb.UInt32(2) },
			Conflict, `route "/v1/messages" of listener front`, "num_retries is 2", "retry_policy: {num_retries: 8}"},
		{"one retry is Envoy's default", func(e envoy) { e.retry().NumRetries = nil },
			Conflict, `route "/v1/messages" of listener front`, "num_retries is 1, Envoy's default", "retry_policy: {num_retries: 8}"},
		{"the service's word is not heard", func(e envoy) { e.retry().RetryOn = "reset,connect-failure,refused-stream" },
			Conflict, `route "/v1/messages" of listener front`, "retry_on lacks retriable-headers", "retriable-headers,reset,connect-failure,refused-stream"},
		{"no header is retriable", func(e envoy) { e.retry().RetriableHeaders = nil },
			Conflict, `route "/v1/messages" of listener front`, "retriable_headers lacks x-llm-failover: next", "exact: next"},
		{"final answers are retried", func(e envoy) { e.retry().RetryOn += ",5xx" },
			Conflict, `route "/v1/messages" of listener front`, "retry_on has 5xx", "retry_on: "},
		{"a try has a timeout", func(e envoy) { e.retry().PerTryTimeout = seconds(10) },
			Conflict, `route "/v1/messages" of listener front`, "per_try_timeout is 10s", "per_try_timeout: 0s"},
		{"a try may not be silent", func(e envoy) { e.retry().PerTryIdleTimeout = seconds(10) },
			Conflict, `route "/v1/messages" of listener front`, "per_try_idle_timeout is 10s", "per_try_idle_timeout: 0s"},
		{"the front waits out a Retry-After", func(e envoy) {
			e.retry().RateLimitedRetryBackOff = &routev3.RetryPolicy_RateLimitedRetryBackOff{}
		}, Conflict, `route "/v1/messages" of listener front`, "rate_limited_retry_back_off is set", "rate_limited_retry_back_off: null"},
		{"only some requests are retried", func(e envoy) {
			e.retry().RetriableRequestHeaders = []*routev3.HeaderMatcher{{Name: "x-retry"}}
		}, Conflict, `route "/v1/messages" of listener front`, "retriable_request_headers are set", "retriable_request_headers: []"},
		{"another host is looked for", func(e envoy) {
			e.retry().RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{Name: "envoy.retry_host_predicates.previous_hosts"}}
		}, Advice, `route "/v1/messages" of listener front`, "retry_priority or retry_host_predicate is set", "retry_host_predicate: []"},
		{"a step down takes its time", func(e envoy) { e.retry().RetryBackOff = nil },
			Advice, `route "/v1/messages" of listener front`, "retry_back_off goes up to 250ms", "max_interval: 0.002s"},
		{"what no chain protects is retried", func(e envoy) { e.front("/v1/models/*").RetryPolicy = proto.Clone(e.retry()).(*routev3.RetryPolicy) },
			Conflict, `route "/v1/models/*" of listener front`, "no chain acts there, and retry_on has reset", "a route of its own"},
		{"what a chain observes is retried", func(e envoy) {
			e.front("/watched/v1/messages").RetryPolicy = proto.Clone(e.retry()).(*routev3.RetryPolicy)
		},
			Conflict, `route "/watched/v1/messages" of listener front`, "no chain acts there, and retry_on has reset", "a route of its own"},
		{"a retried route takes more than the chains' paths", func(e envoy) {
			e.route(e.FrontManager, chat).Match.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: chat}
		}, Conflict, `route "/v1/messages*" of listener front`, "it takes more than the chains' paths, and retry_on has reset", "a route of its own"},
		{"attempts are not counted", func(e envoy) { e.FrontManager.GetRouteConfig().VirtualHosts[0].IncludeRequestAttemptCount = false },
			Conflict, "virtual host llm of listener front", "include_request_attempt_count is off", "include_request_attempt_count: true"},
		{"the client sees our word to the front", func(e envoy) { e.FrontManager.GetRouteConfig().VirtualHosts[0].ResponseHeadersToRemove = nil },
			Advice, `route "/team/v1/messages" of listener front`, "response_headers_to_remove lacks x-llm-failover", "[x-llm-failover]"},
		{"attempts do not know their exchange", func(e envoy) {
			r := e.route(e.FrontManager, chat)
			r.RequestHeadersToAdd = r.RequestHeadersToAdd[1:]
		}, Conflict, `route "/v1/messages" of listener front`, "request_headers_to_add lacks x-llm-exchange", "UNIQUE_ID"},
		{"a long prompt cannot be sent twice", func(e envoy) { e.route(e.FrontManager, chat).RequestBodyBufferLimit = nil },
			Conflict, `route "/v1/messages" of listener front`, "a request body has room for 262144 bytes, server.max_body is 8388608", "request_body_buffer_limit: 12582912"},
		{"the hop has no room for a long prompt", func(e envoy) { e.hop(choice).RequestBodyBufferLimit = wrapperspb.UInt64(1 << 20) },
			Conflict, `route "/* with x-llm-cluster" of listener hop`, "a request body has room for 1048576 bytes, server.max_body is 8388608", "request_body_buffer_limit: 12582912"},
		{"slow readers fill the memory", func(e envoy) { e.Hop.PerConnectionBufferLimitBytes = wrapperspb.UInt32(36 << 20) },
			Advice, "listener hop", "per_connection_buffer_limit_bytes is 37748736", "per_connection_buffer_limit_bytes: 262144"},
		{"a protected path has no front route", func(e envoy) {
			e.route(e.FrontManager, chat).Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/elsewhere"}
			e.front("/elsewhere").RetryPolicy = nil
		}, Conflict, "listener front", "no route takes /v1/messages there", "routes:"},

		{"a client can choose a cluster", func(e envoy) { e.FrontManager.EarlyHeaderMutationExtensions = nil },
			Conflict, "listener front", "a client's x-llm-cluster, x-llm-failover, x-llm-exchange, x-llm-start, x-llm-tenant is let in", "prefix: x-llm-"},
		{"a client can choose its address", func(e envoy) { e.FrontManager.UseRemoteAddress = nil },
			Advice, "listener front", "use_remote_address is off", "use_remote_address: true"},
		{"some clients are internal", func(e envoy) {
			e.FrontManager.InternalAddressConfig = &hcmv3.HttpConnectionManager_InternalAddressConfig{}
		}, Advice, "listener front", "internal_address_config is set", "internal_address_config: null"},

		{"the default ceiling of retries", func(e envoy) { e.cluster("hop").CircuitBreakers.Thresholds[0].MaxRetries = nil },
			Conflict, "cluster hop", "circuit_breakers: max_retries is 3, Envoy's default", "max_retries: 1000000"},
		{"retries have a budget", func(e envoy) {
			e.cluster("hop").CircuitBreakers.Thresholds[0].RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{}
		}, Conflict, "cluster hop", "circuit_breakers: a retry_budget is set", "max_retries: 1000000"},
		{"the default ceiling of connections", func(e envoy) { e.cluster("hop").CircuitBreakers.Thresholds[0].MaxConnections = nil },
			Conflict, "cluster hop", "circuit_breakers: max_connections is 1024", "max_connections: 1000000"},
		{"a ceiling of a provider's requests", func(e envoy) { e.cluster("llm-byo").CircuitBreakers.Thresholds[0].MaxRequests = wrapperspb.UInt32(100) },
			Conflict, "cluster llm-byo", "circuit_breakers: max_requests is 100", "max_requests: 1000000"},
		{"the hop's cluster does not exist", func(e envoy) { e.Clusters = slices.Delete(e.Clusters, 0, 1) },
			Conflict, "cluster hop", "it does not exist", "server_listener_name: hop"},
		{"the hop speaks HTTP/2", func(e envoy) {
			e.options("hop", func(o *upstreamv3.HttpProtocolOptions) {
				o.UpstreamProtocolOptions = h2only(&corev3.Http2ProtocolOptions{})
			})
		}, Advice, "cluster hop", "it speaks HTTP/2", "http_protocol_options: {}"},
		{"the bootstrap has no internal listeners", func(e envoy) { e.Pieces.Extensions = nil },
			Conflict, "listener hop", "the bootstrap has no internal_listener extension", "envoy.bootstrap.internal_listener"},

		{"the service does not hold answers back", func(e envoy) {
			e.filter(func(f *extprocv3.ExternalProcessor) {
				f.ProcessingMode.ResponseBodyMode = extprocv3.ProcessingMode_STREAMED
			})
		}, Conflict, `filter "understudy" of listener hop`, "processing_mode: response_body_mode is STREAMED", "response_body_mode: FULL_DUPLEX_STREAMED"},
		{"a route takes the service's sight", func(e envoy) {
			e.hop(chat).TypedPerFilterConfig["understudy"] = e.pack(&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}})
		}, Conflict, `route "/v1/messages" of listener hop`, "the service's filter is off there", "understudy: {"},
		{"Envoy waits for no answer", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.ObservabilityMode = true }) },
			Conflict, `filter "understudy" of listener hop`, "observability_mode is on", "observability_mode: false"},
		{"skips cannot be sent", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.DisableImmediateResponse = true }) },
			Conflict, `filter "understudy" of listener hop`, "disable_immediate_response is on", "disable_immediate_response: false"},
		{"the route stays", func(e envoy) {
			e.filter(func(f *extprocv3.ExternalProcessor) { f.RouteCacheAction = extprocv3.ExternalProcessor_RETAIN })
		}, Conflict, `filter "understudy" of listener hop`, "route_cache_action is RETAIN", "route_cache_action: DEFAULT"},
		{"Envoy fails open and the config does not", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.FailureModeAllow = true }) },
			Conflict, `filter "understudy" of listener hop`, "failure_mode_allow is true, and envoy.when_service_down is closed", "failure_mode_allow: false"},
		{"the service cannot set the host", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.MutationRules = nil }) },
			Conflict, `filter "understudy" of listener hop`, "mutation_rules do not allow_all_routing", "allow_all_routing: true"},
		{"metadata do not arrive", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.MetadataOptions = nil }) },
			Conflict, `filter "understudy" of listener hop`, "metadata_options.receiving_namespaces lacks understudy", "- understudy"},
		{"Envoy waits a fifth of a second", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.MessageTimeout = nil }) },
			Conflict, `filter "understudy" of listener hop`, "message_timeout is 200ms, Envoy's default, the keep-alive to the service takes 4s", "message_timeout: 15s"},
		{"credentials reach the service", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.ForwardRules = nil }) },
			Advice, `filter "understudy" of listener hop`, "forward_rules.disallowed_headers lacks authorization", "- exact: authorization"},
		{"the service sees a few headers", func(e envoy) {
			e.filter(func(f *extprocv3.ExternalProcessor) { f.ForwardRules.AllowedHeaders = f.ForwardRules.DisallowedHeaders })
		}, Conflict, `filter "understudy" of listener hop`, "forward_rules.allowed_headers is set", "disallowed_headers:"},
		{"the service is not told of resets", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.ResponseAttributes = nil }) },
			Advice, `filter "understudy" of listener hop`, "response_attributes lacks response.code_details", "response.code_details"},
		{"the stream has an end", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.GrpcService.Timeout = seconds(30) }) },
			Conflict, `filter "understudy" of listener hop`, "grpc_service.timeout is 30s", "timeout: 0s"},
		{"a rewritten body is too large", func(e envoy) {
			e.filter(func(f *extprocv3.ExternalProcessor) {
				f.GrpcService.GetEnvoyGrpc().MaxReceiveMessageLength = wrapperspb.UInt32(4 << 20)
			})
		}, Conflict, `filter "understudy" of listener hop`, "max_receive_message_length is 4194304, server.max_body is 8388608", "max_receive_message_length: 67108864"},
		{"a stream is not tried again", func(e envoy) { e.filter(func(f *extprocv3.ExternalProcessor) { f.GrpcService.RetryPolicy = nil }) },
			Conflict, `filter "understudy" of listener hop`, "grpc_service.retry_policy is missing", "connect-failure,refused-stream,reset,unavailable"},
		{"a failing service ends the exchange", func(e envoy) {
			e.filter(func(f *extprocv3.ExternalProcessor) { f.StatusOnError = &typev3.HttpStatus{Code: 503} })
		}, Conflict, "listener hop", "local_reply_config adds no x-llm-failover: next for 503, the filter's status_on_error", "default_value: 507"},
		{"a lost provider ends the exchange", func(e envoy) {
			mappers := e.HopManager.LocalReplyConfig.Mappers
			e.HopManager.LocalReplyConfig.Mappers = slices.Delete(mappers, 3, 4)
		}, Conflict, "listener hop", "local_reply_config adds no x-llm-failover: next for UF, UC, UR, UPE, UH, NC, UT, SI", "- UPE"},
		{"nobody tells how answers end", func(e envoy) { e.HopManager.AccessLog = nil },
			Advice, "listener hop", "there is no gRPC access log to the service", "log_name: understudy"},
		{"the choice is not followed", func(e envoy) {
			e.hop(choice).GetRoute().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: "llm-local"}
		},
			Conflict, "listener hop", "no route has cluster_header: x-llm-cluster", "cluster_header: x-llm-cluster"},
		{"the hop retries", func(e envoy) {
			e.hop(choice).GetRoute().RetryPolicy = &routev3.RetryPolicy{RetryOn: "5xx,connect-failure"}
		},
			Conflict, `route "/* with x-llm-cluster" of listener hop`, "a retry_policy behind the service has 5xx", "retry_policy: null"},

		{"a frozen service is not noticed", func(e envoy) {
			e.options("understudy", func(o *upstreamv3.HttpProtocolOptions) {
				o.GetExplicitHttpConfig().GetHttp2ProtocolOptions().ConnectionKeepalive = nil
			})
		}, Conflict, "cluster understudy", "it has no connection_keepalive", "interval: 1s"},
		{"gRPC's windows are Envoy's", func(e envoy) {
			e.options("understudy", func(o *upstreamv3.HttpProtocolOptions) {
				o.GetExplicitHttpConfig().GetHttp2ProtocolOptions().InitialStreamWindowSize = nil
			})
		}, Advice, "cluster understudy", "initial_connection_window_size has no room for many initial_stream_window_size", "initial_stream_window_size: 65536"},
		{"the service's cluster speaks HTTP/1", func(e envoy) { delete(e.cluster("understudy").TypedExtensionProtocolOptions, optionsName) },
			Conflict, "cluster understudy", "it does not speak HTTP/2", "http2_protocol_options:"},

		{"a provider's cluster does not exist", func(e envoy) { e.cluster("llm-local").Name = "llm-lokal" },
			Conflict, "cluster llm-local", "it does not exist", "name: llm-local"},
		{"a provider is spoken to in the clear", func(e envoy) { e.cluster("llm-anthropic").TransportSocket = nil },
			Conflict, "cluster llm-anthropic", "it has no TLS, and the endpoint is https", "sni: api.anthropic.com"},
		{"a provider is not told its name", func(e envoy) { e.tls("llm-anthropic", func(c *tlsv3.UpstreamTlsContext) { c.Sni = "" }) },
			Conflict, "cluster llm-anthropic", `sni is "", the provider is api.anthropic.com`, "sni: api.anthropic.com"},
		{"a provider may be anybody", func(e envoy) {
			e.tls("llm-anthropic", func(c *tlsv3.UpstreamTlsContext) {
				c.GetCommonTlsContext().GetValidationContext().MatchTypedSubjectAltNames = nil
			})
		}, Conflict, "cluster llm-anthropic", "no name is matched in the provider's certificate", "match_typed_subject_alt_names:"},
		{"a provider switches retries off", func(e envoy) {
			e.options("llm-local", func(o *upstreamv3.HttpProtocolOptions) {
				m := mutations(o.HttpFilters)
				m.ResponseMutations = nil
				o.HttpFilters[0].ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: e.pack(&headermutationv3.HeaderMutation{Mutations: m})}
			})
		}, Conflict, "cluster llm-local", "a provider's x-envoy-ratelimited, x-should-retry, x-llm-failover is let in", "prefix: x-envoy-"},
		{"stale connections are used", func(e envoy) {
			e.options("llm-local", func(o *upstreamv3.HttpProtocolOptions) { o.CommonHttpProtocolOptions = nil })
		}, Advice, "cluster llm-local", "idle connections are kept for an hour or so", "idle_timeout: 30s"},
		{"the hop's filters are pasted twice", func(e envoy) {
			e.HopManager.HttpFilters = append(slices.Clone(e.HopManager.HttpFilters[:2]), e.HopManager.HttpFilters...)
		}, Conflict, "listener hop", "the service's filter is there 2 times", "remove"},
		{"a canary goes past the hop", func(e envoy) {
			e.front(chat).ClusterSpecifier = weighted(map[string]uint32{"hop": 90, "llm-local": 10})
		}, Conflict, `route "/v1/messages" of listener front`, "weighted_clusters sends some to llm-local", "route: {cluster: hop}"},
		{"the filter is in a cluster", func(e envoy) {
			e.options("llm-local", func(o *upstreamv3.HttpProtocolOptions) {
				o.HttpFilters = append(o.HttpFilters, e.HopManager.HttpFilters[1])
			})
		}, Conflict, "cluster llm-local", "the service's filter is in the cluster", "extproc envoy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parsed(t)
			e := built(t, c, envoyconf.Internal)
			tt.edit(e)
			r := run(t, c, "1.40.0", e.dump())
			if len(r.Findings) != 1 {
				t.Fatalf("Run() = %d findings, want 1:\n%s", len(r.Findings), told(r))
			}
			f := r.Findings[0]
			if f.Severity != tt.severity || f.Where[0] != tt.where || !strings.HasPrefix(f.Is, tt.is) || !strings.Contains(f.Set, tt.set) || f.Costs == "" {
				t.Errorf("Run() =\n%s\nwant %s: %s: %s, and to set %s", f, tt.severity, tt.where, tt.is, tt.set)
			}
			if (r.Conflicts() == 1) != (tt.severity == Conflict) {
				t.Errorf("Conflicts() = %d, want those of severity %s", r.Conflicts(), Conflict)
			}
		})
	}
}

func weighted(weights map[string]uint32) *routev3.RouteAction_WeightedClusters {
	all := &routev3.WeightedCluster{}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: name, Weight: wrapperspb.UInt32(weights[name])})
	}
	return &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
}

func h2only(o *corev3.Http2ProtocolOptions) *upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: o},
	}}
}
