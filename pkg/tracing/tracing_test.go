package tracing

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/processor"
)

// sink is a collector that keeps what it gets.
type sink struct {
	t      testing.TB
	status int // 0: it takes all

	mu    sync.Mutex
	spans []*otlp.Span
	of    []string // resource attributes of each
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m := &collector.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(body, m); err != nil || r.URL.Path != "/v1/traces" {
		s.t.Errorf("%s got %v, want spans", r.URL.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	for _, rs := range m.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, span := range ss.Spans {
				s.spans, s.of = append(s.spans, span), append(s.of, words(rs.Resource.Attributes))
			}
		}
	}
}

// words writes attributes down, sorted.
func words(attributes []*common.KeyValue) string {
	var all []string
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all = append(all, a.Key+"="+v.StringValue)
		case *common.AnyValue_BoolValue:
			all = append(all, fmt.Sprintf("%s=%t", a.Key, v.BoolValue))
		case *common.AnyValue_IntValue:
			all = append(all, fmt.Sprintf("%s=%d", a.Key, v.IntValue))
		case *common.AnyValue_DoubleValue:
			all = append(all, fmt.Sprintf("%s=%v", a.Key, v.DoubleValue))
		default:
			all = append(all, fmt.Sprintf("%s=%T", a.Key, v))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func start(t testing.TB, at string, replica string, share float64) (*Tracer, *prometheus.Registry) {
	t.Helper()
	u, err := url.Parse(at + "/v1/traces")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	tr, err := New(t.Context(), Options{URL: u, Share: share, Replica: replica, Version: "v1", Metrics: reg, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return tr, reg
}

func stop(t testing.TB, tr *Tracer, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	defer cancel()
	tr.Stop(ctx)
}

func chainOf(api config.API, platform config.Platform, endpoint string) (*config.Chain, *config.Target) {
	p := &config.Provider{Name: "a", API: api, Platform: platform, Endpoint: &url.URL{Scheme: "https", Host: "a.example:8443"}}
	t := &config.Target{Name: "a/sonnet", Provider: p, Model: "claude-sonnet-5"}
	return &config.Chain{Name: "chat", API: api, Endpoint: endpoint}, t
}

func attempt(at processor.Trace, n int, v classify.Verdict) *processor.AttemptRecord {
	c, t := chainOf(config.Anthropic, config.Native, "")
	now := time.Now()
	return &processor.AttemptRecord{Trace: at, Exchange: "x1", Attempt: n, Chain: c, Target: t, Rung: n - 1, Verdict: v,
		Sent: now.Add(-2 * time.Second), End: now}
}

var fromClient = processor.Trace{ID: [16]byte{1, 2}, Parent: [8]byte{3, 4}, Sampled: true}

// Each replica knows its own attempt alone; the trace is whole all the same.
func TestAttemptsOfTwoReplicasMeetInOneExchange(t *testing.T) {
	s := &sink{t: t}
	server := httptest.NewServer(s)
	defer server.Close()
	one, _ := start(t, server.URL, "one", 0)
	two, _ := start(t, server.URL, "two", 0)
	one.Attempt(attempt(one.Join("x1", fromClient), 1, classify.Verdict{Class: classify.Overloaded, Detail: "overloaded_error", Status: 529, Phase: classify.PhaseFirst}))
	second := attempt(two.Join("x1", fromClient), 2, classify.Verdict{Class: classify.OK, Phase: classify.PhaseEnd, Status: 200, Model: "claude-sonnet-5-20260101",
		RequestID: "req_1", Usage: classify.Usage{Input: 10, Output: 20, CacheRead: 5, CacheWrite: 1}})
	second.Content, second.Stream, second.Cost = second.Sent.Add(500*time.Millisecond), true, budget.Bill{Amount: budget.Dollar / 4}
	two.Attempt(second)
	two.Exchange(&processor.Record{ID: "x1", Chain: "chat", Outcome: "fallback", Target: "a/sonnet", Rung: 1, Attempts: 2, Status: 200,
		Reason: "overloaded", Trace: two.Join("x1", fromClient), Start: time.Now().Add(-3 * time.Second), End: time.Now(), Verdict: second.Verdict})
	stop(t, one, 10*time.Second)
	stop(t, two, 10*time.Second)

	if len(s.spans) != 3 {
		t.Fatalf("the collector got %d spans, want 3", len(s.spans))
	}
	by := map[string]*otlp.Span{}
	for i, span := range s.spans {
		name := span.Name
		if strings.Contains(words(span.Attributes), "understudy.attempt=1") {
			name = "attempt 1"
		}
		by[name] = span
		if hex.EncodeToString(span.TraceId) != hex.EncodeToString(fromClient.ID[:]) {
			t.Errorf("%s is of trace %x, want the client's", name, span.TraceId)
		}
		if want := map[bool]string{true: "one", false: "two"}[name == "attempt 1"]; !strings.Contains(s.of[i], "service.instance.id="+want) || !strings.Contains(s.of[i], "service.name=understudy") {
			t.Errorf("%s is of %s, want of replica %s", name, s.of[i], want)
		}
	}
	x, first, last := by["exchange"], by["attempt 1"], by["attempt"]
	if got, want := hex.EncodeToString(x.ParentSpanId), hex.EncodeToString(fromClient.Parent[:]); got != want {
		t.Errorf("the exchange's parent = %s, want the client's %s", got, want)
	}
	for _, a := range []*otlp.Span{first, last} {
		if string(a.ParentSpanId) != string(x.SpanId) {
			t.Errorf("an attempt's parent = %x, want the exchange %x", a.ParentSpanId, x.SpanId)
		}
	}
	if string(first.SpanId) == string(last.SpanId) {
		t.Error("two attempts have one span id")
	}
	if took := time.Duration(last.EndTimeUnixNano - last.StartTimeUnixNano); took != 2*time.Second {
		t.Errorf("the attempt took %s in its span, want 2s", took)
	}
	for what, row := range map[string][2]string{
		"attempt 1": {words(first.Attributes), "error.type=overloaded gen_ai.operation.name=chat gen_ai.provider.name=anthropic gen_ai.request.model=claude-sonnet-5 gen_ai.request.stream=false " +
			"server.address=a.example server.port=8443 understudy.attempt=1 understudy.chain=chat understudy.class=overloaded understudy.detail=overloaded_error " +
			"understudy.exchange=x1 understudy.phase=first understudy.rung=0 understudy.status=529 understudy.target=a/sonnet"},
		"attempt 2": {words(last.Attributes), "gen_ai.operation.name=chat gen_ai.provider.name=anthropic gen_ai.request.model=claude-sonnet-5 gen_ai.request.stream=true " +
			"gen_ai.response.model=claude-sonnet-5-20260101 gen_ai.response.time_to_first_chunk=0.5 gen_ai.usage.cache_creation.input_tokens=1 gen_ai.usage.cache_read.input_tokens=5 " +
			"gen_ai.usage.input_tokens=16 gen_ai.usage.output_tokens=20 server.address=a.example server.port=8443 understudy.attempt=2 understudy.chain=chat understudy.class=ok " +
			"understudy.cost_usd=0.25 understudy.exchange=x1 understudy.phase=end understudy.provider_request_id=req_1 understudy.rung=1 understudy.status=200 understudy.target=a/sonnet"},
		"exchange": {words(x.Attributes), "http.response.status_code=200 understudy.attempts=2 understudy.chain=chat understudy.class=ok understudy.exchange=x1 " +
			"understudy.fallback_reason=overloaded understudy.outcome=fallback understudy.rung=1 understudy.target=a/sonnet"},
	} {
		if row[0] != row[1] {
			t.Errorf("%s says\n%s\nwant\n%s", what, row[0], row[1])
		}
	}
	if first.Status.Code != otlp.Status_STATUS_CODE_ERROR || last.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET || first.Kind != otlp.Span_SPAN_KIND_CLIENT || x.Kind != otlp.Span_SPAN_KIND_SERVER {
		t.Errorf("status and kind = %v %v, %v %v", first.Status, first.Kind, last.Status, x.Kind)
	}
}

func TestWhichExchangesAreTraced(t *testing.T) {
	rows := []struct {
		name  string
		at    processor.Trace
		share float64
		want  bool
	}{
		{"a client's decision for it is ignored", fromClient, 0, true},
		{"a client's decision against it is ignored", processor.Trace{ID: [16]byte{1}, Parent: [8]byte{1}}, 1, false},
		{"an exchange without a trace gets none at share 1", processor.Trace{}, 1, true},
		{"an exchange without a trace gets one at share 0", processor.Trace{}, 0, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			tr := &Tracer{share: row.share}
			got := tr.Join("x1", row.at)
			if got.Sampled != row.want || row.at.ID != ([16]byte{}) && (got.ID != row.at.ID || got.Parent != row.at.Parent) {
				t.Errorf("Join(%v) at share %v = %v, want sampled %t", row.at, row.share, got, row.want)
			}
			if row.want && (got.Span == [8]byte{} || got.ID == [16]byte{} || got != tr.Join("x1", row.at)) {
				t.Errorf("Join(%v) = %v, want the same ids each time", row.at, got)
			}
		})
	}
	sampled := 0
	tr := &Tracer{share: 0.25}
	for i := range 10_000 {
		if tr.Join(fmt.Sprint("x", i), processor.Trace{}).Sampled {
			sampled++
		}
	}
	if sampled < 2300 || sampled > 2700 {
		t.Errorf("of 10000 exchanges %d are traced at share 0.25", sampled)
	}
	if a, b := tr.Join("", fromClient), tr.Join("", fromClient); a.Span == b.Span {
		t.Error("exchanges of no id share a span")
	}
}

func TestWordsOfTheConventions(t *testing.T) {
	rows := []struct {
		api       config.API
		platform  config.Platform
		endpoint  string
		operation string
		provider  string
	}{
		{config.Anthropic, config.Native, "", "chat", "anthropic"},
		{config.Anthropic, config.Bedrock, "", "chat", "aws.bedrock"},
		{config.Anthropic, config.Foundry, "", "chat", "azure.ai.inference"},
		{config.OpenAI, config.Native, "", "chat", "openai"},
		{config.OpenAI, config.Azure, "/v1/embeddings", "embeddings", "azure.ai.openai"},
		{config.OpenAI, config.Native, "/v1/rerank", "rerank", "openai"},
		{config.Gemini, config.Native, "", "generate_content", "gcp.gemini"},
		{config.Gemini, config.Vertex, "", "generate_content", "gcp.vertex_ai"},
	}
	for _, row := range rows {
		c, target := chainOf(row.api, row.platform, row.endpoint)
		if got, of := operation(c).Value.AsString(), providerName(target.Provider).Value.AsString(); got != row.operation || of != row.provider {
			t.Errorf("%s on %s, %s = %s of %s, want %s of %s", row.api, row.platform, row.endpoint, got, of, row.operation, row.provider)
		}
	}
}

// A collector that is away costs the memory of so many spans, and no time.
func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hang)
	tr, reg := start(t, server.URL, "one", 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 3 * maxWaiting {
			tr.Attempt(attempt(fromClient, 1, classify.Verdict{Class: classify.OK}))
		}
		stop(t, tr, time.Millisecond)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("spans wait for a collector that hangs")
	}
	if n := tr.exporter.waiting.Load(); n > maxWaiting {
		t.Errorf("%d spans wait, want at most %d", n, maxWaiting)
	}
	if got := testutil.ToFloat64(tr.exporter.full); got < 2*maxWaiting-batch {
		t.Errorf("dropped for want of room = %v, want about %d", got, 2*maxWaiting)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("GatherAndLint = %v, %v", problems, err)
	}
}

