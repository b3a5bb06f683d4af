package audit

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// foreign is the same configuration as a control plane with names of its own would serve it: RDS, ECDS, EDS, all
// dynamic.
func (e envoy) foreign() []byte {
	e.t.Helper()
	service := e.cluster("understudy")
	service.Name, service.LoadAssignment = "outbound|9002||llm", nil
	service.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	service.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: "llm.svc"}
	e.filter(func(f *extprocv3.ExternalProcessor) { f.GrpcService.GetEnvoyGrpc().ClusterName = service.Name })
	e.HopManager.AccessLog = nil

	filters := &adminv3.EcdsConfigDump{}
	for i, f := range e.HopManager.HttpFilters {
		if f.Name == "understudy" {
			filters.EcdsFilters = []*adminv3.EcdsConfigDump_EcdsFilterConfig{{
				EcdsFilter: e.pack(&corev3.TypedExtensionConfig{Name: f.Name, TypedConfig: f.GetTypedConfig()}),
			}}
			e.HopManager.HttpFilters[i] = &hcmv3.HttpFilter{Name: f.Name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{}}}
		}
	}
	routes, listeners, clusters := &adminv3.RoutesConfigDump{}, &adminv3.ListenersConfigDump{}, &adminv3.ClustersConfigDump{}
	for _, m := range []*hcmv3.HttpConnectionManager{e.FrontManager, e.HopManager} {
		routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{RouteConfig: e.pack(m.GetRouteConfig())})
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: m.GetRouteConfig().Name}}
	}
	e.Front.Name, e.Hop.Name = "ingress", "egress"
	e.cluster("hop").LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address = &corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{
		EnvoyInternalAddress: &corev3.EnvoyInternalAddress{AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: "egress"}},
	}}
	e.repack()
	for _, l := range []*listenerv3.Listener{e.Front, e.Hop} {
		listeners.DynamicListeners = append(listeners.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
			Name: l.Name, ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{Listener: e.pack(l)},
		})
	}
	for _, c := range e.Clusters {
		clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{Cluster: e.pack(c)})
	}
	endpoints := &adminv3.EndpointsConfigDump{DynamicEndpointConfigs: []*adminv3.EndpointsConfigDump_DynamicEndpointConfig{{
		EndpointConfig: e.pack(&endpointv3.ClusterLoadAssignment{ClusterName: "llm.svc", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: tcp("127.0.0.1", 9002)}}}},
		}}}),
	}}}
	boot := &adminv3.BootstrapConfigDump{Bootstrap: &bootstrapv3.Bootstrap{BootstrapExtensions: e.Extensions}}
	return e.sections(boot, listeners, clusters, routes, endpoints, filters)
}

