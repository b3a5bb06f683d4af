package processor

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain/budget"
)

// TestNothingStaysSetAside ends exchanges at every message in every way, and reads in the store what is still set aside.
func TestNothingStaysSetAside(t *testing.T) {
	endings := map[string]func(b *bench, c *call, id string, n int){
		"the client leaves":     func(_ *bench, c *call, _ string, _ int) { c.hangUp() },
		"the connection breaks": func(_ *bench, c *call, _ string, _ int) { c.lose() },
		"the provider dies": func(b *bench, c *call, id string, n int) {
			c.hangUp()
			b.p.ended(endKey{id, n}, end{by: byProvider, status: 200}, b.p.replica)
		},
		"a deadline": func(_ *bench, c *call, _ string, _ int) { time.Sleep(15 * time.Second); c.hangUp() },
		"a panic": func(_ *bench, c *call, _ string, _ int) {
			c.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{}}) // in every state
			c.hangUp()
		},
		"the process ends": func(b *bench, c *call, _ string, _ int) { b.p.Drain(); synctest.Wait(); c.hangUp() },
	}
	for name, finish := range endings {
		t.Run(name, func(t *testing.T) {
			paid(t, "budget: {usd: 1000, window: 1h}\n    deadlines: {total: 10s, answer: 9s, first_content: 5s}\n    "+idempotent, func(b *bench, _ *bucket) {
				kept := &bucket{}
				b.p.money.Meter = budget.New(budget.Options{Replica: "r", Store: kept})
				b.p.money.Meter.Start(b.t.Context())
				n := 0
				for _, recording := range []string{"json", "stream", "400", "429", "529", "520-no-body", "reset", "error-start"} {
					for upTo := range len(readRecorded(t, recording)) - 1 {
						for attempt := 1; attempt <= 2; attempt++ {
							n++
							id := "x" + strconv.Itoa(n)
							c, rest := b.keyed(recording, id, id, attempt)
							for _, m := range rest[:upTo] {
								select {
								case c.s.in <- m:
								case <-c.s.done:
								}
								c.heard()
							}
							finish(b, c, id, attempt)
						}
					}
				}
				time.Sleep(endWait + time.Minute)
				terms := b.p.Book().Config.ChainNamed("chat").Budget
				if spent, want := b.p.money.Meter.Spent(budget.Key{Chain: "chat"}, terms), b.spent().Total; n == 0 || spent != want {
					t.Errorf("the budget counts %s of %d exchanges, their bills are %s", spent, n, want)
				}
				for _, e := range kept.values {
					if !strings.Contains(string(e.Value), `"claim":0`) {
						t.Errorf("the store has %s a minute after the last exchange, want a claim of 0", e.Value)
					}
				}
				if err := b.p.money.Meter.Stop(b.t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
