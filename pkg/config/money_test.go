package config

import (
	"reflect"
	"testing"
	"time"
)

func TestCachedTokensCostWhatOthersDoUnlessPriced(t *testing.T) {
	for price, want := range map[string]Price{
		"{input: 3, output: 15}":                                 {Known: true, Input: 3, Output: 15, CacheRead: 3, CacheWrite: 3},
		"{input: 3, output: 15, cache_read: 0}":                  {Known: true, Input: 3, Output: 15, CacheWrite: 3},
		"{input: 3, output: 15, cache_write: 3.75}":              {Known: true, Input: 3, Output: 15, CacheRead: 3, CacheWrite: 3.75},
		"{input: 0, output: 0}":                                  {Known: true},
		"{input: 10000, output: 0.000001}":                       {true, 10000, 0.000001, 10000, 10000, nil},
		"{input: 1, output: 1, tiers: {a: 100, b_c: 0.000001}}":  {true, 1, 1, 1, 1, map[string]float64{"a": 100, "b_c": 0.000001}},
		"{input: 1234.567891, output: 0.1, cache_read: 0.30003}": {true, 1234.567891, 0.1, 0.30003, 1234.567891, nil},
	} {
		if got := mustParse(t, oneTarget(", price: "+price, "")).Targets["a/x"].Price; !reflect.DeepEqual(got, want) {
			t.Errorf("Price of %s = %+v, want %+v", price, got, want)
		}
	}
	if got := mustParse(t, oneTarget("", "")).Targets["a/x"].Price; got.Known {
		t.Errorf("Price of no price = %+v, want none", got)
	}
}

func TestBudgetFillsWhatTheFileLeavesOut(t *testing.T) {
	for budget, want := range map[string]Budget{
		"{usd: 50, window: 1h}":                                              {USD: 50, Window: time.Hour},
		"{usd: 50, window: month}":                                           {USD: 50, Month: true},
		"{usd: 0.000001, window: 1m}":                                        {USD: 0.000001, Window: time.Minute},
		"{usd: 1000000000, window: 744h, per: chain}":                        {USD: 1e9, Window: 744 * time.Hour},
		"{usd: 1, window: 24h, soft: 0.8}":                                   {USD: 1, Window: 24 * time.Hour, Soft: 0.8},
		"{usd: 1, window: 24h, soft: 0, max_premium: 0}":                     {USD: 1, Window: 24 * time.Hour},
		"{usd: 1, window: 24h, max_premium: 1}":                              {USD: 1, Window: 24 * time.Hour, MaxPremium: 1},
		"{usd: 1, window: 24h, per: 'metadata:ns:org'}":                      {USD: 1, Window: 24 * time.Hour, Tenant: true},
		"{usd: 1, window: 24h, per: 'header:X-Org', trusted_header: true}":   {USD: 1, Window: 24 * time.Hour, Tenant: true},
		"{usd: 1, window: 24h, per: chain, max_premium: 1000, soft: 0.9999}": {USD: 1, Window: 24 * time.Hour, MaxPremium: 1000, Soft: 0.9999},
	} {
		text := `
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {from: client}}}
targets:
  a/x: {provider: a, model: x, price: {input: 3, output: 15}}
  a/y: {provider: a, model: x, price: {input: 3, output: 15}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x, a/y], budget: ` + budget + `}}
`
		if got := mustParse(t, text).Chains[0].Budget; got != want {
			t.Errorf("Budget of %s = %+v, want %+v", budget, got, want)
		}
	}
	if got := mustParse(t, oneTarget("", "")).Chains[0].Budget; got != (Budget{}) {
		t.Errorf("Budget of no budget = %+v, want none", got)
	}
}

