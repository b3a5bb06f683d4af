package config

import (
	"reflect"
	"testing"
	"time"
)

// oneTarget is a file whose only target has these settings, and whose only chain those.
func oneTarget(target, chain string) string {
	return `
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {from: client}}}
targets: {a/x: {provider: a, model: x` + target + `}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x]` + chain + `}}
`
}

func TestBreakerFillsWhatTheFileLeavesOut(t *testing.T) {
	usual := Breaker{Failures: 5, OpenFor: time.Minute, MaxOpenFor: 10 * time.Minute, Ramp: Ramp{10 * time.Second, 0.1}}
	with := func(change func(*Breaker)) Breaker {
		b := usual
		change(&b)
		return b
	}
	for _, row := range []struct {
		name, breaker string
		want          Breaker
	}{
		{"nothing is said", "{}", usual},
		{"open for longer than the longest by default", "{open_for: 1h}", with(func(b *Breaker) {
			b.OpenFor, b.MaxOpenFor = time.Hour, time.Hour
		})},
		{"no doubling", "{max_open_for: 60s}", with(func(b *Breaker) { b.MaxOpenFor = time.Minute })},
		{"a ratio by its share alone", "{ratio: {share: 1}}", with(func(b *Breaker) { b.Ratio = Ratio{1, time.Minute, 20} })},
		{"all traffic at once", "{ramp: {share: 1}}", with(func(b *Breaker) { b.Ramp.Share = 1 })},
		{"a slower ramp", "{ramp: {interval: 1m}}", with(func(b *Breaker) { b.Ramp.Interval = time.Minute })},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := mustParse(t, oneTarget(", breaker: "+row.breaker, "")).Targets["a/x"].Breaker; got != row.want {
				t.Errorf("Breaker of %s = %+v, want %+v", row.breaker, got, row.want)
			}
		})
	}
}

func TestProbeAsksTheTargetsOwnModelUnlessToldAnother(t *testing.T) {
	for probe, want := range map[string]Probe{
		"{}":                        {"x", 1},
		"{model: tiny}":             {"tiny", 1},
		"{max_tokens: 16}":          {"x", 16},
		"{model: y, max_tokens: 2}": {"y", 2},
	} {
		text := oneTarget(", breaker: {half_open: probe}, probe: "+probe, "")
		if got := mustParse(t, text).Targets["a/x"].Probe; got != want {
			t.Errorf("Probe of %s = %+v, want %+v", probe, got, want)
		}
	}
}

func TestMinimumRateIsOffUnlessSet(t *testing.T) {
	for chain, want := range map[string]MinRate{
		"":                                  {},
		", min_rate: {bytes_per_second: 1}": {1, 10 * time.Second},
		", min_rate: {bytes_per_second: 1KiB, window: 2s}":                      {1024, 2 * time.Second},
		", min_rate: {bytes_per_second: 9}, deadlines: {total: 5s}":             {9, 10 * time.Second},
		", min_rate: {bytes_per_second: 9, window: 5s}, deadlines: {total: 5s}": {9, 5 * time.Second},
	} {
		if got := mustParse(t, oneTarget("", chain)).Chains[0].MinRate; got != want {
			t.Errorf("MinRate of %q = %+v, want %+v", chain, got, want)
		}
	}
}

func TestModeOfAChainIsObserveWhenItOrTheWholeFileSaysSo(t *testing.T) {
	for _, row := range []struct {
		file, chain string
		want        bool
	}{
		{"", "", false},
		{"mode: enforce", ", mode: enforce", false},
		{"", ", mode: observe", true},
		{"mode: enforce", ", mode: observe", true},
		{"mode: observe", "", true},
		{"mode: observe", ", mode: enforce", true},
	} {
		c := mustParse(t, row.file+oneTarget("", row.chain))
		if got := c.Chains[0].Observe; got != row.want {
			t.Errorf("Observe of %q and %q = %t, want %t", row.file, row.chain, got, row.want)
		}
	}
}

func TestStoreIsAFolderUnlessAClusterIsNamed(t *testing.T) {
	for text, want := range map[string]Store{
		"":                                     {Dir: "./data", Replicas: 1},
		"store: {}":                            {Dir: "./data", Replicas: 1},
		"store:\n  embedded:":                  {Dir: "./data", Replicas: 1},
		"store: {embedded: {dir: /var/lib/u}}": {Dir: "/var/lib/u", Replicas: 1},
		"store: {nats: {urls: ['nats://n1']}}": {URLs: []string{"nats://n1"}, Replicas: 1},
		"store: {nats: {urls: ['tls://[::1]:4222'], creds: ./nats.creds, replicas: 5}}": {
			URLs: []string{"tls://[::1]:4222"}, Creds: "./nats.creds", Replicas: 5,
		},
		"store: {nats: {urls: ['nats://n1'], creds: 'file:nats.creds'}}": {
			URLs: []string{"nats://n1"}, Creds: "nats.creds", Replicas: 1,
		},
	} {
		want.MaxCache, want.MaxJobs = 256<<20, 4<<30
		if got := mustParse(t, text+oneTarget("", "")).Store; !reflect.DeepEqual(got, want) {
			t.Errorf("Store of %q = %+v, want %+v", text, got, want)
		}
	}
}

