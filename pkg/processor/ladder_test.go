package processor

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/degrade"
	"understudy/pkg/degrade/cache"
	"understudy/pkg/store"
	"understudy/pkg/token"
)

// says is a chain whose `off` is an answer like any other.
const says = `degrade: [off]
    off: {as: answer, message: "Closed for now."}`

func jobToken() string { return token.Sign(ourKey, token.Job, "chat", time.Now()) }

func TestAJobThatMeetsAnOffSwitchWaits(t *testing.T) {
	in(t, says, func(b *bench) {
		b.p.SetKey(ourKey)
		b.p.SwitchOff(map[string]bool{"chat": true})
		if got := b.p.Pace("chat"); got != 0 {
			t.Errorf("Pace = %v, want 0: jobs of a chain that is off wait", got)
		}
		c, _ := b.ours("json", jobToken(), 1, nil)
		got := c.heard()
		contains(t, "answer", got, "immediate 503")
		if strings.Contains(got, "Closed") {
			t.Errorf("the job was answered with %s, want no result: what the switch says is none", got)
		}
		c.hangUp()
	})
}

func TestAChainThatObservesRunsNoJobs(t *testing.T) {
	in(t, "mode: observe", func(b *bench) {
		b.p.SetKey(ourKey)
		if got := b.p.Pace("chat"); got != 0 {
			t.Errorf("Pace = %v, want 0: a job is run along a chain, which here decides nothing", got)
		}
		c, _ := b.ours("json", jobToken(), 1, nil)
		contains(t, "answer", c.heard(), "immediate")
		c.hangUp()
	})
}

func TestASwitchIsNoFailure(t *testing.T) {
	in(t, "degrade: [off]", func(b *bench) {
		for range 5 {
			c, rest := b.attempt("529", "x1", 1)
			c.tell(rest...)
			c.hangUp()
		}
		b.p.SwitchOff(map[string]bool{"chat": true})
		c, _ := b.attempt("json", "x2", 1)
		got := c.heard()
		contains(t, "answer", got, "immediate 503", "x-llm-degraded=off", "x-should-retry=false")
		for _, not := range []string{"retry-after", "x-llm-fallback-reason"} {
			if strings.Contains(got, not) {
				t.Errorf("the answer is %s, want no %s: no target was asked, and none will be", got, not)
			}
		}
		c.hangUp()
	})
}

func TestAnOperatorSwitchesAnObservingChainOff(t *testing.T) {
	in(t, "mode: observe\n    "+says, func(b *bench) {
		b.p.SwitchOff(map[string]bool{"chat": true})
		c, _ := b.attempt("json", "x1", 1)
		got := c.heard()
		contains(t, "answer", got, "immediate 200", "x-llm-degraded=off", "Closed for now.")
		if strings.Contains(got, "x-should-retry") {
			t.Errorf("the answer is %s, want no x-should-retry: it is no error", got)
		}
		c.hangUp()
		if got := testutil.ToFloat64(b.p.metrics.degraded.WithLabelValues("chat", "off")); got != 1 {
			t.Errorf("degraded by off = %v, want 1", got)
		}
	})
}

// shelf is a bucket in memory. While it is stuck no call of it returns before its context ends.
type shelf struct {
	cache.Bucket
	mu     sync.Mutex // mu guards the fields below.
	values map[string][]byte
	stuck  bool
}

func (s *shelf) do(ctx context.Context, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	return f()
}

func (s *shelf) PutBlob(ctx context.Context, key string, value []byte, _ time.Duration) error {
	return s.do(ctx, func() error { s.values[key] = value; return nil })
}

func (s *shelf) GetBlob(ctx context.Context, key string) (value []byte, err error) {
	err = s.do(ctx, func() error {
		if value = s.values[key]; value == nil {
			return store.ErrNotFound
		}
		return nil
	})
	return value, err
}

