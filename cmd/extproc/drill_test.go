package main

import (
	"net/http"
	"net/http/httptest"
	"os/signal"
	"reflect"
	"syscall"
	"testing"
	"time"

	"understudy/pkg/config"
)

func TestAStackOfADrillsOwnTellsNobody(t *testing.T) {
	cfg, err := config.Parse("f.yaml", []byte(`
providers: {a: {api: anthropic, endpoint: "https://a.example", auth: {none: true}}}
targets: {a/x: {provider: a, model: x}}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [a/x]
    degrade: [queue]
    queue: {notify: {webhook: "https://h.example.com", secret: "env:NO_SUCH_HOOK"}}
tracing: {otlp: "https://spans.example.com"}
tenant: {header: x-team, trusted_header: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{dir: t.TempDir()}
	if err := s.resettle(cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Chains[0].Queue.Notify != nil || !reflect.DeepEqual(cfg.Tracing, config.Tracing{}) || cfg.Tenant.Header != "" {
		t.Errorf("webhook, tracing, tenant = %v, %v, %v, want none", cfg.Chains[0].Queue.Notify, cfg.Tracing, cfg.Tenant)
	}
}

// A plan that clients meet must be stopped, and an Envoy ended, also when the terminal goes or nobody reads on.
func TestADrillIsNotKilledBeforeItHasTidiedUp(t *testing.T) {
	ctx, release := unhurt(t.Context())
	defer release()
	if !signal.Ignored(syscall.SIGPIPE) {
		t.Error("SIGPIPE ends a drill, want that it is ignored")
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("a drill goes on after SIGHUP, want that it is interrupted")
	}
}

func TestADrillFollowsNoRedirection(t *testing.T) {
	followed := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			followed = true
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	resp, err := caller().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if followed || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("followed, status = %t, %d, want that the redirection itself is seen", followed, resp.StatusCode)
	}
}
