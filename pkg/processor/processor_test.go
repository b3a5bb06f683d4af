package processor

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/chain/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
							(&AccessLog{Processor: b.p}).entry(named(t, r.log, b.p.replica, "x1", "1"), 200)
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

func named(t *testing.T, c *dataal.AccessLogCommon, replica, exchange, attempt string) *dataal.AccessLogCommon {
	m := kept(t, identityOf(replica, exchange, 0, "a/sonnet")).Fields["understudy"].GetStructValue()
	m.Fields["attempt"] = structpb.NewStringValue(attempt + " " + replica)
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