// cached gives b's chains a cache on a shelf. What it is to keep waits in the ladder until kept.
func (b *bench) cached() (s *shelf, l *degrade.Ladder) {
	s = &shelf{values: map[string][]byte{}}
	l = degrade.New(cache.New(s), nil, slog.New(slog.DiscardHandler))
	b.p.Degrade(l, nil)
	return s, l
}

// kept lets the ladder keep what waits.
func (b *bench) kept(l *degrade.Ladder) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	synctest.Wait()
	cancel()
	<-done
}

func TestAGoodAnswerIsServedWhenNothingAnswers(t *testing.T) {
	in(t, "degrade: [cache]", func(b *bench) {
		s, l := b.cached()
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest...)
		c.heard()
		c.hangUp()
		b.kept(l)
		if len(s.values) != 1 {
			t.Fatalf("answers kept = %d, want 1", len(s.values))
		}
		for n := 1; n <= 2; n++ {
			c, _ := b.attempt("stream", "x2", n)
			rest := readRecorded(t, "529")[2:]
			c.tell(rest...)
			got := c.heard()
			if n == 2 {
				contains(t, "answer", got, "immediate 200", "x-llm-degraded=cache; age=0; match=exact", "message_stop")
			}
			c.hangUp()
		}
		if got := testutil.ToFloat64(b.p.metrics.degraded.WithLabelValues("chat", "cache")); got != 1 {
			t.Errorf("degraded by the cache = %v, want 1", got)
		}
	})
}

func TestAClientThatLeavesWhileTheStoreHangs(t *testing.T) {
	in(t, "degrade: [cache, off]", func(b *bench) {
		s, _ := b.cached()
		s.stuck = true
		c, rest := b.attempt("529", "x1", 2)
		c.tell(rest...) // the last is read, and its answer waits for the store
		c.hangUp()
		if got := testutil.ToFloat64(b.p.metrics.exchanges.WithLabelValues("chat", OutcomeCanceled)); got != 1 {
			t.Errorf("exchanges canceled = %v, want 1", got)
		}
	})
}

func TestTheCacheIsNoReasonToRefuseAnybody(t *testing.T) {
	in(t, "degrade: [cache]", func(b *bench) {
		b.cached()
		b.p.Book().Config.Server.MaxInflightBody = 8000
		var calls []*call
		for n := range 20 { // streams that go on, with 860 bytes each of request and answer
			c, rest := b.attempt("stream", fmt.Sprint("x", n), 1)
			c.tell(rest[:4]...)
			contains(t, "answer", c.heard(), "x-llm-target=a/sonnet")
			calls = append(calls, c)
		}
		for n := range 20 { // and requests of 101
			c, _ := b.attempt("stream", fmt.Sprint("y", n), 1)
			contains(t, "request", c.heard(), "x-llm-cluster=llm-a")
			calls = append(calls, c)
		}
		for _, c := range calls {
			c.hangUp()
		}
	})
}

func TestAnAnswerOfOffEndsAsItsStreamShould(t *testing.T) {
	inYAML(t, `
providers: {a: {api: openai, endpoint: "http://127.0.0.1:1", auth: {bearer: "env:PROCESSOR_TEST_KEY"}}}
targets: {a/m: {provider: a, model: m}}
chains: {chat: {match: [{path: /v1/chat/completions}], targets: [a/m], degrade: [off], off: {as: answer, message: Closed.}}}
`, func(b *bench) {
		messages := readRecorded(t, "529")
		body := `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`
		setHeader(messages[0].GetRequestHeaders().Headers, ":path", "/v1/chat/completions")
		setHeader(messages[0].GetRequestHeaders().Headers, "content-length", strconv.Itoa(len(body)))
		messages[1].GetRequestBody().Body = []byte(body)
		c := b.open()
		c.tell(messages...)
		contains(t, "answer", c.heard(), "immediate 200", "x-llm-degraded=off", "Closed.", `"choices":[],"usage"`)
		c.hangUp()
	})
}

