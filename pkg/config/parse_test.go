package config

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each file of testdata/bad begins with what is wrong with it: "# want: LINE: path: message", one line a fault.
func TestEveryFaultOfABadFileIsToldWithItsLine(t *testing.T) {
	for _, file := range glob(t, "testdata/bad/*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(data)) {
				if w, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, "f:"+strings.TrimSuffix(w, "\n"))
				}
			}
			_, err = Parse("f", data)
			var faults Faults
			if !errors.As(err, &faults) || faults.Error() != strings.Join(want, "\n") {
				t.Errorf("Parse(%s) =\n%v\nwant\n%s", file, err, strings.Join(want, "\n"))
			}
		})
	}
}

func TestNothingOfASecretInAWrongPlaceIsRepeated(t *testing.T) {
	for _, file := range glob(t, "testdata/bad/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(file, data)
		for _, secret := range []string{"sk-live-123", "hunter2"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("Parse(%s) repeats %s: %v", file, secret, err)
			}
		}
	}
}

func TestGoodFilesHaveNoFault(t *testing.T) {
	for _, file := range glob(t, "testdata/good/*.yaml") {
		if _, err := Load(file); err != nil {
			t.Errorf("Load(%s): %v", file, err)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob(%s) = %v, %v", pattern, files, err)
	}
	return files
}

// The file shows everything that is planned: what is not built must be refused by name, never by accident.
func TestPlannedFileIsRefusedOnlyForWhatIsNotSupportedYet(t *testing.T) {
	_, err := Load("testdata/planned.yaml")
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("Load = %v, want faults", err)
	}
	var got []string
	for _, f := range faults {
		if !strings.Contains(f.Msg, "not supported yet") {
			t.Errorf("unexpected fault: %v", f)
		}
		got = append(got, f.Path)
	}
	want := []string{
		"providers.bedrock.platform", "providers.bedrock.region", "providers.bedrock.auth.aws",
		"providers.vertex.platform", "providers.vertex.project", "providers.vertex.region", "providers.vertex.auth.gcp",
		"providers.azure.platform",
		"targets.anthropic/sonnet.service_tier", "targets.anthropic/sonnet.price",
		"targets.bedrock/sonnet.price", "targets.anthropic/haiku.price",
		"chains.support-chat.budget", "chains.support-chat.idempotency",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Load refuses %q, want %q", got, want)
	}
}

