package envoyconf

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"understudy/pkg/config"
	"understudy/pkg/provider"
)

// These hold for any config; the golden files show the rest.

func TestOnlyPathsWithAChainThatActsAreRetried(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		acts := map[string]bool{}
		for _, p := range b.c.Protected() {
			acts[protected(p).String()] = p != "/watched/v1/messages"
		}
		for _, r := range b.frontRoutes().VirtualHosts[0].Routes {
			want := acts[r.GetMatch().String()]
			if got := r.GetRoute().GetRetryPolicy() != nil; got != want {
				t.Errorf("route %v is retried: %v, want %v", r.Match, got, want)
			}
			n := r.GetRoute().GetRetryPolicy().GetNumRetries().GetValue()
			if want && int(n) != config.Retries(b.c) {
				t.Errorf("route %v: num_retries = %d, want %d", r.Match, n, config.Retries(b.c))
			}
		}
	})
}

func TestAPathIsRetriedWhenAnyChainThatMayTakeItActs(t *testing.T) {
	watched := config.Chain{API: config.Anthropic, Observe: true, Matches: []config.Match{{Path: "/v1/messages", Model: "big-*"}}}
	for _, tt := range []struct {
		name, path string
		other      config.Chain
		want       bool
	}{
		{"another chain acts on the same path", "/v1/messages", config.Chain{API: config.Anthropic, Matches: []config.Match{{Path: "/v1/messages"}}}, true},
		{"another chain observes the same path", "/v1/messages", config.Chain{API: config.Anthropic, Observe: true, Matches: []config.Match{{Path: "/v1/messages"}}}, false},
		{"another chain acts elsewhere", "/v1/messages", config.Chain{API: config.Anthropic, Matches: []config.Match{{Path: "/b/v1/messages"}}}, false},
		{"another chain acts when a header names it", "/v1/messages", config.Chain{API: config.Anthropic, SelectHeader: true}, true},
		{"a header names one also under a prefix", "/a/v1/messages", config.Chain{API: config.Anthropic, SelectHeader: true}, true},
		{"a header names one of another dialect", "/v1/messages", config.Chain{API: config.OpenAI, SelectHeader: true}, false},
		{"the dialect's default acts", "/v1/messages", config.Chain{API: config.Anthropic, Default: true}, true},
		{"a header names one for the same other endpoint", "/v1/embeddings", config.Chain{API: config.OpenAI, Endpoint: "/v1/embeddings", SelectHeader: true}, true},
		{"a header names one for model calls", "/v1/embeddings", config.Chain{API: config.OpenAI, SelectHeader: true}, false},
		{"the default of the model calls acts", "/v1/embeddings", config.Chain{API: config.OpenAI, Default: true}, false},
		{"a header names one of Gemini's", "/a/v1beta/models/{model}:generateContent", config.Chain{API: config.Gemini, SelectHeader: true}, true},
		{"another chain acts on the same models", "/a/v1/models/{model}:generateContent", config.Chain{API: config.Gemini, Matches: []config.Match{{Path: "/a/v1/models"}}}, true},
		{"the default of another path acts", "/v1/messages", config.Chain{API: config.Anthropic, Default: true, Matches: []config.Match{{Path: "/b/v1/messages"}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := watched
			w.Matches = []config.Match{{Path: tt.path, Model: "big-*"}}
			b := &builder{c: &config.Config{Chains: []*config.Chain{&w, &tt.other}}}
			if got := b.frontProtected(tt.path).GetRoute().GetRetryPolicy() != nil; got != tt.want {
				t.Errorf("front route of %s is retried: %v, want %v", tt.path, got, tt.want)
			}
		})
	}
}

// Envoy compares a regex with the whole path: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route_components.proto#config-route-v3-routematch
func TestAPathWithAModelIsOneSegment(t *testing.T) {
	match := protected("/team.a/v1beta/models/{model}:generateContent").GetSafeRegex().GetRegex()
	whole, err := regexp.Compile("^(?:" + match + ")$")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/team.a/v1beta/models/gemini-3-pro:generateContent":       true,
		"/team.a/v1beta/models/gemini%2Fpro:generateContent":       true,
		"/team.a/v1beta/models/a:b:generateContent":                true,
		"/team.a/v1beta/models/:generateContent":                   false,
		"/team.a/v1beta/models/a/b:generateContent":                false,
		"/team.a/v1beta/models/gemini-3-pro:streamGenerateContent": false,
		"/team.a/v1beta/models/gemini-3-pro:generateContent/x":     false,
		"/teamXa/v1beta/models/gemini-3-pro:generateContent":       false,
		"/x/team.a/v1beta/models/gemini-3-pro:generateContent":     false,
		"/team.a/v1beta/models/gemini-3-pro":                       false,
	} {
		if got := whole.MatchString(path); got != want {
			t.Errorf("regex %s matches %s: %v, want %v", match, path, got, want)
		}
	}
}

func TestEveryRouteToAProviderDropsTheClientsCredentials(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		own := map[string]bool{} // clusters of providers that get the client's own
		for _, p := range b.providers() {
			own[p.Cluster] = p.Auth.FromClient
		}
		for _, r := range b.hopRoutes().VirtualHosts[0].Routes {
			cluster := r.GetRoute().GetCluster()
			want := provider.Credentials()
			if cluster == "" || own[cluster] {
				want = nil
			}
			if !slices.Equal(r.RequestHeadersToRemove, want) {
				t.Errorf("hop route %v to %q removes %q, want %q", r.Match, cluster, r.RequestHeadersToRemove, want)
			}
		}
	})
}