func TestAWordThatIsNoUTF8LosesNoSpan(t *testing.T) {
	s := &sink{t: t}
	server := httptest.NewServer(s)
	defer server.Close()
	tr, _ := start(t, server.URL, "A", 1)
	at := tr.Join("x", processor.Trace{})
	tr.Attempt(attempt(at, 1, classify.Verdict{
		Class: classify.OK, RequestID: "req_\xff\xfe1", Detail: strings.Repeat("é", 5000), Model: "m\xed\xa0\x80",
	}))
	tr.Exchange(&processor.Record{ID: "x\xff", Trace: at, Outcome: "served", Start: time.Now(), End: time.Now()})
	stop(t, tr, 5*time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) != 2 {
		t.Fatalf("the collector got %d spans, want both", len(s.spans))
	}
	for _, span := range s.spans {
		for _, a := range span.Attributes {
			if got := len(a.Value.GetStringValue()); got > longest {
				t.Errorf("%s has %d bytes, want at most %d", a.Key, got, longest)
			}
		}
	}
	if got := words(s.spans[0].Attributes); !strings.Contains(got, "provider_request_id=req_1") {
		t.Errorf("attributes = %s, want what is left of the provider's id", got)
	}
}

// The front's clock may be ahead of this one: a span of less than nothing shows as one of centuries.
func TestASpanDoesNotEndBeforeItBegins(t *testing.T) {
	s := &sink{t: t}
	server := httptest.NewServer(s)
	defer server.Close()
	tr, _ := start(t, server.URL, "A", 1)
	now := time.Now()
	tr.Exchange(&processor.Record{ID: "x", Trace: tr.Join("x", processor.Trace{}), Start: now.Add(time.Second), End: now})
	stop(t, tr, 5*time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) != 1 || s.spans[0].StartTimeUnixNano > s.spans[0].EndTimeUnixNano {
		t.Errorf("spans = %v, want one that ends no sooner than it begins", s.spans)
	}
}

