package drill_test

import (
	"strings"
	"testing"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/drill"
)

const yaml = `
drill: {listen: "127.0.0.1:9005"}
providers:
  a: {api: anthropic, endpoint: "https://a.example", auth: {header: x-api-key, secret: "env:KEY"}}
  b: {api: anthropic, platform: bedrock, region: us-east-1, auth: {aws: default}}
targets:
  a/x: {provider: a, model: x}
  b/x: {provider: b, model: x}
  b/y: {provider: b, model: y, model_family: x}
chains:
  chat: {match: [{path: /v1/messages}], targets: [a/x, {any: [b/x, b/y]}]}
  fast: {select: header, commit: headers, targets: [a/x]}
  seen: {select: header, mode: observe, targets: [a/x]}
  short: {select: header, hold: {time: 5s}, targets: [a/x]}
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestWhichPlansCanBegin(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	good := func() *drill.Plan {
		return &drill.Plan{Chain: "chat", Faults: map[string]string{"a/x": "overloaded"}, Until: now.Add(time.Minute)}
	}
	for name, row := range map[string]struct {
		edit func(*drill.Plan)
		want string // in the error; "" is none
	}{
		"a marked one":                                 {func(*drill.Plan) {}, ""},
		"one for clients":                              {func(p *drill.Plan) { p.Share = 1 }, ""},
		"a member of a shared rung":                    {func(p *drill.Plan) { p.Faults = map[string]string{"b/y": "cut"} }, ""},
		"all targets":                                  {func(p *drill.Plan) { p.Faults = map[string]string{"*": "reset"} }, ""},
		"none of them":                                 {func(p *drill.Plan) { p.Faults = map[string]string{"*": ""} }, ""},
		"no fault at all":                              {func(p *drill.Plan) { p.Faults = nil }, "say at least which fault"},
		"a fault that does not exist":                  {func(p *drill.Plan) { p.Faults["a/x"] = "flood" }, `no fault is named "flood"; there are overloaded, `},
		"a target of another chain":                    {func(p *drill.Plan) { p.Chain = "fast"; p.Faults = map[string]string{"b/x": "reset"} }, `has no target "b/x"`},
		"a chain that does not exist":                  {func(p *drill.Plan) { p.Chain = "chap" }, `no chain is named "chap"`},
		"a chain that only observes":                   {func(p *drill.Plan) { p.Chain = "seen" }, "only observes"},
		"one for ever":                                 {func(p *drill.Plan) { p.Until = now.Add(drill.Longest + 1) }, "ends within 1h0m0s"},
		"one that is over":                             {func(p *drill.Plan) { p.Until = now }, "ends within 1h0m0s"},
		"a share of more than all":                     {func(p *drill.Plan) { p.Share = 1.1 }, "between 0 and 1"},
		"errors of less than none":                     {func(p *drill.Plan) { p.MaxErrors = -1 }, "between 0 and 1"},
		"clients who would take a refusal for a model": {func(p *drill.Plan) { p.Share, p.Faults["a/x"] = 0.1, "refusal" }, "marked requests only"},
		"clients who would get half an answer":         {func(p *drill.Plan) { p.Share, p.Faults["a/x"] = 0.1, "cut" }, "marked requests only"},
		"a fault that goes on when its chain holds no longer": {func(p *drill.Plan) {
			p.Share, p.Chain, p.Faults = 0.1, "short", map[string]string{"*": "slow_first_token"}
		}, "after hold.time"},
		"the same for marked requests": {func(p *drill.Plan) {
			p.Chain, p.Faults = "short", map[string]string{"*": "slow_first_token"}
		}, ""},
		"a hanging fault, of which nothing can leave": {func(p *drill.Plan) {
			p.Share, p.Chain, p.Faults = 0.1, "short", map[string]string{"*": "hang"}
		}, ""},
		"a slow fault that its chain outlasts":       {func(p *drill.Plan) { p.Share, p.Faults = 0.1, map[string]string{"*": "slow_first_token"} }, ""},
		"clients of a chain that holds nothing back": {func(p *drill.Plan) { p.Share, p.Chain = 0.1, "fast" }, "commit: headers"},
	} {
		t.Run(name, func(t *testing.T) {
			p := good()
			row.edit(p)
			err := p.Check(parse(t, yaml), now)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("Check(%+v) = %v, want %q", p, err, row.want)
			}
		})
	}
	closed := strings.Replace(yaml, "drill:", "#", 1)
	if err := good().Check(parse(t, closed), now); err == nil || !strings.Contains(err.Error(), "no drill.listen") {
		t.Errorf("Check() without drill.listen = %v, want an error about it", err)
	}
}

func TestAnAttemptMeetsTheFaultOfItsTargetWhileThePlanLasts(t *testing.T) {
	now := time.Unix(1_000_000, 0) // a flapping provider is down then
	p := &drill.Plan{Until: now.Add(time.Minute), Faults: map[string]string{"a": "cut", "b": "", "c": "flapping", "*": "reset"}}
	for _, row := range []struct {
		name, target string
		streamed     bool
		at           time.Duration
		want         string
	}{
		{"its own", "a", true, 0, "cut"},
		{"one that only a stream shows", "a", false, 0, ""},
		{"none, as it is named", "b", true, 0, ""},
		{"that of all others", "d", false, 0, "reset"},
		{"down", "c", false, 0, "flapping"},
		{"and up again", "c", false, drill.FlapPeriod, ""},
		{"and down", "c", false, 2 * drill.FlapPeriod, "flapping"},
		{"at the end", "d", false, time.Minute - 1, "reset"},
		{"after the end", "d", false, time.Minute, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := p.Fault(row.target, row.streamed, now.Add(row.at)); got != row.want {
				t.Errorf("Fault(%s, %t, %s later) = %q, want %q", row.target, row.streamed, row.at, got, row.want)
			}
		})
	}
}

func TestAPlanIsReadFromItsName(t *testing.T) {
	p := &drill.Plan{ID: "x", Chain: "chat;a", Faults: map[string]string{"*": "hang"}, Until: time.Unix(5, 0).UTC()}
	name, err := p.Name()
	if err != nil {
		t.Fatal(err)
	}
	got, err := drill.OfName(name)
	if err != nil || got.Chain != p.Chain || got.Faults["*"] != "hang" || !got.Until.Equal(p.Until) || got.ID != "x" {
		t.Errorf("OfName(%q) = %+v, %v, want %+v", name, got, err, p)
	}
	if strings.ContainsAny(name, ";\n ") {
		t.Errorf("Name() = %q, want nothing that a token is cut at", name)
	}
	for _, broken := range []string{"", "!", "e30x", "W10"} {
		if p, err := drill.OfName(broken); err == nil {
			t.Errorf("OfName(%q) = %+v, want an error", broken, p)
		}
	}
}

func TestAPlayedTargetHasNothingOfTheRealOnesPlaceAndCredential(t *testing.T) {
	cfg := parse(t, yaml)
	real := cfg.Targets["b/x"]
	got := drill.Instead(real, "hang")
	if got.Name != "b/x" || got.Model != "x" || real.Provider.Platform != config.Bedrock {
		t.Errorf("Instead(b/x) = %+v, from %+v, want the target itself, and the real one unchanged", got, real)
	}
	p := got.Provider
	if p.Platform != config.Native || p.Auth != (config.Auth{None: true}) || p.Cluster != config.DrillCluster || p.API != config.Anthropic {
		t.Errorf("Instead(b/x).Provider = %+v, want the dialect's own platform without a credential", p)
	}
}

func TestEveryFaultHasANameOfItsOwnAndAClass(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range drill.Faults() {
		got, ok := drill.Named(f.Name)
		if seen[f.Name] || !ok || got != f || f.Means == "" || f.Class == classify.None {
			t.Errorf("fault %+v is there twice, or cannot be named, or says nothing", f)
		}
		seen[f.Name] = true
	}
}

// The replica that has made a plan may have a clock that is ahead of all others.
func TestNoReplicaGoesOnLongerThanAPlanLasts(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, row := range []struct {
		name               string
		until, lasts, want time.Duration // from now
	}{
		{"clocks that agree", time.Minute, time.Minute, time.Minute},
		{"heard late", time.Second, time.Minute, time.Second},
		{"a clock that is half an hour ahead", 31 * time.Minute, time.Minute, time.Minute},
		{"a clock that is a day ahead, and a plan that does not say", 24 * time.Hour, 0, drill.Longest},
		{"a plan that says too much", 24 * time.Hour, 20 * time.Hour, drill.Longest},
		{"a clock that is behind", -time.Minute, time.Hour, -time.Minute},
	} {
		p := &drill.Plan{Until: now.Add(row.until), Lasts: row.lasts}
		if got := p.Heard(now).Until.Sub(now); got != row.want {
			t.Errorf("%s: Heard() ends after %s, want %s", row.name, got, row.want)
		}
		if p.Until.Sub(now) != row.until {
			t.Errorf("%s: Heard() has changed the plan", row.name)
		}
	}
}