func tcp(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func TestFrontAndHopAreFoundUnderOtherNames(t *testing.T) {
	c := parsed(t)
	r := run(t, c, "1.40.0", built(t, c, envoyconf.Internal).foreign())
	if len(r.Findings) != 1 || r.Findings[0].Severity != Advice || !strings.Contains(r.Findings[0].Is, "no gRPC access log") {
		t.Errorf("Run() of a foreign control plane =\n%s\nwant advice on the access log, which it left out", told(r))
	}
	want := []string{`hop: filter "understudy" of listener egress`, "front: listener ingress, by cluster hop"}
	if r.Level != SameRequest || !slices.Equal(r.Notes, want) {
		t.Errorf("Run() = %s, %q, want %s, %q", r.Level, r.Notes, SameRequest, want)
	}
}

// alone takes the front out of an Envoy.
func alone(e envoy) {
	e.Front, e.FrontManager = &listenerv3.Listener{Name: "other", FilterChains: e.Front.FilterChains}, &hcmv3.HttpConnectionManager{}
	e.Clusters = slices.DeleteFunc(e.Clusters, func(c *clusterv3.Cluster) bool { return c.Name == "hop" })
}

func TestTheLevelIsWhatIsThere(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(e envoy)
		conf  []string
		level Level
		want  []string // findings
	}{
		{"front and hop", func(e envoy) {}, nil, SameRequest, nil},
		{"a hop, and the front elsewhere", alone, nil, SameRequest, nil},
		{"a front, and the hop elsewhere", func(e envoy) {
			e.Hop, e.HopManager = &listenerv3.Listener{Name: "other", FilterChains: e.Hop.FilterChains}, &hcmv3.HttpConnectionManager{}
			e.Clusters = e.Clusters[:1]
			e.Clusters[0].LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address = tcp("10.0.0.9", 10001)
		}, nil, SameRequest, nil},
		{"the filter in a listener of its own", func(e envoy) {
			alone(e)
			e.HopManager.LocalReplyConfig = nil
			e.HopManager.EarlyHeaderMutationExtensions = built(e.t, parsed(e.t), envoyconf.Internal).FrontManager.EarlyHeaderMutationExtensions
			e.HopManager.UseRemoteAddress = wrapperspb.Bool(true)
		}, nil, NextRequest, nil},
		{"the filter where clients come in unchecked", func(e envoy) {
			alone(e)
			e.HopManager.LocalReplyConfig = nil
		}, nil, NextRequest, []string{
			"a client's x-llm-exchange, x-llm-start, x-llm-tenant is let in",
			"use_remote_address is off, and a client's x-envoy-retry-on, x-envoy-max-retries, x-envoy-upstream-rq-timeout-ms, x-envoy-attempt-count is let in",
		}},
		{"a front that does not retry", func(e envoy) {
			for _, r := range e.FrontManager.GetRouteConfig().VirtualHosts[0].Routes {
				if r.GetRoute() != nil {
					r.GetRoute().RetryPolicy = nil
				}
			}
			e.FrontManager.GetRouteConfig().VirtualHosts[0].IncludeRequestAttemptCount = false
		}, nil, NextRequest, nil},
		{"a front that counts and does not retry", func(e envoy) {
			for _, r := range e.FrontManager.GetRouteConfig().VirtualHosts[0].Routes {
				if r.GetRoute() != nil {
					r.GetRoute().RetryPolicy = nil
				}
			}
		}, nil, SameRequest, []string{"there is no retry_policy"}},
		{"every chain observes", func(e envoy) {}, []string{"# The defaults", "mode: observe\n#"}, SameRequest, nil},
		{"Envoy only listens", func(e envoy) {
			alone(e)
			e.HopManager.LocalReplyConfig = nil
			e.filter(func(f *extprocv3.ExternalProcessor) {
				f.ObservabilityMode, f.ProcessingMode, f.GrpcService.RetryPolicy = true, nil, nil
			})
		}, nil, Observe, nil},
		{"Envoy only listens, and not at all", func(e envoy) {
			alone(e)
			e.HopManager.LocalReplyConfig = nil
			e.filter(func(f *extprocv3.ExternalProcessor) { f.ObservabilityMode = true })
			for _, f := range e.HopManager.HttpFilters {
				f.Disabled = true
			}
			for _, r := range e.HopManager.GetRouteConfig().VirtualHosts[0].Routes {
				r.TypedPerFilterConfig = nil
			}
		}, nil, Observe, []string{"it is disabled, and no route switches it on"}},
		{"none of ours", func(e envoy) {
			alone(e)
			e.filter(func(f *extprocv3.ExternalProcessor) { *f = extprocv3.ExternalProcessor{} })
			for _, f := range e.HopManager.HttpFilters {
				f.Name = "another"
			}
		}, nil, None, []string{`none has an ext_proc filter that leads to the service (there are others: "another" of listener hop)`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parsed(t, tt.conf...)
			e := built(t, c, envoyconf.Internal)
			tt.edit(e)
			r := run(t, c, "1.40.0", e.dump())
			var is []string
			for _, f := range r.Findings {
				is = append(is, f.Is)
			}
			if r.Level != tt.level || !slices.Equal(is, tt.want) {
				t.Errorf("Run() = %s, %q, want %s, %q", r.Level, is, tt.level, tt.want)
			}
		})
	}
}

func TestWhatGetsNoRequestIsNoConflict(t *testing.T) {
	c := parsed(t)
	e := built(t, c, envoyconf.Internal)
	vh := e.FrontManager.GetRouteConfig().VirtualHosts[0]
	vh.Routes = slices.Insert(vh.Routes, len(vh.Routes)-1, vh.Routes[:len(vh.Routes)-1]...) // pasted twice
	e.front(chat).ClusterSpecifier = weighted(map[string]uint32{"hop": 100, "llm-local": 0})
	if r := run(t, c, "1.40.0", e.dump()); len(r.Findings) != 0 {
		t.Errorf("Run() =\n%s\nwant nothing", told(r))
	}
}

func TestChainsBelowAPrefixAreFound(t *testing.T) {
	c := parsed(t)
	below := func(rewrite string) Report {
		e := built(t, c, envoyconf.Internal)
		for _, r := range e.FrontManager.GetRouteConfig().VirtualHosts[0].Routes {
			if p := r.Match.GetPath(); p != "" && r.GetRoute() != nil {
				r.Match.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/llm" + p}
				r.GetRoute().PrefixRewrite = strings.Replace(rewrite, "PATH", p, 1)
			}
		}
		return run(t, c, "1.40.0", e.dump())
	}
	if r := below("PATH"); slices.ContainsFunc(r.Findings, func(f Finding) bool { return strings.HasPrefix(f.Is, "no route takes") }) {
		t.Errorf("Run() of routes that rewrite to the chains' paths =\n%s\nwant all of them found", told(r))
	}
	if r := below("/elsewhere"); !strings.Contains(told(r), "no route takes /v1/messages there") {
		t.Errorf("Run() of routes that rewrite to others =\n%s\nwant /v1/messages missed", told(r))
	}
}

