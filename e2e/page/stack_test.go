//go:build page

package page

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"understudy/internal/scripted"
	"understudy/internal/stage"
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
	t.Setenv("PAGE_TOKEN", token)
	t.Setenv("PAGE_KEY", "key")
	dir := t.TempDir()
	admin, front, envoyAdmin := stage.Free(t), stage.Free(t), stage.Free(t)
	s := &stack{t: t, front: "http://" + front, status: "http://" + admin,
		a: scripted.New("a", scripted.Options{}), b: scripted.New("b", scripted.Options{})}
	file := stage.Write(t, filepath.Join(dir, "understudy.yaml"), fmt.Appendf(nil, stackYAML, stage.Free(t), admin, front, envoyAdmin, stage.Free(t), dir,
		stage.Serve(t, s.a, nil).URL("127.0.0.1"), stage.Serve(t, s.b, nil).URL("127.0.0.1")))
	stage.Start(t, filepath.Join(dir, "service.log"), binary, "serve", "-c", file).Ready(t, s.status+"/readyz")
	boot := stage.Output(t, binary, "envoy", "--xds", "-c", file)
	stage.Envoy(t, "1.40.0", stage.Write(t, filepath.Join(dir, "envoy.yaml"), []byte(boot)), "http://"+envoyAdmin+"/ready")
	stage.Eventually(t, stage.Patience, "a call", s.call)
	return s
}

// call makes one call of the chain.
func (s *stack) call(ctx context.Context) error {
	return stage.Call{API: "anthropic", URL: s.front, Model: "claude-sonnet-5", Stream: true}.Ask(ctx, "hi").Err
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
