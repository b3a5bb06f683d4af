//go:build mesh

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"understudy/internal/scripted"
	"understudy/internal/stage"
	"understudy/pkg/envoyconf/attach"
	"understudy/pkg/envoyconf/gateway"
)

// Envoy Gateway takes fixed ports (18000, 18002, 19000, 19001, 8081), so one runs at a time, and all is shown on it.
func TestEnvoyGateway(t *testing.T) {
	s := newGatewayStack(t, func(s *stack) { s.secured(t) }, func(s *gatewayStack) {
		for _, name := range []string{"secure", "impostor"} {
			s.trusts(t, "understudy-to-llm-"+name+"-ca", s.accounts[name].ca)
		}
		s.publish(t, attach.SameRequest)
	})
	t.Run("the suite", func(t *testing.T) { rows(t, s.frontURL(), s.stack) })
	t.Run("each patch has met what it changes", func(t *testing.T) {
		if got := s.refusals(); len(got) > 0 {
			t.Errorf("Envoy Gateway refuses %d of what it is told: %.2000s", len(got), got)
		}
	})
	t.Run("an impostor is not trusted, a provider with TLS is", func(t *testing.T) {
		row{chain: "secure", path: messages, script: "*=ok", by: "secure", attempts: 2, reason: "transport", calls: "impostor:0 secure:1"}.run(t, s.frontURL(), s.stack)
	})
	t.Run("a stream outlasts ten seconds", func(t *testing.T) {
		row{chain: "healthy", path: messages, stream: true, script: "a=ok delay=4s", by: "a", attempts: 1, calls: "a:1"}.run(t, s.frontURL(), s.stack)
	})
	t.Run("an answer that dies after its first content is counted", s.died)
	t.Run("a WebSocket passes", s.echoes)
	t.Run("nobody but the front reaches the hop", s.private)
	t.Run("a route leaves protection", s.optOut)
	t.Run("a provider joins while a stream is running", s.joins)
	t.Run("without the service", s.withoutService)
	s.startService(t)
	t.Run("and with it again", s.back)
	t.Run("one level less retries nothing", s.lessens)
}

// died: only the access log tells the service that it was the provider and not the client who went away.
func (s *gatewayStack) died(t *testing.T) {
	a := s.call(within(t, stage.Patience), t, s.frontURL(), row{chain: "claude", path: messages, stream: true, script: "a=cut n=2 how=reset delay=50ms; b=ok"})
	if a.Err == nil || a.Status != http.StatusOK || a.Text == "" {
		t.Errorf("the client got %d %q, %v, want 200, some text and an error", a.Status, a.Text, a.Err)
	}
	stage.Eventually(t, stage.Patience, "the count", func(ctx context.Context) error {
		metrics, err := stage.Get(ctx, "http://"+s.admin+"/metrics")
		if want := `understudy_attempts_total{chain="claude",class="transport",target="claude/a"} 1`; err == nil && !strings.Contains(string(metrics), want) {
			err = fmt.Errorf("the metrics lack %s", want)
		}
		return err
	})
}

func (s *gatewayStack) echoes(t *testing.T) {
	ctx := within(t, stage.Patience)
	conn, _, err := websocket.Dial(ctx, s.frontURL()+"/v1/realtime", &websocket.DialOptions{
		HTTPClient: s.http, HTTPHeader: http.Header{scripted.IDHeader: {t.Name()}, "Authorization": {"Bearer " + stage.ClientKey}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.Read(ctx); err != nil || string(got) != "one" {
		t.Errorf("the echo of one is %q, %v", got, err)
	}
	s.clean(t, stage.Answer{})
}

func (s *gatewayStack) private(t *testing.T) {
	host, front, err := net.SplitHostPort(s.listen)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(front)
	if err != nil {
		t.Fatal(err)
	}
	hop := net.JoinHostPort(host, strconv.Itoa(port+1))
	if conn, err := net.DialTimeout("tcp", hop, stage.Patience); err == nil {
		conn.Close()
		t.Errorf("%s, the hop's port, is open", hop)
	}
}

// gatewayRoute is a route of somebody's own: it matches more closely than ours, and none of our policies is for it.
const gatewayRoute = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: of-%[1]s, namespace: default}
spec:
  parentRefs: [{name: understudy, sectionName: front}]
  rules:
  - matches: [{path: {type: Exact, value: /v1/messages}, headers: [{name: x-team, value: %[1]s}]}]
    backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: understudy-to-llm-%[2]s}]