func TestWhatIsNotLookedAtIsNoted(t *testing.T) {
	c := parsed(t)
	for note, edit := range map[string]func(*hcmv3.HttpConnectionManager){
		`not read: the routes "elsewhere" of listener front, which Envoy does not have`: func(m *hcmv3.HttpConnectionManager) {
			m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "elsewhere"}}
		},
		"not read: the scoped routes of listener front": func(m *hcmv3.HttpConnectionManager) {
			m.RouteSpecifier = &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{Name: "scopes"}}
		},
		"not read: what listener front routes by VHDS": func(m *hcmv3.HttpConnectionManager) {
			m.GetRouteConfig().Vhds = &routev3.Vhds{}
		},
		"not read: the matcher of virtual host front of listener front": func(m *hcmv3.HttpConnectionManager) {
			if err := protojson.Unmarshal([]byte(`{"name":"front","matcher":{}}`), m.GetRouteConfig().VirtualHosts[0]); err != nil {
				t.Fatal(err)
			}
		},
	} {
		e := built(t, c, envoyconf.Internal)
		edit(e.FrontManager)
		if r := run(t, c, "1.40.0", e.dump()); !slices.Contains(r.Notes, note) {
			t.Errorf("Run() notes %q, want %q", r.Notes, note)
		}
	}
}

func TestAnOldEnvoyNeedsTheBufferFilter(t *testing.T) {
	c := parsed(t)
	for version, want := range map[string]int{"1.36.4": 1, "1.37.0": 0, "1.40.0": 0, "": 0, "nonsense": 0} {
		e := built(t, c, envoyconf.Internal)
		e.HopManager.HttpFilters = e.HopManager.HttpFilters[1:]
		if r := run(t, c, version, e.dump()); r.Conflicts() != want || len(r.Findings) != want {
			t.Errorf("Run() on Envoy %q without a buffer filter:\n%s\nwant %d conflicts", version, told(r), want)
		}
	}
}

func TestAFindingOfManyRoutesIsToldOnce(t *testing.T) {
	c := parsed(t)
	e := built(t, c, envoyconf.Internal)
	vh := e.FrontManager.GetRouteConfig().VirtualHosts[0]
	for i := range 10 {
		r := proto.Clone(e.route(e.FrontManager, "/v1/models/*")).(*routev3.Route)
		r.Match.PathSpecifier = &routev3.RouteMatch_Path{Path: fmt.Sprintf("/x/%d", i)}
		r.GetRoute().HedgePolicy = &routev3.HedgePolicy{}
		vh.Routes = append([]*routev3.Route{r}, vh.Routes...)
	}
	r := run(t, c, "1.40.0", e.dump())
	want := `advice: route "/x/9" of listener front, route "/x/8" of listener front, route "/x/7" of listener front, ` +
		`route "/x/6" of listener front, route "/x/5" of listener front, 5 more: a hedge_policy is set` + "\n"
	if len(r.Findings) != 1 || !strings.HasPrefix(told(r), want) {
		t.Errorf("Run() =\n%s\nwant once\n%s", told(r), want)
	}
}

func TestWhatCannotBeReadIsNotedAndTheRestIsRead(t *testing.T) {
	c := parsed(t)
	dump := built(t, c, envoyconf.Internal).dump()
	odd := `"configs":[{"@type":"type.googleapis.com/envoy.admin.v3.New","static_listeners":7},` +
		`{"static_listeners":[{"listener":{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":7}},` +
		`{"listener":{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"new","invented":{"a":[1]},"traffic_direction":"SIDEWAYS",` +
		`"filter_chains":[{"filters":[{"name":"n","typed_config":{"@type":"type.googleapis.com/acme.Filter","deep":{"x":[{}]},"value":"y"}}]}]}}]},`
	r := run(t, c, "1.40.0", bytes.Replace(dump, []byte(`"configs":[`), []byte(odd), 1))
	if len(r.Findings) != 0 || r.Level != SameRequest {
		t.Errorf("Run() = %s:\n%s\nwant %s and nothing", r.Level, told(r), SameRequest)
	}
	unread := slices.DeleteFunc(r.Notes, func(n string) bool { return !strings.HasPrefix(n, "not read: ") })
	if len(unread) != 2 {
		t.Errorf("Run() notes %q, want the section and the listener that it could not read", unread)
	}
}