func TestRecoveryRateIsPerSecondWhateverItsUnit(t *testing.T) {
	for text, want := range map[string]float64{"5/s": 5, "30/m": 0.5, "7200/h": 2, "1/h": 1.0 / 3600} {
		c := mustParse(t, "recovery: {rate: "+text+"}"+oneTarget("", ""))
		if got := c.Recovery.Rate; got != want {
			t.Errorf("Rate of %s = %v, want %v", text, got, want)
		}
	}
}

func TestRecoveryMayLeaveNothingToChanceAndNoShare(t *testing.T) {
	c := mustParse(t, "recovery: {jitter: 0, retry_budget: 0}"+oneTarget("", ", retry: {budget: 0}"))
	if got, want := c.Recovery, (Recovery{Floor: 1, Rate: 5, ProbeTokens: 100_000}); got != want {
		t.Errorf("Recovery = %+v, want %+v", got, want)
	}
	if got := c.Chains[0].Retry.Budget; got != 0 {
		t.Errorf("Budget = %v, want 0", got)
	}
}

func TestDegradedModesFillWhatTheFileLeavesOut(t *testing.T) {
	const sorry = "The service is temporarily unavailable."
	modes := Chain{
		Degrade: []string{"off", "cache"},
		Cache:   Cache{TTL: 24 * time.Hour},
		Queue:   Queue{MaxAge: 24 * time.Hour, Message: sorry + " The request is queued and will be answered later."},
		Off:     Off{Status: 503, Message: sorry},
	}
	with := func(change func(*Chain)) Chain {
		ch := modes
		change(&ch)
		return ch
	}
	for _, row := range []struct {
		name, chain string
		want        Chain
	}{
		{"nothing is said", "", modes},
		{"blocks with nothing in them", ", cache: , off: {}", modes},
		{"near hits are switched off by hand", ", cache: {near: 0}", modes},
		{"the least and the most that near can be", ", cache: {near: 1}", with(func(ch *Chain) { ch.Cache.Near = 1 })},
		{"a near hit may be half another request", ", cache: {near: 0.5}", with(func(ch *Chain) { ch.Cache.Near = 0.5 })},
		{"an answer is always a 200", ", off: {as: answer}", with(func(ch *Chain) { ch.Off.Status, ch.Off.Answer = 200, true })},
		{"an error by name", ", off: {as: error, status: 599}", with(func(ch *Chain) { ch.Off.Status = 599 })},
		{"the switch alone", ", off: {force: true}", with(func(ch *Chain) { ch.Off.Force = true })},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := "tenant: {metadata: 'a:b'}" + oneTarget("", ", degrade: [off, cache]"+row.chain)
			ch := mustParse(t, text).Chains[0]
			got := Chain{Degrade: ch.Degrade, Cache: ch.Cache, Queue: ch.Queue, Off: ch.Off, Downshift: ch.Downshift}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("modes of %q = %+v, want %+v", row.chain, got, row.want)
			}
		})
	}
}

func TestTenantIsWhatEnvoyOrATrustedHeaderSays(t *testing.T) {
	for text, want := range map[string]Tenant{
		"": {},
		"tenant: {metadata: 'envoy.filters.http.jwt_authn:claims:org'}": {Metadata: []string{"envoy.filters.http.jwt_authn", "claims", "org"}},
		"tenant: {metadata: 'my.filter:tenant'}":                        {Metadata: []string{"my.filter", "tenant"}},
		"tenant: {header: X-Acme-Tenant, trusted_header: true}":         {Header: "x-acme-tenant"},
	} {
		if got := mustParse(t, text+oneTarget("", "")).Tenant; !reflect.DeepEqual(got, want) {
			t.Errorf("Tenant of %q = %+v, want %+v", text, got, want)
		}
	}
}

func TestJobsAreKeptForADayAndNotExposedUnlessSaid(t *testing.T) {
	const queued = `
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {bearer: env:KEY}}}
targets: {a/x: {provider: a, model: x}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x], degrade: [queue]}}
`
	for text, want := range map[string]Jobs{
		"":                     {Keep: 24 * time.Hour},
		"jobs:":                {Keep: 24 * time.Hour},
		"jobs: {expose: true}": {Expose: true, Keep: 24 * time.Hour},
		"jobs: {keep: 1s}":     {Keep: time.Second},
	} {
		if got := mustParse(t, text+queued).Jobs; got != want {
			t.Errorf("Jobs of %q = %+v, want %+v", text, got, want)
		}
	}
}