`

func (s *gatewayStack) optOut(t *testing.T) {
	s.apply(t, "legacy.yaml", fmt.Appendf(nil, gatewayRoute, "legacy", "a"))
	out := row{chain: "healthy", path: messages, script: "a=401; b=ok", header: map[string]string{"x-team": "legacy"}}
	stage.Eventually(t, 4*stage.Patience, "a route of somebody's own", func(ctx context.Context) error { // a 401 opens no breaker meanwhile
		if a := s.call(ctx, t, s.frontURL(), out); a.Status != http.StatusUnauthorized || a.Header.Get("x-llm-attempts") != "" {
			return fmt.Errorf("the client got %d %v, want the provider's own 401", a.Status, a.Header)
		}
		return nil
	})
	requests := s.providers["a"].Requests(t.Name())
	if last := requests[len(requests)-1].Header; last.Get("x-api-key")+last.Get("authorization") != "Bearer "+stage.ClientKey {
		t.Errorf("the provider was sent %v, want the client's own credential", last)
	}
	in := row{chain: "overloaded", path: messages, script: "a=529; b=ok", by: "b", attempts: 2, reason: "overloaded"}
	t.Run("the others stay", func(t *testing.T) { in.run(t, s.frontURL(), s.stack) })
}

// joins: a stream that began before the change ends after it, so nothing was restarted.
func (s *gatewayStack) joins(t *testing.T) {
	running := make(chan stage.Answer)
	before := row{chain: "healthy", path: messages, stream: true, script: "a=ok gate"}
	ctx := within(t, 8*stage.Patience) // as long as all that happens meanwhile may take
	go func() { running <- s.call(ctx, t, s.frontURL(), before) }()
	if err := s.providers["a"].AwaitRequests(ctx, t.Name(), 1); err != nil {
		t.Fatal(err)
	}
	s.hire(t, "late", "anthropic")
	s.chains["late"] = chain{on: []string{"late", "b"}}
	s.envoyFirst(t, "late")
	s.save(t)
	stage.Eventually(t, stage.Patience, "the new provider", func(ctx context.Context) error {
		a := s.call(ctx, t, s.frontURL(), row{chain: "late", path: messages, script: "late=ok"})
		if got := a.Header.Get("x-llm-target"); got != "late/late" {
			return fmt.Errorf("the answer came from %q, %w", got, a.Err)
		}
		return nil
	})
	s.providers["a"].Open(t.Name())
	if a := <-running; a.Err != nil || a.Text != scripted.Text("a", model("a"), t.Name(), 3, 0) {
		t.Errorf("the stream that was running got %d %q, %v", a.Status, a.Text, a.Err)
	}
}

// envoyFirst publishes the manifests of a config that the service does not have yet, and waits until Envoy has them: were
// the service first, it would take a provider that Envoy does not know for one that fails.
func (s *gatewayStack) envoyFirst(t *testing.T, account string) {
	config := s.config
	s.config = filepath.Join(s.dir, "next.yaml")
	s.save(t)
	s.publish(t, attach.SameRequest)
	s.config = config
	s.apply(t, "probe.yaml", fmt.Appendf(nil, gatewayRoute, "probe", account))
	stage.Eventually(t, 4*stage.Patience, "Envoy's new provider", func(ctx context.Context) error {
		a := s.call(ctx, t, s.frontURL(), row{path: messages, script: "*=ok", header: map[string]string{"x-team": "probe"}})
		if !strings.HasPrefix(a.Text, "["+account) {
			return fmt.Errorf("the answer is %q, %w", a.Text, a.Err)
		}
		return nil
	})
}

func (s *gatewayStack) withoutService(t *testing.T) {
	s.service.Kill()
	for _, path := range []string{messages, chats} {
		r := row{chain: "healthy", path: path, script: "*=ok", status: http.StatusServiceUnavailable, calls: "a:0 b:0 c:0"}
		t.Run("closed for "+path[1:], func(t *testing.T) { r.run(t, s.frontURL(), s.stack) })
	}
}

func (s *gatewayStack) back(t *testing.T) {
	back := row{chain: "overloaded", path: messages, script: "a=529; b=ok"}
	stage.Eventually(t, stage.Patience, "a failover", func(ctx context.Context) error {
		if a := s.call(ctx, t, s.frontURL(), back); a.Header.Get("x-llm-target") != "overloaded/b" {
			return errors.Join(errors.New("the service is not asked yet"), a.Err)
		}
		return nil
	})
}

// lessens publishes the next level below: the service still chooses, and what comes of its first choice is final.
func (s *gatewayStack) lessens(t *testing.T) {
	s.publish(t, attach.NextRequest)
	once := row{chain: "healthy", path: messages, script: "a=401; b=ok", status: http.StatusServiceUnavailable} // a 401 opens no breaker
	stage.Eventually(t, 4*stage.Patience, "the lower level", func(ctx context.Context) error {
		if a := s.call(ctx, t, s.frontURL(), once); a.Status == http.StatusOK {
			return fmt.Errorf("%s has answered in another's place", a.Header.Get("x-llm-target"))
		}
		return nil
	})
	once.calls = "a:1 b:0"
	t.Run("for good", func(t *testing.T) { once.run(t, s.frontURL(), s.stack) })
}

// gatewayOfSomebody is a Gateway that knows nothing of us.
const gatewayOfSomebody = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: llm}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: llm, namespace: default}
spec: {provider: {type: Host, host: {envoyVersion: %q}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: llm, namespace: default}
spec:
  gatewayClassName: llm
  infrastructure: {parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: llm}}
  listeners: [{name: http, protocol: HTTP, port: %s}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: claude, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: %s}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llm, namespace: default}
spec:
  parentRefs: [{name: llm}]
  rules: [{backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: claude}]}]
`

