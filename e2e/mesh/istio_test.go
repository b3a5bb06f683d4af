//go:build mesh

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	*process
	other string // where another service of the mesh is met, host:port
	admin string
}

// istioManifests are what the service's config says to Istio.
func istioManifests(t testing.TB, s *stage, o istio.Options) []byte {
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
func istioPatched(t testing.TB, s *stage, pod istioPod, manifests []byte, values ...string) []byte {
	t.Helper()
	shape, err := os.ReadFile(filepath.Join("testdata/istio", pod.shape))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, proxy := filepath.Join(dir, "manifests.yaml"), filepath.Join(dir, pod.shape)
	write(t, file, manifests)
	write(t, proxy, []byte(strings.NewReplacer(values...).Replace(string(shape))))
	out, err := exec.Command(script(t, "istio.sh"), "-type", pod.kind, "-namespace", pod.namespace, "-labels", pod.labels, "-proxy", proxy, file).Output()
	if err != nil {
		t.Fatalf("istiopatch: %v\n%s", err, stderrOf(err))
	}
	return out
}

func stderrOf(err error) []byte {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.Stderr
	}
	return nil
}

// istioRun starts an Envoy that serves the stage's front as a pod of Istio's.
func istioRun(t *testing.T, s *stage, version string, pod istioPod, manifests []byte) *istioProxy {
	t.Helper()
	p := &istioProxy{other: free(t), admin: free(t)}
	bootstrap := istioPatched(t, s, pod, manifests, "$PORT", portOf(s.listen), "$ADMIN", portOf(p.admin), "$OTHER", portOf(p.other),
		"$SHOP", portOf(strings.TrimPrefix(s.accounts["a"].endpoint, "http://")), "$AGENT", filepath.Join(s.dir, "agent.sock"))
	p.process = istioStart(t, s, version, pod.shape, bootstrap, p.admin)
	return p
}

func istioStart(t *testing.T, s *stage, version, name string, bootstrap []byte, admin string) *process {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, bootstrap)
	envoy := script(t, "envoy.sh", version)
	if out, err := exec.Command(envoy, "--mode", "validate", "-c", path).CombinedOutput(); err != nil {
		t.Fatalf("envoy %s --mode validate: %v\n%s", version, err, out)
	}
	p := start(t, name, path+".log", nil, envoy, "-c", path, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning")
	p.ready(t, func(ctx context.Context) error { return s.is(ctx, "http://"+admin+"/ready", http.StatusOK) })
	return p
}

// istioCalls makes the stage's client resolve every name to the front, and is the URL that a client calls.
func istioCalls(s *stage, host string) string {
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
			s := newStage(t, nil)
			istioRun(t, s, version, istioSidecar, istioManifests(t, s, istio.Options{Callers: []string{istioApp}}))
			rows(t, istioCalls(s, "llm.default.svc"), s)
		})
	}
}

func TestIstioGatewaysFailOver(t *testing.T) {
	for _, version := range istioEnvoys {
		t.Run("Envoy "+version, func(t *testing.T) {
			s := newStage(t, nil)
			istioRun(t, s, version, istioGateway, istioManifests(t, s, istio.Options{Shape: istio.Gateway, Callers: []string{istioIngress}}))
			rows(t, istioCalls(s, "llm.example.com"), s)
		})
	}
}
