//go:build story

package story

import (
	"fmt"
	"path/filepath"
	"testing"

	"understudy/internal/scripted"
	"understudy/internal/stage"
)

// stack is four providers, the service, an Envoy before it, and a Prometheus that scrapes it.
//
// Ownership: the test that started it; its clean-up ends everything.
type stack struct {
	t                         *testing.T
	dir                       string
	providers                 map[string]*scripted.Provider
	front, status, prometheus string // URLs
}

// A primary's breaker tries again every five seconds, so that a recovery is noticed while the test looks on.
const serviceYAML = `
server: {grpc: "%[1]s", admin: "%[2]s", drain: 1s}
envoy: {listen: "%[3]s", admin: "%[4]s"}
store: {embedded: {dir: "%[5]s/store"}}
providers:
  a: {api: anthropic, endpoint: "%[6]s", auth: {header: x-api-key, secret: "env:STORY_KEY"}}
  b: {api: anthropic, endpoint: "%[7]s", auth: {header: x-api-key, secret: "env:STORY_KEY"}}
  c: {api: openai, endpoint: "%[8]s", auth: {bearer: "env:STORY_KEY"}}
  d: {api: openai, endpoint: "%[9]s", auth: {bearer: "env:STORY_KEY"}}
targets:
  a/sonnet: {provider: a, model: claude-sonnet-5, breaker: {failures: 3, open_for: 5s, max_open_for: 5s, ramp: {share: 1}}}
  b/sonnet: {provider: b, model: claude-sonnet-5}
  c/gpt: {provider: c, model: gpt-5.5, breaker: {failures: 3, open_for: 5s, max_open_for: 5s, ramp: {share: 1}}}
  d/gpt: {provider: d, model: gpt-5.5}
chains:
  answers: {match: [{path: /v1/messages}], targets: [a/sonnet, b/sonnet]}
  chat: {match: [{path: /v1/chat/completions}], targets: [c/gpt, d/gpt]}
`

// prometheusYAML looks as often as the Prometheus of docker-compose.yaml does.
const prometheusYAML = `
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: ["%[1]s"]
scrape_configs:
  - job_name: understudy
    static_configs: [{targets: ["%[2]s"]}]
`

func startStack(t *testing.T) *stack {
	t.Helper()
	t.Setenv("STORY_KEY", "key")
	admin, front, envoyAdmin := stage.Free(t), stage.Free(t), stage.Free(t)
	s := &stack{t: t, dir: t.TempDir(), providers: map[string]*scripted.Provider{}, front: "http://" + front, status: "http://" + admin}
	config := stage.Write(t, s.path("understudy.yaml"), fmt.Appendf(nil, serviceYAML, stage.Free(t), admin, front, envoyAdmin, s.dir,
		s.hire("a"), s.hire("b"), s.hire("c"), s.hire("d")))
	stage.Start(t, s.path("service.log"), binary, "serve", "-c", config).Ready(t, s.status+"/readyz")
	boot := stage.Output(t, binary, "envoy", "-c", config)
	stage.Envoy(t, "1.40.0", stage.Write(t, s.path("envoy.yaml"), []byte(boot)), "http://"+envoyAdmin+"/ready")
	s.startPrometheus(admin)
	return s
}

// path is that of a file of the stack's own.
func (s *stack) path(name string) string { return filepath.Join(s.dir, name) }

// startPrometheus gives Prometheus the rules as they are, and the service's admin listener to scrape.
func (s *stack) startPrometheus(admin string) {
	s.t.Helper()
	rules, err := filepath.Abs("../../envoy/prometheus/understudy.rules.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	listen := stage.Free(s.t)
	s.prometheus = "http://" + listen
	config := stage.Write(s.t, s.path("prometheus.yaml"), fmt.Appendf(nil, prometheusYAML, rules, admin))
	stage.Start(s.t, s.path("prometheus.log"), "prometheus", "--config.file="+config, "--storage.tsdb.path="+s.path("tsdb"),
		"--web.listen-address="+listen, "--log.level=warn").Ready(s.t, s.prometheus+"/-/ready")
}

// hire starts a provider and says where.
func (s *stack) hire(name string) (url string) {
	s.t.Helper()
	s.providers[name] = scripted.New(name, scripted.Options{})
	return stage.Serve(s.t, s.providers[name], nil).URL("127.0.0.1")
}