// The link to the service has TLS here, with a certificate on both sides.
func TestEnvoyGatewayOnlyObserves(t *testing.T) {
	s := newGatewayStack(t, func(s *stack) { s.link(t) }, func(s *gatewayStack) {
		_, front, _ := net.SplitHostPort(s.listen)
		provider, err := url.Parse(s.accounts["a"].endpoint)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(t, "somebody.yaml", fmt.Appendf(nil, gatewayOfSomebody, envoyVersion, front, provider.Port()))
		s.trusts(t, "understudy-service-ca", s.tls.ca)
		s.apply(t, "understudy-envoy.yaml", fmt.Appendf(nil,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: understudy-envoy, namespace: default}\ntype: kubernetes.io/tls\nstringData: {tls.crt: %q, tls.key: %q}\n",
			read(t, s.tls.envoyCert), read(t, s.tls.envoyKey)))
		s.apply(t, "understudy.yaml", s.printed(t, gateway.Options{Level: attach.Observe}))
	})
	if got := s.refusals(); len(got) > 0 {
		t.Errorf("Envoy Gateway refuses %d of what it is told: %.2000s", len(got), got)
	}
	overloaded := row{chain: "claude", path: messages, script: "a=529"}
	ask := func(t *testing.T) {
		if a := s.call(within(t, stage.Patience), t, s.frontURL(), overloaded); a.Status != 529 || a.Header.Get("x-llm-target") != "" {
			t.Errorf("the client got %d %v, want the provider's own 529", a.Status, a.Header)
		}
	}
	t.Run("an overload is the client's", ask)
	stage.Eventually(t, stage.Patience, "the count", func(ctx context.Context) error { return s.counts(ctx, `class="overloaded"`) })
	s.service.Kill()
	t.Run("without the service", ask)
}

// The manifests that are committed, and those of a stack, are what the CRDs allow.
func TestEnvoyGatewayTakesTheExamples(t *testing.T) {
	programs := stage.Output(t, "../../scripts/gateway.sh")
	examples, err := filepath.Glob("../../envoy/gateway/[^u]*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, example := range examples {
		t.Run(filepath.Base(example), func(t *testing.T) {
			out, err := exec.Command(filepath.Join(programs, "egctl"), "x", "validate", "-f", example).CombinedOutput()
			if err != nil || strings.Contains(string(out), "validation error") {
				t.Errorf("egctl x validate: %v\n%s", err, out)
			}
		})
	}
	t.Run("a status that no answer has is not taken", func(t *testing.T) {
		bad := stage.Write(t, filepath.Join(t.TempDir(), "bad.yaml"), []byte(strings.Replace(string(read(t, examples[0])), "statusOnError: 507", "statusOnError: 777", 1)))
		out, _ := exec.Command(filepath.Join(programs, "egctl"), "x", "validate", "-f", bad).CombinedOutput()
		if !strings.Contains(string(out), "validation error") {
			t.Errorf("egctl x validate = %s, want an error", out)
		}
	})
}
