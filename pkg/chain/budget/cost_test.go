package budget

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// sonnet costs a dollar a million per unit of its prices, so that a row's numbers can be followed by hand.
func sonnet() *config.Target {
	return &config.Target{
		Name: "anthropic/sonnet", Model: "claude-sonnet-5",
		Provider: &config.Provider{Name: "anthropic", API: config.Anthropic, Platform: config.Native},
		Price: config.Price{Known: true, Input: 3, Output: 15, CacheRead: 0.30, CacheWrite: 3.75,
			Tiers: map[string]float64{"priority": 2, "fast": 6, "batch": 0.5}},
	}
}

func gpt(platform config.Platform) *config.Target {
	return &config.Target{
		Name: "openai/gpt", Model: "gpt-5", Provider: &config.Provider{Name: "openai", API: config.OpenAI, Platform: platform},
		Price: config.Price{Known: true, Input: 2, Output: 8, CacheRead: 0.5, CacheWrite: 2,
			Tiers: map[string]float64{"flex": 0.5, "priority": 1.75}},
	}
}

// read is the verdict on a whole answer.
func read(api classify.API, asked string, status int, body string) classify.Verdict {
	r := classify.New(classify.Options{API: api, AskedTier: asked})
	kind := "application/json"
	if strings.HasPrefix(body, "data:") || strings.HasPrefix(body, "event:") {
		kind = "text/event-stream"
	}
	r.Header(status, func(name string) string { return map[string]string{"content-type": kind}[name] })
	r.Feed([]byte(body))
	return r.End(true)
}

func micro(n int64) Money { return Money(n * 1000) }

