//go:build e2e

package e2e

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"understudy/internal/stage"
)

// collector takes spans by OTLP over HTTP.
type collector struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	spans []span
}

// span is one as it came, with whose it is.
type span struct {
	*tracev1.Span
	service, instance string
	about             map[string]string
}

func startCollector(t *testing.T) *collector {
	c := &collector{t: t}
	c.url = serveAt(t, c, "127.0.0.1", nil)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	m := &collectorv1.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, m)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s %s: %v, want spans", r.Method, r.URL.Path, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range m.ResourceSpans {
		who := attributes(of.Resource.GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span{s, who["service.name"], who["service.instance.id"], attributes(s.Attributes)})
			}
		}
	}
	out, _ := proto.Marshal(&collectorv1.ExportTraceServiceResponse{})
	w.Header().Set("content-type", "application/x-protobuf")
	_, _ = w.Write(out)
}

func attributes(all []*commonv1.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.Value.GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		case *commonv1.AnyValue_BoolValue:
			m[a.Key] = fmt.Sprint(v.BoolValue)
		case *commonv1.AnyValue_DoubleValue:
			m[a.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return m
}

// of is what has come of a trace, in order of time.
func (c *collector) of(trace string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []span
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	return found
}

func spansNamed(spans []span, name string) (found []span) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// traceOf names the trace of a test's call.
func traceOf(n int) string { return fmt.Sprintf("4bf92f3577b34da6a3ce9291%08x", n) }

// clientSpan is the span of the client in each of them.
const clientSpan = "00f067aa0ba902b7"

// tracedCall is one whose client is in a trace.
func tracedCall(chain string, n int, sampled string) call {
	return call{path: messages, stream: true, chain: chain, script: "a=529; b=ok", id: fmt.Sprint("traced ", n),
		header: map[string]string{"traceparent": fmt.Sprintf("00-%s-%s-%s", traceOf(n), clientSpan, sampled), "tracestate": "vendor=1"}}
}

func traces(url string, p plan) plan {
	p.edit = func(f *file) { f.Tracing = map[string]any{"otlp": url, "sample": 0} }
	return p
}

// The attempts of a failover meet different replicas, each of which knows its own alone.
func TestAFailoverOverTwoReplicasIsOneTrace(t *testing.T) {
	asked := asking(plan{}).another
	for name, p := range map[string]plan{
		"Envoy " + envoyMain:              {envoy: envoyMain, replicas: 2},
		"Envoy " + envoyMiddle:            {envoy: envoyMiddle, replicas: 2},
		"Envoy " + envoyOldest:            {envoy: envoyOldest, replicas: 2},
		"Envoy that asks, " + envoyMain:   {envoy: envoyMain, another: asked},
		"Envoy that asks, " + envoyOldest: {envoy: envoyOldest, another: asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCollector(t)
			p.chains = []chain{{name: "traced", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1000}}}
			if p.replicas > 1 {
				p.nats = startNATS(t, 1)
			}
			p = traces(c.url, p)
			if p.another != nil {
				p = asking(p)
			}
			s := startStack(t, p)
			const calls = 12
			for n := range calls {
				row := tracedCall("traced", n, "01")
				served{by: "b", target: "traced/b", rung: 1, attempts: 2, reason: "overloaded", noHints: true}.check(t, row, s.sdk(within(t, patience), t, row))
			}
			untraced := tracedCall("traced", 1000, "00")
			s.sdk(within(t, patience), t, untraced)
			s.sdk(within(t, patience), t, call{path: messages, chain: "traced", script: "a=ok", id: "no trace"})
			split := 0
			for n := range calls {
				eventually(t, patience, func() error {
					if spans := c.of(traceOf(n)); len(spans) < 4 {
						return fmt.Errorf("trace %d has %d spans, want 4: Envoy's, the exchange and two attempts", n, len(spans))
					}
					return nil
				})
				if c.isTree(t, traceOf(n)) {
					split++
				}
			}
			if split == 0 && p.replicas > 1 {
				t.Errorf("of %d exchanges none met two replicas", calls)
			}
			c.mu.Lock()
			for _, span := range c.spans {
				if id := hex.EncodeToString(span.TraceId); id == traceOf(1000) || !strings.HasPrefix(id, traceOf(0)[:24]) {
					t.Errorf("%s has sent %s of trace %s, which nobody has asked for", span.service, span.Name, id)
				}
			}
			c.mu.Unlock()
			for _, name := range []string{"a", "b"} {
				for _, r := range s.providers[name].Requests("traced 0") {
					if r.Header.Get("traceparent")+r.Header.Get("tracestate") != "" {
						t.Errorf("provider %s was sent a trace of ours: %v", name, r.Header)
					}
				}
			}
			s.hasExemplar(t)
		})
	}
}

