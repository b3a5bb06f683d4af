package chain

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a chain of the targets a, b, …, its Book, a Memo and what its exchange is.
type bench struct {
	t    *testing.T
	cfg  *config.Config
	book *Book
	memo *Memo
	x    Exchange
}

// targets makes one rung a name; a name such as b:m has the model family m, else each is its own, and a+b is a rung
// with two members.
func targets(names ...string) []config.Rung {
	endpoint := &url.URL{Scheme: "https", Host: "api.example"}
	provider := &config.Provider{Name: "p", API: config.Anthropic, Endpoint: endpoint, Auth: config.Auth{FromClient: true}}
	rungs := make([]config.Rung, len(names))
	for i, n := range names {
		for one := range strings.SplitSeq(n, "+") {
			name, family, ok := strings.Cut(one, ":")
			if !ok {
				family = name
			}
			rungs[i].Members = append(rungs[i].Members, config.Member{Weight: 1, Target: &config.Target{Name: name,
				Provider: provider, Model: "model-" + name, Family: family, Breaker: config.Breaker{Failures: 1, OpenFor: time.Minute}}})
		}
		rungs[i].Target = rungs[i].Members[0].Target
	}
	return rungs
}

func conf(change func(c *config.Chain), rungs []config.Rung) *config.Config {
	ch := &config.Chain{Name: "chat", Rungs: rungs, On: config.On{RateLimited: "next", MaxWait: 3 * time.Second,
		Refusal: "return", Filtered: "return", TierDowngrade: "observe", ContextLength: "larger"}}
	if change != nil {
		change(ch)
	}
	cfg := &config.Config{Targets: map[string]*config.Target{}, Chains: []*config.Chain{ch}}
	for _, r := range rungs {
		for _, m := range r.All() {
			cfg.Targets[m.Target.Name] = m.Target
		}
	}
	return cfg
}

func newBench(t *testing.T, change func(c *config.Chain), names ...string) *bench {
	b := &bench{t: t, cfg: conf(change, targets(names...)), memo: NewMemo(), x: Exchange{ID: "x"}}
	b.book = NewBook(b.cfg, nil, func(breaker.Transition) {})
	return b
}

func (b *bench) plan() *Plan { return b.book.Plan(b.cfg.Chains[0]) }

// draw makes the exchange one whose members of a rung are in the order of names.
func (b *bench) draw(names ...string) {
	for n := range 1 << 16 {
		b.x.ID = strconv.Itoa(n)
		if got := b.order(); slices.Equal(got, names) {
			return
		}
	}
	b.t.Fatalf("no exchange has the order %v", names)
}

// order is the targets in the order of the exchange, once each.
func (b *bench) order() (names []string) {
	c := b.plan().course(b.x, nil)
	for i := range c.proper() {
		if s := c.slot(i); !s.onceMore() {
			names = append(names, s.Target.Name)
		}
	}
	return names
}

// trouble opens or cools targets: "a open" or "a cooling".
func (b *bench) trouble(what ...string) {
	for _, w := range what {
		name, how, _ := strings.Cut(w, " ")
		switch br := b.book.Breaker(name); how {
		case "open":
			br.Observe(breaker.Tally{Failed: 1, Trailing: 1})
		case "cooling":
			br.Cool(time.Now().Add(2 * time.Second))
		case "cooling long":
			br.Cool(time.Now().Add(20 * time.Second))
		}
	}
}

// begin is what Begin answers, in words.
func (b *bench) begin(attempt int, past []Past) string {
	x := b.x
	x.Attempt = attempt
	try, err := b.plan().Begin(x, past)
	switch {
	case errors.Is(err, ErrSkip):
		return "skip"
	case errors.Is(err, ErrSpent):
		return "spent"
	case err != nil:
		b.t.Fatalf("Begin(%d) = %v, want ErrSkip or ErrSpent in it", attempt, err)
	}
	defer try.Release()
	return describe(try)
}

func describe(try *Try) string {
	s := try.Target.Name
	if try.Again {
		s += " again"
	}
	if try.Standard {
		s += " standard"
	}
	if try.Wait > 0 {
		s += fmt.Sprintf(" in %v", try.Wait)
	}
	return s
}

// past is an attempt at slot i of the exchange's order that ended with v just now.
func (b *bench) past(attempt, i int, v classify.Verdict) Past {
	c := b.plan().course(b.x, nil)
	s := c.slot(i)
	return Past{Attempt: attempt, At: time.Now(), Slot: i, Rung: s.Rung, Target: s.Target.Name, Verdict: v}
}

// goes makes the attempts of the exchange, each of which answers with the next of vs, and tells where they went.
func (b *bench) goes(vs ...classify.Verdict) (to []string) {
	var past []Past
	for attempt := 1; attempt <= b.plan().attempts; attempt++ {
		x := b.x
		x.Attempt = attempt
		try, err := b.plan().Begin(x, past)
		if errors.Is(err, ErrSkip) {
			continue
		}
		if err != nil {
			return append(to, "spent")
		}
		to = append(to, describe(try))
		v := vs[min(len(to), len(vs))-1]
		more := try.More(v)
		try.Report(v)
		if !more {
			return to
		}
		past = append(past, b.past(attempt, try.Index, v))
		past[len(past)-1].Target, past[len(past)-1].Rung = try.Target.Name, try.Rung
	}
	b.t.Fatalf("attempts without end: %v", to)
	return nil
}

func verdict(c classify.Class) classify.Verdict { return classify.Verdict{Class: c} }

func limited(retryAfter time.Duration) classify.Verdict {
	return classify.Verdict{Class: classify.RateLimited, Status: 429, RetryAfterMS: retryAfter.Milliseconds()}
}

func retrySame(c *config.Chain) {
	c.Retry = config.Retry{SameTarget: 1, On: []string{"server_error", "transport"}}
}

func waitWhenLimited(c *config.Chain) { c.On.RateLimited = "wait" }
