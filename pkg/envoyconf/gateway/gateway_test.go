package gateway

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf/attach"
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference before it is committed")

const examples = "../../../envoy/gateway/"

// secret is the value of every credential of the example.
const secret = "sk-must-not-be-written"

// The examples in envoy/gateway are what the command prints for the config beside them.
func TestTheExamplesAreWhatWasReviewed(t *testing.T) {
	for _, level := range []attach.Level{attach.SameRequest, attach.NextRequest, attach.Observe} {
		t.Run(string(level), func(t *testing.T) {
			got, err := Manifests(edited(t), Options{Level: level, Namespace: "understudy"})
			if err != nil {
				t.Fatal(err)
			}
			golden := examples + string(level) + ".yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("Manifests differs from %s; run with -update and read the difference", golden)
			}
			if bytes.Contains(got, []byte(secret)) {
				t.Error("the manifests hold the value of a secret")
			}
		})
	}
}

// edited is the example's config with texts replaced, in pairs.
func edited(t *testing.T, pairs ...string) *config.Config {
	t.Helper()
	for _, name := range []string{"ANTHROPIC_API_KEY", "PROXY_KEY", "OPENAI_API_KEY", "AZURE_KEY"} {
		t.Setenv(name, secret)
	}
	text, err := os.ReadFile(examples + "understudy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("understudy.yaml", []byte(strings.NewReplacer(pairs...).Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatEnvoyGatewayCannotBeToldIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pairs []string
		o     Options
		want  string
	}{
		{"Envoy is to go on without the service", []string{"envoy:\n", "envoy:\n  when_service_down: open\n"}, Options{},
			"envoy.when_service_down: open is not to be had with Envoy Gateway"},
		{"a provider with TLS has no name", []string{"claude.proxy.internal.example", "10.0.0.7"}, Options{},
			"cluster llm-proxy: a BackendTLSPolicy checks a host name, not an IP address"},
		{"two clusters have one name in Kubernetes", []string{"  proxy: {api: anthropic,", "  proxy: {api: anthropic, cluster: LLM_azure,"}, Options{},
			"the clusters llm-azure and LLM_azure have one name in Kubernetes, understudy-to-llm-azure"},
		{"the level is unknown", nil, Options{Level: "all"}, `level "all": write observe, next-request or same-request`},
		{"a cluster's name has nothing that a name may have there", []string{"  proxy: {api: anthropic,", "  proxy: {api: anthropic, cluster: ___,"}, Options{},
			"cluster ___: Kubernetes takes no name like understudy-to-"},
		{"a host's name has an underscore", []string{"claude.proxy.internal.example", "claude_proxy.example"}, Options{},
			"cluster llm-proxy: Kubernetes takes no host name like claude_proxy.example"},
		{"some replicas have names, and some have none", []string{`services: ["`, `services: ["10.0.0.7:9002", "`}, Options{},
			"cluster understudy: a Backend has either host names or IP addresses"},
		{"a path has braces", []string{"{path: /v1/chat/completions}", `{path: "/{team}/v1/chat/completions"}`}, Options{},
			"path /{team}/v1/chat/completions: Kubernetes takes none with such characters"},
		{"no port is left for the hop", []string{"0.0.0.0:8080", "0.0.0.0:65535"}, Options{},
			"envoy.listen: the hop's listener has the port after this one"},
		{"the namespace would end a line of YAML", nil, Options{Namespace: "a}\nkind: b"}, "namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := Manifests(edited(t, tt.pairs...), tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || out != nil {
				t.Errorf("Manifests = %d bytes, %v, want an error that says %s", len(out), err, tt.want)
			}
		})
	}
}

// kinds counts the documents by kind/name.
func kinds(t *testing.T, manifests []byte) map[string]int {
	t.Helper()
	all := map[string]int{}
	for doc := range strings.SplitSeq(string(manifests), "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		all[head.Kind+"/"+head.Metadata.Name]++
	}
	return all
}

func TestEachResourceHasANameOfItsOwn(t *testing.T) {
	for _, level := range []attach.Level{attach.SameRequest, attach.NextRequest, attach.Observe} {
		out, err := Manifests(edited(t), Options{Level: level})
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range kinds(t, out) {
			if n != 1 {
				t.Errorf("%s: %d documents are %s, want 1", level, n, name)
			}
		}
	}
}

func TestOnlySameRequestRetries(t *testing.T) {
	for level, want := range map[attach.Level]int{attach.SameRequest: 1, attach.NextRequest: 0, attach.Observe: 0} {
		out, err := Manifests(edited(t), Options{Level: level})
		if err != nil {
			t.Fatal(err)
		}
		all := kinds(t, out)
		for _, patch := range []string{"EnvoyPatchPolicy/understudy-retries", "EnvoyPatchPolicy/understudy-attempts"} {
			if got := all[patch]; got != want {
				t.Errorf("%s has %d of %s, want %d", level, got, patch, want)
			}
		}
	}
}

