package chain_test

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Two attempts of one exchange: the primary is overloaded, the fallback answers.
func ExamplePlan_Begin() {
	provider := &config.Provider{Name: "anthropic", Endpoint: &url.URL{Scheme: "https", Host: "api.anthropic.com"},
		Auth: config.Auth{FromClient: true}}
	often := config.Breaker{Failures: 1, OpenFor: time.Minute}
	sonnet := &config.Target{Name: "anthropic/sonnet", Provider: provider, Model: "claude-sonnet-5", Breaker: often}
	haiku := &config.Target{Name: "anthropic/haiku", Provider: provider, Model: "claude-haiku-4-5", Breaker: often}
	support := &config.Chain{Name: "support", Rungs: []config.Rung{{Target: sonnet}, {Target: haiku}}}
	book := chain.NewBook(&config.Config{
		Targets: map[string]*config.Target{sonnet.Name: sonnet, haiku.Name: haiku},
		Chains:  []*config.Chain{support},
	}, nil, func(t breaker.Transition) { fmt.Println(t.Target, "is", t.To) })

	for attempt, answer := range []classify.Class{classify.Overloaded, classify.OK} {
		try, err := book.Plan(support).Begin(chain.Exchange{ID: "7f3a", Attempt: attempt + 1, Start: time.Now()}, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		v := classify.Verdict{Class: answer}
		fmt.Println(try.Target.Name, "answers", v.Class, "- more:", try.More(v))
		try.Report(v)
	}
	_, err := book.Plan(support).Begin(chain.Exchange{ID: "7f3b", Attempt: 1, Start: time.Now()}, nil)
	fmt.Println(errors.Is(err, chain.ErrSkip), err)
	// Output:
	// anthropic/sonnet answers overloaded - more: true
	// anthropic/sonnet is open
	// anthropic/haiku answers ok - more: false
	// true this slot is skipped: anthropic/sonnet: target may not be tried: its breaker is open
}