// TestCost has what each attempt costs in micro-dollars, worked out by hand. The sources are sections of the wire
// reference.
func TestCost(t *testing.T) {
	const (
		chatDone = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"12345678\"}}]}\n\n"
		stopped  = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
		started  = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":1}}}\n\n"
		text     = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"12345678\"}}\n\n"
		over     = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	)
	message := func(stop, usage string) string {
		return fmt.Sprintf(`{"type":"message","role":"assistant","model":"claude-sonnet-5","content":[{"type":"text","text":"hi"}],"stop_reason":%q,"usage":%s}`, stop, usage)
	}
	chat := func(tier, usage string) string {
		return fmt.Sprintf(`{"object":"chat.completion","model":"gpt-5","service_tier":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":%s}`, tier, usage)
	}
	const plain = `{"prompt_tokens":1000,"completion_tokens":100}`
	q := Request{InputBytes: 4000}
	m, c := classify.AnthropicMessages, classify.OpenAIChat
	for _, tt := range []struct {
		name      string
		t         *config.Target
		v         classify.Verdict
		q         Request
		want      int64
		estimated bool
	}{
		{"1f: input excludes cached tokens, each count has its price", sonnet(),
			read(m, "", 200, message("end_turn", `{"input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":10000,"cache_creation_input_tokens":2000}`)),
			q, 3000 + 1500 + 3000 + 7500, false},
		{"1f: writes kept for an hour cost twice the input", sonnet(),
			read(m, "", 200, message("end_turn", `{"input_tokens":0,"output_tokens":0,"cache_creation_input_tokens":2000,"cache_creation":{"ephemeral_1h_input_tokens":1000}}`)),
			q, 3750 + 6000, false},
		{"1f: thinking is a part of output, not billed again", sonnet(),
			read(m, "", 200, message("end_turn", `{"input_tokens":1000,"output_tokens":100,"output_tokens_details":{"thinking_tokens":90}}`)),
			q, 3000 + 1500, false},
		{"1d: the served tier has the say, not the asked one", sonnet(),
			read(m, "auto", 200, message("end_turn", `{"input_tokens":1000,"output_tokens":100,"service_tier":"priority"}`)),
			q, 2 * 4500, false},
		{"1d: fast mode is a speed", sonnet(),
			read(m, "fast", 200, message("end_turn", `{"input_tokens":1000,"output_tokens":100,"service_tier":"standard","speed":"fast"}`)),
			q, 6 * 4500, false},
		{"1c: a refusal is billed up to where it came", sonnet(),
			read(m, "", 200, message("refusal", `{"input_tokens":1000,"output_tokens":20}`)), q, 3300, false},
		{"1g: a stream that was cut has its input from the start and its output estimated", sonnet(),
			read(m, "", 200, started+text), q, 3000 + 15*3, true},
		{"1b: an overload in place of the first content is not billed", sonnet(), read(m, "", 200, started+over), q, 0, false},
		{"1b: an overload after content is billed as far as it came", sonnet(), read(m, "", 200, started+text+over), q, 3000 + 15*3, true},
		{"1a: a 529 is not billed", sonnet(), read(m, "", 529, over[len("event: error\ndata: "):]), q, 0, false},

		{"5f: prompt_tokens include the cached ones", gpt(config.Native),
			read(c, "", 200, chat("default", `{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":600}}`)),
			q, 800 + 800 + 300, false},
		{"5f: reasoning_tokens are within completion_tokens", gpt(config.Native),
			read(c, "", 200, chat("default", `{"prompt_tokens":1000,"completion_tokens":100,"completion_tokens_details":{"reasoning_tokens":80}}`)),
			q, 2000 + 800, false},
		{"5d: flex was asked for and served", gpt(config.Native), read(c, "flex", 200, chat("flex", plain)), q, 1400, false},
		{"5d: priority was asked for and default served", gpt(config.Native), read(c, "priority", 200, chat("default", plain)), q, 2800, false},
		{"5d: nobody says what was served, so the asked tier is billed", gpt(config.Native), read(c, "flex", 200, chat("", plain)), q, 1400, false},
		{"5f: a stream without usage is estimated on both sides", gpt(config.Native), read(c, "", 200, chatDone+stopped), q, 2000 + 16, true},
		{"5a: a rate limit is not billed", gpt(config.Native),
			read(c, "", 429, `{"error":{"code":"rate_limit_exceeded","type":"requests","message":"slow"}}`), q, 0, false},
		{"5a: flex without capacity is not charged", gpt(config.Native),
			read(c, "flex", 429, `{"error":{"code":"resource_unavailable","message":"Resource unavailable"}}`), q, 0, false},
		{"5d: flex that ran into a 408 is not charged", gpt(config.Native), read(c, "flex", 408, `{"error":{"message":"timeout"}}`), q, 0, false},
		{"5a: a wrong request is not billed", gpt(config.Native),
			read(c, "", 400, `{"error":{"code":"invalid_prompt","type":"invalid_request_error","message":"bad"}}`), q, 0, false},
		{"7: Azure bills the prompt that its filter turned away", gpt(config.Azure),
			read(c, "", 400, `{"error":{"message":"filtered","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`),
			q, 2000, true},
		{"7: OpenAI's own filter at 400 is not billed", gpt(config.Native),
			read(c, "", 400, `{"error":{"message":"filtered","code":"content_filter"}}`), q, 0, false},
		{"7: output that Azure's filter cut is billed", gpt(config.Azure),
			read(c, "", 200, strings.Replace(chat("default", plain), `"stop"`, `"content_filter"`, 1)), q, 2800, false},

		{"a provider's own timeout is an error", gpt(config.Native), read(c, "", 408, `{"error":{"message":"timeout"}}`), q, 0, false},
		{"our deadline leaves the provider at work", gpt(config.Native),
			classify.New(classify.Options{API: c}).Abort(classify.Timeout, "first content"), Request{InputTokens: 1000, GaveUp: true}, 2000, true},
		{"a client that hangs up leaves it at work too", gpt(config.Native),
			classify.New(classify.Options{API: c}).Abort(classify.Canceled, "client"), q, 2000, true},
		{"nobody was there", gpt(config.Native), classify.New(classify.Options{API: c}).Abort(classify.Transport, "refused"), q, 0, false},
		{"a page in place of an answer is not billed", gpt(config.Native), read(c, "", 200, "<html>"), q, 0, false},
	} {
		got := (*Prices)(nil).Cost(tt.t, tt.v, tt.q)
		if want := (Bill{Amount: micro(tt.want), Estimated: tt.estimated}); got != want {
			t.Errorf("%s: Cost(%+v) = %+v, want %+v", tt.name, tt.v, got, want)
		}
	}
}

