package processor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

const observed = "mode: observe\n    deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 120s}"

// decisions writes down what enforcing would have done, by the metric.
func (b *bench) decisions() string {
	var all []string
	for _, d := range []string{wouldSkip, wouldFailOver, wouldFail, wouldTimeOut} {
		if n := testutil.ToFloat64(b.p.metrics.unenforced.WithLabelValues("chat", "a/sonnet", d)); n > 0 {
			all = append(all, fmt.Sprintf("%s=%v", d, n))
		}
	}
	return strings.Join(all, " ")
}

func (b *bench) outcome(name string) float64 {
	return testutil.ToFloat64(b.p.metrics.exchanges.WithLabelValues("chat", name))
}

// echoed is what Envoy must hear of an answer that nobody changes.
func echoed(rest []*extproc.ProcessingRequest) string {
	var lines []string
	for _, m := range rest {
		switch r := m.Request.(type) {
		case *extproc.ProcessingRequest_ResponseHeaders:
			lines = append(lines, "headers")
		case *extproc.ProcessingRequest_ResponseBody:
			lines = append(lines, fmt.Sprintf("body %q end=%t", r.ResponseBody.Body, r.ResponseBody.EndOfStream))
		}
	}
	return strings.Join(lines, "\n")
}

func TestObservingChangesNothing(t *testing.T) {
	rows := []struct{ recording, class, outcome, decisions string }{
		{"json", "ok", OutcomeServed, ""},
		{"stream", "ok", OutcomeServed, ""},
		{"error-start", "overloaded", OutcomeFailed, "failover=1"},
		{"529", "overloaded", OutcomeFailed, "failover=1"},
		{"520-no-body", "server_error", OutcomeFailed, "failover=1"},
		{"reset", "transport", OutcomeFailed, "failover=1"},
		{"429", "rate_limited", OutcomeFailed, "failover=1"},
		{"400", "invalid", OutcomeServed, ""},
	}
	for _, r := range rows {
		t.Run(r.recording, func(t *testing.T) {
			in(t, observed, func(b *bench) {
				c, rest := b.attempt(r.recording, "x1", 1)
				expect(t, "request", c.heard(), "request headers\nrequest body x-llm-cluster=llm-a")
				for i, m := range rest { // one by one: nothing is kept back
					c.tell(m)
					expect(t, fmt.Sprint("message ", i), c.heard(), echoed(rest[i:i+1]))
				}
				c.hangUp()
				expect(t, "decisions", b.decisions(), r.decisions)
				if b.attempts(r.class) != 1 || b.outcome(r.outcome) != 1 {
					t.Errorf("attempts %s = %v and exchanges %s = %v, want 1 and 1", r.class, b.attempts(r.class), r.outcome, b.outcome(r.outcome))
				}
			})
		})
	}
}

func TestObservingLeavesTheRequestAsItCame(t *testing.T) {
	in(t, observed, func(b *bench) {
		messages := readRecorded(b.t, "json")
		h := messages[0].GetRequestHeaders().Headers
		setHeader(h, ":path", "/v1/messages?beta=true&key=secret")
		body := messages[1].GetRequestBody()
		body.Body = bytes.Replace(body.Body, []byte("claude-sonnet-5"), []byte("claude-haiku-4-5"), 1)
		c := b.open()
		sets := map[string]string{}
		c.s.each = func(m *extproc.ProcessingResponse) {
			r := m.GetRequestBody().GetResponse()
			for _, v := range r.GetHeaderMutation().GetSetHeaders() {
				sets[v.Header.Key] = string(v.Header.RawValue)
			}
			if r.GetBodyMutation() != nil {
				t.Errorf("the body is changed to %q, want none", r.GetBodyMutation().GetBody())
			}
		}
		c.tell(messages[:2]...)
		c.heard()
		c.hangUp()
		want := map[string]string{"x-llm-cluster": "llm-a", ":authority": "127.0.0.1:1", ":path": "/v1/messages?beta=true", "x-api-key": "k"}
		if fmt.Sprint(sets) != fmt.Sprint(want) {
			t.Errorf("headers set = %v, want %v", sets, want)
		}
	})
}

