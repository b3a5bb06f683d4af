//go:build mesh

package mesh

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"understudy/internal/stage"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf/istio"
)

// The oldest and the main Envoy that Istio's configuration is run on.
var istioEnvoys = []string{"1.40.0", "1.36.4"}

const (
	istioApp     = "default/assistant" // the identity of an application that calls
	istioIngress = "istio-ingress/istio-ingressgateway"
	istioHop     = "understudy-hop/understudy-hop"
)

// istioPod is a proxy as Istio sees it.
type istioPod struct {
	kind, namespace string
	labels          string // k=v,…
	shape           string // file of testdata/istio
}

var (
	istioSidecar = istioPod{"sidecar", "default", "app=assistant,understudy=on", "sidecar.yaml"}
	istioGateway = istioPod{"router", "istio-ingress", "istio=ingressgateway", "gateway.yaml"}
	istioShared  = istioPod{"router", "understudy-hop", "istio=understudy-hop", "hop.yaml"}
)

// istioProxy is an Envoy with what Istio sends to a pod.
type istioProxy struct {
	other string // where another service of the mesh is met, host:port
	admin string
}

// istioManifests are what the service's config says to Istio.
func istioManifests(t testing.TB, s *stack, o istio.Options) []byte {
	t.Helper()
	c, err := config.Load(s.config)
	if err != nil {
		t.Fatal(err)
	}
	out, err := istio.Manifests(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// istioPatched is the bootstrap of a pod once Istio's code has applied manifests to it; values are for its shape's places.
func istioPatched(t testing.TB, s *stack, pod istioPod, manifests []byte, values ...string) []byte {
	t.Helper()
	shape, err := os.ReadFile(filepath.Join("testdata/istio", pod.shape))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := stage.Write(t, filepath.Join(dir, "manifests.yaml"), manifests)
	proxy := stage.Write(t, filepath.Join(dir, pod.shape), []byte(strings.NewReplacer(values...).Replace(string(shape))))
	return []byte(stage.Output(t, stage.Output(t, "../../scripts/istio.sh"), "-type", pod.kind, "-namespace", pod.namespace, "-labels", pod.labels, "-proxy", proxy, file))
}

// istioRun starts an Envoy that serves the stack's front as a pod of Istio's.
func istioRun(t *testing.T, s *stack, version string, pod istioPod, manifests []byte) *istioProxy {
	t.Helper()
	p := &istioProxy{other: stage.Free(t), admin: stage.Free(t)}
	bootstrap := istioPatched(t, s, pod, manifests, "$PORT", portOf(s.listen), "$ADMIN", portOf(p.admin), "$OTHER", portOf(p.other),
		"$SHOP", portOf(strings.TrimPrefix(s.accounts["a"].endpoint, "http://")), "$AGENT", filepath.Join(s.dir, "agent.sock"))
	istioStart(t, s, version, pod.shape, bootstrap, p.admin)
	return p
}

func istioStart(t *testing.T, s *stack, version, name string, bootstrap []byte, admin string) {
	t.Helper()
	path := stage.Write(t, filepath.Join(t.TempDir(), name), bootstrap)
	stage.Output(t, stage.Output(t, "../../scripts/envoy.sh", version), "--mode", "validate", "-c", path)
	stage.Envoy(t, version, path, "http://"+admin+"/ready")
}

// istioCalls makes the stack's client resolve every name to the front, and is the URL that a client calls.
func istioCalls(s *stack, host string) string {
	s.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if name, _, _ := net.SplitHostPort(address); name == host {
			address = s.listen
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return fmt.Sprintf("http://%s:%s", host, portOf(s.listen))
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func TestIstioSidecarsFailOver(t *testing.T) {
	for _, version := range istioEnvoys {
		t.Run("Envoy "+version, func(t *testing.T) {
			s := newStack(t, nil)
			istioRun(t, s, version, istioSidecar, istioManifests(t, s, istio.Options{Callers: []string{istioApp}}))
			rows(t, istioCalls(s, "llm.default.svc"), s)
		})
	}
}

func TestIstioGatewaysFailOver(t *testing.T) {
	for _, version := range istioEnvoys {
		t.Run("Envoy "+version, func(t *testing.T) {
			s := newStack(t, nil)
			istioRun(t, s, version, istioGateway, istioManifests(t, s, istio.Options{Shape: istio.Gateway, Callers: []string{istioIngress}}))
			rows(t, istioCalls(s, "llm.example.com"), s)
		})
	}
}