func TestCostOfGoogleTiers(t *testing.T) {
	target := gpt(config.Vertex)
	u := classify.Usage{Input: 1000, Output: 100}
	for served, want := range map[string]int64{"ON_DEMAND_FLEX": 1400, "SERVICE_TIER_FLEX": 1400, "flex": 1400, "ON_DEMAND": 2800, "ON_DEMAND_PRIORITY": 4900, "unheard_of": 2800} {
		v := classify.Verdict{Class: classify.OK, Complete: true, ServedTier: served, AskedTier: "flex", Usage: u}
		if got := (*Prices)(nil).Cost(target, v, Request{}).Amount; got != micro(want) {
			t.Errorf("Cost(served %s) = %s, want %s", served, got, micro(want))
		}
	}
}

func TestCostOfTheProvidersOwnCalls(t *testing.T) {
	own, haiku := sonnet(), sonnet()
	haiku.Name, haiku.Model = "anthropic/haiku", "claude-haiku-4-5"
	haiku.Price = config.Price{Known: true, Input: 1, Output: 5, CacheRead: 0.1, CacheWrite: 1.25}
	elsewhere := gpt(config.Native)
	elsewhere.Model = "claude-opus-5"
	p := NewPrices(&config.Config{Targets: map[string]*config.Target{own.Name: own, haiku.Name: haiku, elsewhere.Name: elsewhere}})
	call := func(kind, model string) classify.IterationUsage {
		return classify.IterationUsage{Type: kind, Model: model, Usage: classify.Usage{Input: 1000, Output: 100}}
	}
	for _, tt := range []struct {
		name      string
		calls     []classify.IterationUsage
		estimated bool
		want      int64
		assumed   bool
	}{
		{"none told", nil, false, 3150, false},
		{"compaction is not in the whole", []classify.IterationUsage{call("compaction", ""), call("message", own.Model)}, false, 9000, false},
		{"a fallback has its own model's price", []classify.IterationUsage{call("message", own.Model), call("fallback_message", haiku.Model)}, false, 4500 + 1500, false},
		{"a model by its dated name", []classify.IterationUsage{call("fallback_message", "claude-haiku-4-5-20251001")}, false, 1500, false},
		{"the target's model by its dated name", []classify.IterationUsage{call("message", "claude-sonnet-5-20261001")}, false, 4500, false},
		{"another provider's price is none", []classify.IterationUsage{call("fallback_message", "claude-opus-5")}, false, 4500, true},
		{"an answer that was cut before its calls were told whole", []classify.IterationUsage{call("fallback_message", haiku.Model)}, true, 3150, false},
	} {
		v := classify.Verdict{Class: classify.OK, Complete: true, Iterations: tt.calls, Usage: classify.Usage{Input: 1000, Output: 10, Estimated: tt.estimated}}
		got := p.Cost(own, v, Request{})
		if want := (Bill{micro(tt.want), tt.estimated, tt.assumed}); got != want {
			t.Errorf("%s: Cost = %+v, want %+v", tt.name, got, want)
		}
	}
}

// ratio is a number as a file writes it.
func ratio(v float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(v, 'f', -1, 64))
	if !ok {
		panic(v)
	}
	return r
}

func drawPrice(r *rapid.T) config.Price {
	usd := func(name string) float64 { return float64(rapid.Int64Range(0, 200e6).Draw(r, name)) / 1e6 }
	return config.Price{Known: true, Input: usd("input"), Output: usd("output"), CacheRead: usd("read"), CacheWrite: usd("write"),
		Tiers: map[string]float64{"flex": float64(rapid.Int64Range(1, 9e6).Draw(r, "flex")) / 1e6}}
}

