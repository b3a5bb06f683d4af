//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// file is the config file, written out here a second time on purpose: its keys are a promise to users.
type file struct {
	Server      fileServer              `yaml:"server"`
	Envoy       fileEnvoy               `yaml:"envoy"`
	Store       fileStore               `yaml:"store"`
	Providers   map[string]fileProvider `yaml:"providers"`
	Passthrough []filePassthrough       `yaml:"passthrough,omitempty"`
	Targets     map[string]fileTarget   `yaml:"targets"`
	Chains      yaml.Node               `yaml:"chains"` // in order: the first match wins
	Jobs        map[string]any          `yaml:"jobs,omitempty"`
	Drill       map[string]any          `yaml:"drill,omitempty"`
	Tracing     map[string]any          `yaml:"tracing,omitempty"`
	Tenant      map[string]any          `yaml:"tenant,omitempty"`
	Recovery    map[string]any          `yaml:"recovery,omitempty"`
}

type fileServer struct {
	GRPC    string        `yaml:"grpc"`
	Admin   string        `yaml:"admin"`
	MaxBody string        `yaml:"max_body,omitempty"`
	Drain   time.Duration `yaml:"drain,omitempty"`

	TLS map[string]string `yaml:"tls,omitempty"`
}

type fileEnvoy struct {
	Listen          string   `yaml:"listen"`
	Admin           string   `yaml:"admin"`
	WhenServiceDown string   `yaml:"when_service_down,omitempty"`
	Services        []string `yaml:"services,omitempty"`
	CAFile          string   `yaml:"ca_file,omitempty"`
	XDS             bool     `yaml:"xds,omitempty"`

	TLS map[string]string `yaml:"tls,omitempty"`
}

// fileStore is one of the two.
type fileStore struct {
	Embedded *fileEmbedded `yaml:"embedded,omitempty"`
	NATS     *fileNATS     `yaml:"nats,omitempty"`
	Encrypt  string        `yaml:"encrypt,omitempty"`
	MaxCache string        `yaml:"max_cache,omitempty"`
	MaxJobs  string        `yaml:"max_jobs,omitempty"`
}

type fileEmbedded struct {
	Dir string `yaml:"dir"`
}

type fileNATS struct {
	URLs     []string `yaml:"urls"`
	Replicas int      `yaml:"replicas"`
}

type fileProvider struct {
	API        string         `yaml:"api"`
	Platform   string         `yaml:"platform,omitempty"`
	Surface    string         `yaml:"surface,omitempty"`
	Region     string         `yaml:"region,omitempty"`
	Project    string         `yaml:"project,omitempty"`
	APIVersion string         `yaml:"api_version,omitempty"`
	Endpoint   string         `yaml:"endpoint"`
	Insecure   bool           `yaml:"insecure,omitempty"`
	CA         string         `yaml:"ca,omitempty"`
	Auth       map[string]any `yaml:"auth"`
	RateLimits string         `yaml:"rate_limits,omitempty"`
	Shape      map[string]any `yaml:"shape,omitempty"`
}

type filePassthrough struct {
	Path     string `yaml:"path"`
	Provider string `yaml:"provider"`
}

type fileTarget struct {
	Provider string         `yaml:"provider"`
	Model    string         `yaml:"model"`
	Family   string         `yaml:"model_family"`
	Tier     string         `yaml:"service_tier,omitempty"`
	Breaker  fileBreaker    `yaml:"breaker,omitempty"`
	Probe    *fileProbe     `yaml:"probe,omitempty"`
	Price    *filePrice     `yaml:"price,omitempty"`
	Limits   map[string]any `yaml:"limits,omitempty"`
	MaxRamp  float64        `yaml:"max_ramp,omitempty"`
}

// filePrice is in USD for a million tokens.
type filePrice struct {
	Input      float64            `yaml:"input"`
	Output     float64            `yaml:"output"`
	CacheRead  float64            `yaml:"cache_read"`
	CacheWrite float64            `yaml:"cache_write"`
	Tiers      map[string]float64 `yaml:"tiers,omitempty"`
}

type fileBreaker struct {
	Failures   int           `yaml:"failures,omitempty"`
	OpenFor    time.Duration `yaml:"open_for,omitempty"`
	MaxOpenFor time.Duration `yaml:"max_open_for,omitempty"`
	HalfOpen   string        `yaml:"half_open,omitempty"`
	Ramp       fileRamp      `yaml:"ramp,omitempty"`
}

type fileRamp struct {
	Interval time.Duration `yaml:"interval"`
	Share    float64       `yaml:"share"`
}

type fileProbe struct {
	Model string `yaml:"model"`
}

// atOnce is a ramp that lets all traffic through after a breaker has closed: that of every chain without its own.
var atOnce = fileRamp{Interval: 10 * time.Second, Share: 1}

