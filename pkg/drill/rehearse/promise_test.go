package rehearse

import (
	"fmt"
	"strings"
	"testing"

	"understudy/pkg/config"
	"understudy/pkg/drill"
)

const providers = `
providers:
  a: {api: anthropic, endpoint: "https://a.example", auth: {header: x-api-key, secret: "env:NO_SUCH_KEY"}}
  b: {api: anthropic, endpoint: "https://b.example", auth: {header: x-api-key, secret: "env:NO_SUCH_KEY"}}
  o: {api: openai, endpoint: "https://o.example", auth: {bearer: "env:NO_SUCH_KEY"}}
  g: {api: gemini, endpoint: "https://g.example", auth: {header: x-goog-api-key, secret: "env:NO_SUCH_KEY"}}
targets:
  a/x: {provider: a, model: x}
  b/x: {provider: b, model: x}
  b/z: {provider: b, model: z, model_family: x}
  b/y: {provider: b, model: y}
  o/x: {provider: o, model: gpt}
  o/f: {provider: o, model: gpt, service_tier: flex}
  g/x: {provider: g, model: pro}
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("understudy.yaml", []byte(providers+text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// chainOf is a chain of the settings given.
func chainOf(t *testing.T, settings string) policy {
	t.Helper()
	cfg := parse(t, fmt.Sprintf("chains:\n  chat: {select: header, %s}\n", settings))
	return policyOf(cfg, cfg.Chains[0])
}

const two = "targets: [a/x, b/x]"

func TestWhatAChainPromisesOfAFault(t *testing.T) {
	for _, row := range []struct {
		name, chain, fault string
		stream             bool
		want, accept       string
	}{
		{"the fallback serves", two, "overloaded", false,
			"status 200, by b/x (rung 1), at attempt 2, because of overloaded, a whole answer in the dialect, beginning within 2m5s", ""},
		{"it serves a stream sooner", two, "sse_error", true,
			"status 200, by b/x (rung 1), at attempt 2, because of overloaded, a whole answer in the dialect, beginning within 35s", ""},
		{"after the deadline of an answer", two, "hang", false,
			"status 200, by b/x (rung 1), at attempt 2, because of timeout, a whole answer in the dialect, beginning within 4m5s", ""},
		{"after that of a stream", two + ", deadlines: {first_content: 2s}", "slow_first_token", true,
			"status 200, by b/x (rung 1), at attempt 2, because of timeout, a whole answer in the dialect, beginning within 9s", ""},
		{"after both tries", two + ", deadlines: {first_content: 2s}, retry: {same_target: 1, on: [timeout]}", "hang", true,
			"status 200, by b/x (rung 1), at attempt 3, because of timeout, a whole answer in the dialect, beginning within 11s", ""},
		{"a slot of its own passes unused", two + ", retry: {same_target: 1, on: [timeout]}", "overloaded", true,
			"status 200, by b/x (rung 1), at attempt 3, because of overloaded, a whole answer in the dialect, beginning within 35s", ""},
		{"one of a discounted tier has another", "targets: [o/f, o/x]", "overloaded", true,
			"status 200, by o/x (rung 1), at attempt 3, because of overloaded, a whole answer in the dialect, beginning within 35s", ""},
		{"both members fail first", "targets: [{any: [a/x, b/x]}, {target: b/y, validated: true}], deadlines: {first_content: 2s}", "hang", true,
			"status 200, by b/y (rung 1), at attempt 3, because of timeout, a whole answer in the dialect, beginning within 11s", ""},
		{"a downshift needs to be accepted", "targets: [a/x, {target: b/y, validated: true}], degrade: [downshift], downshift_from: b/y", "reset", true,
			"status 200, by b/y (rung 1), at attempt 2, because of transport, x-llm-degraded: downshift, a whole answer in the dialect, beginning within 35s", "downshift"},
		{"nobody else is there", "targets: [a/x]", "reset", true, "an error status, an error in the dialect, beginning within 5s", "none"},
		{"nor for a page of HTML", "targets: [a/x]", "html_error", true, "an error status, the error as it was played, beginning within 5s", "none"},

		{"what began ends in an error", two + ", deadlines: {idle: 3s}", "stall", true,
			"status 200, by a/x (rung 0), at attempt 1, content, then an error in the dialect, beginning within 1m35s, ending within 38s", "none"},
		{"or is cut", two, "cut", true,
			"status 200, by a/x (rung 0), at attempt 1, no clean end, but an error in the dialect or an aborted transfer, beginning within 1m35s", "none"},
		{"unless it was held whole", two + ", commit: complete", "cut", true,
			"status 200, by b/x (rung 1), at attempt 2, because of transport, a whole answer in the dialect, beginning within 1m5s", ""},
		{"what is held too long is let go", two + ", hold: {time: 1s}", "slow_first_token", true,
			"status 200, by a/x (rung 0), at attempt 1, no clean end, but an error in the dialect or an aborted transfer, beginning within 36s, ending within 1m5s", "none"},
		{"nothing is held back", two + ", commit: headers", "overloaded", false,
			"status 529, by a/x (rung 0), at attempt 1, the error as it was played, beginning within 1m35s", "none"},
		{"but what has no headers", two + ", commit: headers", "reset", false,
			"status 200, by b/x (rung 1), at attempt 2, because of transport, a whole answer in the dialect, beginning within 2m5s", ""},

		{"a refusal is an answer", two, "refusal", true,
			"status 200, by a/x (rung 0), at attempt 1, a refusal in the dialect, beginning within 35s", ""},
		{"the same model would say it again", two + ", on: {refusal: next}", "refusal", true,
			"status 200, by a/x (rung 0), at attempt 1, a refusal in the dialect, beginning within 35s", ""},
		{"another family may not", "targets: [a/x, b/x, {target: b/y, validated: true}], on: {refusal: next}", "refusal", true,
			"status 200, by b/y (rung 2), at attempt 3, because of refusal, a whole answer in the dialect, beginning within 35s", ""},
		{"a lower tier is an answer", two, "tier_downgrade", true,
			"status 200, by a/x (rung 0), at attempt 1, a whole answer in the dialect, beginning within 35s", ""},
		{"or is none", two + ", on: {tier_downgrade: next}", "tier_downgrade", true,
			"status 200, by b/x (rung 1), at attempt 2, because of tier_downgrade, a whole answer in the dialect, beginning within 35s", ""},
		{"a rate limit goes on", two, "rate_limit", true,
			"status 200, by b/x (rung 1), at attempt 2, because of rate_limited, a whole answer in the dialect, beginning within 35s", ""},
		{"or is waited out first", two + ", on: {rate_limited: wait, max_wait: 4s}", "rate_limit", true,
			"status 200, by b/x (rung 1), at attempt 3, because of rate_limited, a whole answer in the dialect, beginning within 39s", ""},
		{"or is told", two + ", on: {rate_limited: return}", "rate_limit", true,
			"status 429, by a/x (rung 0), at attempt 1, an error in the dialect, beginning within 35s", ""},
		{"or queues", two + ", on: {rate_limited: queue}, degrade: [queue], queue: {message: Wait.}", "rate_limit", true,
			`status 202, x-llm-degraded: queue; job=, a whole answer in the dialect, saying "Wait.", beginning within 13s`, "queue"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, ok := drill.Named(row.fault)
			if !ok {
				t.Fatalf("no fault %s", row.fault)
			}
			w, accept := chainOf(t, row.chain).meets(f, row.stream)
			if w.String() != row.want || accept != row.accept {
				t.Errorf("meets(%s, %t) =\n%s, accepting %q\nwant\n%s, accepting %q", row.fault, row.stream, w, accept, row.want, row.accept)
			}
		})
	}
}

func TestReasonsMayBeLeftOutWhereReplicasShareTheAttempts(t *testing.T) {
	p := chainOf(t, two)
	if p.serves(1, "overloaded", true).silent {
		t.Error("one replica may leave out the reason, want that it may not")
	}
	p.replicas = 2
	if !p.serves(1, "overloaded", true).silent || p.serves(0, "", true).silent {
		t.Error("two replicas may not leave out the reason, or for the primary, want the one and not the other")
	}
}

func TestWhichScenesAChainHas(t *testing.T) {
	p := chainOf(t, "targets: [a/x, {any: [b/x, b/z]}], degrade: ['off'], off: {message: Later.}")
	c := call{chain: "chat", path: "/v1/messages", api: anthropicAPI, model: "m"}
	byName := map[string]scene{}
	for _, s := range p.scenes(c) {
		byName[s.name] = s
	}
	member := byName["rung 1 serves: b/z"]
	if got, want := fmt.Sprint(member.faults), "map[a/x:overloaded b/x:overloaded]"; got != want {
		t.Errorf("faults of a member's scene = %s, want %s: all but itself", got, want)
	}
	if member.promise.attempts != 0 || member.promise.targets[0] != "b/z" {
		t.Errorf("promise of a member's scene = %s, want b/z at an attempt that is left open", member.promise)
	}
	if got := byName["all targets fail, and the mode off answers"]; got.accept != "off" || got.promise.text != "Later." || len(got.faults) != 3 {
		t.Errorf("scene of off = %+v, want the owner's words when all three fail", got)
	}
	for name := range byName {
		if strings.Contains(name, "(the connection dies after content)") {
			t.Errorf("a request without a stream has the scene %q", name)
		}
	}
}

func TestScenesThatCannotBePlayedSayWhy(t *testing.T) {
	for _, row := range []struct{ name, chain, fault, want string }{
		{"no time is left", two + ", deadlines: {first_content: 9s, total: 9s}", "hang", "deadlines.total (9s) is over before another rung could be asked"},
		{"a discounted primary", "targets: [o/f, o/x]", "tier_downgrade", "o/f asks for a tier of its own"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, _ := drill.Named(row.fault)
			if got := chainOf(t, row.chain).faultScene(f, call{stream: true}); !strings.Contains(got.skip, row.want) {
				t.Errorf("faultScene(%s).skip = %q, want %q", row.fault, got.skip, row.want)
			}
		})
	}
}

func TestAFallbackThatMayCostTooMuchPromisesNothing(t *testing.T) {
	const priced = `
