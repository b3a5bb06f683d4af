//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"understudy/internal/scripted"
)

// target checks who has served a call.
func (a answer) target(t *testing.T, want string) {
	t.Helper()
	if got := a.header.Get("x-llm-target"); a.err != nil || a.status != http.StatusOK || got != want {
		t.Errorf("the client got %d from %q, %v %.500s, want 200 from %s", a.status, got, a.err, a.body, want)
	}
}

// last is the latest request of a call at a place, with the members of its body.
func (s *Stack) last(t *testing.T, place, id string) (scripted.Request, map[string]any) {
	t.Helper()
	requests := s.providers[place].Requests(id)
	if len(requests) == 0 {
		t.Fatalf("%s was not asked by %s", place, id)
	}
	r := requests[len(requests)-1]
	var members map[string]any
	if err := json.Unmarshal(r.Body, &members); err != nil {
		t.Fatalf("%s was asked %q: %v", place, r.Body, err)
	}
	return r, members
}

func TestMembersShareARungByTheirWeights(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{places: []string{"openai", "openai2", "azure"}, chains: []chain{
		{name: "members", api: "openai", on: []string{"openai|openai2", "azure"}, weights: []int{3, 1}, breaker: patient, more: fileChain{Retry: unbounded}},
	}})
	const n = 200
	for i := range n {
		a := s.raw(within(t, patience), t, call{path: chats, chain: "members", script: "*=ok", id: fmt.Sprint("weights-", i)})
		if a.status != http.StatusOK || a.header.Get("x-llm-rung") != "0" {
			t.Fatalf("request %d = %d from rung %q, %v, want 200 from rung 0", i, a.status, a.header.Get("x-llm-rung"), a.err)
		}
	}
	// 150 of 200 are meant; a fair draw is beyond these bounds once in more than a million runs.
	if got := s.providers["openai"].Count(""); got < 115 || got > 182 {
		t.Errorf("the member of weight 3 had %d of %d requests, want about %d", got, n, n*3/4)
	}
	s.calls(t, "", "azure:0")
	for i := range 20 { // whoever is first
		id := fmt.Sprint("other-", i)
		s.raw(within(t, patience), t, call{path: chats, stream: i%2 == 0, chain: "members", script: "openai=529; openai2=ok", id: id}).target(t, "members/openai2")
		s.calls(t, id, "openai2:1 azure:0")
		id = fmt.Sprint("next-", i)
		s.raw(within(t, patience), t, call{path: chats, stream: i%2 == 0, chain: "members", script: "openai=529; openai2=500; azure=ok", id: id}).target(t, "members/azure")
		s.calls(t, id, "openai:1 openai2:1 azure:1")
	}
	s.refusals(t)
}

func TestARequestThatIsBoundGoesNowhereElse(t *testing.T) {
	t.Parallel()
	on := []string{"openai", "azure"}
	s := startStack(t, plan{places: on, chains: []chain{
		{name: "bound", api: "openai", on: on, breaker: patient, more: fileChain{Retry: unbounded}},
		{name: "open", api: "openai", on: on, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}, more: fileChain{Retry: unbounded}},
	}})
	follow := func(id string) string { return `{"model":"m","input":"and then?","previous_response_id":"` + id + `"}` }

	t.Run("to the first target's provider, when nobody knows better", func(t *testing.T) {
		c := call{path: responsed, chain: "open", script: "openai=529; azure=ok"}
		if a := s.ask(t, c, follow("resp_of_long_ago")); a.status != 529 {
			t.Errorf("the client got %d %s, want the provider's own 529", a.status, a.body)
		}
		a := s.ask(t, c, follow("resp_of_long_ago"))
		for _, reason := range []string{"open/azure: not for this exchange: previous_response_id", "provider openai"} {
			if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, reason) {
				t.Errorf("with the breaker open the client got %d %s, want a 503 with %q", a.status, a.body, reason)
			}
		}
		s.calls(t, t.Name(), "openai:1 azure:0")
	})
	t.Run("to where the response was made", func(t *testing.T) {
		first := call{path: responsed, chain: "bound", script: "openai=529; azure=ok", id: "made-at-azure"}
		s.raw(within(t, patience), t, first).target(t, "bound/azure")
		c := call{path: responsed, chain: "bound", script: "*=ok"}
		s.ask(t, c, follow("resp_made-at-azure")).target(t, "bound/azure")
		s.calls(t, t.Name(), "openai:0 azure:1")
	})
	for _, row := range []struct{ name, method, path string }{
		{"a look", http.MethodGet, ""}, {"a deletion", http.MethodDelete, ""}, {"a cancellation", http.MethodPost, "/cancel"},
	} {
		t.Run(row.name+" goes where the response was made", func(t *testing.T) {
			a := s.do(s.plain(within(t, patience), t, row.method, "/v1/responses/resp_made-at-azure"+row.path, nil))
			if a.status != http.StatusOK || !strings.Contains(a.body, `"id":"resp_made-at-azure"`) {
				t.Errorf("%s /v1/responses/resp_made-at-azure%s = %d %s, %v, want 200 from azure", row.method, row.path, a.status, a.body, a.err)
			}
			s.calls(t, t.Name(), "openai:0 azure:1")
		})
	}
}

