//go:build mesh

package mesh

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"understudy/internal/scripted"
	"understudy/internal/stage"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf/istio"
)

// The service listens on loopback in plaintext; the mesh's certificates, from each pod's agent, are all that stands between
// its answers, which carry credentials, and everybody else.
func TestIstioReachesTheServiceByTheMeshsCertificates(t *testing.T) {
	s := newStack(t, nil)
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	at := istioInbound(t, s, ca)
	t.Run("an application that may ask", func(t *testing.T) {
		istioOutbound(t, s, ca, istioApp, at)
		rows(t, istioCalls(s, "llm.default.svc"), s)
	})
	t.Run("another application", func(t *testing.T) {
		s.listen = stage.Free(t)
		istioOutbound(t, s, ca, "default/shop", at)
		got := istioAsk(t, s, s.frontURL(), "llm", map[string]string{scripted.ScriptHeader: "*=ok"})
		if got.status != http.StatusServiceUnavailable || s.providers["a"].Count(t.Name()) > 0 {
			t.Errorf("the client got %d %.200s, want 503, and no provider asked", got.status, got.body)
		}
	})
}

// istioInbound starts the sidecar of the service's pod, and is where it listens.
func istioInbound(t *testing.T, s *stack, ca *scripted.CA) string {
	t.Helper()
	at, admin, agent := stage.Free(t), stage.Free(t), istioPodAgent(t, ca, "understudy/understudy")
	bootstrap := istioPatched(t, s, istioPod{"sidecar", "understudy", "app=understudy", "inbound.yaml"}, nil,
		"$PORT", portOf(at), "$ADMIN", portOf(admin), "$AGENT", agent, "$GRPC", portOf(s.grpc), "$CALLER", istioSpiffe(istioApp))
	istioStart(t, s, "1.40.0", "inbound.yaml", bootstrap, admin)
	return at
}

// istioOutbound starts the sidecar of an application that meets the service at an address. In a cluster that is found by
// DNS.
func istioOutbound(t *testing.T, s *stack, ca *scripted.CA, identity, at string) {
	t.Helper()
	c, err := config.Load(s.config)
	if err != nil {
		t.Fatal(err)
	}
	const host, port = "understudy.understudy.svc.cluster.local", "9002"
	c.Envoy.Listen.Addr = s.listen
	c.Envoy.Services = []config.Address{{Network: "tcp", Addr: host + ":" + port}}
	manifests, err := istio.Manifests(c, istio.Options{Callers: []string{istioApp}})
	if err != nil {
		t.Fatal(err)
	}
	admin := stage.Free(t)
	bootstrap := istioPatched(t, s, istioSidecar, manifests, "$PORT", portOf(s.listen), "$ADMIN", portOf(admin),
		"$OTHER", portOf(stage.Free(t)), "$SHOP", portOf(s.grpc), "$AGENT", istioPodAgent(t, ca, identity))
	bootstrap = bytes.ReplaceAll(bootstrap, []byte("address: "+host), []byte("address: 127.0.0.1"))
	bootstrap = bytes.ReplaceAll(bootstrap, []byte("port_value: "+port+"\n"), []byte("port_value: "+portOf(at)+"\n"))
	istioStart(t, s, "1.40.0", "sidecar.yaml", bootstrap, admin)
}

// istioPodAgent starts a pod's agent, and is its socket: in a directory of its own, as the path must be short.
func istioPodAgent(t *testing.T, ca *scripted.CA, identity string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	istioAgentAt(t, socket, ca, identity)
	return socket
}
