package envoyconf

import (
	"strings"
	"testing"

	"understudy/pkg/config"
)

// traced is a small config with more at its end.
func traced(t *testing.T, more string) *config.Config {
	t.Helper()
	t.Setenv("TRACING_TEST_KEY", "k")
	c, err := config.Parse("test.yaml", []byte(`
providers: {a: {api: anthropic, endpoint: "https://a.example", auth: {bearer: "env:TRACING_TEST_KEY"}}}
targets: {a/x: {provider: a, model: x}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x]}}
`+more))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// yamlOf is what Envoy is told for it.
func yamlOf(t *testing.T, more string) string {
	t.Helper()
	boot, err := Bootstrap(traced(t, more), Internal)
	if err != nil {
		t.Fatal(err)
	}
	out, err := YAML(boot)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestEnvoyTracesWhereTheConfigNamesACollector(t *testing.T) {
	on := yamlOf(t, `tracing: {otlp: "http://otel.example:4318/team/", sample: 0.25}`)
	for _, want := range []string{
		"uri: http://otel.example:4318/team/v1/traces", "cluster: understudy-otlp", "name: understudy-otlp", "numerator: 250000",
		"samplers.parent_based", "remove: traceparent", "remove: tracestate",
	} {
		if !strings.Contains(on, want) {
			t.Errorf("Envoy is not told %s", want)
		}
	}
	if got := strings.Count(on, "service_name: understudy-envoy"); got != 1 {
		t.Errorf("%d listeners begin spans, want the front alone", got)
	}
	off := yamlOf(t, "")
	for _, not := range []string{"tracing", "understudy-otlp", "traceparent", "opentelemetry"} {
		if strings.Contains(off, not) {
			t.Errorf("without tracing Envoy is told of %s", not)
		}
	}
}

func TestAnAttachedEnvoyKeepsItsOwnTracing(t *testing.T) {
	p, err := Build(traced(t, `tracing: {otlp: "http://otel.example:4318"}`), Internal)
	if err != nil {
		t.Fatal(err)
	}
	if p.FrontManager.Tracing != nil || p.HopManager.Tracing != nil {
		t.Error("the pieces for somebody's Envoy bring tracing of their own")
	}
	for _, cluster := range p.Clusters {
		if cluster.Name == config.CollectorCluster {
			t.Errorf("the pieces for somebody's Envoy bring the cluster %s", cluster.Name)
		}
	}
}
