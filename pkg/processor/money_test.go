package processor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain/budget"
	"understudy/pkg/once"
	"understudy/pkg/store"
	"understudy/pkg/token"
)

// bucket is a store's bucket in memory. What it keeps expires when it is looked at.
type bucket struct {
	fault error         // of every call, if not nil
	slow  chan struct{} // a blob is not taken before something comes of it; nil: at once

	mu     sync.Mutex // guards the fields below
	rev    uint64
	values map[string]entry
}

type entry struct {
	store.Entry
	ends time.Time
}

func (b *bucket) find(key string) (store.Entry, error) {
	e, ok := b.values[key]
	switch {
	case b.fault != nil:
		return store.Entry{}, b.fault
	case !ok || time.Now().After(e.ends):
		return store.Entry{}, store.ErrNotFound
	}
	return e.Entry, nil
}

func (b *bucket) put(key string, value []byte, ttl time.Duration) uint64 {
	if b.values == nil {
		b.values = map[string]entry{}
	}
	b.rev++
	b.values[key] = entry{store.Entry{Key: key, Value: value, Revision: b.rev}, time.Now().Add(ttl)}
	return b.rev
}

func (b *bucket) Get(_ context.Context, key string) (store.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.find(key)
}

func (b *bucket) Create(_ context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch _, err := b.find(key); {
	case err == nil:
		return 0, store.ErrExists
	case !errors.Is(err, store.ErrNotFound):
		return 0, err
	}
	return b.put(key, value, ttl), nil
}

func (b *bucket) Update(_ context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, err := b.find(key); err != nil || e.Revision != rev {
		return 0, errors.Join(b.fault, store.ErrConflict)
	}
	return b.put(key, value, ttl), nil
}

func (b *bucket) Delete(_ context.Context, key string, rev uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, err := b.find(key); err != nil || e.Revision != rev {
		return errors.Join(b.fault, store.ErrConflict)
	}
	delete(b.values, key)
	return nil
}