func TestObservingEndsNothingAtADeadline(t *testing.T) {
	rows := []struct {
		name, chain, recording string
		messages               int // of the recorded answer that come before the silence
		want                   string
	}{
		{"a target that says nothing", observed, "json", 0, "timeout=1"},
		{"a stream without its first content", observed, "stream", 2, "timeout=1"},
		{"a stream that falls silent", observed, "stream", 3, "timeout=1"},
		{"a hold that would be over", observed + "\n    commit: complete\n    hold: {bytes: 1MiB, time: 5s}", "stream", 3, "timeout=1"},
		{"a stream that crawls", observed + "\n    min_rate: {bytes_per_second: 1KiB, window: 5s}", "stream", 3, "timeout=1"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, r.chain, func(b *bench) {
				for i := range 5 {
					c, rest := b.attempt(r.recording, fmt.Sprint("x", i), 1)
					c.tell(rest[:r.messages]...)
					c.heard()
					time.Sleep(10 * time.Minute)
					expect(t, "in ten minutes of silence", c.heard(), "")
					c.tell(rest[r.messages:]...)
					expect(t, "the rest", c.heard(), echoed(rest[r.messages:]))
					c.hangUp()
				}
				expect(t, "decisions", b.decisions(), "timeout=5")
				if b.state() == breaker.Closed || b.attempts("ok") != 5 {
					t.Errorf("state %s, attempts ok %v; want not closed and 5: each was too late, and a whole answer", b.state(), b.attempts("ok"))
				}
			})
		})
	}
}

func TestAFirstContentHoldThatWouldBeOverIsNoDecision(t *testing.T) {
	in(t, observed+"\n    hold: {bytes: 1MiB, time: 5s}", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:2]...)
		time.Sleep(10 * time.Second)
		c.tell(rest[2:]...)
		c.hangUp()
		expect(t, "decisions", b.decisions(), "")
	})
}

func TestAnObservedBreakerOpensAndSkipsNothing(t *testing.T) {
	in(t, observed, func(b *bench) {
		for i := range 7 {
			c, rest := b.attempt("529", fmt.Sprint("x", i), 1)
			contains(t, "request", c.heard(), "x-llm-cluster=llm-a")
			c.tell(rest...)
			expect(t, "answer", c.heard(), echoed(rest))
			c.hangUp()
		}
		if b.state() != breaker.Open {
			t.Errorf("state after seven failures = %s, want open", b.state())
		}
		expect(t, "decisions", b.decisions(), "skip=2 failover=7")
	})
}

func TestWhatEnforcingWouldHaveDone(t *testing.T) {
	const alone = "mode: observe\n    "
	died := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"o\"}}\n\n"
	rows := []struct {
		name, chain string
		attempt     int
		messages    int // of a healthy stream that come before its error
		want        string
	}{
		{"a stream that dies before content fails over", alone, 1, 2, "failover=1"},
		{"a stream that dies after content could only be ended", alone, 1, 3, "fail=1"},
		{"a whole hold replaces it", alone + "commit: complete", 1, 3, "failover=1"},
		{"without a hold it is ended", alone + "commit: headers", 1, 2, "fail=1"},
		{"where no front counts attempts it still tells what one would do", alone, 0, 2, "failover=1"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, r.chain, func(b *bench) {
				c, rest := b.attempt("stream", "x1", r.attempt)
				c.tell(rest[:r.messages]...)
				c.body(died, true)
				contains(t, "answer", c.heard(), fmt.Sprintf("body %q end=true", died))
				c.hangUp()
				expect(t, "decisions", b.decisions(), r.want)
			})
		})
	}
}

func TestAnObservedTargetThatGivesNoAnswerIsNotCommitted(t *testing.T) {
	in(t, "mode: observe\n    commit: headers", func(b *bench) {
		c, rest := b.attempt("reset", "x1", 1)
		c.tell(rest...)
		c.hangUp()
		expect(t, "decisions", b.decisions(), "failover=1")
	})
}

func TestAnObservedExchangeWhoseTimeIsOverStillGoesOut(t *testing.T) {
	in(t, observed, func(b *bench) {
		messages := readRecorded(t, "json")
		setHeader(messages[0].GetRequestHeaders().Headers, "x-llm-start", "1")
		c := b.open()
		c.tell(messages[:2]...)
		contains(t, "request", c.heard(), "x-llm-cluster=llm-a")
		time.Sleep(time.Second)
		c.tell(messages[2:]...)
		expect(t, "answer", c.heard(), echoed(messages[2:]))
		c.hangUp()
		expect(t, "decisions", b.decisions(), "fail=1")
	})
}

func TestAnObservedChainWithNoOtherTargetWouldFail(t *testing.T) {
	in(t, observed, func(b *bench) {
		b.p.Book().Breaker("b/sonnet").Cool(time.Now().Add(time.Hour))
		c, rest := b.attempt("529", "x1", 1)
		c.tell(rest...)
		c.hangUp()
		expect(t, "decisions", b.decisions(), "fail=1")
	})
}

