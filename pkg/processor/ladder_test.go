package processor

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

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
