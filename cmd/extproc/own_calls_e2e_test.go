//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"understudy/internal/scripted"
	teststage "understudy/internal/stage"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
)

const ownCallsYAML = `
server: {grpc: "unix://${dir}/service.sock", admin: "127.0.0.1:0", drain: 1s}
envoy: {listen: "${front}", admin: "127.0.0.1:0", when_service_down: open}
store: {embedded: {dir: "${dir}/store"}}
providers:
  primary:
    api: anthropic
    endpoint: "${primary}"
    auth: {header: x-api-key, secret: "file:${dir}/primary.key"}
    status_feed: {statuspage: "${page}/api/v2/summary.json"}
  fallback: {api: anthropic, endpoint: "${fallback}", auth: {header: x-api-key, secret: "file:${dir}/fallback.key"}}
targets:
  primary/sonnet:
    provider: primary
    model: claude-sonnet-5
    breaker: {failures: 5, open_for: 2s, half_open: probe, ramp: {share: 1}}
    probe: {model: claude-haiku-5-5}
  fallback/sonnet: {provider: fallback, model: sonnet-5-elsewhere, model_family: claude-sonnet-5}
chains:
  chat: {match: [{path: /v1/messages}], targets: [primary/sonnet, fallback/sonnet]}
`

// statusPage is a provider's page, with what it was asked.
type statusPage struct {
	*httptest.Server
	mu   sync.Mutex
	asks []*http.Request
}

func newStatusPage(t *testing.T) *statusPage {
	p := &statusPage{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asks = append(p.asks, r)
		w.Header().Set("etag", `"1"`)
		w.Header().Set("x-llm-failover", "next") // is not a page's to say
		fmt.Fprint(w, `{"status":{"indicator":"major"},"incidents":[{"name":"Elevated errors","status":"identified"}]}`)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *statusPage) asked() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*http.Request{}, p.asks...)
}

