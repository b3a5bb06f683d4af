package chain

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a chain of the targets a, b, …, its Book and a Memo.
type bench struct {
	t    *testing.T
	cfg  *config.Config
	book *Book
	memo *Memo
}

// targets makes one target a name; a name such as b:m has the model family m, else each is its own.
func targets(names ...string) []config.Rung {
	endpoint := &url.URL{Scheme: "https", Host: "api.example"}
	provider := &config.Provider{Name: "p", API: config.Anthropic, Endpoint: endpoint, Auth: config.Auth{FromClient: true}}
	rungs := make([]config.Rung, len(names))
	for i, n := range names {
		name, family, ok := strings.Cut(n, ":")
		if !ok {
			family = name
		}
		rungs[i].Target = &config.Target{Name: name, Provider: provider, Model: "model-" + name, Family: family,
			Breaker: config.Breaker{Failures: 1, OpenFor: time.Minute}}
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
		cfg.Targets[r.Target.Name] = r.Target
	}
	return cfg
}

func newBench(t *testing.T, change func(c *config.Chain), names ...string) *bench {
	b := &bench{t: t, cfg: conf(change, targets(names...)), memo: NewMemo()}
	b.book = NewBook(b.cfg, nil, func(breaker.Transition) {})
	return b
}

func (b *bench) plan() *Plan { return b.book.Plan(b.cfg.Chains[0]) }

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
	try, err := b.plan().Begin(Exchange{ID: "x", Attempt: attempt, Start: time.Now()}, past)
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
	if try.Wait > 0 {
		s += fmt.Sprintf(" in %v", try.Wait)
	}
	return s
}

// past is an attempt at slot i (its index), which is rung r's, that ended with v just now.
func (b *bench) past(attempt, i int, v classify.Verdict) Past {
	s := b.plan().slots[i]
	return Past{Attempt: attempt, At: time.Now(), Slot: i, Rung: s.Rung, Target: s.Target.Name, Verdict: v}
}

func verdict(c classify.Class) classify.Verdict { return classify.Verdict{Class: c} }

func limited(retryAfter time.Duration) classify.Verdict {
	return classify.Verdict{Class: classify.RateLimited, Status: 429, RetryAfterMS: retryAfter.Milliseconds()}
}

func retrySame(c *config.Chain) {
	c.Retry = config.Retry{SameTarget: 1, On: []string{"server_error", "transport"}}
}

func waitWhenLimited(c *config.Chain) { c.On.RateLimited = "wait" }
