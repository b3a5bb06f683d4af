//go:build mesh

package mesh

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"understudy/internal/scripted"
	"understudy/internal/stage"
	"understudy/pkg/envoyconf/attach"
	"understudy/pkg/envoyconf/istio"
)

// istioReply is what a plain client got.
type istioReply struct {
	status int
	header http.Header
	body   string
}

// istioAsk sends one small request to url with a host and headers.
func istioAsk(t *testing.T, s *stack, url, host string, headers map[string]string) istioReply {
	t.Helper()
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`
	req, err := http.NewRequestWithContext(within(t, stage.Patience), http.MethodPost, url+messages, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	req.Header.Set(scripted.IDHeader, t.Name())
	req.Header.Set("content-type", "application/json")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return istioReply{resp.StatusCode, resp.Header, string(all)}
}

// other services of the mesh see nothing of ours, on the same port of a gateway and on another of a sidecar.
func TestIstioLeavesOtherServicesAlone(t *testing.T) {
	for name, row := range map[string]struct {
		pod     istioPod
		options istio.Options
		host    string
	}{
		"sidecar": {istioSidecar, istio.Options{Callers: []string{istioApp}}, "shop"},
		"gateway": {istioGateway, istio.Options{Callers: []string{istioIngress}, Shape: istio.Gateway}, "shop.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, nil)
			p := istioRun(t, s, "1.40.0", row.pod, istioManifests(t, s, row.options))
			at := s.frontURL()
			if name == "sidecar" {
				at = "http://" + p.other
			}
			got := istioAsk(t, s, at, row.host, map[string]string{scripted.ScriptHeader: "a=529", "x-api-key": stage.ClientKey})
			if got.status != 529 || got.header.Get("x-llm-target") != "" {
				t.Errorf("the shop answered %d %v, want its own 529", got.status, got.header)
			}
			requests := s.providers["a"].Requests(t.Name())
			if len(requests) != 1 || requests[0].Header.Get("x-api-key") != stage.ClientKey {
				t.Errorf("the shop saw %d requests, want one as the client sent it", len(requests))
			}
		})
	}
}

func TestIstioServesTheNextRequestElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		pod     istioPod
		options istio.Options
		host    string
	}{
		"sidecar": {istioSidecar, istio.Options{Callers: []string{istioApp}}, "llm"},
		"gateway": {istioGateway, istio.Options{Callers: []string{istioIngress}, Shape: istio.Gateway}, "llm.example.com"},
	} {
		for _, version := range istioEnvoys {
			t.Run(name+" on Envoy "+version, func(t *testing.T) {
				s := newStack(t, nil)
				row.options.Level = attach.NextRequest
				istioRun(t, s, version, row.pod, istioManifests(t, s, row.options))
				t.Run("a failure is final, until the breaker knows", func(t *testing.T) { istioNext(t, s, row.host) })
				t.Run("a hostile client", func(t *testing.T) {
					headers := map[string]string{scripted.ScriptHeader: "*=ok", "x-llm-chain": "steered"}
					for name, value := range steering {
						headers[name] = value
					}
					if got := istioAsk(t, s, s.frontURL(), row.host, headers); got.status != 200 || s.providers["b"].Count(t.Name()) > 0 {
						t.Errorf("the client got %d %.200s, and provider b saw %d requests, want 200 and none", got.status, got.body, s.providers["b"].Count(t.Name()))
					}
				})
				s.service.Kill()
				t.Run("without the service", func(t *testing.T) {
					got := istioAsk(t, s, s.frontURL(), row.host, map[string]string{scripted.ScriptHeader: "*=ok"})
					if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"type":"error"`) {
						t.Errorf("the client got %d %.200s, want a 503 in its dialect", got.status, got.body)
					}
				})
			})
		}
	}
}

// istioNext fails the primary until its breaker opens.
func istioNext(t *testing.T, s *stack, host string) {
	for range 30 {
		got := istioAsk(t, s, s.frontURL(), host, map[string]string{scripted.ScriptHeader: "a=529; b=ok", "x-llm-chain": "overloaded"})
		if got.status == 200 {
			if target := got.header.Get("x-llm-target"); target != "overloaded/b" {
				t.Errorf("the answer is of %q, want overloaded/b", target)
			}
			if s.providers["a"].Count(t.Name()) == 0 {
				t.Error("the primary was never asked")
			}
			return
		}
		if !strings.Contains(got.body, `"type":"error"`) || got.header.Get("x-llm-failover") != "" {
			t.Fatalf("the client got %d %v %.200s, want an error in its dialect", got.status, got.header, got.body)
		}
	}
	t.Error("30 failures open no breaker")
}

func TestIstioObservesAndChangesNothing(t *testing.T) {
	for _, version := range istioEnvoys {
		t.Run("Envoy "+version, func(t *testing.T) {
			s := newStack(t, nil)
			p := &istioProxy{other: stage.Free(t), admin: stage.Free(t)}
			manifests := istioManifests(t, s, istio.Options{
				Callers: []string{istioApp}, Level: attach.Observe, Host: "shop.default.svc.cluster.local", Port: atoi(t, portOf(p.other)),
			})
			bootstrap := istioPatched(t, s, istioSidecar, manifests, "$PORT", portOf(s.listen), "$ADMIN", portOf(p.admin), "$OTHER", portOf(p.other),
				"$SHOP", portOf(strings.TrimPrefix(s.accounts["a"].endpoint, "http://")), "$AGENT", "/agent")
			istioStart(t, s, version, "sidecar.yaml", bootstrap, p.admin)
			ask := func(t *testing.T, script string, status int) {
				t.Helper()
				got := istioAsk(t, s, "http://"+p.other, "shop", map[string]string{scripted.ScriptHeader: script, "x-api-key": stage.ClientKey})
				if got.status != status || got.header.Get("x-llm-target") != "" {
					t.Errorf("the client got %d %v, want the provider's own %d", got.status, got.header, status)
				}
				if r := s.providers["a"].Requests(t.Name()); len(r) != 1 || r[0].Header.Get("x-api-key") != stage.ClientKey {
					t.Errorf("the provider saw %d requests, want one as the client sent it", len(r))
				}
			}
			t.Run("a good answer", func(t *testing.T) { ask(t, "a=ok", 200) })
			t.Run("an overload", func(t *testing.T) { ask(t, "a=529", 529) })
			stage.Eventually(t, stage.Patience, "the count", func(ctx context.Context) error { return s.counts(ctx, `class="overloaded"`) })
			s.service.Kill()
			t.Run("without the service", func(t *testing.T) { ask(t, "a=ok", 200) })
		})
	}
}

// counts reports whether the service has counted an attempt with a label.
func (s *stack) counts(ctx context.Context, label string) error {
	metrics, err := stage.Get(ctx, "http://"+s.admin+"/metrics")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "understudy_attempts_total{") && strings.Contains(line, label) {
			return nil
		}
	}
	return fmt.Errorf("no attempt is counted with %s", label)
}

func atoi(t testing.TB, s string) (n uint32) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