// isTree checks one trace, and says whether its attempts were made by two replicas.
func (c *collector) isTree(t *testing.T, trace string) bool {
	t.Helper()
	spans := c.of(trace)
	x, attempts := spansNamed(spans, "exchange"), spansNamed(spans, "attempt")
	if len(spans) != 4 || len(x) != 1 || len(attempts) != 2 {
		t.Fatalf("trace %s has %d spans, %d exchanges and %d attempts, want 4, 1 and 2", trace, len(spans), len(x), len(attempts))
	}
	front := spans[slices.IndexFunc(spans, func(s span) bool { return s.service == "understudy-envoy" })]
	if got := hex.EncodeToString(front.ParentSpanId); got != clientSpan {
		t.Errorf("the parent of Envoy's span = %s, want the client's %s", got, clientSpan)
	}
	if string(x[0].ParentSpanId) != string(front.SpanId) {
		t.Errorf("the parent of the exchange = %x, want Envoy's span %x", x[0].ParentSpanId, front.SpanId)
	}
	for i, a := range attempts {
		if string(a.ParentSpanId) != string(x[0].SpanId) {
			t.Errorf("the parent of attempt %d = %x, want the exchange %x", i, a.ParentSpanId, x[0].SpanId)
		}
	}
	for key, want := range map[string]string{"understudy.outcome": "fallback", "understudy.attempts": "2", "understudy.fallback_reason": "overloaded", "http.response.status_code": "200"} {
		if key == "understudy.fallback_reason" && attempts[0].instance != attempts[1].instance {
			continue // a hint
		}
		if got := x[0].about[key]; got != want {
			t.Errorf("the exchange says %s = %q, want %q", key, got, want)
		}
	}
	for key, want := range map[string][2]string{
		"error.type": {"overloaded", ""}, "understudy.target": {"traced/a", "traced/b"}, "understudy.attempt": {"1", "2"},
		"gen_ai.operation.name": {"chat", "chat"}, "gen_ai.provider.name": {"anthropic", "anthropic"}, "gen_ai.request.stream": {"true", "true"},
	} {
		for i, a := range attempts {
			if got := a.about[key]; got != want[i] {
				t.Errorf("attempt %d says %s = %q, want %q", i+1, key, got, want[i])
			}
		}
	}
	if last := attempts[1].about; last["gen_ai.usage.output_tokens"] == "" || last["gen_ai.response.model"] == "" || last["gen_ai.response.time_to_first_chunk"] == "" {
		t.Errorf("the attempt that served says %v, want its model, tokens and first chunk", last)
	}
	return attempts[0].instance != attempts[1].instance
}

// hasExemplar asks for metrics as a Prometheus does that stores exemplars.
func (s *Stack) hasExemplar(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, service := range s.services {
		req, err := http.NewRequestWithContext(within(t, patience), http.MethodGet, "http://"+service.admin+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5")
		for line := range strings.Lines(s.do(req).body) {
			if strings.Contains(line, `# {trace_id="`+traceOf(0)[:24]) {
				name, _, _ := strings.Cut(line, "{")
				seen[name] = true
			}
		}
	}
	for _, name := range []string{"understudy_first_content_seconds_bucket", "understudy_overhead_seconds_bucket"} {
		if !seen[name] {
			t.Errorf("%s has no exemplar of a traced exchange", name)
		}
	}
}

func TestACollectorThatIsDownHarmsNoExchange(t *testing.T) {
	t.Parallel()
	s := startStack(t, traces("http://"+stage.Refusing(t), plan{chains: []chain{
		{name: "traced", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1000}},
	}}))
	for n := range 40 {
		row := tracedCall("traced", n, "01")
		served{by: "b", target: "traced/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, row, s.sdk(within(t, patience), t, row))
	}
	s.reads(t, atLeast(3*40), "understudy_spans_dropped_total", "reason", "unsent")
	s.survives(t)
}

// Without tracing the service adds nothing to a client's trace, and takes nothing from it.
func TestWithoutTracingAClientsTraceIsItsOwn(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "plain", api: "anthropic", on: []string{"a", "b"}}}})
	row := tracedCall("plain", 0, "01")
	s.sdk(within(t, patience), t, row)
	for _, name := range []string{"a", "b"} {
		for _, r := range s.providers[name].Requests(row.id) {
			if r.Header.Get("traceparent") != row.header["traceparent"] {
				t.Errorf("provider %s was sent traceparent %q, want the client's", name, r.Header.Get("traceparent"))
			}
		}
	}
}
