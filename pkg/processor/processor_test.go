package processor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestAHealthyAnswerIsLabelledAndPasses(t *testing.T) {
	in(t, "", func(b *bench) {
		c, rest := b.attempt("json", "x1", 1)
		expect(t, "request", c.heard(), requested)
		c.tell(rest...)
		got := c.heard()
		contains(t, "answer", got, "headers x-llm-target=a/sonnet x-llm-rung=0 x-llm-attempts=1\nbody", "end=true")
		c.hangUp()
		if n := b.attempts("ok"); n != 1 {
			t.Errorf("attempts ok = %v, want 1", n)
		}
	})
}

func TestAStatusThatFailsGoesToTheNextSlot(t *testing.T) {
	for recording, want := range map[string]string{
		"529":         "immediate 529 x-llm-failover=next",
		"429":         "immediate 429 x-llm-failover=next",
		"520-no-body": "immediate 520 x-llm-failover=next",
		"reset":       "immediate 503 x-llm-failover=next",
		"error-start": "immediate 529 x-llm-failover=next",
	} {
		t.Run(recording, func(t *testing.T) {
			in(t, "", func(b *bench) {
				c, rest := b.attempt(recording, "x1", 1)
				c.heard()
				for _, m := range rest {
					c.tell(m)
					got := c.heard()
					if got == "" {
						continue
					}
					contains(t, "answer", got, want, `"type":"error"`)
					break
				}
				c.hangUp()
				second, rest := b.attempt("json", "x1", 2)
				contains(t, "second attempt", second.heard(), "x-llm-cluster=llm-b idempotency-key=understudy-x1")
				second.tell(rest...)
				contains(t, "second answer", second.heard(), "x-llm-target=b/sonnet x-llm-rung=1 x-llm-attempts=2 x-llm-fallback-reason=")
				second.hangUp()
			})
		})
	}
}

func TestTheCallersMistakePassesAsItCame(t *testing.T) {
	in(t, "", func(b *bench) {
		c, rest := b.attempt("400", "x1", 1)
		c.heard()
		c.tell(rest...)
		got := c.heard()
		contains(t, "answer", got, "headers x-llm-target=a/sonnet", fmt.Sprintf("body %q end=true", rest[1].GetResponseBody().Body))
		c.hangUp()
		if b.state() != breaker.Closed {
			t.Errorf("state = %s, want closed", b.state())
		}
	})
}

func TestDeadlines(t *testing.T) {
	const stream = "stream"
	rows := []struct {
		name, chain, recording string
		messages               int // of the recorded answer that come before the silence
		silence                time.Duration
		want                   string
	}{
		{"a target that says nothing is given up at first_content", "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}", stream, 0, 21 * time.Second, "immediate 504 x-llm-failover=next"},
		{"a non-streamed answer may take longer than first_content", "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}", "json", 0, 60 * time.Second, ""},
		{"a non-streamed answer is given up at answer", "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}", "json", 0, 91 * time.Second, "immediate 504 x-llm-failover=next"},
		{"headers alone are not content", "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}", stream, 2, 21 * time.Second, "immediate 504 x-llm-failover=next"},
		{"a stream that falls silent after content ends with the dialect's error", "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}", stream, 3, 16 * time.Second, "event: error"},
		{"total ends the exchange, without another target", "deadlines: {first_content: 20s, answer: 20s, idle: 15s, total: 20s}", "json", 0, 21 * time.Second, "immediate 503 x-should-retry=false"},
		{"a complete hold is bounded in time", "commit: complete\n    hold: {bytes: 1MiB, time: 5s}", stream, 3, 6 * time.Second, "immediate 504 x-llm-failover=next"},
		{"a first_content hold commits when its time is over", "hold: {bytes: 1MiB, time: 5s}", stream, 2, 6 * time.Second, "headers x-llm-target=a/sonnet"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, r.chain, func(b *bench) {
				c, rest := b.attempt(r.recording, "x1", 1)
				c.tell(rest[:r.messages]...)
				c.heard()
				time.Sleep(r.silence)
				got := c.heard()
				if r.want == "" {
					expect(t, "after the silence", got, "")
				} else {
					contains(t, "after the silence", got, r.want)
				}
				c.hangUp()
			})
		})
	}
}

