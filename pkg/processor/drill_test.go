package processor

import (
	"fmt"
	"testing"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/drill"
	"understudy/pkg/token"
)

// aPlace is where faults are played.
const aPlace = "drill: {listen: \"127.0.0.1:9005\"}\n"

var drilledYAML = aPlace + fmt.Sprintf(testYAML, "")

// drilled runs f in a bubble, with a place for faults.
func drilled(t *testing.T, f func(b *bench)) {
	t.Helper()
	inYAML(t, drilledYAML, func(b *bench) { b.p.SetKey(ourKey); f(b) })
}

func overloads(target string) *drill.Plan {
	return &drill.Plan{ID: "D", Chain: "chat", Faults: map[string]string{target: "overloaded"}, Until: time.Now().Add(time.Minute)}
}

// mark is the token of a plan.
func (b *bench) mark(p *drill.Plan) string {
	name, err := p.Name()
	if err != nil {
		b.t.Fatal(err)
	}
	return token.SignUntil(ourKey, token.Drill, name, time.Now().Add(time.Minute))
}

// rewritten is what the last message of told sets in a request on its way.
func rewritten(told []*extproc.ProcessingResponse) map[string]string {
	set := map[string]string{}
	for _, v := range told[len(told)-1].GetRequestBody().GetResponse().GetHeaderMutation().GetSetHeaders() {
		set[v.Header.Key] = string(v.Header.RawValue)
	}
	return set
}

const (
	toDrill    = "x-llm-cluster=understudy-drill"
	toProvider = "x-llm-cluster=llm-a"
)

func TestAMarkedRequestMeetsItsFaultAndCountsNowhere(t *testing.T) {
	drilled(t, func(b *bench) {
		for range 6 { // one more than opens the breaker
			var told []*extproc.ProcessingResponse
			c, rest := b.ours("529", b.mark(overloads("a/sonnet")), 1, &told)
			contains(t, "request", c.heard(), toDrill)
			if set := rewritten(told); set["x-api-key"] != "" || set[":authority"] != "overloaded.drill.invalid" {
				t.Errorf("headers set = %v, want the fault's name as authority and no credential", set)
			}
			c.tell(rest...)
			contains(t, "answer", c.heard(), "immediate 529 x-llm-failover=next")
			c.hangUp()
		}
		if got := b.attempts("overloaded"); got != 0 || b.state() != breaker.Closed {
			t.Errorf("attempts of clients that count = %v, breaker %s, want 0 and closed", got, b.state())
		}
		if got := testutil.ToFloat64(b.p.metrics.drillAttempts.WithLabelValues("chat", "a/sonnet", "overloaded")); got != 6 {
			t.Errorf("attempts of drills = %v, want 6", got)
		}
	})
}

func TestAMarkedRequestGoesToTheTargetsThatMeetNoFault(t *testing.T) {
	drilled(t, func(b *bench) {
		var told []*extproc.ProcessingResponse
		c, rest := b.ours("json", b.mark(overloads("b/sonnet")), 1, &told)
		contains(t, "request", c.heard(), toProvider)
		if set := rewritten(told); set["x-api-key"] != "k" {
			t.Errorf("headers set = %v, want the provider's credential", set)
		}
		c.tell(rest...)
		contains(t, "answer", c.heard(), "headers x-llm-target=a/sonnet x-llm-rung=0")
		c.hangUp()
		if got := b.attempts("ok"); got != 0 {
			t.Errorf("attempts of clients that count = %v, want 0: a good answer to a drill does not close a breaker either", got)
		}
	})
}

func TestWhatIsNoPlanOfThisConfigurationReachesNobody(t *testing.T) {
	for _, row := range []struct {
		name   string
		edit   func(*drill.Plan)
		status string
	}{
		{"a chain that is gone", func(p *drill.Plan) { p.Chain = "gone" }, "404"},
		{"a target that is gone", func(p *drill.Plan) { p.Faults = map[string]string{"c/sonnet": "reset"} }, "404"},
		{"a fault that is gone", func(p *drill.Plan) { p.Faults["a/sonnet"] = "flood" }, "404"},
		{"a plan that is over", func(p *drill.Plan) { p.Until = time.Now() }, "404"},
		{"a plan for ever", func(p *drill.Plan) { p.Until = time.Now().Add(2 * drill.Longest) }, "404"},
	} {
		t.Run(row.name, func(t *testing.T) {
			drilled(t, func(b *bench) {
				p := overloads("a/sonnet")
				row.edit(p)
				c, _ := b.ours("json", b.mark(p), 1, nil)
				contains(t, "answer", c.heard(), "immediate "+row.status)
				c.hangUp()
			})
		})
	}
	t.Run("no place to play", func(t *testing.T) {
		in(t, "", func(b *bench) {
			b.p.SetKey(ourKey)
			c, _ := b.ours("json", b.mark(overloads("a/sonnet")), 1, nil)
			contains(t, "answer", c.heard(), "immediate 404")
			c.hangUp()
		})
	})
}