func (b *bucket) PutBlob(_ context.Context, key string, value []byte, ttl time.Duration) error {
	if b.slow != nil {
		<-b.slow
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(key, value, ttl)
	return b.fault
}

func (b *bucket) GetBlob(ctx context.Context, key string) ([]byte, error) {
	e, err := b.Get(ctx, key)
	return e.Value, err
}

func (b *bucket) Watch(ctx context.Context, _ func(store.Entry)) { <-ctx.Done() }

const moneyYAML = `
providers:
  a: {api: anthropic, endpoint: "http://127.0.0.1:1", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}, shape: {max_wait: 2s}}
  b: {api: anthropic, endpoint: "http://127.0.0.1:2", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
targets:
  a/sonnet: {provider: a, model: claude-sonnet-5, price: {input: 1, output: 10}}
  b/sonnet: {provider: b, model: claude-sonnet-5, price: {input: 10, output: 100}}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [a/sonnet, b/sonnet]
    %s
`

// paid runs f in a bubble with money kept count of, and keys that stand for one execution. claims is the bucket of the
// latter.
func paid(t *testing.T, chain string, f func(b *bench, claims *bucket)) {
	t.Helper()
	paidYAML(t, fmt.Sprintf(moneyYAML, chain), f)
}

func paidYAML(t *testing.T, yaml string, f func(b *bench, claims *bucket)) {
	t.Helper()
	inYAML(t, yaml, func(b *bench) {
		claims := &bucket{}
		m := &Money{Meter: budget.New(budget.Options{Replica: "r", Store: &bucket{}}), Ramp: budget.NewRamp("r", &bucket{})}
		m.Meter.Start(b.t.Context())
		m.Ramp.Start(b.t.Context())
		b.p.Spend(m)
		b.p.Identify(once.New(claims, &bucket{}))
		f(b, claims)
		time.Sleep(endWait + time.Second)
		if err := errors.Join(m.Meter.Stop(b.t.Context()), m.Ramp.Stop(b.t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// keyed opens attempt n of an exchange with a recording's request under an idempotency key.
func (b *bench) keyed(recording, exchange, key string, n int, more ...string) (*call, []*extproc.ProcessingRequest) {
	messages := readRecorded(b.t, recording)
	h := messages[0].GetRequestHeaders().Headers
	setHeader(h, "x-envoy-attempt-count", strconv.Itoa(n))
	setHeader(h, "x-llm-exchange", exchange)
	setHeader(h, "idempotency-key", key)
	setHeader(h, "x-llm-start", strconv.FormatInt(time.Now().UnixMilli(), 10))
	for i := 0; i+1 < len(more); i += 2 {
		setHeader(h, more[i], more[i+1])
	}
	c := b.open()
	c.tell(messages[:2]...)
	return c, messages[2:]
}

func (b *bench) spent() (sum budget.Sum) {
	b.p.money.Spend.Each(func(_, _ string, s budget.Sum) { sum.Total += s.Total; sum.Estimated += s.Estimated })
	return sum
}

// limits has provider a's account tell that nothing is left of 50 requests until then.
func (b *bench) limits(until time.Duration) { b.limitsOf("50", until) }

func (b *bench) limitsOf(most string, until time.Duration) {
	b.p.money.shaper(b.p.Book().Config.Providers["a"]).Observe(time.Now(), func(name string) string {
		return map[string]string{
			"anthropic-ratelimit-requests-limit": most, "anthropic-ratelimit-requests-remaining": "0",
			"anthropic-ratelimit-requests-reset": time.Now().Add(until).UTC().Format(time.RFC3339Nano),
		}[name]
	})
}

func TestARequestThatWaitedForARateLimitIsPassedOverOnce(t *testing.T) {
	paid(t, "", func(b *bench, _ *bucket) {
		b.limits(50 * time.Second) // one place in a second
		c, _ := b.attempt("json", "x1", 1)
		expect(t, "at first", c.heard(), "request headers")
		b.limits(5 * time.Minute)
		time.Sleep(3 * time.Second)
		if got := c.heard(); strings.Count(got, "immediate") != 1 || strings.Contains(got, "request body") {
			t.Errorf("after the wait Envoy was told %.2000q, want one immediate response", got)
		}
		c.hangUp()
	})
}

func TestARequestThatIsHeldForARateLimitWhenTheProcessEndsCostsNothing(t *testing.T) {
	paid(t, "", func(b *bench, _ *bucket) {
		b.limits(50 * time.Second)
		c, _ := b.attempt("json", "x1", 1)
		b.p.Drain()
		synctest.Wait()
		contains(t, "drained", c.heard(), "immediate 503 x-llm-failover=next")
		c.hangUp()
		time.Sleep(endWait + time.Second)
		if got := b.spent().Total; got != 0 {
			t.Errorf("spent = %s, want nothing: no attempt was made", got)
		}
		if got := b.attempts("canceled"); got != 0 {
			t.Errorf("attempts canceled = %v, want 0", got)
		}
	})
}

func TestWhatABudgetRefusesTakesNothingOfTheAccountsRateLimit(t *testing.T) {
	paid(t, "budget: {usd: 0.000001, window: 1h}", func(b *bench, _ *bucket) {
		for i := range 60 {
			c, _ := b.attempt("json", "x"+strconv.Itoa(i), 1)
			c.hangUp()
		}
		b.roomFor(t, 50)
	})
}

// roomFor wants room for n requests in an account that tells of so many.
func (b *bench) roomFor(t *testing.T, n int) {
	t.Helper()
	s := b.p.money.shaper(b.p.Book().Config.Providers["a"])
	s.Observe(time.Now(), func(name string) string {
		return map[string]string{
			"anthropic-ratelimit-requests-limit": strconv.Itoa(n), "anthropic-ratelimit-requests-remaining": strconv.Itoa(n - 1),
			"anthropic-ratelimit-requests-reset": time.Now().Add(time.Minute).UTC().Format(time.RFC3339),
		}[name]
	})
	for i := range n - 1 {
		if wait := s.Wait(time.Now(), budget.Load{}); wait > 0 {
			t.Fatalf("wait of request %d of %d = %s, want none: nothing else is on its way", i+1, n-1, wait)
		}
	}
}

func TestWhatNeverGetsAnAnswerIsNotOnItsWayForEver(t *testing.T) {
	paid(t, "", func(b *bench, _ *bucket) {
		for i := range 60 {
			c, _ := b.attempt("json", "x"+strconv.Itoa(i), 1)
			c.hangUp()
			time.Sleep(endWait + time.Second)
		}
		b.roomFor(t, 50)
	})
}

func TestABudgetsRefusalTellsNoPrices(t *testing.T) {
	paid(t, "budget: {usd: 1, window: 1h, max_premium: 2}", func(b *bench, _ *bucket) {
		c, _ := b.attempt("json", "x1", 2)
		got := c.heard()
		contains(t, "told", got, "immediate 503", "max_premium")
		if strings.Contains(got, "$") {
			t.Errorf("told %s, want no prices in it", got)
		}
		c.hangUp()
	})
}

const tierYAML = `
providers:
  o: {api: openai, endpoint: "http://127.0.0.1:1", auth: {header: authorization, secret: "env:PROCESSOR_TEST_KEY"}}
targets:
  a/sonnet: {provider: o, model: gpt-5.1, service_tier: flex, price: {input: 1, output: 10, tiers: {flex: 0.5}}}
chains:
  chat:
    match: [{path: /v1/chat/completions}]
    targets: [a/sonnet]
    on: {capacity: standard}
`

// openai opens attempt n at a chain of Chat.
func (b *bench) openai(exchange string, n int, body string) *call {
	h := &corev3.HeaderMap{}
	for name, value := range map[string]string{
		":method": http.MethodPost, ":path": "/v1/chat/completions", "content-type": "application/json", "x-llm-exchange": exchange,
		"x-envoy-attempt-count": strconv.Itoa(n), "x-llm-start": strconv.FormatInt(time.Now().UnixMilli(), 10),
	} {
		setHeader(h, name, value)
	}
	c := b.open()
	c.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: h}}},
		&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(body), EndOfStream: true}}})
	return c
}

