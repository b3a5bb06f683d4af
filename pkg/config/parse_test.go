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

func TestEveryKeyOfTheFileReachesTheConfig(t *testing.T) {
	t.Setenv("UNDERSTUDY_TEST_KEY", "sk-1\n")
	c, err := Load("testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	anthropic := &Provider{
		Name: "anthropic", API: Anthropic, Platform: Native, Cluster: "llm-anthropic",
		Endpoint: &url.URL{Scheme: "https", Host: "api.anthropic.com"},
		Auth:     Auth{Header: "x-api-key", Secret: secretOf(t, "env:UNDERSTUDY_TEST_KEY")},
		StatusFeed: &StatusFeed{
			"statuspage", &url.URL{Scheme: "https", Host: "status.claude.com", Path: "/api/v2/summary.json"}, "Claude API",
		},
	}
	openai := &Provider{
		Name: "openai", API: OpenAI, Platform: Native, TierCheck: true, Cluster: "openai-main", CA: "/etc/u/llm-ca.crt",
		Endpoint: &url.URL{Scheme: "https", Host: "llm.example.com:8443", Path: "/openai"},
		Auth:     Auth{Header: "authorization", Prefix: "Bearer ", Secret: secretOf(t, "file:/nowhere/key")}, SharedLimits: true,
		Shape: Shape{true, 4 * time.Second},
		StatusFeed: &StatusFeed{
			"incidentio", &url.URL{Scheme: "https", Host: "status.openai.com", Path: "/proxy/status.openai.com/"}, "",
		},
	}
	byo := &Provider{
		Name: "byo", API: OpenAI, Platform: Native, TierCheck: true, Cluster: "llm-byo",
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
	gemini := &Provider{
		Name: "gemini", API: Gemini, Platform: Native, TierCheck: true, Cluster: "llm-gemini",
		Endpoint: &url.URL{Scheme: "https", Host: "generativelanguage.googleapis.com"},
		Auth:     Auth{Header: "x-goog-api-key", Secret: secretOf(t, "file:/nowhere/key")}, SharedLimits: true,
	}
	bedrock := &Provider{
		Name: "bedrock", API: Anthropic, Platform: Bedrock, Surface: Messages, Region: "us-east-1", TierCheck: true,
		Cluster: "llm-bedrock", Endpoint: &url.URL{Scheme: "https", Host: "bedrock-runtime.us-east-1.amazonaws.com"},
		Auth: Auth{AWS: "profile:llm"}, SharedLimits: true,
	}
	vertex := &Provider{
		Name: "vertex", API: Gemini, Platform: Vertex, Region: "eu", Project: "acme-prod", TierCheck: true,
		Cluster: "llm-vertex", Endpoint: &url.URL{Scheme: "https", Host: "aiplatform.eu.rep.googleapis.com"},
		Auth: Auth{GCP: "file:/etc/u/vertex.json"}, SharedLimits: true,
	}
	azure := &Provider{
		Name: "azure", API: OpenAI, Platform: Azure, APIVersion: "2025-04-01-preview", TierCheck: true,
		Cluster: "llm-azure", Endpoint: &url.URL{Scheme: "https", Host: "acme.openai.azure.com"},
		Auth: Auth{Entra: "default"}, SharedLimits: true,
	}
	gateway := &Provider{
		Name: "gateway", API: OpenAI, Platform: Native, TierCheck: true, Cluster: "llm-gateway",
		Endpoint: &url.URL{Scheme: "http", Host: "127.0.0.1:4000"}, Auth: Auth{None: true}, SharedLimits: true,
	}
	target := func(name string, p *Provider, model, family string) *Target {
		return &Target{Name: name, Provider: p, Model: model, Family: family, Breaker: usual, Probe: Probe{model, 1}}
	}
	sonnet := target("anthropic/sonnet", anthropic, "claude-sonnet-5", "claude-sonnet-5")
	sonnet.Tier, sonnet.Speed = "standard_only", "fast"
	sonnet.Price = Price{true, 3, 15, 0.3, 3.75, map[string]float64{"fast": 6, "batch": 0.5}}
	sonnet.MaxRamp = 1.5
	aws := target("bedrock/sonnet", bedrock, "anthropic.claude-sonnet-5", "claude-sonnet-5")
	aws.Price = Price{Known: true, Input: 3.3, Output: 16.5, CacheRead: 3.3, CacheWrite: 3.3}
	haiku := target("anthropic/haiku", anthropic, "claude-haiku-4.5", "claude-haiku-4.5")
	haiku.Breaker = calm
	haiku.Price = Price{Known: true, Input: 1, Output: 5, CacheRead: 1, CacheWrite: 1}
	haiku.Limits = Limits{
		MaxOutput: 8192, Drop: []string{"temperature", "top_p"},
		Betas: map[string]string{"context-1m-2025-08-07": "", "a-2026-01-01": "a-2025-01-01"}, Lacks: []string{"thinking", "web_search"},
	}
	gpt := target("gpt-5.1", openai, "gpt-5.1", "five")
	gpt.Breaker, gpt.Probe = calm, Probe{"gpt-5.1-nano", 16}
	mirror := target("byo/gpt", byo, "mirror", "five")
	deployed := target("azure/gpt", azure, "gpt-5-deployment", "five")
	pro := target("gemini/pro", gemini, "gemini-3-pro", "gemini-3-pro")
	vertexPro := target("vertex/pro", vertex, "gemini-3-pro", "gemini-3-pro")
	vectors := target("openai/vectors", openai, "text-embedding-3-large", "text-embedding-3-large")
	sameVectors := target("gateway/vectors", gateway, "text-embedding-3-large", "text-embedding-3-large")
	policy := Chain{
		API: OpenAI, Commit: CommitFirstContent, Hold: Hold{1 << 20, time.Minute},
		Deadlines: Deadlines{30 * time.Second, 120 * time.Second, 30 * time.Second, 300 * time.Second},
		Retry:     Retry{0, []string{"server_error", "transport"}, 0.1, 0},
		On: On{
			Capacity: "standard", RateLimited: "next", MaxWait: 3 * time.Second,
			Refusal: "return", Filtered: "return", TierDowngrade: "observe", ContextLength: "larger",
		},
		Cache: Cache{TTL: 24 * time.Hour},
		Queue: Queue{
			MaxAge:  24 * time.Hour,
			Message: "The service is temporarily unavailable. The request is queued and will be answered later.",
		},
		Off: Off{Status: 503, Message: "The service is temporarily unavailable."},
	}
	one := func(t *Target) Rung { return Rung{Target: t, Members: []Member{{t, 1}}} }
	larger := one(haiku)
	larger.Larger = true
	alpha, nightly, google, embed := policy, policy, policy, policy
	alpha.Name, alpha.Matches, alpha.Rungs = "alpha", []Match{{Path: "/v1/chat/completions"}}, []Rung{one(gpt), one(mirror)}
	alpha.Degrade = []string{"cache"}
	nightly.Name, nightly.SelectHeader, nightly.Rungs = "nightly", true, []Rung{{Target: gpt, Members: []Member{{gpt, 3}, {deployed, 0.5}}}}
	nightly.On.RateLimited, nightly.Degrade = "queue", []string{"queue", "off"}
	nightly.Off.Status, nightly.Off.Answer = 200, true
	google.Name, google.API, google.SelectHeader = "google", Gemini, true
	google.Matches, google.Default = []Match{{"/v1beta/models", "gemini-*"}}, true
	google.Rungs = []Rung{{Target: pro, Members: []Member{{pro, 1}, {vertexPro, 1}}}}
	embed.Name, embed.Endpoint, embed.Matches = "embed", "/v1/embeddings", []Match{{Path: "/v1/embeddings"}}
	embed.Rungs, embed.Degrade = []Rung{one(vectors), one(sameVectors)}, []string{"off"}
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
			AdminTLS: &ServerTLS{
				Cert: "/etc/u/admin.crt", Key: "/etc/u/admin.key", ClientCA: "/etc/u/admin-ca.crt", ClientNames: []string{"prometheus.mesh"},
			},
			SocketMode: 0o660,
			MaxBody:    4 << 20, MaxInflightBody: 64 << 20, Drain: 5 * time.Second,
			AdminToken: secretOf(t, "file:/nowhere/token"),
			AdminNames: []string{"status.example.com"},
		},
		Envoy: Envoy{
			Listen: Address{"tcp", "0.0.0.0:8080"}, Admin: Address{"tcp", "127.0.0.1:8081"},
			Gateway: &url.URL{Scheme: "http", Host: "front.mesh:8080"}, FailOpen: true,
			Services: []Address{{"tcp", "u1.mesh:7002"}, {"tcp", "u2.mesh:7002"}},
			TLS:      &ClientTLS{"/etc/e/tls.crt", "/etc/e/tls.key", "/etc/e/ca.crt", "understudy.mesh", "/etc/e/sds"},
			CAFile:   "/etc/ssl/cert.pem", XDS: true,
		},
		Providers: map[string]*Provider{
			"anthropic": anthropic, "openai": openai, "byo": byo, "gemini": gemini, "bedrock": bedrock, "vertex": vertex,
			"azure": azure, "gateway": gateway,
		},
		Passthrough: []Passthrough{{"/v1/models", openai}, {"/v1", byo}},
		Targets: map[string]*Target{
			"anthropic/sonnet": sonnet, "bedrock/sonnet": aws, "anthropic/haiku": haiku, "gpt-5.1": gpt, "byo/gpt": mirror,
			"azure/gpt": deployed, "gemini/pro": pro, "vertex/pro": vertexPro, "openai/vectors": vectors, "gateway/vectors": sameVectors,
		},
		Chains: []*Chain{{
			Name: "zeta", API: Anthropic, Default: true,
			Matches:   []Match{{"/v1/messages", "claude-sonnet-*"}, {"/team/v1/messages", ""}},
			Rungs:     []Rung{one(sonnet), one(aws), larger},
			Commit:    CommitComplete,
			Hold:      Hold{2 << 20, 50 * time.Second},
			Deadlines: Deadlines{11 * time.Second, 12 * time.Second, 13 * time.Second, 14 * time.Second},
			Retry:     Retry{1, []string{"overloaded"}, 0.25, 2},
			On:        On{"next", "wait", 2 * time.Second, "next", "next", "next", "return"},
			Sticky:    Sticky{10 * time.Minute, "x-conversation-id"},
			Downshift: 2,
			Degrade:   []string{"queue", "off", "downshift", "cache"},
			Cache:     Cache{time.Hour, 0.75, true},
			Queue: Queue{2 * time.Hour, "Wait.", &Webhook{
				URL: &url.URL{
					Scheme: "http", Host: "hooks.mesh:8080", Path: "/llm///", RawPath: "/llm//%2F", RawQuery: "team=a",
				},
				Secret: secretOf(t, "file:testdata/keys/whsec"), Private: true,
			}},
			Off:         Off{Status: 500, Message: "Later.", Force: true},
			MinRate:     MinRate{1 << 10, 9 * time.Second},
			Budget:      Budget{USD: 50.5, Soft: 0.8, Window: 90 * time.Minute, Tenant: true, MaxPremium: 3},
			Idempotency: 10 * time.Minute,
			Observe:     true,
		}, &alpha, &nightly, &google, &embed},
		MaxRetryAfter: 30 * time.Second,
		Store: Store{
			URLs:  []string{"nats://n1.mesh:4222", "tls://n2.mesh:4222"},
			Creds: "/etc/u/nats.creds", Replicas: 3,
			Encrypt: secretOf(t, "file:testdata/keys/good"), MaxCache: 1 << 20, MaxJobs: 2 << 20,
		},
		Recovery: Recovery{Floor: 2, RetryBudget: 0.05, Rate: 0.5, Jitter: 0.5, ProbeTokens: 5000},
		Jobs:     Jobs{Expose: true, Keep: time.Hour},
		Tenant:   Tenant{Header: "x-tenant"},
		Drill:    Drill{Listen: Address{"tcp", "0.0.0.0:7005"}, Services: []Address{{"tcp", "u1.mesh:7005"}, {"tcp", "u2.mesh:7005"}}},
		Tracing:  Tracing{OTLP: &url.URL{Scheme: "http", Host: "otel.mesh:4318", Path: "/team/"}, Share: 0.25},
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
