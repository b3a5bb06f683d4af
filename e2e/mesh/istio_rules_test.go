//go:build mesh

package mesh

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"understudy/internal/stage"
	"understudy/pkg/envoyconf/istio"
)

// istioPlaces are values for a shape that no Envoy runs.
var istioPlaces = []string{"$PORT", "10000", "$ADMIN", "15000", "$OTHER", "80", "$SHOP", "8080", "$AGENT", "/agent"}

func TestIstioChangesOnlyPodsThatAreSelected(t *testing.T) {
	s := newStack(t, func(s *stack) { s.listen = "127.0.0.1:10000" })
	manifests := istioManifests(t, s, istio.Options{Callers: []string{istioApp}})
	for name, row := range map[string]struct {
		pod     istioPod
		changed bool
	}{
		"a pod with the label":                  {istioSidecar, true},
		"a pod that has opted out":              {istioPod{"sidecar", "default", "app=assistant", "sidecar.yaml"}, false},
		"a pod with the label, elsewhere":       {istioPod{"sidecar", "shop", "understudy=on", "sidecar.yaml"}, false},
		"a gateway, where sidecars are patched": {istioPod{"router", "default", "understudy=on", "gateway.yaml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := istioPatched(t, s, row.pod, nil, istioPlaces...), istioPatched(t, s, row.pod, manifests, istioPlaces...)
			if changed := !bytes.Equal(before, after); changed != row.changed {
				t.Errorf("the manifests change it = %v, want %v", changed, row.changed)
			}
		})
	}
}

func TestIstioTakesTheExamplesAndNothingThatItDoesNotKnow(t *testing.T) {
	check := stage.Output(t, "../../scripts/istio.sh")
	examples, err := filepath.Glob("../../envoy/istio/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range examples {
		if filepath.Base(file) == "understudy.yaml" { // the config that the others are made of
			continue
		}
		if out, err := exec.Command(check, file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
	good, err := os.ReadFile("../../envoy/istio/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{
		"request_body_mode:":        "request_body_mood:",       // of the ext_proc filter, deep in the hop
		"retriable_headers:":        "retriable_header:",        // of a route
		"workloadSelector:":         "workloadSelectors:",       // of the EnvoyFilter
		"defaultEndpoint:":          "defaultEnd:",              // of the Sidecar
		"mode: STRICT":              "mode: STRICTER",           // of the PeerAuthentication
		"principals:":               "principles:",              // of the AuthorizationPolicy
		"context: SIDECAR_OUTBOUND": "context: SIDECAR_OUTWARD", // of a patch
	} {
		t.Run(is, func(t *testing.T) {
			if !strings.Contains(string(good), was) {
				t.Fatalf("the example has no %q", was)
			}
			file := stage.Write(t, filepath.Join(t.TempDir(), "bad.yaml"), bytes.Replace(good, []byte(was), []byte(is), 1))
			if out, err := exec.Command(check, file).CombinedOutput(); err == nil {
				t.Errorf("Istio's types take %q, want a refusal\n%s", is, out)
			}
		})
	}
}