func TestAnAdminInterfaceThatIsNoneIsToldInASentence(t *testing.T) {
	answer := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, tt := range []struct{ name, admin, want string }{
		{"no URL", "127.0.0.1:9901", `"127.0.0.1:9901" is no URL of an admin interface`},
		{"another scheme", "ftp://127.0.0.1", "is no URL of an admin interface"},
		{"nobody there", gone.URL, "the admin interface does not answer"},
		{"not found", answer(404, ""), "404 Not Found: is this Envoy's admin interface?"},
		{"a page", answer(200, "<html>"), "is no config dump"},
		{"another JSON", answer(200, `{"version":"a/1.40.0/b"}`), "it has no configs"},
		{"a list", answer(200, `[]`), "is no config dump"},
		{"too much", answer(200, strings.Repeat(" ", maxDump+1)), "more than 64 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Fetch(t.Context(), tt.admin); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Fetch(%s) = %v, want %s", tt.admin, err, tt.want)
			}
		})
	}
}

func TestFetchReadsVersionAndDump(t *testing.T) {
	c := parsed(t)
	dump := built(t, c, envoyconf.Internal).dump()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.String() {
		case "/base/server_info":
			_, _ = w.Write([]byte(`{"version": "9e55/1.40.0/Clean/RELEASE/BoringSSL"}`))
		case "/base/config_dump?include_eds":
			_, _ = w.Write(dump)
		default:
			w.WriteHeader(404)
		}
	}))
	defer s.Close()
	d, err := Fetch(t.Context(), s.URL+"/base/")
	if err != nil || d.Version != "1.40.0" || len(d.listeners) != 2 {
		t.Errorf("Fetch() = %+v, %v, want version 1.40.0 and two listeners", d, err)
	}
}

// A large mesh: 50 MB of clusters that are none of ours.
func TestALargeDumpIsRead(t *testing.T) {
	c := parsed(t)
	e := built(t, c, envoyconf.Internal)
	filler := `{"static_clusters":[` + strings.TrimSuffix(strings.Repeat(
		`{"cluster":{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"x","alt_stat_name":"`+strings.Repeat("y", 5000)+`"}},`, 10_500), ",") + `]},`
	dump := bytes.Replace(e.dump(), []byte(`"configs":[`), []byte(`"configs":[`+filler), 1)
	if r := run(t, c, "1.40.0", dump); len(dump) < 50<<20 || len(r.Findings) > 0 {
		t.Errorf("Run() of %d bytes:\n%s\nwant nothing of more than 50 MiB", len(dump), told(r))
	}
}

// FuzzParse: whatever an admin interface answers, reading it ends without a panic, and so does the comparison.
func FuzzParse(f *testing.F) {
	c, err := config.Parse("small.yaml", []byte(`
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {none: true}}}
targets: {a/x: {provider: a, model: x}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x]}}
`))
	if err != nil {
		f.Fatal(err)
	}
	const api = "type.googleapis.com/envoy." // whole dumps are too large to be changed often
	f.Add([]byte(`{"configs":[{"static_listeners":[{"listener":{"@type":"` + api + `config.listener.v3.Listener","name":"l","internal_listener":{},` +
		`"filter_chains":[{"filters":[{"typed_config":{"@type":"` + api + `extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",` +
		`"route_config":{"virtual_hosts":[{"routes":[{"match":{"path":"/v1/messages"},"route":{"cluster":"x","retry_policy":{}}}]}]},` +
		`"http_filters":[{"name":"understudy","typed_config":{"@type":"` + api + `extensions.filters.http.ext_proc.v3.ExternalProcessor"}}]}}]}]}}]}]}`))
	f.Add([]byte(`{"configs":[{"dynamic_active_clusters":[{"cluster":{"@type":"` + api + `config.cluster.v3.Cluster","name":"x","load_assignment":` +
		`{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"pipe":{"path":"p"}}}}]}]}}}]},` +
		`{"dynamic_route_configs":[{"route_config":{"@type":"` + api + `config.route.v3.RouteConfiguration","name":"r"}}]}]}`))
	f.Add([]byte(`{"configs":[{"static_listeners":[{"listener":{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","filter_chains":[{}],"default_filter_chain":{}}}]}]}`))
	f.Add([]byte(`{"configs":[{"static_clusters":[{"cluster":{"@type":"a/b","value":{}}}]}]}`))
	f.Add([]byte(`{"configs":[null,{},7]}`))
	f.Fuzz(func(t *testing.T, dump []byte) {
		d, err := Parse("1.36.4", dump)
		if err != nil {
			return
		}
		if _, err := Run(d, c); err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}