func TestAFullFlexTierIsLeftBeforeTheTarget(t *testing.T) {
	t.Parallel()
	on := []string{"openai", "azure"}
	flex := func(_ string, target *fileTarget) { target.Tier = "flex" }
	s := startStack(t, plan{places: on, chains: []chain{
		{name: "flex", api: "openai", on: on, tune: flex, breaker: patient, more: fileChain{Retry: unbounded}},
		{name: "on", api: "openai", on: on, tune: flex, breaker: patient, more: fileChain{Retry: unbounded, On: map[string]string{"capacity": "next"}}},
	}})
	for _, c := range clientKinds[2:] {
		c.chain, c.id, c.script = "flex", "flex "+c.kind(), "openai=429 code=resource_unavailable, ok; azure=ok"
		t.Run(c.kind(), func(t *testing.T) {
			a := s.sdk(within(t, patience), t, c)
			a.target(t, "flex/openai")
			s.calls(t, c.id, "openai:2 azure:0")
			var tiers []any
			for _, r := range s.providers["openai"].Requests(c.id) {
				var body map[string]any
				if err := json.Unmarshal(r.Body, &body); err != nil {
					t.Fatal(err)
				}
				tiers = append(tiers, body["service_tier"])
			}
			if fmt.Sprint(tiers) != "[flex <nil>]" {
				t.Errorf("openai was asked for tiers %v, want flex, then none", tiers)
			}
			c.chain, c.id = "on", "on "+c.kind()
			s.sdk(within(t, patience), t, c).target(t, "on/azure")
			s.calls(t, c.id, "openai:1 azure:1")
		})
	}
	s.refusals(t)
}

func TestAConversationStaysWithWhoServedIt(t *testing.T) {
	t.Parallel()
	on := []string{"anthropic", "invoke", "vertex"}
	s := startStack(t, plan{places: on, chains: []chain{{name: "sticky", api: "anthropic", on: on, breaker: patient,
		more: fileChain{Retry: unbounded, Sticky: map[string]any{"for": "10m", "header": "x-conversation-id"}}}}})
	turn := func(i int, conversation, script string) answer {
		c := call{path: messages, stream: i%2 == 0, chain: "sticky", script: script, id: fmt.Sprint(conversation, i), header: map[string]string{"x-conversation-id": conversation}}
		return s.sdk(within(t, patience), t, c)
	}
	turn(0, "one", "*=ok").target(t, "sticky/anthropic")
	turn(1, "one", "anthropic=529; invoke=500").target(t, "sticky/vertex")
	turn(2, "one", "*=ok").target(t, "sticky/vertex")
	turn(3, "one", "vertex=529; *=ok").target(t, "sticky/anthropic")
	turn(4, "another", "*=ok").target(t, "sticky/anthropic")
	turn(5, "one", "*=ok").target(t, "sticky/anthropic")
	s.refusals(t)
}

