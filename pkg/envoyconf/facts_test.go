package envoyconf

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"understudy/pkg/config"
)

// These hold for any config; the golden files show the rest.

func TestOnlyProtectedPathsAreRetried(t *testing.T) {
	eachShape(t, func(t *testing.T, b *builder) {
		protected := map[string]bool{}
		for _, p := range b.c.Protected() {
			protected[p] = true
		}
		for _, r := range b.frontRoutes().VirtualHosts[0].Routes {
			path := r.GetMatch().GetPath() // "" unless exact
			if got := r.GetRoute().GetRetryPolicy() != nil; got != protected[path] {
				t.Errorf("route %v is retried: %v, want %v", r.Match, got, protected[path])
			}
			n := r.GetRoute().GetRetryPolicy().GetNumRetries().GetValue()
			if protected[path] && int(n) != config.Retries(b.c) {
				t.Errorf("route %v: num_retries = %d, want %d", r.Match, n, config.Retries(b.c))
			}
		}
	})
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
