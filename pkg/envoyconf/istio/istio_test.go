package istio

import (
	"flag"
	"fmt"
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

func TestOptionsThatWouldLeaveAHoleAreRefused(t *testing.T) {
	c := example(t)
	callers := []string{"default/assistant"}
	for name, row := range map[string]struct {
		o    Options
		want string
	}{
		"nobody is named who may ask":  {Options{}, "callers: name the service accounts"},
		"a caller without a namespace": {Options{Callers: []string{"assistant"}}, `caller "assistant": write NAMESPACE/SERVICEACCOUNT`},
		"a caller that would be any":   {Options{Callers: []string{"*/*"}}, `caller "*/*": write NAMESPACE/SERVICEACCOUNT`},
		"no labels, so every pod":      {Options{Callers: callers, Labels: map[string]string{}}, "labels: write at least one"},
		"a namespace that is YAML":     {Options{Callers: callers, Namespace: "a: b"}, `namespace "a: b": write a DNS label`},
		"a namespace with a dot":       {Options{Callers: callers, Namespace: "a.b"}, `namespace "a.b": write a DNS label`},
		"a Service that is a number":   {Options{Callers: callers, Host: "1llm"}, `host "1llm": write the name of a Service of default: a letter first`},
		"a Service with a domain":      {Options{Callers: callers, Host: "llm.example.com"}, `host "llm.example.com": write the name of a Service of default`},
		"a shared hop without retries": {Options{Callers: callers, Shape: Egress, Level: attach.Observe}, "a shared hop is only for same-request"},
		"a shape that is none":         {Options{Callers: callers, Shape: "waypoint"}, `shape "waypoint": write sidecar, gateway or egress`},
		"a level that is none":         {Options{Callers: callers, Level: "all"}, `level "all": write observe, next-request or same-request`},
		"a port that is none":          {Options{Callers: callers, Port: 70000}, "port 70000: write 1 to 65535"},
		"a trust domain of two lines":  {Options{Callers: callers, TrustDomain: "x\ny"}, "trust domain"},
	} {
		if out, err := Manifests(c, row.o); err == nil || !strings.Contains(err.Error(), row.want) || out != nil {
			t.Errorf("%s: Manifests(%+v) = %d bytes, %v, want %q", name, row.o, len(out), err, row.want)
		}
	}
}

// A port of the service that no policy guards would hand out credentials to the whole mesh.
func TestEveryPortThatHandsOutCredentialsIsGuarded(t *testing.T) {
	c := example(t)
	c.Envoy.Services = append(c.Envoy.Services, config.Address{Network: "tcp", Addr: "other.understudy.svc.cluster.local:9010"})
	c.Server.GRPC = config.Address{Network: "tcp", Addr: "0.0.0.0:9020"}
	out, err := Manifests(c, Options{Callers: []string{"default/assistant"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"        ports:\n        - \"9002\"\n        - \"9010\"\n        - \"9020\"\n",
		"        notPorts:\n        - \"9002\"\n        - \"9010\"\n        - \"9020\"\n",
		"      number: 9010\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("Manifests lack %q", want)
		}
	}
}

func TestANamespaceThatYAMLTakesForANumberIsQuoted(t *testing.T) {
	for _, name := range []string{"123", "true", "null", "1e3"} {
		out, err := Manifests(example(t), Options{Callers: []string{name + "/" + name}, Namespace: name})
		if want := fmt.Sprintf("\n  namespace: %q\n", name); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("Manifests in the namespace %s = %v, want one with %s", name, err, want)
		}
	}
}

func TestCredentialsThatOnlyABootstrapCouldHoldAreRefused(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(examples, "understudy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, path := filepath.Join(dir, "key"), filepath.Join(dir, "understudy.yaml")
	open := strings.NewReplacer("envoy:\n", "envoy:\n  when_service_down: open\n", "env:ANTHROPIC_API_KEY", "file:"+key).Replace(string(file))
	for name, data := range map[string]string{key: "k", path: open} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("UNDERSTUDY_ADMIN_TOKEN", strings.Repeat("t", 32))
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Manifests(c, Options{Callers: []string{"default/assistant"}}); err == nil || !strings.Contains(err.Error(), "write closed") {
		t.Errorf("Manifests of a config that fails open with a key in a file = %v, want a refusal", err)
	}
}
