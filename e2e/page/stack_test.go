//go:build page

package page

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// token is what the stack's admin listener asks for.
const token = "the-operators-token"

// stack is two providers, the service and an Envoy that it tells its configuration.
//
// Ownership: the test that started it; its clean-up ends everything.
type stack struct {
	t             *testing.T
	a, b          *scripted.Provider
	front, status string // URLs
	logs          []string
}

const stackYAML = `
server: {grpc: "%[1]s", admin: "%[2]s", drain: 1s, admin_token: "env:PAGE_TOKEN"}
envoy: {listen: "%[3]s", admin: "%[4]s", xds: true}
drill: {listen: "%[5]s"}
store: {embedded: {dir: "%[6]s/store"}}
providers:
  a: {api: anthropic, endpoint: "%[7]s", auth: {header: x-api-key, secret: "env:PAGE_KEY"}}
  b: {api: anthropic, endpoint: "%[8]s", auth: {header: x-api-key, secret: "env:PAGE_KEY"}}
targets:
  a/sonnet: {provider: a, model: claude-sonnet-5, price: {input: 3, output: 15}, breaker: {failures: 3, half_open: probe, open_for: 6s, max_open_for: 6s, ramp: {share: 1}}}
  b/sonnet: {provider: b, model: claude-sonnet-5, price: {input: 3, output: 15}}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [a/sonnet, b/sonnet]
    budget: {usd: 50, window: 1h}
    degrade: [queue, off]
`

func startStack(t *testing.T) *stack {
	t.Helper()
	dir := t.TempDir()
	s := &stack{t: t}
	var urls [2]string
	for i, p := range []**scripted.Provider{&s.a, &s.b} {
		*p = scripted.New(string(rune('a'+i)), scripted.Options{})
		server, err := scripted.Serve(*p, "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		urls[i] = server.URL("127.0.0.1")
	}
	admin, front, envoyAdmin := free(t), free(t), free(t)
	s.status, s.front = "http://"+admin, "http://"+front
	file := filepath.Join(dir, "understudy.yaml")
	s.write(file, fmt.Sprintf(stackYAML, free(t), admin, front, envoyAdmin, free(t), dir, urls[0], urls[1]))
	t.Cleanup(s.tell)
	s.start(filepath.Join(dir, "service.log"), binary, "serve", "-c", file)
	s.await(s.status + "/readyz")
	boot, err := output(".", binary, "envoy", "--xds", "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	s.write(filepath.Join(dir, "envoy.yaml"), boot)
	s.start(filepath.Join(dir, "envoy.log"), envoy, "-c", filepath.Join(dir, "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
	s.await("http://" + envoyAdmin + "/ready")
	eventually(t, "a call", func(ctx context.Context) error { return s.call(ctx) })
	return s
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

func (s *stack) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// start runs a program until the end of the test.
func (s *stack) start(log, program string, args ...string) {
	s.t.Helper()
	out, err := os.Create(log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	s.logs = append(s.logs, log)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "PAGE_TOKEN="+token, "PAGE_KEY=key")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		late := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
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
	eventually(s.t, url, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		return do(req)
	})
}

// call makes one call of the chain.
func (s *stack) call(ctx context.Context) error {
	body := `{"model":"claude-sonnet-5","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.front+"/v1/messages", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	return do(req)
}

// calls makes n calls, each of which must be answered.
func (s *stack) calls(n int) {
	s.t.Helper()
	for range n {
		if err := s.call(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// plays makes a provider do something else from now on.
func (s *stack) plays(p *scripted.Provider, behaviour string) {
	s.t.Helper()
	if err := p.Set(behaviour); err != nil {
		s.t.Fatal(err)
	}
}

func do(req *http.Request) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s = %s %s", req.Method, req.URL, resp.Status, bytes.TrimSpace(body))
	}
	return err
}
