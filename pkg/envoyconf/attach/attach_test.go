package attach

import (
	"flag"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"understudy/pkg/config"
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference before it is committed")

func load(t *testing.T, file string) *config.Config {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(file+".yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func printed(t *testing.T, file string, l Level) string {
	t.Helper()
	out, err := Static(load(t, file), l)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestWhatIsPrintedWasReviewed(t *testing.T) {
	for _, l := range []Level{Observe, NextRequest, SameRequest} {
		golden := "testdata/" + string(l) + ".golden.yaml"
		got := printed(t, "closed", l)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("Static(%s) differs from %s; run with -update and read the difference", l, golden)
		}
	}
}

// documents are the printed ones by place.
func documents(t *testing.T, file string, l Level) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, doc := range strings.Split(printed(t, file, l), "\n---\n")[1:] {
		m := regexp.MustCompile(`^# \d+\. ([a-z_.]+): .*\.\n# .`).FindStringSubmatch(doc)
		if m == nil {
			t.Fatalf("a document does not say where it goes, what to do and why:\n%.300s", doc)
		}
		docs[m[1]] = doc
	}
	return docs
}

func TestNoClientChoosesACluster(t *testing.T) {
	for _, l := range []Level{NextRequest, SameRequest} {
		docs := documents(t, "open", l)
		if strip := docs["http_connection_manager.early_header_mutation_extensions"]; !strings.Contains(strip, "prefix: x-llm-") || !strings.Contains(strip, "prefix: x-envoy-") {
			t.Errorf("level %s leaves a client x-llm-* and x-envoy-*:\n%s", l, strip)
		}
		if routes := docs["virtual_host.routes"]; strings.Contains(routes, "cluster_header") {
			t.Errorf("level %s routes by a header on hosts that clients call", l)
		}
	}
}

func TestOneLevelsRoutesDoNotDependOnTheUsersOwn(t *testing.T) {
	for l, want := range map[Level]string{NextRequest: "retry_policy: {}", SameRequest: "retriable_headers"} {
		routes := documents(t, "closed", l)["virtual_host.routes"]
		forwarding := strings.Count(routes, "  route:\n")
		for _, setting := range []string{"idle_timeout: 0s", "timeout: 0s", "retry_policy:"} {
			if got := strings.Count(routes, "\n    "+setting); forwarding == 0 || got != forwarding {
				t.Errorf("level %s says %q on %d of %d routes, want all", l, setting, got, forwarding)
			}
		}
		if !strings.Contains(routes, want) {
			t.Errorf("level %s lacks %q", l, want)
		}
		if strings.Contains(routes, "prefix: /\n") {
			t.Errorf("level %s takes the user's own paths", l)
		}
	}
}

func TestObservingLeavesEverythingAsItIs(t *testing.T) {
	docs := documents(t, "open", Observe)
	if len(docs) != 3 {
		t.Errorf("observe has %d documents, want the cluster, the filter and its switch", len(docs))
	}
	filter := docs["http_connection_manager.http_filters"]
	for _, want := range []string{"observability_mode: true", "failure_mode_allow: true", "disabled: true", "request_body_mode: STREAMED"} {
		if !strings.Contains(filter, want) {
			t.Errorf("the filter lacks %q:\n%s", want, filter)
		}
	}
	if strings.Contains(docs["static_resources.clusters"], "name: llm-") {
		t.Error("observe adds a provider's cluster, want the service's alone")
	}
}

func TestAChosenHostIsFoundWhereRoutesIgnorePorts(t *testing.T) {
	c := load(t, "closed")
	for _, p := range c.Providers {
		p.Endpoint = &url.URL{Scheme: "https", Host: "[2001:db8::1]:8443"}
	}
	out, err := Static(c, NextRequest)
	if err != nil {
		t.Fatal(err)
	}
	for _, domain := range []string{"[2001:db8::1]:8443", "[2001:db8::1]"} {
		if !strings.Contains(string(out), "\n  - '"+domain+"'\n") {
			t.Errorf("Static(next-request) lacks the domain %s", domain)
		}
	}
}

func TestATenantIsNamedBeforeTheServiceSeesTheRequest(t *testing.T) {
	c := load(t, "open")
	c.Tenant.Header = "x-team"
	out, err := Static(c, NextRequest)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "key: x-llm-tenant\n              value: '%REQ(x-team)%'") {
		t.Errorf("Static(next-request) lacks the tenant:\n%s", out)
	}
}

func TestParseLevel(t *testing.T) {
	for in, want := range map[string]Level{"": SameRequest, "observe": Observe, "next-request": NextRequest, "same-request": SameRequest} {
		if got, err := ParseLevel(in); got != want || err != nil {
			t.Errorf("ParseLevel(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := ParseLevel("all"); err == nil {
		t.Errorf("ParseLevel(all) = %q, want an error", got)
	}
}
