//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// list is the price list of the bills below, by model.
var list = map[string]filePrice{
	"m-a":    {Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75, Tiers: map[string]float64{"priority": 2, "flex": 0.5}},
	"m-b":    {Input: 15, Output: 75, CacheRead: 1.5, CacheWrite: 18.75, Tiers: map[string]float64{"priority": 1.5}},
	"m-side": {Input: 0.8, Output: 4, CacheRead: 0.08, CacheWrite: 1},
}

// billRows are what exchanges come to; %s is their usage. Streams are cut such that all of what was made has arrived.
var billRows = []struct {
	path   string
	stream bool
	counts bool // the client asks for the usage chunk of a stream
	script string
}{
	{messages, false, false, "a=ok %s"},
	{messages, true, false, "a=ok n=7 %s"},
	{messages, true, false, "a=529; b=ok %s"},
	{messages, false, false, "a=reset; b=ok %s"},
	{messages, true, false, "a=error-first; b=ok %s"},
	{messages, true, false, "a=error-start; b=ok tier=priority %s"},
	{messages, false, false, "a=refusal n=0 %s"},
	{messages, true, false, "a=refusal n=2 %s"},
	{messages, true, false, "a=stall n=9 size=50 %s"},
	{messages, true, false, "a=cut n=4 how=end %s"},
	{messages, true, false, "a=error n=5 %s"},
	{messages, false, false, "a=ok tier=priority %s"},
	{messages, false, false, "a=ok call=m-side:900/400/30/20 call=m-a:100/50 %s"},
	{messages, true, false, "a=ok call=m-side:2000/10 %s"},
	{chats, false, false, "a=ok tier=flex %s"},
	{chats, true, true, "a=ok n=6 %s"},
	{chats, true, false, "a=ok n=11 size=33 %s"},
	{chats, true, true, "a=cut n=8 how=end %s"},
	{chats, false, false, "a=filter %s"},
	{chats, true, true, "a=500; b=ok %s"},
	{responsed, false, false, "a=ok %s"},
	{responsed, true, false, "a=ok tier=priority %s"},
	{responsed, true, false, "a=stall n=3 size=200 %s"},
	{responsed, true, false, "a=failed n=4 %s"},
	{responsed, false, false, "a=503; b=503 code=none"},
}

