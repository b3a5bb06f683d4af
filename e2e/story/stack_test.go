//go:build story

package story

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// stack is four providers, the service, an Envoy before it, and a Prometheus that scrapes it.
//
// Ownership: the test that started it; its clean-up ends everything.
type stack struct {
	t                         *testing.T
	dir                       string
	providers                 map[string]*scripted.Provider
	front, status, prometheus string // URLs
	logs                      []string
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
	s := &stack{t: t, dir: t.TempDir(), providers: map[string]*scripted.Provider{}}
	t.Cleanup(s.tell)
	admin, front, envoyAdmin := free(t), free(t), free(t)
	s.status, s.front = "http://"+admin, "http://"+front
	config := s.write("understudy.yaml", fmt.Sprintf(serviceYAML, free(t), admin, front, envoyAdmin, s.dir,
		s.hire("a"), s.hire("b"), s.hire("c"), s.hire("d")))
	s.start("service", binary, "serve", "-c", config)
	s.await(s.status + "/readyz")
	boot, err := output(".", binary, "envoy", "-c", config)
	if err != nil {
		t.Fatal(err)
	}
	s.start("envoy", envoy, "-c", s.write("envoy.yaml", boot), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
	s.await("http://" + envoyAdmin + "/ready")
	s.startPrometheus(admin)
	return s
}

// startPrometheus gives Prometheus the rules as they are, and the service's admin listener to scrape.
func (s *stack) startPrometheus(admin string) {
	s.t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		s.t.Fatal(err)
	}
	rules, err := filepath.Abs("../../envoy/prometheus/understudy.rules.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	listen := free(s.t)
	s.prometheus = "http://" + listen
	config := s.write("prometheus.yaml", fmt.Sprintf(prometheusYAML, rules, admin))
	s.start("prometheus", program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"),
		"--web.listen-address="+listen, "--log.level=warn")
	s.await(s.prometheus + "/-/ready")
}

// hire starts a provider and says where.
func (s *stack) hire(name string) (url string) {
	s.t.Helper()
	p := scripted.New(name, scripted.Options{})
	server, err := scripted.Serve(p, "127.0.0.1:0", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { server.Close() })
	s.providers[name] = p
	return server.URL("127.0.0.1")
}

// free is a loopback address that was free a moment ago.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *stack) write(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// start runs a program until the end of the test.
func (s *stack) start(name, program string, args ...string) {
	s.t.Helper()
	log := filepath.Join(s.dir, name+".log")
	out, err := os.Create(log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	s.logs = append(s.logs, log)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "STORY_KEY=key")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // how it ends is not what is tested
	})
}

// tell prints what the programs have said, where the test has failed.
func (s *stack) tell() {
	if !s.t.Failed() {
		return
	}
	for _, log := range s.logs {
		text, _ := os.ReadFile(log)
		s.t.Logf("--- %s\n%s", filepath.Base(log), text[max(0, len(text)-8<<10):])
	}
}

func (s *stack) await(url string) {
	s.t.Helper()
	eventually(s.t, patience, url, func(ctx context.Context) error {
		_, err := get(ctx, url)
		return err
	})
}

// get is the body of a 200.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s = %s %.200s", url, resp.Status, body)
	}
	return body, err
}

// decoded is a JSON answer.
func decoded[T any](ctx context.Context, url string) (v T, err error) {
	body, err := get(ctx, url)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}