func TestRequestsThatNobodyNamedAreNoRepetitions(t *testing.T) {
	in(t, "degrade: [queue]", func(b *bench) {
		keys := map[string]bool{}
		for range 2 {
			a := newAttempt(t.Context(), b.p)
			keys[a.key()] = true
		}
		if len(keys) != 2 {
			t.Errorf("two requests without a name have the keys %v, want one each: they are two jobs", keys)
		}
	})
}

func TestOnlyAnAnswerIsADownshift(t *testing.T) {
	rows := []struct {
		name, recording, want, not string
		counted                    float64
	}{
		{"an answer has no label", "json", "x-llm-degraded=downshift", "immediate", 1},
		{"a stream has no label", "stream", "x-llm-degraded=downshift", "immediate", 1},
		{"a failure is called a degraded answer", "529", "x-llm-rung=1", "x-llm-degraded", 0},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, "degrade: [downshift]\n    downshift_from: b/sonnet", func(b *bench) {
				c, rest := b.attempt(r.recording, "x1", 2)
				c.tell(rest...)
				got := c.heard()
				contains(t, "answer", got, r.want)
				if strings.Contains(got, r.not) {
					t.Errorf("answer:\n got %s\nwant it not to contain %s", got, r.not)
				}
				c.hangUp()
				if got := testutil.ToFloat64(b.p.metrics.degraded.WithLabelValues("chat", "downshift")); got != r.counted {
					t.Errorf("degraded by the downshift = %v, want %v", got, r.counted)
				}
			})
		})
	}
}

const limitedYAML = `
providers:
  a: {api: anthropic, endpoint: "http://127.0.0.1:1", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
  b: {api: anthropic, endpoint: "http://127.0.0.1:2", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
  c: {api: anthropic, endpoint: "http://127.0.0.1:3", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
targets: {a/m: {provider: a, model: m}, b/m: {provider: b, model: m}, c/m: {provider: c, model: m}}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [a/m, b/m, c/m]
    on: {rate_limited: queue}
    degrade: [%s]
    downshift_from: c/m
`

func TestARateLimitEntersTheLadderWhereTheQueueIs(t *testing.T) {
	rows := []struct{ name, ladder, accepts, first, second, third string }{
		{"who takes the downshift gets off, or another rung", "cache, queue, downshift, off", "cache,downshift,off",
			"immediate 429 x-llm-failover=next", "immediate 503 x-llm-failover=next", "x-llm-cluster=llm-c"},
		{"who takes no downshift gets one", "queue, downshift, off", "off", "x-llm-degraded=off", "", ""},
		{"a downshift that comes before the queue has its turn again", "downshift, queue, off", "", "x-llm-degraded=off", "", ""},
		{"who takes nothing gets another rung", "queue, downshift, off", "none", "headers x-should-retry=false x-llm-target=a/m", "", ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inYAML(t, fmt.Sprintf(limitedYAML, r.ladder), func(b *bench) {
				b.cached()
				b.p.Book().Config.MaxRetryAfter = 0
				var c *call
				for n, want := range []string{r.first, r.second, r.third} {
					if want == "" {
						break
					}
					messages := readRecorded(t, "429")
					h := messages[0].GetRequestHeaders().Headers
					for name, value := range map[string]string{"x-envoy-attempt-count": strconv.Itoa(n + 1), "x-llm-exchange": "x1",
						"x-llm-degrade": r.accepts, "x-llm-start": strconv.FormatInt(time.Now().UnixMilli(), 10)} {
						setHeader(h, name, value)
					}
					c = b.open()
					if n == 0 {
						c.tell(messages...)
					} else {
						c.tell(messages[:2]...)
					}
					contains(t, fmt.Sprint("attempt ", n+1), c.heard(), want)
					c.hangUp()
				}
			})
		})
	}
}