func TestAnObservedAnswerThatBreaksOff(t *testing.T) {
	flags := func(f *dataal.ResponseFlags) *dataal.AccessLogCommon {
		return &dataal.AccessLogCommon{ResponseFlags: f}
	}
	rows := []struct {
		name                      string
		messages                  int
		log                       *dataal.AccessLogCommon
		class, outcome, decisions string
	}{
		{"by the provider before its headers", 0, flags(&dataal.ResponseFlags{UpstreamRemoteReset: true}), "transport", OutcomeFailed, "failover=1"},
		{"by the provider after content", 3, flags(&dataal.ResponseFlags{UpstreamRemoteReset: true}), "transport", OutcomeFailed, "fail=1"},
		{"by the client", 3, flags(&dataal.ResponseFlags{DownstreamConnectionTermination: true}), "canceled", OutcomeCanceled, ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, observed, func(b *bench) {
				c, rest := b.attempt("stream", "x1", 1)
				c.tell(rest[:r.messages]...)
				c.hangUp()
				(&AccessLog{Processor: b.p}).entry(named(t, r.log, b.p.replica, "x1", "1"), 200)
				expect(t, "decisions", b.decisions(), r.decisions)
				if b.attempts(r.class) != 1 || b.outcome(r.outcome) != 1 {
					t.Errorf("attempts %s = %v and exchanges %s = %v, want 1 and 1", r.class, b.attempts(r.class), r.outcome, b.outcome(r.outcome))
				}
			})
		})
	}
}

func TestObservingMakesNoSecondCall(t *testing.T) {
	in(t, observed, func(b *bench) {
		c, _ := b.attempt("json", "x1", 1)
		c.hangUp() // the upstream refused, and Envoy's own reply asks for the next attempt
		second, _ := b.attempt("json", "x1", 2)
		got := second.heard()
		contains(t, "second attempt", got, "immediate 503")
		if strings.Contains(got, "x-llm-failover") || b.outcome(OutcomeFailed) != 1 {
			t.Errorf("second attempt = %s, exchanges failed = %v; want a final answer, counted once", got, b.outcome(OutcomeFailed))
		}
		second.hangUp()
	})
}

func TestAnAttemptThatAFaultOfOursConsumedIsObserved(t *testing.T) {
	in(t, observed, func(b *bench) {
		c, rest := b.attempt("json", "x1", 2)
		contains(t, "second attempt", c.heard(), "x-llm-cluster=llm-a")
		c.tell(rest...)
		expect(t, "answer", c.heard(), echoed(rest))
		c.hangUp()
	})
}

func TestDrainLeavesObservedAnswersAlone(t *testing.T) {
	in(t, observed, func(b *bench) {
		early, earlyRest := b.attempt("json", "x1", 1)
		streaming, rest := b.attempt("stream", "x2", 1)
		early.heard()
		streaming.tell(rest[:3]...)
		streaming.heard()
		b.p.Drain()
		early.tell(earlyRest...)
		streaming.tell(rest[3:]...)
		expect(t, "before its headers", early.heard(), echoed(earlyRest))
		expect(t, "in its stream", streaming.heard(), echoed(rest[3:]))
		early.hangUp()
		streaming.hangUp()
	})
}

func TestAnObservedAnswerComesInPiecesThatEnvoyTakes(t *testing.T) {
	in(t, observed, func(b *bench) {
		c, rest := b.attempt("json", "x1", 1)
		c.tell(rest[0])
		c.heard()
		c.body(strings.Repeat("x", 2*maxChunk+1), true)
		got := strings.Split(c.heard(), "\n")
		if len(got) != 3 || !strings.Contains(got[1], "end=false") || got[2] != `body "x" end=true` {
			t.Errorf("pieces of 128 KiB and a byte = %d, want 3 of which the last alone is the end", len(got))
		}
		c.hangUp()
	})
}

func TestAnObservedChainWithoutItsSecretSaysSoOnce(t *testing.T) {
	in(t, observed, func(b *bench) {
		b.withoutSecret("a")
		c, _ := b.attempt("json", "x1", 1)
		got := c.heard()
		contains(t, "answer", got, "immediate 503", "no credential")
		if strings.Contains(got, "x-llm-failover") {
			t.Errorf("answer = %s, want no other attempt asked for", got)
		}
		c.hangUp()
	})
}

// withoutSecret takes a provider's secret away.
func (b *bench) withoutSecret(provider string) {
	absent, err := config.ReadSecret("env:PROCESSOR_TEST_ABSENT")
	if err != nil {
		b.t.Fatal(err)
	}
	b.p.Book().Config.Providers[provider].Auth.Secret = absent
}
