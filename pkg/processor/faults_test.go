package processor

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
)

func (b *bench) exchanges(outcome string) float64 {
	return testutil.ToFloat64(b.p.metrics.exchanges.WithLabelValues("chat", outcome))
}

// gzipped is each piece of a body in one gzip stream, flushed.
func gzipped(t *testing.T, pieces ...string) []string {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	var all []string
	for _, p := range pieces {
		_, err := zip.Write([]byte(p))
		if err = errors.Join(err, zip.Flush()); err != nil {
			t.Fatal(err)
		}
		all = append(all, out.String())
		out.Reset()
	}
	return all
}

const (
	started    = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"role\":\"assistant\",\"content\":[]}}\n\n"
	said       = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n"
	overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
)

func TestAnEncodedStreamThatFailsInBandAfterCommitIsCut(t *testing.T) {
	for _, commit := range []string{"commit: headers", "commit: first_content"} {
		t.Run(commit, func(t *testing.T) {
			in(t, commit, func(b *bench) {
				c, rest := b.attempt("stream", "x1", 1)
				setHeader(rest[0].GetResponseHeaders().Headers, "content-encoding", "gzip")
				c.tell(rest[0])
				// The failing event's place in the decoded text lies far behind the few bytes that came.
				for _, p := range gzipped(t, started+fmt.Sprintf(said, strings.Repeat("la", 5000)), overloaded) {
					c.body(p, false)
				}
				contains(t, "answer", c.heard(), "headers x-llm-target=a/sonnet", "immediate 529")
				c.hangUp()
				if got := b.exchanges("failed"); got != 1 {
					t.Errorf("exchanges failed = %v, want 1", got)
				}
			})
		})
	}
}

func TestAPanicEndsItsOwnAttemptOnly(t *testing.T) {
	in(t, "", func(b *bench) {
		other, rest := b.attempt("stream", "x0", 1)
		other.tell(rest[:3]...)
		for _, committed := range []bool{false, true} {
			c, rest := b.attempt("stream", "x1", 1)
			if committed {
				c.tell(rest[:3]...)
			}
			c.heard()
			c.s.in <- &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{}}
			<-c.s.done
			c.hangUp()
		}
		other.tell(rest[3:]...)
		contains(t, "the other's answer", other.heard(), "message_stop", "end=true")
		other.hangUp()
		if b.state() != breaker.Closed || b.exchanges("failed") != 1 || b.exchanges("served") != 1 {
			t.Errorf("state %s, failed %v, served %v; want closed, 1 and 1", b.state(), b.exchanges("failed"), b.exchanges("served"))
		}
	})
}

// faulty is a watcher with a fault.
type faulty struct{}

func (faulty) Exchange(*Record)                 {}
func (faulty) Attempt(string, classify.Verdict) { panic("a fault") }
func (faulty) Transition(breaker.Transition)    {}

func TestAPanicAtADeadlineIsTheFrontsToGoOnFrom(t *testing.T) {
	in(t, "deadlines: {first_content: 5s}", func(b *bench) {
		b.p.Tell(faulty{})
		c, _ := b.attempt("stream", "x1", 1)
		c.heard()
		time.Sleep(6 * time.Second)
		contains(t, "Envoy heard", c.heard(), "immediate 503 x-llm-failover=next")
		c.hangUp()
		if b.state() != breaker.Closed {
			t.Errorf("state = %s, want closed", b.state())
		}
	})
}

func TestARequestWithABodyPassesThroughOnAChainsPath(t *testing.T) {
	in(t, "\npassthrough: [{path: /v1, provider: b}]", func(b *bench) {
		for _, method := range []string{"PUT", "DELETE"} {
			messages := readRecorded(t, "json")
			setHeader(messages[0].GetRequestHeaders().Headers, ":method", method)
			c := b.open()
			c.tell(messages...)
			got := c.heard()
			contains(t, method, got, "request headers x-llm-cluster=llm-b\nrequest body\nheaders\nbody", "end=true")
			c.hangUp()
		}
	})
}

func TestCommentsDoNotKeepASilentStreamAlive(t *testing.T) {
	in(t, "deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 300s}", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:3]...)
		for range 10 {
			time.Sleep(2 * time.Second)
			c.body(": keep-alive\n\n", false)
		}
		contains(t, "after 20 s of comments", c.heard(), "event: error", "timeout_error")
		c.hangUp()
	})
}