func TestSpansThatACollectorRefusesAreCounted(t *testing.T) {
	s := &sink{t: t, status: http.StatusForbidden}
	server := httptest.NewServer(s)
	defer server.Close()
	tr, _ := start(t, server.URL, "one", 1)
	for range 3 {
		tr.Attempt(attempt(fromClient, 1, classify.Verdict{Class: classify.OK}))
	}
	stop(t, tr, 10*time.Second)
	if got := testutil.ToFloat64(tr.exporter.unsent); got != 3 {
		t.Errorf("spans counted as not sent = %v, want 3", got)
	}
}

func TestWhatEndsAnExchangeInAnError(t *testing.T) {
	for _, row := range []struct {
		outcome string
		class   classify.Class
		want    string
	}{
		{"served", classify.OK, ""}, {"degraded", classify.Overloaded, ""}, {"canceled", classify.Canceled, ""},
		{"failed", classify.Timeout, "timeout"}, {"failed", classify.None, "unavailable"},
	} {
		if got := failureOf(&processor.Record{Outcome: row.outcome, Verdict: classify.Verdict{Class: row.class}}); got != row.want {
			t.Errorf("error.type of %s %s = %q, want %q", row.outcome, row.class, got, row.want)
		}
	}
}

func TestAnEnvironmentThatMakesNoSenseIsToldAtTheStart(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no equals sign")
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	_, err := New(t.Context(), Options{URL: u, Metrics: prometheus.NewRegistry(), Log: slog.Default()})
	if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("New = %v, want the variable's name", err)
	}
}
