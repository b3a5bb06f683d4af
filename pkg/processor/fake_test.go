package processor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protojson"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

// readRecorded reads what a real Envoy sent; see TestRecord.
func readRecorded(t testing.TB, name string) []*extproc.ProcessingRequest {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "recorded", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []*extproc.ProcessingRequest
	for s := bufio.NewScanner(f); s.Scan(); {
		m := &extproc.ProcessingRequest{}
		if err := protojson.Unmarshal(s.Bytes(), m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// fakeStream is Envoy's end of one stream, in memory.
type fakeStream struct {
	grpc.ServerStream
	ctx  context.Context
	addr *connAddr
	in   chan *extproc.ProcessingRequest
	out  chan string   // described when sent: a message may be used again after that
	done chan struct{} // Process has returned
	each func(*extproc.ProcessingResponse)
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) Recv() (*extproc.ProcessingRequest, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *fakeStream) Send(m *extproc.ProcessingResponse) error {
	if s.each != nil {
		s.each(m)
	}
	select {
	case s.out <- describe(m):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

const testYAML = `
providers:
  a: {api: anthropic, endpoint: "http://127.0.0.1:1", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
  b: {api: anthropic, endpoint: "http://127.0.0.1:2", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
targets:
  a/sonnet: {provider: a, model: claude-sonnet-5, breaker: {failures: 5, open_for: 60s}}
  b/sonnet: {provider: b, model: claude-sonnet-5}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [a/sonnet, b/sonnet]
    %s
`

// bench is a processor under test, inside a synctest bubble.
type bench struct {
	t   *testing.T
	p   *Processor
	reg *prometheus.Registry
}

// in runs f in a bubble, with a chain of the given extra settings.
func in(t *testing.T, chain string, f func(b *bench)) {
	t.Helper()
	inYAML(t, fmt.Sprintf(testYAML, chain), f)
}

// inYAML runs f in a bubble, with a config.
func inYAML(t *testing.T, yaml string, f func(b *bench)) {
	t.Helper()
	t.Setenv("PROCESSOR_TEST_KEY", "k")
	cfg, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := &bench{t: t, reg: reg, p: New(cfg, NewMetrics(reg), slog.New(slog.NewTextHandler(io.Discard, nil)))}
		f(b)
		time.Sleep(endWait + time.Second) // in the bubble: every late end is settled
		if got := b.p.open.Load(); got != 0 {
			t.Errorf("running attempts at the end = %d, want 0", got)
		}
		if got := b.p.inflight.Load(); got != 0 {
			t.Errorf("bytes still accounted for at the end = %d, want 0", got)
		}
	})
}

// call is one attempt as Envoy sees it.
type call struct {
	b      *bench
	s      *fakeStream
	cancel context.CancelFunc
}

func (b *bench) open() *call {
	addr := &connAddr{}
	ctx, cancel := context.WithCancel(peer.NewContext(b.t.Context(), &peer.Peer{Addr: addr}))
	s := &fakeStream{ctx: ctx, addr: addr, in: make(chan *extproc.ProcessingRequest), out: make(chan string, 256), done: make(chan struct{})}
	go func() { defer close(s.done); _ = b.p.Process(s) }()
	b.t.Cleanup(cancel)
	return &call{b, s, cancel}
}

// attempt opens attempt n of an exchange with a recording's request, whose answers it returns with the rest of
// the recording's messages.
func (b *bench) attempt(recording, exchange string, n int) (*call, []*extproc.ProcessingRequest) {
	messages := readRecorded(b.t, recording)
	h := messages[0].GetRequestHeaders().Headers
	setHeader(h, "x-envoy-attempt-count", strconv.Itoa(n))
	setHeader(h, "x-llm-exchange", exchange)
	setHeader(h, "x-llm-start", strconv.FormatInt(time.Now().UnixMilli(), 10))
	c := b.open()
	c.tell(messages[:2]...)
	return c, messages[2:]
}

func setHeader(h *corev3.HeaderMap, name, value string) {
	h.Headers = slices.DeleteFunc(h.Headers, func(v *corev3.HeaderValue) bool { return v.Key == name })
	h.Headers = append(h.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
}

func (c *call) tell(messages ...*extproc.ProcessingRequest) {
	for _, m := range messages {
		c.s.in <- m
		synctest.Wait()
	}
}

func (c *call) body(text string, end bool) {
	m := bodyOf(text)
	m.GetResponseBody().EndOfStream = end
	c.tell(m)
}

func bodyOf(text string) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: []byte(text)}}}
}

// heard writes down what Envoy has been told since the last call, a line a message.
func (c *call) heard() string {
	synctest.Wait()
	var lines []string
	for {
		select {
		case m := <-c.s.out:
			lines = append(lines, m)
		default:
			return strings.Join(lines, "\n")
		}
	}
}

// lose ends the stream by the loss of its connection.
func (c *call) lose() {
	c.s.addr.lost.Store(true)
	c.hangUp()
}

func (c *call) hangUp() {
	c.cancel()
	<-c.s.done
}

func describe(m *extproc.ProcessingResponse) string {
	switch r := m.Response.(type) {
	case *extproc.ProcessingResponse_RequestHeaders:
		return "request headers" + mutated(r.RequestHeaders.Response.GetHeaderMutation())
	case *extproc.ProcessingResponse_RequestBody:
		return "request body" + mutated(r.RequestBody.Response.GetHeaderMutation())
	case *extproc.ProcessingResponse_ResponseHeaders:
		return "headers" + mutated(r.ResponseHeaders.Response.GetHeaderMutation())
	case *extproc.ProcessingResponse_ResponseBody:
		s := r.ResponseBody.Response.BodyMutation.GetStreamedResponse()
		return fmt.Sprintf("body %q end=%t", s.Body, s.EndOfStream)
	case *extproc.ProcessingResponse_ResponseTrailers:
		return "trailers"
	case *extproc.ProcessingResponse_ImmediateResponse:
		return fmt.Sprintf("immediate %d", r.ImmediateResponse.Status.Code) + mutated(r.ImmediateResponse.Headers) +
			" " + string(r.ImmediateResponse.Body)
	}
	return fmt.Sprintf("%T", m.Response)
}

// mutated lists the headers that matter to these tests.
func mutated(m *extproc.HeaderMutation) string {
	var out strings.Builder
	for _, h := range m.GetSetHeaders() {
		switch h.Header.Key {
		case "x-llm-cluster", "x-llm-failover", "x-llm-target", "x-llm-rung", "x-llm-attempts", "x-llm-fallback-reason",
			"x-should-retry", "retry-after", "idempotency-key", "x-llm-degraded", "content-length", "x-llm-probed":
			fmt.Fprintf(&out, " %s=%s", h.Header.Key, h.Header.RawValue)
		}
	}
	return out.String()
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func contains(t *testing.T, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s:\n got %s\nwant it to contain %s", what, got, w)
		}
	}
}

func (b *bench) attempts(class string) float64 {
	return testutil.ToFloat64(b.p.metrics.attempts.WithLabelValues("chat", "a/sonnet", class))
}

func (b *bench) state() breaker.State { return b.p.Book().Breaker("a/sonnet").State() }

const requested = "request headers\nrequest body x-llm-cluster=llm-a idempotency-key=understudy-x1"