// The Gateway API takes 16 rules in an HTTPRoute, and 128 matches in all of them.
func TestManyPathsAreSharedOutAmongRoutes(t *testing.T) {
	const paths = 300
	var more strings.Builder
	for i := range paths {
		fmt.Fprintf(&more, "  many-%d: {match: [{path: /many/%d/v1/messages}], targets: [anthropic/sonnet]}\n", i, i)
	}
	out, err := Manifests(edited(t, "chains:\n", "chains:\n"+more.String()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, routes := 0, 0
	for doc := range strings.SplitSeq(string(out), "\n---\n") {
		var route struct {
			Kind string
			Spec struct {
				Rules []struct{ Matches []struct{} }
			}
		}
		if err := yaml.Unmarshal([]byte(doc), &route); err != nil {
			t.Fatal(err)
		}
		if route.Kind != "HTTPRoute" {
			continue
		}
		matches := 0
		for _, r := range route.Spec.Rules {
			matches += len(r.Matches)
		}
		if len(route.Spec.Rules) > 16 || matches > 128 {
			t.Errorf("an HTTPRoute has %d rules and %d matches, want at most 16 and 128", len(route.Spec.Rules), matches)
		}
		all, routes = all+matches, routes+1
	}
	if all < paths {
		t.Errorf("%d HTTPRoutes have %d matches, want one for each of %d paths", routes, all, paths)
	}
	for name, n := range kinds(t, out) {
		if n != 1 {
			t.Errorf("%d documents are %s, want 1", n, name)
		}
	}
	for _, kind := range []string{"HTTPRoute", "BackendTrafficPolicy"} { // each part has its retries
		if kinds(t, out)[kind+"/understudy-front-3"] != 1 {
			t.Errorf("there is no %s understudy-front-3", kind)
		}
	}
}

// Of two routes for one path, Envoy Gateway takes the one whose name comes first.
func TestPassthroughOfEverythingIsNotAnsweredAsNothing(t *testing.T) {
	for name, pairs := range map[string][]string{"some paths": nil, "all paths": {"{path: /v1/models, ", "{path: /, "}} {
		out, err := Manifests(edited(t, pairs...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := 1 - len(pairs)/2
		if got := kinds(t, out)["HTTPRoute/understudy-front-nothing"]; got != want {
			t.Errorf("passthrough of %s: %d routes answer what nobody serves, want %d", name, got, want)
		}
	}
}

func TestFailOpenIsNoObstacleToObserving(t *testing.T) {
	if _, err := Manifests(edited(t, "envoy:\n", "envoy:\n  when_service_down: open\n"), Options{Level: attach.Observe}); err != nil {
		t.Errorf("Manifests = %v, want none: at this level Envoy goes on without the service anyway", err)
	}
}

func TestNamesAndAddressesAreWrittenAsKubernetesReadsThem(t *testing.T) {
	for _, namespace := range []string{"123", "true", "null", "1e3"} {
		out, err := Manifests(edited(t), Options{Namespace: namespace})
		if want := fmt.Sprintf("metadata: {name: understudy, namespace: %q}", namespace); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("Manifests in the namespace %s = %v, want one with %s", namespace, err, want)
		}
	}
	for address, want := range map[string]string{
		"[::1]:9002":         `{ip: {address: "0000:0000:0000:0000:0000:0000:0000:0001", port: 9002}}`, // the Backend's pattern takes no ::1
		"127.0.0.1:9002":     `{ip: {address: "127.0.0.1", port: 9002}}`,
		"UP.llm.Example:902": `{fqdn: {hostname: "up.llm.example", port: 902}}`,
	} {
		out, err := Manifests(edited(t, "understudy.understudy.svc.cluster.local:9002", address), Options{})
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("Manifests with the service at %s = %v, want one with %s", address, err, want)
		}
	}
}

// Each replica has a log of its own, as only the one that served an attempt knows it.
func TestEachReplicaIsToldTheLog(t *testing.T) {
	c := edited(t, `services: ["understudy.understudy.svc.cluster.local:9002"]`, `services: ["u-0.u.llm.svc:9002", "u-1.u.llm.svc:9002"]`)
	out, err := Manifests(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(out), "- type: ALS"); got != 2 {
		t.Errorf("Manifests has %d logs, want 2", got)
	}
	for _, want := range []string{"Backend/understudy-service", "Backend/understudy-service-1", "Backend/understudy-service-2"} {
		if kinds(t, out)[want] != 1 {
			t.Errorf("Manifests lacks %s", want)
		}
	}
}