providers: {a: {api: anthropic, endpoint: "https://a.example", auth: {none: true}}}
targets:
  a/x: {provider: a, model: x, price: {input: 1, output: 5}}
  a/same: {provider: a, model: same, model_family: x, price: {input: 2, output: 10}}
  a/output: {provider: a, model: output, model_family: x, price: {input: 1, output: 11}}
  a/tier: {provider: a, model: tier, model_family: x, price: {input: 1, output: 5, tiers: {fast: 6}}}
chains: {chat: {select: header, targets: [a/x, %s], budget: {usd: 1, window: 1h%s}}}
`
	for _, row := range []struct {
		fallback, bound string
		dear            bool
	}{
		{"a/same", ", max_premium: 2", false},
		{"a/output", ", max_premium: 2", true},
		{"a/tier", ", max_premium: 2", true},
		{"a/tier", ", max_premium: 6", false},
		{"a/tier", "", false},
	} {
		cfg, err := config.Parse("f.yaml", fmt.Appendf(nil, priced, row.fallback, row.bound))
		if err != nil {
			t.Fatal(err)
		}
		p := policyOf(cfg, cfg.Chains[0])
		if why := p.dear(p.rung(1)); (why != "") != row.dear || p.alone() != row.dear || p.dear(p.rung(0)) != "" {
			t.Errorf("dear, alone with %s%s = %q, %t, want %t", row.fallback, row.bound, why, p.alone(), row.dear)
		}
	}
}