func TestAShareOfClientsRequestsMeetsTheFaultAndCounts(t *testing.T) {
	drilled(t, func(b *bench) {
		plan := overloads("a/sonnet")
		plan.Share = 1
		b.p.Drill(map[string]*drill.Plan{"chat": plan})
		for i := range 5 {
			c, rest := b.attempt("529", fmt.Sprint("x", i), 1)
			contains(t, "request", c.heard(), toDrill)
			c.tell(rest...)
			contains(t, "answer", c.heard(), "x-llm-failover=next")
			c.hangUp()
		}
		if got := b.attempts("overloaded"); got != 5 || b.state() != breaker.Open {
			t.Errorf("attempts = %v, breaker %s, want 5 and open: it is to be rehearsed, too", got, b.state())
		}
	})
}

func TestARequestMeetsNoFaultThatNobodyPlans(t *testing.T) {
	for _, row := range []struct {
		name string
		plan func() *drill.Plan
	}{
		{"none", func() *drill.Plan { return nil }},
		{"of no share", func() *drill.Plan { return overloads("a/sonnet") }},
		{"of another target", func() *drill.Plan { p := overloads("b/sonnet"); p.Share = 1; return p }},
		{"that is over", func() *drill.Plan { p := overloads("a/sonnet"); p.Share, p.Until = 1, time.Now(); return p }},
	} {
		t.Run(row.name, func(t *testing.T) {
			drilled(t, func(b *bench) {
				b.p.Drill(map[string]*drill.Plan{"chat": row.plan()})
				c, rest := b.attempt("json", "x1", 1)
				contains(t, "request", c.heard(), toProvider)
				c.tell(rest...)
				contains(t, "answer", c.heard(), "x-llm-target=a/sonnet")
				c.hangUp()
			})
		})
	}
}

// Else a client would wait for it, or get what was played again.
func TestAMarkedRequestTakesNoIdempotencyKey(t *testing.T) {
	paidYAML(t, aPlace+fmt.Sprintf(testYAML, idempotent), func(b *bench, _ *bucket) {
		b.p.SetKey(ourKey)
		plan := overloads("a/sonnet")
		plan.Faults["a/sonnet"] = "refusal"
		marked, rest := b.keyed("json", "x1", "k", 1, "x-llm-internal", b.mark(plan))
		client, _ := b.keyed("json", "x2", "k", 1)
		contains(t, "a client under the same key meanwhile", client.heard(), toProvider)
		client.hangUp()
		contains(t, "the drill", marked.heard(), toDrill)
		marked.tell(rest...)
		marked.hangUp()
	})
}

// The store may have a plan from before a restart or a reload that forbids it.
func TestClientsMeetNoFaultThatTheConfigurationNoLongerAllows(t *testing.T) {
	for _, row := range []struct{ name, yaml string }{
		{"nowhere to play it", fmt.Sprintf(testYAML, "")},
		{"answers that pass at once", aPlace + fmt.Sprintf(testYAML, "commit: headers")},
		{"a chain that observes", aPlace + fmt.Sprintf(testYAML, "mode: observe")},
	} {
		t.Run(row.name, func(t *testing.T) {
			inYAML(t, row.yaml, func(b *bench) {
				plan := overloads("a/sonnet")
				plan.Share = 1
				b.p.Drill(map[string]*drill.Plan{"chat": plan})
				if got := b.p.Drilling("chat"); got != nil {
					t.Errorf("Drilling() = %v, want none", got)
				}
				c, _ := b.attempt("json", "x1", 1)
				contains(t, "request", c.heard(), toProvider)
				c.hangUp()
			})
		})
	}
}

// Every replica draws the same for an exchange, so that all of its attempts are in a drill or none.
func TestTheLotOfAnExchangeIsDrawnEvenly(t *testing.T) {
	const n = 10_000
	in := 0
	for i := range n {
		id := fmt.Sprintf("7d0f9e5c-0000-4000-8000-%012x", i)
		got := lot(id)
		if got != lot(id) || got < 0 || got >= 1 {
			t.Fatalf("lot(%s) = %v, then %v, want one number from 0 to less than 1", id, got, lot(id))
		}
		if got < 0.1 {
			in++
		}
	}
	if in < n/20 || in > n/5 {
		t.Errorf("of %d exchanges %d are in a share of 0.1, want about %d", n, in, n/10)
	}
}