// bill is the sum of exact dollars, made another way.
func bill(t *config.Target, v classify.Verdict) *big.Rat {
	sum, u, p := new(big.Rat), v.Usage, t.Price
	add := func(tokens int64, price *big.Rat) {
		sum.Add(sum, new(big.Rat).Mul(big.NewRat(tokens, 1e6), price))
	}
	long := ratio(p.CacheWrite)
	if twice := new(big.Rat).Add(ratio(p.Input), ratio(p.Input)); t.Provider.API == config.Anthropic && twice.Cmp(long) > 0 {
		long = twice
	}
	add(u.Input, ratio(p.Input))
	add(u.Output, ratio(p.Output))
	add(u.CacheRead, ratio(p.CacheRead))
	add(u.CacheWrite-u.CacheWriteLong, ratio(p.CacheWrite))
	add(u.CacheWriteLong, long)
	if f, ok := p.Tiers[v.ServedTier]; ok {
		sum.Mul(sum, ratio(f))
	}
	return sum
}

// TestBillsAreExact: a thousand attempts come to what exact sums of dollars say, each rounded to a nano-dollar.
func TestBillsAreExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		target := sonnet()
		if rapid.Bool().Draw(r, "openai") {
			target = gpt(config.Native)
		}
		target.Price = drawPrice(r)
		total, exact := Money(0), new(big.Rat)
		for range rapid.IntRange(1, 30).Draw(r, "attempts") {
			tokens := func(name string) int64 { return rapid.Int64Range(0, 2e6).Draw(r, name) }
			write := tokens("write")
			v := classify.Verdict{Class: classify.OK, Complete: true, ServedTier: rapid.SampledFrom([]string{"", "flex", "default"}).Draw(r, "tier"),
				Usage: classify.Usage{Input: 1 + tokens("in"), Output: tokens("out"), CacheRead: tokens("read"), CacheWrite: write,
					CacheWriteLong: rapid.Int64Range(0, write).Draw(r, "long"), Reasoning: tokens("thought")}}
			got, want := (*Prices)(nil).Cost(target, v, Request{}).Amount, bill(target, v)
			off := new(big.Rat).Sub(big.NewRat(int64(got), 1e9), want)
			if off.Abs(off).Cmp(big.NewRat(1, 2e9)) > 0 {
				r.Fatalf("Cost(%+v at %+v) = %s, want %s", v.Usage, target.Price, got, want.FloatString(12))
			}
			total, exact = total+got, exact.Add(exact, want)
		}
		off := new(big.Rat).Sub(big.NewRat(int64(total), 1e9), exact)
		if off.Abs(off).Cmp(big.NewRat(1, 1e6)) > 0 {
			r.Fatalf("sum = %s, want %s", total, exact.FloatString(12))
		}
	})
}

func TestMoneyOfHostileCountsStaysAtTheLargest(t *testing.T) {
	target := sonnet()
	for _, n := range []int64{1 << 53, math.MaxInt64, -5} {
		u := classify.Usage{Input: n, Output: n, CacheRead: n, CacheWrite: n, CacheWriteLong: n}
		got := (*Prices)(nil).Cost(target, classify.Verdict{Class: classify.OK, Complete: true, Usage: u}, Request{}).Amount
		if got < 0 || n > 1<<60 && got != MaxMoney {
			t.Errorf("Cost of %d tokens = %s, want none below 0 and the largest amount at the largest count", n, got)
		}
	}
	target.Price.Input, target.Price.Tiers = 1e300, map[string]float64{"": 1e300}
	if got := Worst(target, Request{InputBytes: math.MaxInt64, MaxTokens: math.MaxInt64}); got != MaxMoney {
		t.Errorf("Worst at an absurd price = %s, want %s", got, MaxMoney)
	}
}