func TestWithoutTheServiceOurOwnPathsReachNobody(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		for _, r := range b.hopRoutes().VirtualHosts[0].Routes {
			own := r.GetMatch().GetPrefix() == "/.understudy/"
			switch {
			case own && r.GetDirectResponse().GetStatus() != 404:
				t.Errorf("hop route %v = %v, want a 404 of Envoy's own", r.Match, r.Action)
			case own:
				return
			case r.GetRoute().GetCluster() != "" && r.GetMatch().GetPrefix() == "/":
				t.Errorf("hop route %v comes before that of /.understudy/", r.Match)
			}
		}
		if b.hasFeeds() {
			t.Error("no hop route of /.understudy/, want one where a provider has a feed")
		}
	})
}

func TestAFeedGetsNoCredentialAndNothingOfOurs(t *testing.T) {
	b := &builder{c: edited(t, "open", "", ""), hop: Internal}
	y := toYAML(t, &bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: b.feedClusters()}})
	for _, want := range []string{"remove: authorization", "remove: x-api-key", "remove: cookie", "prefix: x-llm-", "sni: status.claude.com"} {
		if !strings.Contains(string(y), want) {
			t.Errorf("the cluster of a feed lacks %q:\n%s", want, y)
		}
	}
	if strings.Contains(string(y), "ANTHROPIC_API_KEY") {
		t.Errorf("the cluster of a feed adds a credential:\n%s", y)
	}
}

func TestNoRouteHasATimeout(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		for _, routes := range [][]*routev3.Route{
			b.frontRoutes().VirtualHosts[0].Routes, b.hopRoutes().VirtualHosts[0].Routes,
		} {
			for _, r := range routes {
				if a := r.GetRoute(); a != nil && (a.Timeout == nil || a.Timeout.AsDuration() != 0) {
					t.Errorf("route %v: timeout = %v, want 0s: Envoy's default is 15s", r.Match, a.Timeout)
				}
			}
		}
	})
}

func TestNoClusterHasACeilingThatAnOutageReaches(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		for _, c := range b.clusters() {
			th := c.GetCircuitBreakers().GetThresholds()
			if len(th) != 1 || th[0].MaxRetries.GetValue() < 1_000_000 || th[0].MaxRequests.GetValue() < 1_000_000 {
				t.Errorf("cluster %s: thresholds = %v, want a million of each", c.Name, th)
			}
		}
	})
}

func TestEveryTLSConnectionChecksTheName(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		for _, c := range b.clusters() {
			if c.TransportSocket == nil {
				continue
			}
			v := validation(t, c)
			if len(v.MatchTypedSubjectAltNames) != 1 || v.GetTrustedCa().GetFilename() == "" {
				t.Errorf("cluster %s: validation = %v, want one name and a trust store", c.Name, v)
			}
		}
	})
}

func TestEveryReplicaGetsTheAccessLog(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		if got, want := len(b.accessLogs()), len(b.c.Envoy.Services); got != want {
			t.Errorf("access logs = %d, want %d, one for each replica", got, want)
		}
	})
}

func validation(t *testing.T, c *clusterv3.Cluster) *tlsv3.CertificateValidationContext {
	t.Helper()
	var up tlsv3.UpstreamTlsContext
	if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(&up); err != nil {
		t.Fatal(err)
	}
	return up.GetCommonTlsContext().GetValidationContext()
}

func eachShape(t *testing.T, f func(*testing.T, *builder)) {
	for _, s := range shapes {
		t.Run(s.file, func(t *testing.T) { f(t, &builder{c: edited(t, s.file, "", ""), hop: s.hop}) })
	}
}

func TestACustomCredentialHeaderIsOneEverywhere(t *testing.T) {
	c := edited(t, "open", `auth: {header: x-goog-api-key, `, `auth: {header: x-acme-key, `)
	b := &builder{c: c, hop: Internal}
	for _, r := range b.hopRoutes().VirtualHosts[0].Routes {
		if slices.Contains(r.RequestHeadersToRemove, "authorization") && !slices.Contains(r.RequestHeadersToRemove, "x-acme-key") {
			t.Errorf("hop route %v removes %q, want x-acme-key among them", r.Match, r.RequestHeadersToRemove)
		}
	}
	if y := string(toYAML(t, &bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: []*listenerv3.Listener{b.hopListener(b.hopManager())}}})); !strings.Contains(y, "exact: x-acme-key") {
		t.Errorf("the service is shown x-acme-key:\n%s", y)
	}
}

func TestAStoredResponseLosesAProxysPrefixWithoutTheService(t *testing.T) {
	c := edited(t, "open", `match: [{path: /v1/chat/completions}]`, `match: [{path: /team/v1/responses}]`)
	b := &builder{c: c, hop: Internal}
	for _, r := range b.hopRoutes().VirtualHosts[0].Routes {
		if r.Match.GetPathSeparatedPrefix() == "/team/v1/responses" {
			if got := r.GetRoute().GetPrefixRewrite(); got != "/v1/responses" {
				t.Errorf("what is below /team/v1/responses is sent below %q, want /v1/responses", got)
			}
			return
		}
	}
	t.Error("no hop route for what is below /team/v1/responses")
}