func TestKeepAlivesAreNotContent(t *testing.T) {
	in(t, "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[0])
		c.heard()
		for range 10 {
			c.body(": keep-alive\n\n", false)
			time.Sleep(3 * time.Second)
			if got := c.heard(); got != "" {
				contains(t, "answer", got, "immediate 504 x-llm-failover=next")
				c.hangUp()
				return
			}
		}
		t.Error("after 30 s of keep-alives nothing has happened, want a timeout at 20 s")
		c.hangUp()
	})
}

func TestASlowClientIsNotAnIdleProvider(t *testing.T) {
	in(t, "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 300s}", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.heard()
		c.s.out = make(chan string) // the client reads nothing
		go func() {
			for _, m := range rest {
				c.s.in <- m
			}
		}()
		time.Sleep(100 * time.Second)
		var got []string
		for range 20 { // now it reads
			synctest.Wait()
			select {
			case m := <-c.s.out:
				got = append(got, m)
			default:
			}
		}
		contains(t, "the whole answer", strings.Join(got, "\n"), "x-llm-target=a/sonnet", "message_stop", "end=true")
		c.hangUp()
	})
}

func TestEndsThatOnlyTheAccessLogTells(t *testing.T) {
	flags := func(f *dataal.ResponseFlags) *dataal.AccessLogCommon {
		return &dataal.AccessLogCommon{ResponseFlags: f}
	}
	rows := []struct {
		name  string
		log   *dataal.AccessLogCommon
		class string
	}{
		{"a client that hung up charges nobody", flags(&dataal.ResponseFlags{DownstreamConnectionTermination: true}), "canceled"},
		{"an upstream that reset is charged", flags(&dataal.ResponseFlags{UpstreamRemoteReset: true}), "transport"},
		{"an upstream that broke the protocol is charged", flags(&dataal.ResponseFlags{UpstreamProtocolError: true}), "transport"},
		{"a lost log charges nobody", nil, "canceled"},
	}
	for _, r := range rows {
		for _, order := range []string{"the log comes after the end", "the log comes before the end"} {
			t.Run(r.name+", "+order, func(t *testing.T) {
				in(t, "", func(b *bench) {
					c, rest := b.attempt("stream", "x1", 1)
					c.tell(rest[:3]...)
					c.heard()
					end := func() { c.hangUp() }
					log := func() {
						if r.log != nil {
							(&AccessLog{Processor: b.p}).entry(named(r.log, b.p.replica, "x1", "1"), 200)
						}
					}
					if strings.Contains(order, "before") {
						log()
						end()
					} else {
						end()
						log()
					}
					time.Sleep(3 * time.Second)
					if got := b.attempts(r.class); got != 1 {
						t.Errorf("attempts %s = %v, want 1", r.class, got)
					}
				})
			})
		}
	}
}

func named(c *dataal.AccessLogCommon, replica, exchange, attempt string) *dataal.AccessLogCommon {
	m := metadata(replica, exchange, 0, "a/sonnet").Fields["understudy"].GetStructValue()
	m.Fields["attempt"] = structpb.NewStringValue(attempt)
	c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"understudy": m}}
	return c
}

func TestTheNextAttemptProvesThatTheLastWasNotAHangUp(t *testing.T) {
	in(t, "commit: complete", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:3]...)
		c.hangUp() // the upstream died while headers were held: Envoy retries, the stream just ends
		second, rest := b.attempt("json", "x1", 2)
		second.tell(rest...)
		contains(t, "second answer", second.heard(), "x-llm-target=b/sonnet", "x-llm-fallback-reason=transport")
		second.hangUp()
		if got := b.attempts("transport"); got != 1 {
			t.Errorf("attempts transport = %v, want 1", got)
		}
	})
}

func TestALostConnectionToEnvoyChargesNobody(t *testing.T) {
	in(t, "", func(b *bench) {
		for i := range 5 {
			c, rest := b.attempt("stream", fmt.Sprint("x", i), 1)
			c.tell(rest[:2]...)
			c.lose()
			second, rest := b.attempt("json", fmt.Sprint("x", i), 2) // Envoy's mapper sends the exchange on
			second.tell(rest...)
			second.hangUp()
		}
		if b.state() != breaker.Closed || b.attempts("transport") != 0 {
			t.Errorf("state %s, transport %v; want closed and 0", b.state(), b.attempts("transport"))
		}
	})
}