func TestWorst(t *testing.T) {
	limited := sonnet()
	limited.Limits.MaxOutput = 1000
	asks := sonnet()
	asks.Tier = "batch"
	for _, tt := range []struct {
		name string
		t    *config.Target
		q    Request
		want int64
	}{
		{"input may all be written to the cache for an hour, at any tier", sonnet(), Request{InputTokens: 1000, MaxTokens: 100}, 6 * (6000 + 1500)},
		{"bytes are two a token at most", sonnet(), Request{InputBytes: 2000, MaxTokens: 100}, 6 * (1512*6 + 1500)},
		{"no max_tokens is the target's limit", limited, Request{InputTokens: 1000}, 6 * (6000 + 15000)},
		{"the target cuts max_tokens", limited, Request{InputTokens: 1000, MaxTokens: 5000}, 6 * (6000 + 15000)},
		{"no limit at all", sonnet(), Request{InputTokens: 1000}, 6 * (6000 + 128000*15)},
		{"an asked tier, or the standard one in its place", sonnet(), Request{InputTokens: 1000, MaxTokens: 100, Tier: "batch"}, 7500},
		{"a dearer asked tier", sonnet(), Request{InputTokens: 1000, MaxTokens: 100, Tier: "priority"}, 15000},
		{"auto may be any tier", sonnet(), Request{InputTokens: 1000, MaxTokens: 100, Tier: "auto"}, 45000},
		{"the target's own tier", asks, Request{InputTokens: 1000, MaxTokens: 100}, 7500},
	} {
		if got := Worst(tt.t, tt.q); got != micro(tt.want) {
			t.Errorf("%s: Worst = %s, want %s", tt.name, got, micro(tt.want))
		}
	}
}

// TestWorstIsNotLessThanCost for what the request shows: the reservation holds the bill.
func TestWorstIsNotLessThanCost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		target := sonnet()
		target.Price = drawPrice(r)
		in, out := rapid.Int64Range(0, 1e6).Draw(r, "in"), rapid.Int64Range(1, 1e5).Draw(r, "max")
		read := rapid.Int64Range(0, in).Draw(r, "read")
		write := rapid.Int64Range(0, in-read).Draw(r, "write")
		tier := rapid.SampledFrom([]string{"", "auto", "flex"}).Draw(r, "tier")
		v := classify.Verdict{Class: classify.OK, Complete: true, AskedTier: tier, ServedTier: rapid.SampledFrom([]string{"", "flex", "default"}).Draw(r, "served"),
			Usage: classify.Usage{Input: in - read - write, CacheRead: read, CacheWrite: write, CacheWriteLong: rapid.Int64Range(0, write).Draw(r, "long"),
				Output: rapid.Int64Range(0, out).Draw(r, "out")}}
		q := Request{InputBytes: 2*in + 1, MaxTokens: out, Tier: tier}
		if cost, worst := (*Prices)(nil).Cost(target, v, q).Amount, Worst(target, q); cost > worst {
			r.Fatalf("Cost(%+v) = %s, want at most Worst = %s", v.Usage, cost, worst)
		}
	})
}

func TestMoney(t *testing.T) {
	for _, tt := range []struct {
		usd  float64
		want string
	}{{50, "$50.000000000"}, {0.1, "$0.100000000"}, {1e-9, "$0.000000001"}, {-3, "$0.000000000"}, {math.NaN(), "$0.000000000"}, {1e300, MaxMoney.String()}} {
		if got := FromUSD(tt.usd).String(); got != tt.want {
			t.Errorf("FromUSD(%v) = %s, want %s", tt.usd, got, tt.want)
		}
	}
	if got := Money(math.MinInt64).String(); got != "-$9223372036.854775808" {
		t.Errorf("the least Money = %s", got)
	}
	for _, tt := range []struct {
		a, b   Money
		factor float64
		want   bool
	}{{3 * Dollar, Dollar, 3, false}, {3*Dollar + 1, Dollar, 3, true}, {15, 10, 1.5, false}, {16, 10, 1.5, true}, {MaxMoney, MaxMoney, 0.999999, true}} {
		if got := exceeds(tt.a, tt.factor, tt.b); got != tt.want {
			t.Errorf("exceeds(%s, %v, %s) = %v, want %v", tt.a, tt.factor, tt.b, got, tt.want)
		}
	}
}
