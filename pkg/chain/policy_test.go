package chain

import (
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func TestTheChainAdvancesByClassAndPolicy(t *testing.T) {
	on := func(set func(*config.On)) func(*config.Chain) { return func(c *config.Chain) { set(&c.On) } }
	larger := func(c *config.Chain) { c.On.ContextLength, c.Rungs[1].Larger = "larger", true }
	gone := classify.Verdict{Class: classify.Invalid, Status: 404}
	lower := classify.Verdict{Class: classify.OK, Downgraded: true}
	rows := []struct {
		name   string
		change func(*config.Chain)
		v      classify.Verdict
		slot   int
		want   bool
	}{
		{"an overload stays", nil, verdict(classify.Overloaded), 0, true},
		{"a server error stays", nil, verdict(classify.ServerError), 0, true},
		{"a timeout stays", nil, verdict(classify.Timeout), 0, true},
		{"a transport fault stays", nil, verdict(classify.Transport), 0, true},
		{"a cut answer stays", nil, verdict(classify.Truncated), 0, true},
		{"nonsense stays", nil, verdict(classify.Malformed), 0, true},
		{"missing capacity stays", nil, verdict(classify.Capacity), 0, true},
		{"missing money stays", nil, verdict(classify.Quota), 0, true},
		{"a wrong key stays", nil, verdict(classify.Auth), 0, true},
		{"a fallback's wrong key stays", nil, verdict(classify.Auth), 1, true},
		{"a client that went away is served by the next", nil, verdict(classify.Canceled), 0, false},
		{"an undecided answer is given up", nil, verdict(classify.None), 0, false},
		{"an answer is given up", nil, verdict(classify.OK), 0, false},
		{"a lower tier is given up", nil, lower, 0, false},
		{"a lower tier is kept by tier_downgrade: next", on(func(o *config.On) { o.TierDowngrade = "next" }), lower, 0, true},
		{"the right tier is given up by tier_downgrade: next", on(func(o *config.On) { o.TierDowngrade = "next" }), verdict(classify.OK), 0, false},
		{"a rate limit stays", nil, limited(time.Second), 0, true},
		{"a rate limit stays with rate_limited: wait", waitWhenLimited, limited(time.Second), 0, true},
		{"a rate limit advances with rate_limited: return", on(func(o *config.On) { o.RateLimited = "return" }), limited(time.Second), 0, false},
		{"a refusal advances", nil, verdict(classify.Refusal), 0, false},
		{"a refusal stays with refusal: next", on(func(o *config.On) { o.Refusal = "next" }), verdict(classify.Refusal), 0, true},
		{"refusal: next is for filters too", on(func(o *config.On) { o.Refusal = "next" }), verdict(classify.Filtered), 0, false},
		{"a filter advances", nil, verdict(classify.Filtered), 0, false},
		{"a filter stays with filtered: next", on(func(o *config.On) { o.Filtered = "next" }), verdict(classify.Filtered), 0, true},
		{"filtered: next is for refusals too", on(func(o *config.On) { o.Filtered = "next" }), verdict(classify.Refusal), 0, false},
		{"a prompt too long advances with context_length: return", on(func(o *config.On) { o.ContextLength = "return" }), verdict(classify.ContextLength), 0, false},
		{"a prompt too long stays with context_length: next", on(func(o *config.On) { o.ContextLength = "next" }), verdict(classify.ContextLength), 0, true},
		{"a prompt too long advances where no rung is larger", nil, verdict(classify.ContextLength), 0, false},
		{"a prompt too long stays where a later rung is larger", larger, verdict(classify.ContextLength), 0, true},
		{"a prompt too long for the larger rung advances", larger, verdict(classify.ContextLength), 1, false},
		{"a larger rung's own retry counts as a later rung", func(c *config.Chain) { larger(c); retrySame(c) }, verdict(classify.ContextLength), 2, false},
		{"a caller's fault advances", nil, classify.Verdict{Class: classify.Invalid, Status: 400}, 0, false},
		{"a fallback's 400 advances", nil, classify.Verdict{Class: classify.Invalid, Status: 400}, 1, false},
		{"the primary's 404 advances", nil, gone, 0, false},
		{"a fallback's model that is gone stays", nil, gone, 1, true},
		{"the 404 of the primary's retry counts as a fallback's", retrySame, gone, 1, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p := newBench(t, row.change, "a", "b").plan()
			if got := p.advances(row.v, &p.slots[row.slot]); got != row.want {
				t.Errorf("advances(%v, slot %d) = %v, want %v", row.v.Class, row.slot, got, row.want)
			}
		})
	}
}

// TestEveryClassHasItsDefault compares with the outside contract, where a policy does not say otherwise.
func TestEveryClassHasItsDefault(t *testing.T) {
	p := newBench(t, nil, "a", "b").plan()
	for c := classify.OK; c <= classify.Canceled; c++ {
		if got, want := p.advances(verdict(c), &p.slots[0]), c.Advances(); got != want {
			t.Errorf("advances(%v) = %v by default, want %v", c, got, want)
		}
	}
}

// failed is an attempt at rung that got a status, or none.
func failed(rung, status int, c classify.Class) Past {
	return Past{Rung: rung, Slot: rung, Verdict: verdict(c), Answer: Answer{Status: status}}
}