func TestFiveFailuresOpenAndTheSixthMakesNoCall(t *testing.T) {
	in(t, "", func(b *bench) {
		for i := range 5 {
			c, rest := b.attempt("529", fmt.Sprint("x", i), 1)
			c.tell(rest...)
			c.hangUp()
		}
		if b.state() != breaker.Open {
			t.Fatalf("state = %s, want open", b.state())
		}
		c, _ := b.attempt("json", "x9", 1)
		contains(t, "sixth", c.heard(), "immediate 503 x-llm-failover=next")
		c.hangUp()
		time.Sleep(61 * time.Second)
		trial, rest := b.attempt("json", "x10", 1)
		contains(t, "trial", trial.heard(), "x-llm-cluster=llm-a")
		busy, _ := b.attempt("json", "x11", 1)
		contains(t, "beside the trial", busy.heard(), "immediate 503 x-llm-failover=next")
		busy.hangUp()
		trial.tell(rest...)
		trial.hangUp()
		if b.state() != breaker.Closed {
			t.Errorf("state after the trial = %s, want closed", b.state())
		}
	})
}

func TestASpentChainShowsThePrimarysFailure(t *testing.T) {
	in(t, "", func(b *bench) {
		c, rest := b.attempt("529", "x1", 1)
		c.tell(rest...)
		c.hangUp()
		second, rest := b.attempt("400", "x1", 2)
		second.tell(rest...)
		got := second.heard()
		contains(t, "last answer", got, "immediate 529", "overloaded_error", "x-should-retry=false", "x-llm-fallback-reason=invalid")
		if strings.Contains(got, "x-llm-failover") {
			t.Errorf("last answer asks for another attempt: %s", got)
		}
		second.hangUp()
	})
}

func TestOffIsServedWhenTheChainIsSpent(t *testing.T) {
	in(t, `degrade: ["off"]`+"\n    off: {status: 503, message: \"closed for today\"}", func(b *bench) {
		for i := range 5 {
			c, rest := b.attempt("529", fmt.Sprint("x", i), 2)
			c.tell(rest...)
			contains(t, "last answer", c.heard(), "immediate 503", "x-llm-degraded=off", "closed for today")
			c.hangUp()
		}
	})
}

func TestDrainEndsEveryAttemptHonestly(t *testing.T) {
	in(t, "", func(b *bench) {
		early, _ := b.attempt("stream", "x1", 1)
		streaming, rest := b.attempt("stream", "x2", 1)
		streaming.tell(rest[:3]...)
		early.heard()
		streaming.heard()
		b.p.Drain()
		contains(t, "before commit", early.heard(), "immediate 503 x-llm-failover=next")
		contains(t, "after commit", streaming.heard(), "event: error", "end=true")
		early.hangUp()
		streaming.hangUp()
		if b.state() != breaker.Closed || b.attempts("canceled") != 2 {
			t.Errorf("state %s, canceled %v; want closed and 2: our end is nobody's failure", b.state(), b.attempts("canceled"))
		}
		if err := b.p.Wait(t.Context()); err != nil {
			t.Errorf("Wait() = %v, want nil", err)
		}
	})
}

func TestAnAnswerOfEnvoysOwnToARequestWeNeverSawPasses(t *testing.T) {
	in(t, "", func(b *bench) {
		c := b.open()
		c.tell(readRecorded(b.t, "reset")[2:]...) // as when Envoy refuses a body before it asks us
		contains(t, "answer", c.heard(), "headers\nbody", "end=true")
		c.hangUp()
	})
}

func TestRequestsThatGoToNoTarget(t *testing.T) {
	rows := []struct {
		name   string
		change func(h *corev3.HeaderMap)
		want   string
	}{
		{"a path of no chain is a 404", func(h *corev3.HeaderMap) { setHeader(h, ":path", "/v1/unknown") }, "immediate 404"},
		{"a body that says it is too large is a 413 at once", func(h *corev3.HeaderMap) { setHeader(h, "content-length", "33554433") }, "immediate 413"},
		{"a client that claims to be us is refused", func(h *corev3.HeaderMap) { setHeader(h, "x-llm-internal", "1") }, "immediate 403"},
		{"an exchange whose time is over gets no target", func(h *corev3.HeaderMap) { setHeader(h, "x-llm-start", "1") }, "immediate 503"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, "", func(b *bench) {
				messages := readRecorded(t, "json")
				r.change(messages[0].GetRequestHeaders().Headers)
				c := b.open()
				c.tell(messages[:2]...)
				contains(t, "answer", c.heard(), r.want, `"type":"error"`)
				c.hangUp()
			})
		})
	}
}
