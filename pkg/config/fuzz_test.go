package config

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzParse: whatever the bytes, Parse does not panic; it gives either faults that stand in the file, or a Config that
// the rest of the program can use without checks of its own.
func FuzzParse(f *testing.F) {
	var files []string
	for _, dir := range []string{"testdata/good/", "testdata/bad/"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range entries {
			files = append(files, dir+e.Name())
		}
	}
	for _, file := range files {
		if strings.Contains(file, "alias-bomb") { // slow on purpose: its variants would take all the time
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if filepath.IsAbs(patternIn(data)) { // a device could keep the reader for ever
			return
		}
		c, err := Parse("testdata/included/f", data)
		if err != nil {
			checkFaults(t, err)
			return
		}
		checkConfig(t, c)
	})
}

func checkFaults(t *testing.T, err error) {
	var faults Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("error %v holds no faults", err)
	}
	if !slices.IsSortedFunc(faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) }) || faults[0].Line < 1 {
		t.Errorf("faults are not sorted by line: %v", faults)
	}
}

func checkConfig(t *testing.T, c *Config) {
	for _, p := range c.Providers {
		if p.API == "" || p.Endpoint == nil || p.Endpoint.Hostname() == "" || credentials(p.Auth) != 1 || platformOf(p.Platform).apis == nil {
			t.Errorf("provider %+v is incomplete", p)
		}
	}
	for _, t0 := range c.Targets {
		b := t0.Breaker
		if b.Failures < 1 || b.OpenFor <= 0 || b.MaxOpenFor < b.OpenFor || b.Ramp.Interval <= 0 ||
			!(b.Ramp.Share > 0 && b.Ramp.Share <= 1) || b.Ratio != (Ratio{}) && !(b.Ratio.Share > 0 && b.Ratio.Share <= 1) ||
			t0.Probe.Model == "" || t0.Probe.MaxTokens < 1 {
			t.Errorf("target %+v is incomplete", t0)
		}
	}
	if s := c.Store; (s.Dir == "") == (len(s.URLs) == 0) || s.Replicas < 1 || s.Replicas > 5 {
		t.Errorf("store %+v is incomplete", s)
	}
	if c.Store.MaxCache <= 0 || c.Store.MaxJobs <= 0 || c.Jobs.Keep <= 0 {
		t.Errorf("store %+v or jobs %+v have no bound", c.Store, c.Jobs)
	}
	if len(c.Tenant.Metadata) == 1 || len(c.Tenant.Metadata) > 0 && c.Tenant.Header != "" {
		t.Errorf("tenant %+v is told by no one thing", c.Tenant)
	}
	if c.Recovery.Rate <= 0 || !(c.Recovery.RetryBudget >= 0 && c.Recovery.RetryBudget <= 1) {
		t.Errorf("recovery %+v is incomplete", c.Recovery)
	}
	for _, p := range c.Passthrough {
		if got, ok := c.Passthru(p.Path); !ok || got != p.Provider {
			t.Errorf("Passthru(%q) = %v, want %v", p.Path, got, p.Provider)
		}
	}
	for _, ch := range c.Chains {
		checkMoney(t, c, ch)
		if len(ch.Rungs) == 0 || ch.API == "" {
			t.Errorf("chain %+v is incomplete", ch)
		}
		for _, r := range ch.Rungs {
			if len(r.Members) == 0 || r.Members[0].Target != r.Target {
				t.Errorf("rung %+v of chain %s is incomplete", r, ch.Name)
			}
			for _, m := range r.Members {
				if m.Target == nil || m.Target.Provider.API != ch.API || !(m.Weight > 0) || m.Target.Family != r.Target.Family {
					t.Errorf("member %+v does not fit chain %s", m, ch.Name)
				}
			}
		}
		checkModes(t, c, ch)
		for _, m := range ch.Matches {
			for _, path := range ch.API.calls(m.Path) {
				if _, ok := c.Chain(path, "no such model", ""); !ok || c.Primary(path) == nil {
					t.Errorf("Chain(%q) has no default", path)
				}
			}
		}
	}
}

// credentials is how many a says to use.
func credentials(a Auth) int {
	n := 0
	for _, is := range []bool{a.FromClient, a.None, a.AWS != "", a.GCP != "", a.Entra != "", a.Header != ""} {
		if is {
			n++
		}
	}
	return n
}

func checkMoney(t *testing.T, c *Config, ch *Chain) {
	b, told := ch.Budget, c.Tenant.Header != "" || c.Tenant.Metadata != nil
	if w := ch.Idempotency; w != 0 && (w < time.Second || w > 24*time.Hour) {
		t.Errorf("chain %s knows keys for %s", ch.Name, w)
	}
	for _, t0 := range ch.targets() {
		p := t0.Price
		if b != (Budget{}) && !p.Known {
			t.Errorf("chain %s has a budget, and target %s no price", ch.Name, t0.Name)
		}
		for _, usd := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite, t0.MaxRamp} {
			if !(usd >= 0 && usd <= 10_000) {
				t.Errorf("price %+v or ramp %v of target %s is no amount", p, t0.MaxRamp, t0.Name)
			}
		}
		if ch.Idempotency > 0 && t0.Provider.Auth.FromClient && !told {
			t.Errorf("chain %s gives answers of %s to other accounts", ch.Name, t0.Name)
		}
	}
	if b == (Budget{}) {
		return
	}
	if !(b.USD > 0 && b.USD <= 1e9) || !(b.Soft >= 0 && b.Soft < 1) || b.Month != (b.Window == 0) ||
		!b.Month && (b.Window < time.Minute || b.Window > 744*time.Hour) || b.Tenant && !told ||
		!(b.MaxPremium == 0 || b.MaxPremium >= 1 && b.MaxPremium <= 1000) {
		t.Errorf("budget %+v of chain %s is incomplete", b, ch.Name)
	}
}

func checkModes(t *testing.T, c *Config, ch *Chain) {
	has := func(mode string) bool { return slices.Contains(ch.Degrade, mode) }
	if ch.Downshift < 0 || ch.Downshift >= len(ch.Rungs) || has("downshift") != (ch.Downshift > 0) {
		t.Errorf("chain %s of %d rungs has %q and its downshift from %d", ch.Name, len(ch.Rungs), ch.Degrade, ch.Downshift)
	}
	if ch.On.RateLimited == "queue" && !has("queue") || has("queue") && (ch.Queue.MaxAge <= 0 || ch.Queue.Message == "") {
		t.Errorf("queue %+v of chain %s is incomplete", ch.Queue, ch.Name)
	}
	if n := ch.Cache.Near; ch.Cache.TTL <= 0 || n != 0 && !(n >= 0.5 && n <= 1) {
		t.Errorf("cache %+v of chain %s is incomplete", ch.Cache, ch.Name)
	}
	if w := ch.Queue.Notify; w != nil && (w.URL == nil || w.URL.Host == "" || w.URL.User != nil || w.URL.Scheme != "https" && !w.Private || w.Secret.Ref() == "") {
		t.Errorf("webhook %+v of chain %s is incomplete", w, ch.Name)
	}
	if o := ch.Off; o.Message == "" || o.Answer != (o.Status == 200) || !o.Answer && (o.Status < 400 || o.Status > 599) {
		t.Errorf("off %+v of chain %s is incomplete", o, ch.Name)
	}
	for _, t0 := range ch.targets() {
		told := c.Tenant.Header != "" || c.Tenant.Metadata != nil
		if t0.Provider.Auth.FromClient && (has("queue") || has("cache") && !told) {
			t.Errorf("chain %s takes answers of %s out of their account", ch.Name, t0.Name)
		}
	}
}