func (c *call) headers(status, contentType string) {
	h := &corev3.HeaderMap{}
	setHeader(h, ":status", status)
	setHeader(h, "content-type", contentType)
	c.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{Headers: h}}})
}

func TestACutStreamIsEstimatedInAChainWithoutABudget(t *testing.T) {
	paidYAML(t, strings.Replace(tierYAML, "on: {capacity: standard}", "", 1), func(b *bench, _ *bucket) {
		c := b.openai("x1", 1, `{"model":"gpt-5.1","stream":true,"messages":[{"role":"user","content":"`+strings.Repeat("word ", 8000)+`"}]}`)
		c.headers("200", "text/event-stream")
		c.body(`data: {"id":"c","object":"chat.completion.chunk","model":"gpt-5.1","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}`+"\n\n", false)
		contains(t, "told", c.heard(), "hello")
		c.hangUp()
		time.Sleep(endWait + time.Second)
		if got := b.spent(); got.Estimated < 4*budget.Dollar/1000 {
			t.Errorf("spent = %+v, want about 0.005 for 10,000 tokens of input, estimated", got)
		}
	})
}

func TestAnAnswerThatTellsNoTierIsBilledAtTheOneThatWasAskedFor(t *testing.T) {
	paidYAML(t, tierYAML, func(b *bench, _ *bucket) {
		first := b.openai("x1", 1, `{"model":"gpt-5.1","max_tokens":9,"messages":[]}`)
		first.headers("429", "application/json")
		first.body(`{"error":{"message":"Resource unavailable","code":"resource_unavailable"}}`, true)
		contains(t, "without capacity", first.heard(), "x-llm-failover=next")
		first.hangUp()
		second := b.openai("x1", 2, `{"model":"gpt-5.1","max_tokens":9,"messages":[]}`)
		second.headers("200", "application/json")
		second.body(`{"id":"c","object":"chat.completion","model":"gpt-5.1","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},`+
			`"finish_reason":"stop"}],"usage":{"prompt_tokens":1000000,"completion_tokens":0,"total_tokens":1000000}}`, true)
		second.hangUp()
		if got := b.spent().Total; got != budget.Dollar {
			t.Errorf("spent = %s, want $1: a million tokens at the standard tier", got)
		}
	})
}

func TestARampsRefusalSaysWhenToComeAgain(t *testing.T) {
	ramp := strings.NewReplacer("a/sonnet: {", "a/sonnet: {max_ramp: 1.5, limits: {max_output: 50000}, ",
		"targets: [a/sonnet, b/sonnet]", "targets: [a/sonnet]").Replace(fmt.Sprintf(moneyYAML, ""))
	paidYAML(t, ramp, func(b *bench, _ *bucket) {
		for range 2 {
			if !b.p.money.Ramp.Admit(b.t.Context(), b.p.Book().Config.Targets["a/sonnet"], 37_499) {
				t.Fatal("the ramp's first 75,000 tokens are refused")
			}
		}
		c, _ := b.attempt("json", "x1", 1)
		contains(t, "told", c.heard(), "immediate 503 retry-after=60", "grow too fast")
		c.hangUp()
	})
}

func TestTwoReasonsToWaitHoldARequestNoLongerThanEnvoyWaits(t *testing.T) {
	slow := strings.Replace(fmt.Sprintf(moneyYAML, "on: {rate_limited: wait, max_wait: 10s}"), "max_wait: 2s", "max_wait: 10s", 1)
	paidYAML(t, slow, func(b *bench, _ *bucket) {
		first, rest := b.attempt("429", "x1", 1)
		header := rest[0].GetResponseHeaders().Headers
		setHeader(header, "retry-after", "9")
		first.tell(rest...)
		contains(t, "first", first.heard(), "x-llm-failover=next")
		first.hangUp()
		b.limitsOf("18", 5*time.Minute) // a place in 17 s
		begun := time.Now()
		second, _ := b.attempt("json", "x1", 2)
		for second.heard(); len(second.s.out) == 0; synctest.Wait() {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begun); took > 12*time.Second {
			t.Errorf("the second attempt was held for %s, want at most some 10 s: Envoy waits 15", took)
		}
		second.hangUp()
	})
}

