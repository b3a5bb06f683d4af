//go:build mesh

package mesh

import (
	"bytes"
	"crypto/tls"
	"testing"

	"understudy/internal/scripted"
	"understudy/internal/stage"
	"understudy/pkg/envoyconf/istio"
)

// istioEgress is a front in an application's sidecar and the hop in a gateway of its own, each with its pod's agent.
type istioEgress struct {
	ca  *scripted.CA
	hop string // host:port
}

// istioEgressOf starts both. In a cluster the hop's name is found by DNS and its port is fixed; here neither can be.
func istioEgressOf(t *testing.T, s *stack, version string) *istioEgress {
	t.Helper()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	e := &istioEgress{ca: ca, hop: stage.Free(t)}
	manifests := istioManifests(t, s, istio.Options{Shape: istio.Egress, Callers: []string{istioApp}})
	e.pod(t, s, version, istioShared, istioHop, manifests)
	e.pod(t, s, version, istioSidecar, istioApp, manifests)
	return e
}

func (e *istioEgress) pod(t *testing.T, s *stack, version string, pod istioPod, identity string, manifests []byte) {
	t.Helper()
	agent, admin := istioPodAgent(t, e.ca, identity), stage.Free(t)
	bootstrap := istioPatched(t, s, pod, manifests, "$PORT", portOf(s.listen), "$ADMIN", portOf(admin), "$OTHER", portOf(stage.Free(t)),
		"$SHOP", portOf(s.grpc), "$AGENT", agent)
	for from, to := range map[string]string{
		"understudy-hop.understudy-hop.svc.cluster.local": "127.0.0.1", "port_value: 15480": "port_value: " + portOf(e.hop), "address: 0.0.0.0": "address: 127.0.0.1",
	} {
		bootstrap = bytes.ReplaceAll(bootstrap, []byte(from), []byte(to))
	}
	istioStart(t, s, version, pod.shape, bootstrap, admin)
}

func TestIstioSidecarsFailOverThroughASharedHop(t *testing.T) {
	for _, version := range istioEnvoys {
		t.Run("Envoy "+version, func(t *testing.T) {
			s := newStack(t, nil)
			e := istioEgressOf(t, s, version)
			rows(t, istioCalls(s, "llm.default.svc"), s)
			for name, row := range map[string]struct {
				identity string
				want     bool
			}{
				"the hop answers an application's sidecar":     {istioApp, true},
				"the hop refuses another workload of the mesh": {"default/shop", false},
				"the hop refuses who has no certificate":       {"", false},
			} {
				t.Run(name, func(t *testing.T) {
					if got := e.answers(t, row.identity); got != row.want {
						t.Errorf("the hop answers = %v, want %v", got, row.want)
					}
				})
			}
		})
	}
}

// answers reports whether the hop answers an identity. In TLS 1.3 who is refused learns it when it reads.
func (e *istioEgress) answers(t *testing.T, identity string) bool {
	conf := &tls.Config{InsecureSkipVerify: true} // who the hop is, is not asked here
	if identity != "" {
		cert, err := e.ca.Leaf(istioSpiffe(identity))
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{*cert}
	}
	return stage.Answers(within(t, stage.Patience), t, e.hop, conf, "GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
}
