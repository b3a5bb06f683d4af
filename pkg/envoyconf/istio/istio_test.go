package istio

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf/attach"
)

var update = flag.Bool("update", false, "write the examples again")

// examples is where the manifests are that people copy.
const examples = "../../../envoy/istio"

func example(t testing.TB) *config.Config {
	t.Helper()
	t.Setenv("ANTHROPIC_API_KEY", "k")
	t.Setenv("UNDERSTUDY_ADMIN_TOKEN", strings.Repeat("t", 32))
	c, err := config.Load(filepath.Join(examples, "understudy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheExamplesAreWhatTheGeneratorPrints(t *testing.T) {
	c := example(t)
	apps, ingress := []string{"default/assistant"}, []string{"istio-ingress/istio-ingressgateway"}
	for file, o := range map[string]Options{
		"sidecar.yaml":              {Callers: apps},
		"sidecar-next-request.yaml": {Callers: apps, Level: attach.NextRequest},
		"sidecar-observe.yaml":      {Callers: apps, Level: attach.Observe, Host: "api.anthropic.com", Port: 80},
		"gateway.yaml":              {Callers: ingress, Shape: Gateway, Port: 80},
		"egress.yaml":               {Callers: apps, Shape: Egress},
	} {
		got, err := Manifests(c, o)
		if err != nil {
			t.Fatalf("Manifests(%+v) = %v, want none", o, err)
		}
		path := filepath.Join(examples, file)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what Manifests(%+v) prints (%v): run this test with -update and read the difference", file, o, err)
		}
	}
}