type fileChain struct {
	Mode      string            `yaml:"mode,omitempty"`
	Select    string            `yaml:"select,omitempty"`
	Match     []fileMatch       `yaml:"match,omitempty"`
	Targets   []any             `yaml:"targets"` // names, or rungs
	Commit    string            `yaml:"commit,omitempty"`
	Hold      map[string]string `yaml:"hold,omitempty"`
	Deadlines fileDeadlines     `yaml:"deadlines,omitempty"`
	Retry     fileRetry         `yaml:"retry,omitempty"`
	On        map[string]string `yaml:"on,omitempty"`
	Degrade   []string          `yaml:"degrade,omitempty"`
	Off       *fileOff          `yaml:"off,omitempty"`
	From      string            `yaml:"downshift_from,omitempty"`
	Cache     map[string]any    `yaml:"cache,omitempty"`
	Queue     map[string]any    `yaml:"queue,omitempty"`
	Budget    map[string]any    `yaml:"budget,omitempty"`
	Once      map[string]any    `yaml:"idempotency,omitempty"`
	Sticky    map[string]any    `yaml:"sticky,omitempty"`
}

type fileMatch struct {
	Path  string `yaml:"path"`
	Model string `yaml:"model,omitempty"`
}

type fileDeadlines struct {
	FirstContent time.Duration `yaml:"first_content,omitempty"`
	Answer       time.Duration `yaml:"answer,omitempty"`
	Idle         time.Duration `yaml:"idle,omitempty"`
	Total        time.Duration `yaml:"total,omitempty"`
}

type fileRetry struct {
	SameTarget int      `yaml:"same_target,omitempty"`
	On         []string `yaml:"on,omitempty"`
	Client     int      `yaml:"client,omitempty"`
	Budget     float64  `yaml:"budget,omitempty"`
}

type fileOff struct {
	Status  int    `yaml:"status,omitempty"`
	Message string `yaml:"message,omitempty"`
	As      string `yaml:"as,omitempty"`
	Force   bool   `yaml:"force,omitempty"`
}

// chain is a chain of a test's own, picked by x-llm-chain, so that a breaker that one test opens is no other's.
type chain struct {
	name    string
	api     string   // "anthropic" or "openai"
	on      []string // the providers of its rungs: a, b, c, dead, nodns, empty, wrong, or places; "a|b" share one
	weights []int    // of a rung that is shared
	shares  string   // the chain whose targets it has, too; "": it has its own
	tune    func(provider string, t *fileTarget)
	breaker fileBreaker
	more    fileChain // policy; its targets and matches are made here

	prices map[string]filePrice // by provider; nil: none
}

// target is the name of the chain's target on a provider.
func (c chain) target(provider string) string {
	if c.shares != "" {
		return c.shares + "/" + provider
	}
	return c.name + "/" + provider
}

// model is what a provider's model is called, so that a rewritten model shows.
func model(provider string) string { return "m-" + provider }

// probeModel is the model that probes ask, and nobody else.
const probeModel = "m-cheapest"

// account is a provider's name in the config: one for each dialect, as each has its own credential header.
func account(provider, api string) string { return provider + "-" + api }

// key is the credential of an account.
func key(account string) string { return "key-of-" + account }

func auth(api, keyFile string) map[string]any {
	if api == "anthropic" {
		return map[string]any{"header": "x-api-key", "secret": "file:" + keyFile}
	}
	return map[string]any{"bearer": "file:" + keyFile}
}

// compose makes the config file's content for replica i of the stack.
func (s *Stack) compose(t testing.TB, i int) file {
	t.Helper()
	f := file{
		Server:    fileServer{GRPC: s.services[i].grpc, Admin: s.services[i].admin},
		Envoy:     fileEnvoy{Listen: s.listen, Admin: s.envoyAdmin},
		Store:     s.store(i),
		Providers: map[string]fileProvider{},
		Targets:   map[string]fileTarget{},
	}
	for _, service := range s.services {
		f.Envoy.Services = append(f.Envoy.Services, service.grpc)
	}
	for _, path := range []string{"/v1/models", "/v1/files", "/v1/realtime"} {
		f.Passthrough = append(f.Passthrough, filePassthrough{path, account("a", "openai")})
	}
	for name, endpoint := range s.endpoints {
		for _, api := range []string{"anthropic", "openai"} {
			f.Providers[account(name, api)] = s.provider(t, endpoint, account(name, api), api)
		}
	}
	for name, p := range s.places {
		f.Providers[name] = p.config
	}
	f.addChains(t, s.plan.chains, s.places)
	if s.plan.edit != nil {
		s.plan.edit(&f)
	}
	return f
}

