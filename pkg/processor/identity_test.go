package processor

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/degrade"
	"understudy/pkg/once"
)

const idempotent = "idempotency: {window: 10m}"

func TestARetryOfAnSDKIsCountedOnceHoweverOftenItWaits(t *testing.T) {
	paid(t, idempotent, func(b *bench, _ *bucket) {
		first, _ := b.keyed("json", "x1", "k", 1)
		second, _ := b.keyed("json", "x2", "k", 1, "x-stainless-retry-count", "1")
		first.hangUp()
		time.Sleep(10 * time.Second)
		contains(t, "second", second.heard(), "x-llm-cluster=llm-a")
		second.hangUp()
		if n := testutil.ToFloat64(b.p.metrics.clientRetries.WithLabelValues("chat")); n != 1 {
			t.Errorf("client retries = %v, want 1", n)
		}
	})
}

func TestWhoWaitsGetsTheAnswerOfTheFirst(t *testing.T) {
	for name, row := range map[string]struct{ recording, want string }{
		"a good one":                {"json", "immediate 200"},
		"a stream":                  {"stream", "immediate 200"},
		"the caller's own mistake":  {"400", "immediate 400"},
		"the last target's failure": {"529", "immediate 529"},
	} {
		t.Run(name, func(t *testing.T) {
			paid(t, idempotent, func(b *bench, _ *bucket) {
				slot := 1
				if row.recording == "529" {
					slot = 2
				}
				first, rest := b.keyed(row.recording, "x1", "k", slot)
				second, _ := b.keyed(row.recording, "x2", "k", 1)
				first.tell(rest...)
				contains(t, "the first", first.heard(), "\nheaders")
				first.hangUp()
				time.Sleep(10 * time.Second)
				contains(t, "who waited", second.heard(), row.want)
				second.hangUp()
			})
		})
	}
}

func TestAWaiterWhoseClientLeavesIsNotSent(t *testing.T) {
	paid(t, idempotent, func(b *bench, _ *bucket) {
		ctx, cancel := context.WithCancel(b.t.Context())
		a := newAttempt(ctx, b.p)
		a.state = waiting
		cancel()
		a.hear(once.Answer{}, ctx.Err())
		if a.state != waiting {
			t.Errorf("state = %s, want waiting: close counts it then", a.state)
		}
	})
}

func TestAPanicAfterCommitFreesTheKey(t *testing.T) {
	paid(t, idempotent, func(b *bench, _ *bucket) {
		first, rest := b.keyed("stream", "x1", "k", 1)
		first.tell(rest[:len(rest)-1]...)
		contains(t, "the first", first.heard(), "\nheaders")
		first.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{}}) // what no Envoy says
		<-first.s.done
		time.Sleep(time.Second)
		second, _ := b.keyed("stream", "x2", "k", 1)
		contains(t, "the second", second.heard(), "x-llm-cluster=llm-a")
		second.hangUp()
	})
}

func TestARequestThatWaitsTooLongForAnotherEntersNoDegradedMode(t *testing.T) {
	paid(t, idempotent+"\n    degrade: [off]\n    deadlines: {total: 10s, answer: 9s, first_content: 5s}", func(b *bench, _ *bucket) {
		setStart := strconv.FormatInt(time.Now().Add(-5*time.Second).UnixMilli(), 10)
		first, _ := b.keyed("json", "x1", "k", 1)
		second, _ := b.keyed("json", "x2", "k", 1, "x-llm-start", setStart)
		time.Sleep(6 * time.Second)
		got := second.heard()
		contains(t, "second", got, "immediate 503", "Idempotency-Key")
		second.hangUp()
		first.hangUp()
	})
}

func TestAKeyStandsForTheWholeQuestion(t *testing.T) {
	paid(t, idempotent, func(b *bench, _ *bucket) {
		first, rest := b.keyed("json", "x1", "k", 1)
		first.tell(rest...)
		first.hangUp()
		time.Sleep(time.Second)
		second, _ := b.keyed("json", "x2", "k", 1, ":path", "/v1/messages?beta=true")
		contains(t, "another query", second.heard(), "immediate 422")
		second.hangUp()
	})
}

func TestTooManyWaitersAreNotRunInstead(t *testing.T) {
	paid(t, idempotent, func(b *bench, claims *bucket) {
		claims.fault = once.ErrBusy
		c, _ := b.keyed("json", "x1", "k", 1)
		contains(t, "told", c.heard(), "immediate 503")
		c.hangUp()
	})
}

func TestAnExchangeThatRunsOutOfTimeEndsItsKey(t *testing.T) {
	paid(t, idempotent+"\n    deadlines: {total: 10s, answer: 9s, first_content: 5s}", func(b *bench, _ *bucket) {
		late := strconv.FormatInt(time.Now().Add(-9900*time.Millisecond).UnixMilli(), 10)
		first, rest := b.keyed("529", "x1", "k", 1, "x-llm-start", late)
		first.tell(rest...)
		contains(t, "the first attempt", first.heard(), "x-llm-failover=next")
		time.Sleep(200 * time.Millisecond)
		again, _ := b.keyed("529", "x1", "k", 2, "x-llm-start", late)
		contains(t, "the second attempt", again.heard(), "immediate 529")
		first.hangUp()
		again.hangUp()
		time.Sleep(time.Second)
		other, _ := b.keyed("529", "x2", "k", 1)
		contains(t, "the next exchange", other.heard(), "x-llm-cluster=llm-a")
		other.hangUp()
	})
}

func TestAnAnswerOfTheQueueIsKeptForItsKey(t *testing.T) {
	paid(t, idempotent, func(b *bench, _ *bucket) {
		exchange := func(id string) *attempt {
			a := newAttempt(b.t.Context(), b.p)
			a.chain = a.book.Config.ChainNamed("chat")
			a.plan = a.book.Plan(a.chain)
			a.head = head{idempotencyKey: "k", method: http.MethodPost, target: "/v1/messages"}
			a.head.exchange.ID = id
			a.clock.total = time.Now().Add(time.Minute)
			return a
		}
		first := exchange("x1")
		if !first.claims() {
			t.Fatalf("the first did not get its key: %v", first.out)
		}
		first.concludeOwn(degrade.Answer{Status: http.StatusAccepted, Body: []byte("job 1")})
		time.Sleep(5 * time.Minute) // those who waited have heard of it
		second := exchange("x2")
		if second.claims() {
			t.Fatal("the second runs what is queued")
		}
		contains(t, "the second", describe(second.out[0]), "immediate 202", "job 1")
	})
}

func TestAnAnswerThatTheStoreIsSlowToTakeIsAccountedFor(t *testing.T) {
	paid(t, idempotent, func(b *bench, claims *bucket) {
		answers := &bucket{slow: make(chan struct{})}
		b.p.Identify(once.New(claims, answers))
		c, rest := b.keyed("json", "x1", "k", 1)
		c.tell(rest...)
		contains(t, "told", c.heard(), "end=true")
		c.hangUp()
		if got := b.p.inflight.Load(); got == 0 {
			t.Error("bytes accounted for = 0, want the answer's: nobody else bounds them")
		}
		answers.slow <- struct{}{}
	})
}