// TestEveryEndingTellsItsUsageOnce: Envoy's rate limits add up what they are told.
func TestEveryEndingTellsItsUsageOnce(t *testing.T) {
	trailers := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}}
	for name, row := range map[string]struct {
		recording string
		end       func(c *call, rest []*extproc.ProcessingRequest)
		class     string
	}{
		"a whole answer": {"json", func(c *call, rest []*extproc.ProcessingRequest) { c.tell(rest...) }, "ok"},
		"a stream":       {"stream", func(c *call, rest []*extproc.ProcessingRequest) { c.tell(rest...) }, "ok"},
		"a stream with trailers": {"stream", func(c *call, rest []*extproc.ProcessingRequest) {
			c.tell(append(rest[:len(rest)-1:len(rest)-1], trailers)...)
		}, "ok"},
		"a stream that is cut": {"stream", func(c *call, rest []*extproc.ProcessingRequest) {
			c.tell(rest[:3]...)
			c.body("event: x\ndata: {\n\n", true)
		}, ""},
		"an error":              {"529", func(c *call, rest []*extproc.ProcessingRequest) { c.tell(rest...) }, "overloaded"},
		"an error without body": {"520-no-body", func(c *call, rest []*extproc.ProcessingRequest) { c.tell(rest...) }, ""},
		"a deadline":            {"json", func(*call, []*extproc.ProcessingRequest) { time.Sleep(20 * time.Minute) }, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			paid(t, "", func(b *bench, _ *bucket) {
				c, rest := b.keyed(row.recording, "x1", "the-key", 1, "x-llm-tenant", "the-tenant")
				var told []string
				c.s.each = func(m *extproc.ProcessingResponse) {
					m = arrived(t, m)
					fields := m.GetDynamicMetadata().GetFields()["understudy"].GetStructValue().GetFields()
					if class, ok := fields["class"]; ok {
						told = append(told, class.GetStringValue())
					}
					if all := m.GetDynamicMetadata().String(); strings.Contains(all, "the-key") || strings.Contains(all, "the-tenant") {
						t.Errorf("metadata = %s, want no key and no tenant", all)
					}
				}
				c.tell(&extproc.ProcessingRequest{}) // from here on the pump tells it
				row.end(c, rest)
				c.heard()
				c.hangUp()
				if len(told) != 1 || row.class != "" && told[0] != row.class {
					t.Errorf("usage was told of classes %q, want one of %q", told, row.class)
				}
			})
		})
	}
}

func TestAJobIsPaidForByItsTenantsBudget(t *testing.T) {
	yaml := "tenant: {header: x-team, trusted_header: true}\n" + strings.Replace(moneyYAML, "%s", "budget: {usd: 1, window: 1h, per: tenant}", 1)
	paidYAML(t, yaml, func(b *bench, _ *bucket) {
		b.p.SetKey(ourKey)
		c, rest := b.keyed("json", "x1", "k", 1, "x-llm-internal", token.Sign(ourKey, token.Job, token.JobName("chat", "team; one"), time.Now()))
		c.tell(rest...)
		contains(t, "told", c.heard(), "x-llm-target=a/sonnet")
		c.hangUp()
		terms := b.p.Book().Config.ChainNamed("chat").Budget
		for tenant, some := range map[string]bool{"team; one": true, "": false} {
			got := b.p.money.Meter.Spent(budget.Key{Chain: "chat", Tenant: tenant}, terms)
			if (got > 0) != some {
				t.Errorf("tenant %q has spent %s, want something: %t", tenant, got, some)
			}
		}
	})
}

func TestTwoAttemptsOfOneNameBothGiveBackWhatWasSetAside(t *testing.T) {
	paid(t, "budget: {usd: 1, window: 1h}", func(b *bench, _ *bucket) {
		first, _ := b.attempt("json", "x1", 1)
		second, _ := b.attempt("json", "x1", 1) // Envoy asks again where it lost the first stream
		first.hangUp()
		time.Sleep(time.Second)
		second.hangUp()
		time.Sleep(endWait + time.Second)
		if got := b.attempts("canceled"); got != 2 {
			t.Errorf("attempts canceled = %v, want 2", got)
		}
	})
}