// store is the one that the replicas share, or a replica's own.
func (s *Stack) store(i int) fileStore {
	if n := s.plan.nats; n != nil {
		return fileStore{NATS: &fileNATS{URLs: n.urls(), Replicas: len(n.nodes)}}
	}
	return fileStore{Embedded: &fileEmbedded{Dir: filepath.Join(s.dir, fmt.Sprintf("store%d", i))}}
}

func (s *Stack) provider(t testing.TB, endpoint, account, api string) fileProvider {
	keyFile := filepath.Join(s.dir, account+".key")
	if _, err := os.Stat(keyFile); err != nil { // a service must not see it half written again
		write(t, keyFile, []byte(key(account)))
	}
	p := fileProvider{API: api, Endpoint: endpoint, Insecure: true, Auth: auth(api, keyFile)}
	if endpoint[:5] == "https" {
		p.CA, p.Insecure = filepath.Join(s.dir, "ca.pem"), false
	}
	return p
}

// addChains adds the test's chains and, after them, a default one for each dialect.
func (f *file) addChains(t testing.TB, chains []chain, places map[string]place) {
	f.Chains.Kind = yaml.MappingNode
	for _, c := range chains {
		c.more.Select = "header"
		f.addChain(t, c, places)
	}
	f.addChain(t, chain{name: "default-anthropic", api: "anthropic", on: []string{"a", "b"},
		more: fileChain{Match: []fileMatch{{Path: "/v1/messages"}}}}, nil)
	f.addChain(t, chain{name: "default-openai", api: "openai", on: []string{"a", "b"},
		more: fileChain{Match: []fileMatch{{Path: "/v1/chat/completions"}, {Path: "/v1/responses"}}}}, nil)
}

func (f *file) addChain(t testing.TB, c chain, places map[string]place) {
	t.Helper()
	if c.breaker.Ramp == (fileRamp{}) {
		c.breaker.Ramp = atOnce
	}
	var probe *fileProbe
	if c.breaker.HalfOpen == "probe" {
		probe = &fileProbe{Model: probeModel}
	}
	for _, rung := range c.on {
		var members []string
		for provider := range strings.SplitSeq(rung, "|") {
			members = append(members, c.target(provider))
			t := fileTarget{Provider: account(provider, c.api), Model: model(provider), Family: "m", Breaker: c.breaker, Probe: probe}
			if price, ok := c.prices[provider]; ok {
				t.Price, t.Limits = &price, map[string]any{"max_output": 10_000}
			}
			if p, ok := places[provider]; ok {
				t.Provider, t.Model = provider, p.model
			}
			if c.tune != nil {
				c.tune(provider, &t)
			}
			f.Targets[c.target(provider)] = t
		}
		c.more.Targets = append(c.more.Targets, c.rung(members))
	}
	var name, body yaml.Node
	name.SetString(c.name)
	if err := body.Encode(c.more); err != nil {
		t.Fatal(err)
	}
	f.Chains.Content = append(f.Chains.Content, &name, &body)
}

// rung is a target's name, or a rung that several share.
func (c chain) rung(members []string) any {
	if len(members) == 1 {
		return members[0]
	}
	rung := map[string]any{"any": members}
	if c.weights != nil {
		rung["weights"] = c.weights
	}
	return rung
}

// save writes a config file in one step, as a reload must not see half of it.
func (f file) save(t testing.TB, path string) {
	t.Helper()
	out, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path+".new", out)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// edited is a bootstrap in which the provider "empty" has no machine left, and what the plan wants.
func (s *Stack) edited(t testing.TB, bootstrap []byte) []byte {
	t.Helper()
	var boot map[string]any
	if err := sigsyaml.Unmarshal(bootstrap, &boot); err != nil {
		t.Fatal(err)
	}
	withoutEndpoints(t, boot, "empty")
	if s.plan.bootstrap != nil {
		s.plan.bootstrap(boot)
	}
	out, err := sigsyaml.Marshal(boot)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withoutEndpoints empties the clusters of a bootstrap that belong to a provider which has no machine left.
func withoutEndpoints(t testing.TB, boot map[string]any, provider string) {
	t.Helper()
	names := []string{"llm-" + account(provider, "anthropic"), "llm-" + account(provider, "openai")}
	emptied := 0
	for _, c := range boot["static_resources"].(map[string]any)["clusters"].([]any) {
		cluster := c.(map[string]any)
		if slices.Contains(names, fmt.Sprint(cluster["name"])) {
			delete(cluster["load_assignment"].(map[string]any), "endpoints")
			emptied++
		}
	}
	if emptied == 0 {
		t.Fatalf("no cluster of %v in the bootstrap, want one to empty", names)
	}
}

// names of a map, sorted, for messages.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