func TestASlowClientsTimeIsNoFailureOfItsTarget(t *testing.T) {
	in(t, "deadlines: {first_content: 20s, answer: 60s, idle: 15s, total: 60s}", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.heard()
		out := make(chan string) // the client reads nothing
		c.s.out = out
		go func() {
			for _, m := range rest[:3] {
				c.s.in <- m
			}
		}()
		time.Sleep(100 * time.Second)
		for synctest.Wait(); b.attempts("timeout")+b.attempts("canceled") == 0; synctest.Wait() {
			<-out // now it reads
		}
		c.hangUp()
		if got := b.attempts("timeout"); got != 0 || b.attempts("canceled") != 1 {
			t.Errorf("attempts timeout %v, canceled %v; want 0 and 1", got, b.attempts("canceled"))
		}
	})
}

func TestAFailureThatIsShownAsItCameIsNotServed(t *testing.T) {
	in(t, "", func(b *bench) {
		c, rest := b.attempt("529", "x1", 2)
		c.tell(rest...)
		contains(t, "answer", c.heard(), "headers x-should-retry=false x-llm-target=b/sonnet", "overloaded_error")
		c.hangUp()
		mistake, rest := b.attempt("400", "x2", 1)
		mistake.tell(rest...)
		mistake.hangUp()
		if b.exchanges("failed") != 1 || b.exchanges("fallback") != 0 || b.exchanges("served") != 1 {
			t.Errorf("failed %v, fallback %v, served %v; want 1, 0 and 1: the caller's mistake is answered",
				b.exchanges("failed"), b.exchanges("fallback"), b.exchanges("served"))
		}
	})
}

func TestARedirectOfAProviderIsNotShown(t *testing.T) {
	for _, status := range []string{"302", "307", "204", "600", "999"} {
		t.Run(status, func(t *testing.T) {
			in(t, "", func(b *bench) {
				c, rest := b.attempt("529", "x1", 2)
				h := rest[0].GetResponseHeaders().Headers
				setHeader(h, ":status", status)
				setHeader(h, "location", "http://elsewhere.test/")
				c.tell(rest...)
				contains(t, "answer", c.heard(), "immediate 503", "all targets of this chain failed")
				c.hangUp()
			})
		})
	}
}

func TestATierDowngradeThatGivesWayIsNamed(t *testing.T) {
	in(t, "on: {tier_downgrade: next}", func(b *bench) {
		messages := readRecorded(t, "stream")
		setHeader(messages[0].GetRequestHeaders().Headers, "x-llm-exchange", "x1")
		setHeader(messages[0].GetRequestHeaders().Headers, "x-llm-start", fmt.Sprint(time.Now().UnixMilli()))
		body := messages[1].GetRequestBody()
		body.Body = bytes.Replace(body.Body, []byte(`{`), []byte(`{"service_tier":"priority",`), 1)
		c := b.open()
		c.tell(messages[:3]...)
		c.body(strings.Replace(started, `"content"`, `"usage":{"service_tier":"standard"},"content"`, 1), false)
		c.body(fmt.Sprintf(said, "hi"), false)
		contains(t, "answer", c.heard(), "immediate 503 x-llm-failover=next")
		c.hangUp()
		second, rest := b.attempt("stream", "x1", 2)
		second.tell(rest...)
		contains(t, "second answer", second.heard(), "x-llm-target=b/sonnet", "x-llm-fallback-reason=tier_downgrade")
		second.hangUp()
		if got := b.attempts("ok"); got != 1 {
			t.Errorf("attempts ok = %v, want 1: a lower tier is no class of its own", got)
		}
	})
}

func TestAClientThatLeavesWhileItWaitsForARateLimitIsCounted(t *testing.T) {
	in(t, "on: {rate_limited: wait}", func(b *bench) {
		c, rest := b.attempt("429", "x1", 1)
		c.tell(rest...)
		contains(t, "answer", c.heard(), "immediate 429 x-llm-failover=next")
		c.hangUp()
		again, _ := b.attempt("429", "x1", 2)
		expect(t, "second attempt", again.heard(), "request headers")
		again.hangUp()
		if got := b.exchanges("canceled"); got != 1 {
			t.Errorf("exchanges canceled = %v, want 1", got)
		}
	})
}