func TestEveryKeyOfTheFileReachesTheConfig(t *testing.T) {
	t.Setenv("UNDERSTUDY_TEST_KEY", "sk-1\n")
	c, err := Load("testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	anthropic := &Provider{
		Name: "anthropic", API: Anthropic, Cluster: "llm-anthropic",
		Endpoint: &url.URL{Scheme: "https", Host: "api.anthropic.com"},
		Auth:     Auth{Header: "x-api-key", Secret: secretOf(t, "env:UNDERSTUDY_TEST_KEY")},
		StatusFeed: &StatusFeed{
			"statuspage", &url.URL{Scheme: "https", Host: "status.claude.com", Path: "/api/v2/summary.json"}, "Claude API",
		},
	}
	openai := &Provider{
		Name: "openai", API: OpenAI, TierCheck: true, Cluster: "openai-main", CA: "/etc/u/llm-ca.crt",
		Endpoint: &url.URL{Scheme: "https", Host: "llm.example.com:8443", Path: "/openai"},
		Auth:     Auth{Header: "authorization", Prefix: "Bearer ", Secret: secretOf(t, "file:/nowhere/key")}, SharedLimits: true,
		StatusFeed: &StatusFeed{
			"incidentio", &url.URL{Scheme: "https", Host: "status.openai.com", Path: "/proxy/status.openai.com/"}, "",
		},
	}
	byo := &Provider{
		Name: "byo", API: OpenAI, TierCheck: true, Cluster: "llm-byo",
		Endpoint: &url.URL{Scheme: "http", Host: "10.0.0.7:8000"},
		Auth:     Auth{FromClient: true}, SharedLimits: true,
	}
	usual := Breaker{
		Failures: 5, OpenFor: time.Minute, MaxOpenFor: 10 * time.Minute, Ramp: Ramp{10 * time.Second, 0.1},
	}
	calm := Breaker{
		Failures: 9, Ratio: Ratio{0.5, 2 * time.Minute, 30}, OpenFor: 90 * time.Second, MaxOpenFor: 20 * time.Minute,
		Probe: true, Ramp: Ramp{5 * time.Second, 0.25},
	}
	sonnet := &Target{"anthropic/sonnet", anthropic, "claude-sonnet-5", "claude-sonnet-5", usual, Probe{"claude-sonnet-5", 1}}
	haiku := &Target{"anthropic/haiku", anthropic, "claude-haiku-4.5", "claude-haiku-4.5", calm, Probe{"claude-haiku-4.5", 1}}
	gpt := &Target{"gpt-5.1", openai, "gpt-5.1", "five", calm, Probe{"gpt-5.1-nano", 16}}
	mirror := &Target{"byo/gpt", byo, "mirror", "five", usual, Probe{"mirror", 1}}
	policy := Chain{
		API: OpenAI, Commit: CommitFirstContent, Hold: Hold{1 << 20, time.Minute},
		Deadlines: Deadlines{30 * time.Second, 120 * time.Second, 30 * time.Second, 300 * time.Second},
		Retry:     Retry{0, []string{"server_error", "transport"}, 0.1},
		On:        On{"next", 3 * time.Second, "return", "return", "observe", "larger"},
		Cache:     Cache{TTL: 24 * time.Hour},
		Queue: Queue{
			MaxAge:  24 * time.Hour,
			Message: "The service is temporarily unavailable. The request is queued and will be answered later.",
		},
		Off: Off{Status: 503, Message: "The service is temporarily unavailable."},
	}
	alpha, nightly := policy, policy
	alpha.Name, alpha.Matches, alpha.Rungs = "alpha", []Match{{Path: "/v1/chat/completions"}}, []Rung{{Target: gpt}, {Target: mirror}}
	alpha.Degrade = []string{"cache"}
	nightly.Name, nightly.SelectHeader, nightly.Rungs = "nightly", true, []Rung{{Target: gpt}}
	nightly.On.RateLimited, nightly.Degrade = "queue", []string{"queue", "off"}
	nightly.Off.Status, nightly.Off.Answer = 200, true
	want := &Config{
		File: "testdata/good/full.yaml", Hash: c.Hash, refs: []string{
			"env:UNDERSTUDY_TEST_KEY", "file:/nowhere/key", "file:/nowhere/token", "file:testdata/keys/good", "file:testdata/keys/whsec",
		},
		Server: Server{
			GRPC:  Address{"tcp", "0.0.0.0:7002"},
			Admin: Address{"unix", "/run/understudy-admin.sock"},
			TLS: &ServerTLS{
				Cert: "/etc/u/tls.crt", Key: "/etc/u/tls.key", ClientCA: "/etc/u/ca.crt", ClientNames: []string{"envoy.mesh"},
			},
			MaxBody: 4 << 20, MaxInflightBody: 64 << 20, Drain: 5 * time.Second,
			AdminToken: secretOf(t, "file:/nowhere/token"),
		},
		Envoy: Envoy{
			Listen: Address{"tcp", "0.0.0.0:8080"}, Admin: Address{"tcp", "127.0.0.1:8081"},
			Gateway: &url.URL{Scheme: "http", Host: "front.mesh:8080"}, FailOpen: true,
			Services: []Address{{"tcp", "u1.mesh:7002"}, {"tcp", "u2.mesh:7002"}},
			TLS:      &ClientTLS{"/etc/e/tls.crt", "/etc/e/tls.key", "/etc/e/ca.crt", "understudy.mesh"},
			CAFile:   "/etc/ssl/cert.pem",
		},
		Providers:   map[string]*Provider{"anthropic": anthropic, "openai": openai, "byo": byo},
		Passthrough: []Passthrough{{"/v1/models", openai}, {"/v1", byo}},
		Targets:     map[string]*Target{"anthropic/sonnet": sonnet, "anthropic/haiku": haiku, "gpt-5.1": gpt, "byo/gpt": mirror},
		Chains: []*Chain{{
			Name: "zeta", API: Anthropic, Default: true,
			Matches:   []Match{{"/v1/messages", "claude-sonnet-*"}, {"/team/v1/messages", ""}},
			Rungs:     []Rung{{Target: sonnet}, {Target: haiku, Larger: true}},
			Commit:    CommitComplete,
			Hold:      Hold{2 << 20, 50 * time.Second},
			Deadlines: Deadlines{11 * time.Second, 12 * time.Second, 13 * time.Second, 14 * time.Second},
			Retry:     Retry{1, []string{"overloaded"}, 0.25},
			On:        On{"wait", 2 * time.Second, "next", "next", "next", "return"},
			Downshift: 1,
			Degrade:   []string{"queue", "off", "downshift", "cache"},
			Cache:     Cache{time.Hour, 0.75, true},
			Queue: Queue{2 * time.Hour, "Wait.", &Webhook{
				URL: &url.URL{
					Scheme: "http", Host: "hooks.mesh:8080", Path: "/llm///", RawPath: "/llm//%2F", RawQuery: "team=a",
				},
				Secret: secretOf(t, "file:testdata/keys/whsec"), Private: true,
			}},
			Off:     Off{Status: 500, Message: "Later.", Force: true},
			MinRate: MinRate{1 << 10, 9 * time.Second},
			Observe: true,
		}, &alpha, &nightly},
		MaxRetryAfter: 30 * time.Second,
		Store: Store{
			URLs:  []string{"nats://n1.mesh:4222", "tls://n2.mesh:4222"},
			Creds: "/etc/u/nats.creds", Replicas: 3,
			Encrypt: secretOf(t, "file:testdata/keys/good"), MaxCache: 1 << 20, MaxJobs: 2 << 20,
		},
		Recovery: Recovery{Floor: 2, RetryBudget: 0.05, Rate: 0.5, Jitter: 0.5, ProbeTokens: 5000},
		Jobs:     Jobs{Expose: true, Keep: time.Hour},
		Tenant:   Tenant{Header: "x-tenant"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("Load(full.yaml) =\n%+v\nwant\n%+v", c, want)
		diffFields(t, "", reflect.ValueOf(*c), reflect.ValueOf(*want))
	}
}

// diffFields names the fields that differ, two levels deep.
func diffFields(t *testing.T, path string, got, want reflect.Value) {
	t.Helper()
	for i := range got.NumField() {
		name := path + "." + got.Type().Field(i).Name
		if !got.Field(i).CanInterface() || reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			continue
		}
		if got.Field(i).Kind() == reflect.Struct {
			diffFields(t, name, got.Field(i), want.Field(i))
			continue
		}
		t.Errorf("%s = %+v, want %+v", name, got.Field(i), want.Field(i))
	}
}