func TestTheMostTellingFailure(t *testing.T) {
	rows := []struct {
		name string
		past []Past
		want int // its status, 0 for none
	}{
		{"nothing is made up of nothing", nil, 0},
		{"the primary's failure is not told", []Past{failed(0, 529, classify.Overloaded), failed(1, 500, classify.ServerError)}, 529},
		{"the primary's own 400 is not told", []Past{failed(0, 400, classify.Quota), failed(1, 500, classify.ServerError)}, 400},
		{"the first of the primary's failures is not told", []Past{failed(0, 500, classify.ServerError), failed(0, 529, classify.Overloaded)}, 500},
		{"a primary that gave no answer hides a fallback's", []Past{failed(0, 0, classify.Transport), failed(1, 500, classify.ServerError)}, 500},
		{"the latest fallback is not told", []Past{failed(1, 500, classify.ServerError), failed(2, 529, classify.Overloaded)}, 529},
		{"a fallback's 400 is told", []Past{failed(0, 0, classify.Timeout), failed(1, 400, classify.Invalid)}, 0},
		{"a fallback's 401 is told", []Past{failed(0, 0, classify.Timeout), failed(1, 401, classify.Auth)}, 0},
		{"a fallback's 404 is told", []Past{failed(0, 0, classify.Timeout), failed(1, 404, classify.Invalid)}, 0},
		{"a fallback's missing money is told", []Past{failed(0, 0, classify.Timeout), failed(1, 402, classify.Quota)}, 0},
		{"a fallback's shorter context is told", []Past{failed(0, 0, classify.Timeout), failed(1, 400, classify.ContextLength)}, 0},
		{"a fallback's 400 of another class is told", []Past{failed(0, 0, classify.Timeout), failed(1, 400, classify.Overloaded)}, 0},
		{"a fallback's 400 hides another's failure", []Past{failed(1, 503, classify.Overloaded), failed(2, 400, classify.Invalid)}, 503},
		{"transport faults alone are told as an answer", []Past{failed(0, 0, classify.Transport), failed(1, 0, classify.Timeout)}, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, ok := Telling(row.past)
			if got.Answer.Status != row.want || ok != (row.want != 0) {
				t.Errorf("Telling() = %d, %v, want %d", got.Answer.Status, ok, row.want)
			}
		})
	}
}

func TestWhatClientsAreToldAboutRetrying(t *testing.T) {
	rows := []struct {
		name    string
		trouble []string
		passes  time.Duration
		longest time.Duration
		want    Hint
	}{
		{"clients wait for a chain that nobody knows to return", nil, 0, time.Minute, Hint{Stop: true}},
		{"a cooldown is not told", []string{"a cooling"}, 0, time.Minute, Hint{After: 2 * time.Second}},
		{"the later return is told", []string{"a cooling long", "b cooling"}, 0, time.Minute, Hint{After: 2 * time.Second}},
		{"an open breaker is not told", []string{"a open", "b open"}, 15 * time.Second, time.Minute, Hint{After: 45 * time.Second}},
		{"part of a second is lost", []string{"a cooling"}, time.Millisecond, time.Minute, Hint{After: 2 * time.Second}},
		{"a wait beyond the cap is told", []string{"a open", "b open"}, 0, 59 * time.Second, Hint{Stop: true}},
		{"a wait of just the cap is not told", []string{"a open", "b open"}, 0, time.Minute, Hint{After: time.Minute}},
		{"rounding up exceeds the cap", []string{"a cooling"}, 900 * time.Millisecond, 1500 * time.Millisecond, Hint{Stop: true}},
		{"a wait that is over is told", []string{"a cooling"}, 2 * time.Second, time.Minute, Hint{Stop: true}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil, "a", "b")
				b.trouble(row.trouble...)
				time.Sleep(row.passes)
				if got := b.plan().RetryHint(time.Time{}, row.longest); got != row.want {
					t.Errorf("RetryHint(%v) = %+v, want %+v", row.longest, got, row.want)
				}
			})
		})
	}
}

func TestTheReasonIsWhatIsKnownOfTheSlotsBefore(t *testing.T) {
	failed := func(slot int, class classify.Class) Past {
		return Past{Slot: slot, Rung: slot, Verdict: classify.Verdict{Class: class}}
	}
	rows := []struct {
		name string
		open map[string]string // breakers that refuse, and why they last failed
		past []Past
		want string
	}{
		{"the last attempt that this replica saw fail", nil, []Past{failed(0, classify.Overloaded), failed(1, classify.Transport)}, "transport"},
		{"a slot that another replica tried hides what came before it", nil, []Past{failed(0, classify.Overloaded)}, ""},
		{"a skipped slot lets the attempt before it speak", map[string]string{"b": "timeout"}, []Past{failed(0, classify.Overloaded)}, "overloaded"},
		{"skipped slots alone say why they are skipped", map[string]string{"a": "timeout", "b": "transport"}, nil, "transport"},
		{"nothing is known", nil, nil, ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil, "a", "b", "c")
				for name, why := range r.open {
					b.book.Breaker(name).Blame(why)
					b.book.Breaker(name).Cool(time.Now().Add(time.Minute))
				}
				if got := b.plan().Reason(Exchange{ID: "x"}, 2, r.past); got != r.want {
					t.Errorf("Reason(2) = %q, want %q", got, r.want)
				}
			})
		})
	}
}
