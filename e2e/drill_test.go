//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"understudy/internal/stage"
	"understudy/pkg/drill"
)

// drills lets a plan's replicas play faults.
func drills(t testing.TB, p plan) plan {
	at := stage.Free(t)
	p.edit = func(f *file) { f.Drill = map[string]any{"listen": at} }
	return p
}

// change asks the admin listener for a change, and reads its answer.
func (s *Stack) change(t testing.TB, path string, ask any) (status int, answer map[string]any, text string) {
	t.Helper()
	js, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(within(t, patience), http.MethodPost, "http://"+s.services[0].admin+path, bytes.NewReader(js))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(body, &answer)
	return resp.StatusCode, answer, string(body)
}

// mark is the token of requests that meet faults on a chain, by target.
func (s *Stack) mark(t testing.TB, chain string, faults map[string]string) string {
	t.Helper()
	status, answer, text := s.change(t, "/drills/tokens", map[string]any{"chain": chain, "faults": faults})
	token, _ := answer["token"].(string)
	if status != http.StatusCreated || token == "" {
		t.Fatalf("POST /drills/tokens = %d %s, want a token", status, text)
	}
	return token
}

func TestADrilledFaultIsReadAndReplacedLikeARealOne(t *testing.T) {
	t.Parallel()
	var chains []chain
	for _, api := range []string{"anthropic", "openai"} {
		chains = append(chains, chain{name: "rehearsed-" + api, api: api, on: []string{"a", "b"},
			breaker: fileBreaker{Failures: 1}, // which a rehearsal must not open
			more:    fileChain{Deadlines: fileDeadlines{FirstContent: 2 * time.Second, Answer: 2 * time.Second, Idle: time.Second}},
		})
	}
	s := startStack(t, drills(t, plan{chains: chains}))
	t.Run("rows", func(t *testing.T) {
		for _, f := range drill.Faults() {
			if f.Name == "flapping" { // is overloaded, at times
				continue
			}
			for _, kind := range clientKinds {
				if f.Streamed && !kind.stream {
					continue
				}
				t.Run(f.Name+" of "+kind.kind(), func(t *testing.T) { s.rehearse(t, f, kind) })
			}
		}
	})
	for _, c := range chains {
		s.reads(t, is(closed), "understudy_breaker_state", "target", c.target("a"))
	}
	s.survives(t)
}

func (s *Stack) rehearse(t *testing.T, f drill.Fault, kind call) {
	t.Parallel()
	c := chain{name: "rehearsed-" + apiOf(kind.path)}
	kind.header = map[string]string{"x-llm-internal": s.mark(t, c.name, map[string]string{c.target("a"): f.Name})}
	a := s.sdk(within(t, time.Minute), t, kind)
	s.calls(t, t.Name(), "a:0")
	if f.Hidden {
		served{by: "b", target: c.target("b"), rung: 1, attempts: 2, reason: f.Class.String()}.check(t, kind, a)
		return
	}
	if got := a.header.Get("x-llm-target"); got != c.target("a") {
		t.Errorf("x-llm-target = %q, want %q: nothing replaces an answer that has begun, or a refusal", got, c.target("a"))
	}
}