func TestATargetGetsWhatItsModelCanTake(t *testing.T) {
	t.Parallel()
	on := []string{"anthropic", "invoke", "vertex"}
	limit := func(name string, target *fileTarget) {
		switch name {
		case "invoke":
			target.Limits = map[string]any{"max_output": 100, "drop": []string{"temperature", "top_k"}, "betas": map[string]string{"old-beta": "new-beta", "gone": ""}}
		case "vertex":
			target.Limits = map[string]any{"lacks": []string{"images"}}
		}
	}
	s := startStack(t, plan{places: on, chains: []chain{{name: "limited", api: "anthropic", on: on, tune: limit, breaker: patient, more: fileChain{Retry: unbounded}},
		{name: "blind", api: "anthropic", on: on[2:], tune: limit, breaker: patient}}})
	body := func(content string) string {
		return `{"temperature":0.5,"model":"m","max_tokens":1000,"top_k":4,"messages":[{"role":"user","content":` + content + `}]}`
	}
	headers := map[string]string{"anthropic-version": "2023-06-01", "anthropic-beta": "old-beta,kept,gone"}
	image := `[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}]`

	s.ask(t, call{path: messages, chain: "limited", script: "anthropic=529; *=ok", id: "capped", header: headers}, body(`"hi"`)).target(t, "limited/invoke")
	_, got := s.last(t, "invoke", "capped")
	if got["max_tokens"] != 100.0 || got["temperature"] != nil || got["top_k"] != nil || fmt.Sprint(got["anthropic_beta"]) != "[new-beta kept]" {
		t.Errorf("invoke was asked %v, want 100 tokens, no sampling parameters and its own betas", got)
	}
	s.ask(t, call{path: messages, chain: "limited", script: "anthropic=529; invoke=529; vertex=ok", id: "text", header: headers}, body(`"hi"`)).target(t, "limited/vertex")
	_, got = s.last(t, "vertex", "text")
	if got["max_tokens"] != 1000.0 || got["temperature"] != 0.5 {
		t.Errorf("vertex was asked %v, want what the client asked", got)
	}
	a := s.ask(t, call{path: messages, chain: "limited", script: "anthropic=529; invoke=529; vertex=ok", id: "image", header: headers}, body(image))
	if a.status != 529 {
		t.Errorf("the client got %d %s, want the last provider's own 529", a.status, a.body)
	}
	s.calls(t, "image", "anthropic:1 invoke:1 vertex:0")
	a = s.ask(t, call{path: messages, chain: "blind", script: "vertex=ok", id: "blind", header: headers}, body(image))
	if a.status < 400 || !strings.Contains(a.body, "the request needs images, which target blind/vertex lacks") {
		t.Errorf("the client got %d %s, want a failure that says what the only target lacks", a.status, a.body)
	}
	s.calls(t, "blind", "vertex:0")
	s.refusals(t)
}

func TestEmbeddingsFailOver(t *testing.T) {
	t.Parallel()
	on := []string{"openai", "azure", "entra"}
	s := startStack(t, plan{places: on, chains: []chain{{name: "vectors", api: "openai", on: on, breaker: patient,
		more: fileChain{Retry: unbounded, Match: []fileMatch{{Path: "/v1/embeddings"}}}}}})
	for rung, name := range on {
		for _, way := range []string{"529", "500", "reset"} {
			c := call{path: "/v1/embeddings", chain: "vectors", id: name + way, script: strings.ReplaceAll(failing(on[:rung]), "529", way) + name + "=ok n=7"}
			var resp *http.Response
			sdk := s.openaiSDK(t, c, &resp)
			got, err := sdk.Embeddings.New(within(t, patience), openai.EmbeddingNewParams{Model: "m",
				Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("hello")}, EncodingFormat: "float"})
			if err != nil {
				t.Errorf("embeddings of %s behind %s = %v, want them", name, way, err)
				continue
			}
			if vector := fmt.Sprint(got.Data[0].Embedding); vector != "[0.25 -0.5 7]" || resp.Header.Get("x-llm-target") != "vectors/"+name {
				t.Errorf("embeddings behind %s = %s from %s, want [0.25 -0.5 7] from %s", way, vector, resp.Header.Get("x-llm-target"), name)
			}
		}
	}
	s.refusals(t)
}