// budgets is a file whose first chain keeps answers of the clients' own accounts apart, and whose last two have budgets.
func budgets(file, per, perOfLast string) string {
	return file + `
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {from: client}}}
targets: {a/x: {provider: a, model: x, price: {input: 3, output: 15}}}
chains:
  kept: {match: [{path: /v1/messages}], targets: [a/x], degrade: [cache], idempotency: {window: 1s}}
  one: {select: header, targets: [a/x], budget: {usd: 1, window: 1h, ` + per + `}}
  last: {select: header, targets: [a/x], budget: {usd: 1, window: 1h, ` + perOfLast + `}}
`
}

func TestBudgetNamesTheTenantForTheWholeFile(t *testing.T) {
	org, header := Tenant{Metadata: []string{"ns", "claims", "org"}}, Tenant{Header: "x-org"}
	for _, row := range []struct {
		name, file, per, perOfLast string
		want                       Tenant
	}{
		{"the file says it, and a budget goes by it", "tenant: {metadata: 'ns:claims:org'}", "per: tenant", "per: chain", org},
		{"the file and a budget say the same", "tenant: {metadata: 'ns:claims:org'}", "per: 'metadata:ns:claims:org'", "per: chain", org},
		{"a budget alone says it", "", "per: 'metadata:ns:claims:org'", "per: chain", org},
		{"a later budget says it for the one before", "", "per: tenant", "per: 'header:X-ORG', trusted_header: true", header},
		{"two budgets say the same", "", "per: 'header:x-org', trusted_header: true", "per: 'header:X-Org', trusted_header: true", header},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := mustParse(t, budgets(row.file, row.per, row.perOfLast))
			if !reflect.DeepEqual(c.Tenant, row.want) {
				t.Errorf("Tenant = %+v, want %+v", c.Tenant, row.want)
			}
			if !c.Chains[1].Budget.Tenant || c.Chains[0].Idempotency != time.Second {
				t.Errorf("Chains = %+v %+v, want a budget per tenant and a window of 1s", c.Chains[0], c.Chains[1])
			}
		})
	}
}

func TestAnswerOfUnknownLengthIsReservedByTheTargetsLimit(t *testing.T) {
	const text = `
providers: {o: {api: openai, endpoint: https://o.example, auth: {bearer: env:KEY}}}
targets: {o/x: {provider: o, model: x, price: {input: 3, output: 15}, limits: {max_output: 100}, max_ramp: 1.01}}
chains: {chat: {match: [{path: /v1/responses}], targets: [o/x], retry: {client: 1}, budget: {usd: 1, window: 1h}, idempotency: {window: 24h}}}
`
	c := mustParse(t, text)
	ch := c.Chains[0]
	if got := ch.Rungs[0].Target; got.Limits.MaxOutput != 100 || got.MaxRamp != 1.01 || ch.Retry.Client != 1 || ch.Idempotency != 24*time.Hour {
		t.Errorf("Parse = %+v of %+v, want max_output 100, max_ramp 1.01, client 1 and 24h", ch, got)
	}
}

func TestShapeIsOnWhereTheFileHasIt(t *testing.T) {
	for shape, want := range map[string]Shape{
		"":                         {},
		", shape: {}":              {On: true, MaxWait: 2 * time.Second},
		", shape: ":                {On: true, MaxWait: 2 * time.Second},
		", shape: {max_wait: 10s}": {On: true, MaxWait: 10 * time.Second},
		", shape: {max_wait: 1ms}": {On: true, MaxWait: time.Millisecond},
	} {
		for _, provider := range []string{
			"api: anthropic, endpoint: https://a.example",
			"api: openai, endpoint: https://o.example",
			"api: openai, platform: azure, endpoint: https://z.example",
		} {
			c := mustParse(t, "providers: {p: {"+provider+", auth: {bearer: env:KEY}"+shape+"}}\n"+
				"targets: {p/x: {provider: p, model: x}}\nchains: {chat: {select: header, targets: [p/x]}}")
			if got := c.Providers["p"].Shape; got != want {
				t.Errorf("Shape of %q at %s = %+v, want %+v", shape, provider, got, want)
			}
		}
	}
}