func TestTargetWithoutFamilyBelongsToItsModels(t *testing.T) {
	c := mustParse(t, manyChains)
	if got, want := c.Targets["a/x"].Family, "x"; got != want {
		t.Errorf("Family = %q, want %q", got, want)
	}
}

func TestGatewayAndServicesFollowTheListeners(t *testing.T) {
	for _, row := range []struct{ name, text, gateway, service string }{
		{"nothing is said", "", "http://127.0.0.1:10000", "127.0.0.1:9002"},
		{"every IPv4 address", "server: {grpc: '0.0.0.0:1', insecure: true}\nenvoy: {listen: '0.0.0.0:2'}", "http://127.0.0.1:2", "127.0.0.1:1"},
		{"every address", "server: {grpc: ':1', insecure: true}\nenvoy: {listen: '[::]:2'}", "http://[::1]:2", "127.0.0.1:1"},
		{"one address", "server: {grpc: '10.1.2.3:1', insecure: true}\nenvoy: {listen: '10.1.2.3:2'}", "http://10.1.2.3:2", "10.1.2.3:1"},
		{"a socket", "server: {grpc: 'unix:///run/u.sock'}", "http://127.0.0.1:10000", "unix:///run/u.sock"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := mustParse(t, row.text+"\n"+manyChains)
			if got := c.Envoy.Gateway.String(); got != row.gateway {
				t.Errorf("Gateway = %s, want %s", got, row.gateway)
			}
			if got := c.Envoy.Services[0].String(); len(c.Envoy.Services) != 1 || got != row.service {
				t.Errorf("Services = %v, want %s", c.Envoy.Services, row.service)
			}
		})
	}
}

func TestAddressIsLocal(t *testing.T) {
	for addr, want := range map[Address]bool{
		{"tcp", "127.0.0.1:1"}:          true,
		{"tcp", "127.8.8.8:1"}:          true,
		{"tcp", "localhost:1"}:          true,
		{"tcp", "[::1]:1"}:              true,
		{"tcp", "[::ffff:127.0.0.1]:1"}: true,
		{"unix", "/run/x"}:              true,
		{"tcp", ":1"}:                   false,
		{"tcp", "0.0.0.0:1"}:            false,
		{"tcp", "[::]:1"}:               false,
		{"tcp", "10.0.0.1:1"}:           false,
		{"tcp", "localhost.evil:1"}:     false,
	} {
		if got := addr.Local(); got != want {
			t.Errorf("%s.Local() = %t, want %t", addr, got, want)
		}
	}
}

func TestAFileThatIsNotThereIsNoFault(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if faults := (Faults)(nil); !errors.Is(err, os.ErrNotExist) || errors.As(err, &faults) {
		t.Errorf("Load(none.yaml) = %v, want ErrNotExist", err)
	}
}

func TestAFileTooLargeIsRefusedUnread(t *testing.T) {
	_, err := Parse("f", slices.Repeat([]byte("# a comment\n"), maxFile/12+1))
	if want := "f:1: larger than 4194304 bytes"; err == nil || err.Error() != want {
		t.Errorf("Parse(5 MiB) = %v, want %s", err, want)
	}
}

func TestAFaultCanBeTakenOutOfTheError(t *testing.T) {
	_, err := Parse("f", nil)
	var f Fault
	if !errors.As(err, &f) || f.File != "f" || f.Line != 1 || f.Path != "chains" {
		t.Errorf("errors.As(%v) = %+v, want f:1: chains", err, f)
	}
}
