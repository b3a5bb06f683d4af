//go:build e2e

package processor

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"understudy/internal/scripted"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

var record = flag.Bool("record", false, "write the messages of a real Envoy to testdata/recorded")

const anthropicBody = `{"model":"claude-sonnet-5","max_tokens":10,"stream":%t,"messages":[{"role":"user","content":"hi"}]}`

// recordings are what is asked of Envoy; the first attempt's messages of each are kept.
var recordings = []struct{ name, script, body string }{
	{"json", "a=ok", fmt.Sprintf(anthropicBody, false)},
	{"stream", "a=ok n=3 delay=20ms", fmt.Sprintf(anthropicBody, true)},
	{"error-start", "a=error-start", fmt.Sprintf(anthropicBody, true)},
	{"529", "a=529", fmt.Sprintf(anthropicBody, false)},
	{"400", "a=400", fmt.Sprintf(anthropicBody, false)},
	{"520-no-body", "a=cf520", fmt.Sprintf(anthropicBody, false)},
	{"reset", "a=reset", fmt.Sprintf(anthropicBody, false)},
	{"429", "a=429 retry-after=2", fmt.Sprintf(anthropicBody, false)}, // last: the target cools down after it
}

// TestRecord keeps, with -record, what a real Envoy sends for each recording; without, it checks that what is kept
// still is what Envoy sends, in kinds and order.
func TestRecord(t *testing.T) {
	envoy := os.Getenv("ENVOY")
	if envoy == "" {
		out, err := exec.Command("../../scripts/envoy.sh", "1.40.0").Output()
		if err != nil {
			t.Fatalf("scripts/envoy.sh: %v", err)
		}
		envoy = strings.TrimSpace(string(out))
	}
	tap := &tap{}
	front := startStack(t, envoy, tap)
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			tap.reset()
			ask(t, front, r.script, r.body)
			lines := tap.first()
			file := filepath.Join("testdata", "recorded", r.name+".jsonl")
			if *record {
				if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			kept := readRecorded(t, r.name)
			if got, want := kinds(parseLines(t, lines)), kinds(kept); got != want {
				t.Errorf("Envoy sends %s, want %s as recorded", got, want)
			}
		})
	}
}

// kinds names the messages, consecutive bodies as one.
func kinds(messages []*extproc.ProcessingRequest) string {
	var names []string
	for _, m := range messages {
		name := strings.TrimPrefix(fmt.Sprintf("%T", m.Request), "*ext_procv3.ProcessingRequest_")
		if n := len(names); n == 0 || names[n-1] != name {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func parseLines(t *testing.T, lines []string) []*extproc.ProcessingRequest {
	var all []*extproc.ProcessingRequest
	for _, line := range lines {
		m := &extproc.ProcessingRequest{}
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func ask(t *testing.T, front, script, body string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Script", script)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// tap keeps the messages of each stream, in the order of their beginning.
type tap struct {
	mu      sync.Mutex
	streams [][]string
}

func (x *tap) reset() { x.mu.Lock(); x.streams = nil; x.mu.Unlock() }

func (x *tap) first() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.streams[0]
}

func (x *tap) intercept(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !strings.Contains(info.FullMethod, "ExternalProcessor") {
		return next(srv, s)
	}
	x.mu.Lock()
	x.streams = append(x.streams, nil)
	n := len(x.streams) - 1
	x.mu.Unlock()
	return next(srv, &tapped{s, x, n})
}

type tapped struct {
	grpc.ServerStream
	tap *tap
	n   int
}

func (s *tapped) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		line, _ := protojson.MarshalOptions{}.Marshal(m.(*extproc.ProcessingRequest))
		s.tap.mu.Lock()
		s.tap.streams[s.n] = append(s.tap.streams[s.n], string(line))
		s.tap.mu.Unlock()
	}
	return err
}

// startStack runs Envoy, a processor and two scripted providers, and returns the front's URL.
func startStack(t *testing.T, envoy string, x *tap) string {
	t.Setenv("RECORD_KEY", "recorded-key")
	url := func(name string) string {
		s, err := scripted.Serve(scripted.New(name, scripted.Options{}), "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return "http://" + s.Addr()
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front, adm := freePort(t), freePort(t)
	cfg, err := config.Parse("test.yaml", []byte(fmt.Sprintf(stackYAML, lis.Addr(), front, adm, url("a"), url("b"))))
	if err != nil {
		t.Fatal(err)
	}
	p := New(cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(t.Output(), nil)))
	srv := grpc.NewServer(grpc.StreamInterceptor(x.intercept))
	extproc.RegisterExternalProcessorServer(srv, p)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)

	boot, err := envoyconf.Bootstrap(cfg, envoyconf.Hop("internal"))
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := envoyconf.YAML(boot)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "boot.yaml")
	if err := os.WriteFile(file, yaml, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(envoy, "-c", file, "--use-dynamic-base-id", "--concurrency", "1", "-l", "warn")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	awaitReady(t, "http://"+adm+"/ready")
	return "http://" + front
}

const stackYAML = `
server: {grpc: "%s"}
envoy: {listen: "%s", admin: "%s"}
providers:
  a: {api: anthropic, endpoint: "%s", auth: {header: x-api-key, secret: "env:RECORD_KEY"}}
  b: {api: anthropic, endpoint: "%s", auth: {header: x-api-key, secret: "env:RECORD_KEY"}}
targets:
  a/sonnet: {provider: a, model: claude-sonnet-5}
  b/sonnet: {provider: b, model: claude-sonnet-5}
chains:
  chat: {match: [{path: /v1/messages}], targets: [a/sonnet, b/sonnet]}
`

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func awaitReady(t *testing.T, url string) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if resp, err := http.Get(url); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(50 * time.Millisecond) // another process starts
	}
	t.Fatalf("%s is not ready within 20 s", url)
}