func TestACommitThatCameTooLateIsNoEndOfTheExchange(t *testing.T) {
	rows := []struct {
		name string
		tell func(b *bench)
	}{
		{"the next attempt is here", func(*bench) {}},
		{"the access log has Envoy's own status", func(b *bench) {
			reset := &dataal.AccessLogCommon{ResponseFlags: &dataal.ResponseFlags{UpstreamConnectionTermination: true}}
			(&AccessLog{Processor: b.p}).entry(named(t, reset, b.p.replica, "x1", "1"), 503)
		}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, "", func(b *bench) {
				c, rest := b.attempt("stream", "x1", 1)
				c.tell(rest[:3]...)
				contains(t, "first answer", c.heard(), "headers x-llm-target=a/sonnet")
				c.hangUp() // the provider's reset came before what has just been heard
				r.tell(b)
				second, rest := b.attempt("json", "x1", 2)
				second.tell(rest...)
				contains(t, "second answer", second.heard(), "x-llm-target=b/sonnet", "x-llm-fallback-reason=transport")
				second.hangUp()
				if b.attempts("transport") != 1 || b.exchanges("failed") != 0 || b.exchanges("fallback") != 1 {
					t.Errorf("transport %v, failed %v, fallback %v; want 1, 0 and 1",
						b.attempts("transport"), b.exchanges("failed"), b.exchanges("fallback"))
				}
			})
		})
	}
}

func TestAClusterThatEnvoyDoesNotHaveChargesNobody(t *testing.T) {
	in(t, "", func(b *bench) {
		attributes, err := structpb.NewStruct(map[string]any{"response.code_details": "cluster_not_found"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			c, rest := b.attempt("529", fmt.Sprint("x", i), 1)
			rest[0].Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": attributes}
			c.heard()
			c.tell(rest...)
			contains(t, "the answer", c.heard(), "x-llm-failover=next")
			c.hangUp()
		}
		if b.state() != breaker.Closed {
			t.Errorf("state = %s, want closed: no provider was asked", b.state())
		}
	})
}

func TestADeadlineComesThroughWhileAClientIsSlow(t *testing.T) {
	for _, phase := range []time.Duration{0, 500, 1000, 1500, 2000} { // ns
		t.Run(phase.String(), func(t *testing.T) {
			in(t, "deadlines: {total: 5s, idle: 2s, first_content: 2s, answer: 5s}", func(b *bench) {
				c, rest := b.attempt("stream", "x1", 1)
				c.s.each = func(*extproc.ProcessingResponse) { time.Sleep(2 * time.Millisecond) }
				begun := time.Now()
				c.tell(rest[:2]...)
				time.Sleep(5*time.Millisecond + phase)
				said := c.heard()
				for time.Since(begun) < 20*time.Second && !strings.Contains(said, "event: error") {
					select {
					case c.s.in <- bodyOf(fmt.Sprintf(event, "x")):
					case <-c.s.done:
					}
					time.Sleep(2500 * time.Microsecond)
					said = c.heard()
				}
				if took := time.Since(begun); took > 6*time.Second {
					t.Errorf("the exchange ends %v after its beginning, want 5s", took)
				}
				c.hangUp()
			})
		})
	}
}

// tally is a watcher that counts exchanges.
type tally struct{ exchanges int }

func (l *tally) Exchange(*Record)               { l.exchanges++ }
func (*tally) Attempt(string, classify.Verdict) {}
func (*tally) Transition(breaker.Transition)    {}

func TestAnExchangeThatIsCutIsToldOfThoughItsClientDoesNotRead(t *testing.T) {
	in(t, "", func(b *bench) {
		l := &tally{}
		b.p.Tell(l)
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:2]...)
		c.body(fmt.Sprintf(event, "x"), false)
		c.heard()
		c.s.each = func(*extproc.ProcessingResponse) { <-c.s.ctx.Done() }
		b.p.Drain()
		synctest.Wait()
		if counted := b.exchanges(OutcomeFailed); counted != 1 || l.exchanges != 1 {
			t.Errorf("failed exchanges counted %v, told of %d, want 1 and 1", counted, l.exchanges)
		}
		c.hangUp()
	})
}