// perform starts a service with its Envoy and providers on ownCallsYAML.
func perform(t *testing.T, page string) *stage {
	t.Helper()
	s := &stage{dir: folder(t), fail: func(err error) { t.Error(err) }, http: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.lastWords())
		}
	})
	err := errors.Join(s.cast(), s.script(t, page), s.serve(), s.startEnvoy(t.Context(), realEnvoy(t)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) cast() (err error) {
	if s.primary, err = s.hire("primary"); err != nil {
		return err
	}
	s.fallback, err = s.hire("fallback")
	return err
}

func (s *stage) script(t *testing.T, page string) (err error) {
	// Envoy takes the front's port; the service must know it, as it calls there.
	values := map[string]string{"dir": s.dir, "front": teststage.Free(t), "page": page,
		"primary": s.primary.server.URL("127.0.0.1"), "fallback": s.fallback.server.URL("127.0.0.1")}
	text := os.Expand(ownCallsYAML, func(name string) string { return values[name] })
	if err := os.WriteFile(s.path("own.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	s.cfg, err = config.Load(s.path("own.yaml"))
	return err
}

// call is the status and the body of one request at the front.
func (s *stage) call(t *testing.T, method, path, internal string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.front+path, strings.NewReader(`{"model":"m","max_tokens":1,"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("content-type", "application/json")
	if internal != "" {
		req.Header.Set("x-llm-internal", internal)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestOneProbeClosesABreaker(t *testing.T) {
	s := perform(t, newStatusPage(t).URL)
	if err := s.primary.Set("529"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if got, err := s.ask(t.Context(), false); err != nil || got.status != http.StatusOK {
			t.Fatalf("ask = %d, %v, want the fallback's 200", got.status, err)
		}
	}
	b := s.service.processor.Book().Breaker("primary/sonnet")
	state(t, b, breaker.Open)
	if err := s.primary.Set("ok"); err != nil {
		t.Fatal(err)
	}
	state(t, b, breaker.Closed)
	probes := slices.DeleteFunc(s.primary.Requests(""), func(r scripted.Request) bool { return r.ID != "" }) // a client's
	if len(probes) != 1 {
		t.Fatalf("calls of our own at the primary = %d, want one probe", len(probes))
	}
	checkProbe(t, probes[0])
	m, err := s.metrics(t.Context())
	if n := m[`understudy_probes_total{result="alive",target="primary/sonnet"}`]; err != nil || n != 1 {
		t.Errorf("understudy_probes_total of alive = %v, %v, want 1", n, err)
	}
	if got, err := s.ask(t.Context(), false); err != nil || got.header.Get("x-llm-target") != "primary/sonnet" {
		t.Errorf("after the probe %v serves, %v, want primary/sonnet", got.header["X-Llm-Target"], err)
	}
}

func state(t *testing.T, b *breaker.Breaker, want breaker.State) {
	t.Helper()
	eventually(t, func(context.Context) error {
		if got := b.State(); got != want {
			return fmt.Errorf("the breaker of primary/sonnet is %s, want %s", got, want)
		}
		return nil
	})
}

func checkProbe(t *testing.T, r scripted.Request) {
	t.Helper()
	var body struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil || body.Model != "claude-haiku-5-5" || body.MaxTokens != 1 {
		t.Errorf("the probe = %s, %v, want one token of claude-haiku-5-5", r.Body, err)
	}
	if got := r.Header.Get("x-api-key"); got != "key-of-primary" {
		t.Errorf("the probe's x-api-key = %q, want key-of-primary", got)
	}
	checkOurs(t, r.Header)
}

func checkOurs(t *testing.T, h http.Header) {
	t.Helper()
	for name := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-llm-") || strings.HasPrefix(name, "x-understudy-") {
			t.Errorf("%s has left for the outside", name)
		}
	}
}

func TestAStatusPageIsReadThroughEnvoy(t *testing.T) {
	page := newStatusPage(t)
	s := perform(t, page.URL)
	const series = `understudy_provider_status{provider="primary"}`
	eventually(t, func(ctx context.Context) error {
		m, err := s.metrics(ctx)
		if err == nil && m[series] != 2 {
			err = fmt.Errorf("%s = %v, want 2", series, m[series])
		}
		return err
	})
	r := page.asked()[0]
	if r.Method != http.MethodGet || r.URL.Path != "/api/v2/summary.json" || "http://"+r.Host != page.URL {
		t.Errorf("the page was asked for %s %s at %s, want GET /api/v2/summary.json at its own host", r.Method, r.URL, r.Host)
	}
	if r.Header.Get("x-api-key") != "" {
		t.Error("the page has got a credential")
	}
	checkOurs(t, r.Header)
}

func TestOwnPathsAreForNobodyElse(t *testing.T) {
	page := newStatusPage(t)
	s := perform(t, page.URL)
	eventually(t, func(context.Context) error { // our own poll, the next is a minute away
		if len(page.asked()) == 0 {
			return errors.New("the page has not been asked for")
		}
		return nil
	})
	refused := func(method, path, internal string, want int) {
		t.Helper()
		if got, body := s.call(t, method, path, internal); got != want || !strings.Contains(body, `"error"`) {
			t.Errorf("%s %s with x-llm-internal %q = %d %s, want a readable %d", method, path, internal, got, body, want)
		}
	}
	refused(http.MethodGet, "/.understudy/feed", "", http.StatusNotFound)
	refused(http.MethodGet, "/.understudy/feed", "feed;9999999999;primary;x", http.StatusForbidden)
	refused(http.MethodPost, "/v1/messages", "probe;9999999999;primary/sonnet;x", http.StatusForbidden)

	if err := s.service.stop(time.Second); err != nil { // and Envoy goes on without it
		t.Fatal(err)
	}
	if got, body := s.call(t, http.MethodPost, "/v1/messages", ""); got != http.StatusOK {
		t.Fatalf("a request without the service = %d %s, want the primary's 200", got, body)
	}
	served := s.primary.Count("")
	refused(http.MethodGet, "/.understudy/feed", "", http.StatusNotFound)
	refused(http.MethodPost, "/.understudy/v1/messages", "x", http.StatusNotFound)
	if n := len(page.asked()); n != 1 || s.primary.Count("") != served || s.fallback.Count("") != 0 {
		t.Errorf("the page has %d calls, the providers %d and %d, want 1, %d and 0", n, s.primary.Count(""), s.fallback.Count(""), served)
	}
}
