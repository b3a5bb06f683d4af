//go:build mesh

package mesh

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"understudy/internal/scripted"
	"understudy/internal/stage"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf/attach"
	"understudy/pkg/envoyconf/gateway"
)

// gatewayStack is a stack behind the real Envoy Gateway, which follows a folder of manifests and drives a real Envoy.
type gatewayStack struct {
	*stack
	manifests string // folder
	programs  string // folder of egctl and envoy-gateway
	control   *stage.Process
}

// newGatewayStack starts the stack and, once manifests has filled the folder, Envoy Gateway.
func newGatewayStack(t *testing.T, edit func(*stack), manifests func(*gatewayStack)) *gatewayStack {
	t.Helper()
	s := &gatewayStack{programs: stage.Output(t, "../../scripts/gateway.sh")}
	s.stack = newStack(t, edit)
	s.manifests = filepath.Join(s.dir, "manifests")
	if err := os.Mkdir(s.manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	manifests(s)
	s.startControlPlane(t)
	stage.Eventually(t, 4*stage.Patience, "Envoy", func(ctx context.Context) error { // the control plane alone takes seconds of work to start
		_, err := stage.Get(ctx, s.frontURL()+"/v1/models")
		return err
	})
	return s
}

// secured adds providers with TLS: one as it should be, and one with somebody else's certificate.
func (s *stack) secured(t testing.TB) {
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	s.hireTLS(t, "secure", "localhost", ca)
	s.hireTLS(t, "impostor", "elsewhere.test", ca)
	s.chains["secure"] = chain{on: []string{"impostor", "secure"}}
}

// trusts gives Envoy Gateway a ConfigMap that the manifests ask for.
func (s *gatewayStack) trusts(t testing.TB, name, ca string) {
	t.Helper()
	s.apply(t, name+".yaml", fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\ndata: {ca.crt: %q}\n",
		name, read(t, ca)))
}

// publish writes the manifests of the config as it is now. For a machine without Kubernetes, they differ in one thing:
// who runs Envoy.
func (s *gatewayStack) publish(t testing.TB, level attach.Level) {
	t.Helper()
	out := s.printed(t, gateway.Options{Level: level})
	kubernetes := []byte("  provider: {type: Kubernetes, kubernetes: {envoyService: {name: understudy-front}}}\n")
	host := fmt.Appendf(nil, "  provider: {type: Host, host: {envoyVersion: %q}}\n", envoyVersion)
	if bytes.Count(out, kubernetes) != 1 {
		t.Fatalf("the manifests do not say once who runs Envoy:\n%s", out)
	}
	s.apply(t, "understudy.yaml", bytes.Replace(out, kubernetes, host, 1))
}

func (s *gatewayStack) printed(t testing.TB, o gateway.Options) []byte {
	t.Helper()
	c, err := config.Load(s.config)
	if err != nil {
		t.Fatal(err)
	}
	out, err := gateway.Manifests(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply puts a file where Envoy Gateway looks, in one step.
func (s *gatewayStack) apply(t testing.TB, name string, manifests []byte) {
	t.Helper()
	whole := stage.Write(t, filepath.Join(s.dir, "new-"+name), manifests)
	if err := os.Rename(whole, filepath.Join(s.manifests, name)); err != nil {
		t.Fatal(err)
	}
}

const gatewayConfig = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: [%[1]q]}}
    infrastructure: {type: Host, host: {configHome: %[2]q, dataHome: "%[2]s/data", stateHome: "%[2]s/state", runtimeDir: "%[2]s/run"}}
extensionApis: {enableBackend: true, enableEnvoyPatchPolicy: true}
logging: {level: {default: info}}
`

func (s *gatewayStack) startControlPlane(t *testing.T) {
	t.Helper()
	home := filepath.Join(s.dir, "home")
	program := filepath.Join(s.programs, "envoy-gateway")
	if out, err := exec.Command(program, "certgen", "--local", "--config-home", home).CombinedOutput(); err != nil {
		t.Fatalf("envoy-gateway certgen: %v\n%s", err, out)
	}
	bin := filepath.Join(home, "data", "envoy-versions", envoyVersion, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(stage.Output(t, "../../scripts/envoy.sh", envoyVersion), filepath.Join(bin, "envoy")); err != nil {
		t.Fatal(err)
	}
	conf := stage.Write(t, filepath.Join(s.dir, "envoy-gateway.yaml"), fmt.Appendf(nil, gatewayConfig, s.manifests, home))
	s.control = stage.Start(t, filepath.Join(s.dir, "envoy-gateway.log"), program, "server", "--config-path", conf)
}

// refusals are what Envoy Gateway has complained of.
func (s *gatewayStack) refusals() []string {
	var all []string
	for line := range strings.Lines(s.control.Tail(64 << 20)) {
		if strings.Contains(line, "reason: Invalid") || strings.Contains(line, "Failed to process JSON patches") || strings.Contains(line, "reason: UnsupportedAddressType") {
			all = append(all, line)
		}
	}
	return all
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