// ask is the i-th exchange.
func billCall(i int) (call, string) {
	row := billRows[i%len(billRows)]
	usage := fmt.Sprintf("usage=%d/%d/%d", 1000+37*i, 100+13*i%900, i*7%500)
	if row.path == messages {
		usage += fmt.Sprintf("/%d", i*11%300)
	}
	c := call{path: row.path, stream: row.stream, chain: []string{"books-", "plain-"}[i/len(billRows)%2] + apiOf(row.path),
		script: strings.ReplaceAll(row.script, "%s", usage), id: fmt.Sprint("bill ", i)}
	body := strings.Replace(requestBody(c.path, c.stream), "hello", strings.Repeat("what does this cost? ", i%50), 1)
	if row.counts {
		body = strings.Replace(body, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
	}
	return c, body
}

// The sum is made from what the providers have on record, by the rules of docs/money.md, written down a second time.
func TestTheBillIsRightToTheCent(t *testing.T) {
	t.Parallel()
	var chains []chain
	for _, api := range []string{"anthropic", "openai"} {
		c := chain{name: "books-" + api, api: api, on: []string{"a", "b"}, breaker: sturdy, prices: map[string]filePrice{"a": list["m-a"], "b": list["m-b"]}}
		c.more.Deadlines.Idle = 500 * time.Millisecond
		plain := c
		plain.name = "plain-" + api
		c.more.Budget = map[string]any{"usd": 5000, "window": "month"}
		chains = append(chains, c, plain)
	}
	side := chain{name: "side", api: "anthropic", on: []string{"a"}, prices: map[string]filePrice{"a": list["m-side"]}}
	s := startStack(t, plan{chains: append(chains, side), edit: func(f *file) {
		target := f.Targets["side/a"]
		target.Model = "m-side"
		f.Targets["side/a"] = target
	}})
	const n = 1000
	ctx := within(t, 2*time.Minute)
	next := make(chan int)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for i := range next {
				c, body := billCall(i)
				s.do(s.request(ctx, t, c, strings.NewReader(body)))
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()

	want := map[string]*big.Rat{}
	for name, p := range map[string]*scripted.Provider{"a": s.providers["a"], "b": s.providers["b"]} {
		for _, r := range p.Requests("") {
			var i int
			if _, err := fmt.Sscanf(r.ID, "bill %d", &i); err != nil {
				t.Fatalf("a provider has a request %q: %v", r.ID, err)
			}
			c, body := billCall(i)
			target := c.chain + "/" + name
			if want[target] == nil {
				want[target] = new(big.Rat)
			}
			want[target].Add(want[target], owed(r, body))
		}
	}
	for _, c := range chains {
		whole := 0.0
		for _, provider := range c.on {
			sum, _ := want[c.target(provider)].Float64()
			if sum < 0.1 {
				t.Errorf("%s costs $ %f, want a sum that shows something", c.target(provider), sum)
			}
			whole += sum
			s.reads(t, cent(sum), "understudy_spend_usd_total", "chain", c.name, "target", c.target(provider))
		}
		if c.more.Budget != nil {
			s.reads(t, cent(5000-whole), "understudy_budget_remaining_usd", "chain", c.name)
		}
	}
	s.survives(t)
}

// cent is equality to a tenth of a cent.
func cent(want float64) func(float64) bool {
	return func(got float64) bool { return math.Abs(got-want) < 0.001 }
}

// owed is what a provider asks for a request that it has on record.
func owed(r scripted.Request, body string) *big.Rat {
	used := scripted.Tokens{Input: 11, Output: r.Step.N}
	if r.Step.Usage != nil {
		used = *r.Step.Usage
	}
	quarter := func(n int) int { return (n + 3) / 4 }
	made := quarter(len(scripted.Text(string(r.Model[len(r.Model)-1]), r.Model, r.ID, r.Step.N, r.Step.Size)))
	guess := scripted.Tokens{Input: quarter(len(body)), Output: made}
	switch r.Step.Kind {
	case "ok", "refusal", "filter":
		if r.Stream && strings.HasPrefix(r.Path, chats) && !bytes.Contains(r.Body, []byte("include_usage")) {
			used = guess
		}
	case "cut", "error", "failed", "stall":
		if r.Path == messages { // the input came first, with one token of output
			used.Output = 1 + made
		} else {
			used = guess
		}
	default:
		return new(big.Rat)
	}
	sum := cost(r.Model, r.Step.Tier, used)
	for _, call := range r.Step.Calls {
		sum.Add(sum, cost(call.Model, r.Step.Tier, call.Tokens))
	}
	return sum
}

// cost is a number of tokens at the price of a model at a tier.
func cost(model, tier string, used scripted.Tokens) *big.Rat {
	p, factor := list[model], 1.0
	if f, ok := p.Tiers[tier]; ok {
		factor = f
	}
	sum := new(big.Rat)
	for _, part := range []struct {
		tokens int
		price  float64
	}{{used.Input, p.Input}, {used.Output, p.Output}, {used.CacheRead, p.CacheRead}, {used.CacheWrite, p.CacheWrite}} {
		price := decimal(part.price)
		price.Mul(price, decimal(factor))
		sum.Add(sum, price.Mul(price, big.NewRat(int64(part.tokens), 1_000_000)))
	}
	return sum
}

// decimal is a price as it stands in the file.
func decimal(f float64) *big.Rat {
	r, _ := new(big.Rat).SetString(fmt.Sprint(f))
	return r
}
