package provider

import (
	"net/http"
	"strings"
	"testing"

	"understudy/pkg/config"
)

// with is target with something else.
func with(target *config.Target, change func(*config.Target)) *config.Target {
	change(target)
	return target
}

func tiered(target *config.Target, tier, speed string) *config.Target {
	target.Tier, target.Speed = tier, speed
	return target
}

func TestTiers(t *testing.T) {
	shared := http.Header{"X-Vertex-Ai-Llm-Shared-Request-Type": {"priority"}}
	rows := []struct {
		name     string
		target   *config.Target
		path     string
		header   http.Header
		body     string
		standard bool
		want     string // body
		headers  string
		asked    string
	}{
		{"the client's tier changes", native(t), "/v1/responses", nil, `{"model":"m","service_tier":"flex"}`, false, `{"model":"m","service_tier":"flex"}`, "", "flex"},
		{"the target's tier is not set", tiered(native(t), "flex", ""), "/v1/responses", nil, `{"model":"m" , "a":1 }`, false, `{"model":"m" , "a":1,"service_tier":"flex" }`, "", "flex"},
		{"the client's tier beats the target's", tiered(native(t), "flex", ""), "/v1/chat/completions", nil, `{"service_tier":"auto","model":"m"}`, false, `{"service_tier":"flex","model":"m"}`, "", "flex"},
		{"the standard tier is still flex", tiered(native(t), "flex", ""), "/v1/chat/completions", nil, `{"service_tier":"flex","model":"m"}`, true, `{"model":"m"}`, "", ""},
		{"the standard tier keeps the client's", native(t), "/v1/responses", nil, `{"model":"m","service_tier":"flex"}`, true, `{"model":"m"}`, "", ""},
		{"the standard tier keeps one of two", native(t), "/v1/responses", nil, `{"service_tier":"flex","model":"m","service_tier":null}`, true, `{"model":"m"}`, "", ""},
		{"embeddings get a tier", tiered(native(t), "flex", ""), "/v1/embeddings", nil, `{"model":"m"}`, false, `{"model":"m"}`, "", ""},
		{"Azure asks for a tier it lacks", azureTarget(t, "https://a.example", ""), "/v1/responses", nil, `{"model":"m","service_tier":"ultrafast"}`, false, `{"model":"m"}`, "-openai-organization; -openai-project", ""},

		{"Anthropic's speed is not set", tiered(native(t), "", "fast"), "/v1/messages", nil, `{"model":"m","service_tier":"auto"}`, false, `{"model":"m","service_tier":"auto","speed":"fast"}`, "", "fast"},
		{"Anthropic's auto goes with the standard tier", native(t), "/v1/messages", nil, `{"service_tier":"auto","model":"m","speed":"fast"}`, true, `{"service_tier":"auto","model":"m"}`, "", "auto"},
		{"fast is asked where it is not known", bedrockTarget(t, config.Mantle), "/v1/messages", nil, `{"model":"m","speed":"fast"}`, false, `{"model":"m"}`, "", ""},
		{"fast is not asked on Vertex", vertexTarget(t), "/v1/messages", nil, `{"model":"x","speed":"fast","anthropic_version":"v"}`, false, `{"speed":"fast","anthropic_version":"v"}`, "-anthropic-version", "fast"},
		{"Bedrock's tier stands in the body", tiered(bedrockTarget(t, config.Messages), "flex", ""), "/v1/messages", nil, `{"model":"m"}`, false, `{"model":"m"}`, "x-amzn-bedrock-service-tier: flex", "flex"},
		{"Bedrock's standard tier is not its default", tiered(bedrockTarget(t, config.Messages), "standard", ""), "/v1/messages", nil, `{"model":"m"}`, false, `{"model":"m"}`, "x-amzn-bedrock-service-tier: default", "default"},
		{"Bedrock is asked for auto", tiered(bedrockTarget(t, config.Messages), "auto", ""), "/v1/messages", nil, `{"model":"m"}`, false, `{"model":"m"}`, "-x-amzn-bedrock-service-tier", ""},
		{"Bedrock keeps its tier when the standard one is asked", tiered(bedrockTarget(t, config.Messages), "flex", ""), "/v1/messages", nil, `{"model":"m"}`, true, `{"model":"m"}`, "-x-amzn-bedrock-service-tier", ""},

		{"Gemini's tier is not set", tiered(native(t), "flex", ""), generate, nil, `{"contents":[]}`, false, `{"contents":[],"serviceTier":"flex"}`, "", "flex"},
		{"Gemini is told two tiers", tiered(native(t), "flex", ""), generate, nil, `{"service_tier":"priority","contents":[]}`, false, `{"contents":[],"serviceTier":"flex"}`, "", "flex"},
		{"Gemini's standard tier keeps a spelling", native(t), generate, nil, `{"service_tier":"flex","contents":[]}`, true, `{"contents":[]}`, "", ""},
		{"Vertex's tier stands in the body", tiered(vertexTarget(t), "priority", ""), generate, nil, `{"contents":[],"serviceTier":"flex"}`, false, `{"contents":[]}`, "x-vertex-ai-llm-shared-request-type: priority", "priority"},
		{"Vertex's header is not asked for", vertexTarget(t), generate, shared, `{"contents":[]}`, false, `{"contents":[]}`, "", "priority"},
		{"Vertex's header stays at the standard tier", vertexTarget(t), generate, shared, `{"contents":[]}`, true, `{"contents":[]}`, "-x-vertex-ai-llm-shared-request-type", ""},
		{"provisioned throughput is not asked for", vertexTarget(t), generate, http.Header{"X-Vertex-Ai-Llm-Request-Type": {"dedicated"}}, `{"contents":[]}`, false, `{"contents":[]}`, "", "provisioned"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			q := sent(t, row.path, row.header, row.body)
			if row.standard {
				q = Standard(q)
			}
			rw, err := ForTarget(row.target, row.target, q)
			got := string(rw.Body)
			if rw.Body == nil {
				got = row.body
			}
			if err != nil || got != row.want || changed(rw) != row.headers {
				t.Errorf("ForTarget() = %s, %q, %v, want %s, %q", got, changed(rw), err, row.want, row.headers)
			}
			if asked := AskedTier(row.target, q); asked != row.asked {
				t.Errorf("AskedTier() = %q, want %q", asked, row.asked)
			}
		})
	}
}

func limited(target *config.Target, l config.Limits) *config.Target {
	return with(target, func(t *config.Target) { t.Limits = l })
}

func TestLimits(t *testing.T) {
	most := func(n int) *config.Target { return limited(native(t), config.Limits{MaxOutput: n}) }
	drop := func(names ...string) *config.Target { return limited(native(t), config.Limits{Drop: names}) }
	betas := config.Limits{Betas: map[string]string{"a": "", "b": "x"}}
	beta := http.Header{"Anthropic-Beta": {"a,b", "c,x"}}
	rows := []struct {
		name          string
		target        *config.Target
		path          string
		header        http.Header
		body          string
		want, headers string
	}{
		{"max_tokens passes the cap", most(7), "/v1/messages", nil, `{"max_tokens":8,"model":"m"}`, `{"max_tokens":7,"model":"m"}`, ""},
		{"a smaller max_tokens is raised", most(7), "/v1/messages", nil, `{"max_tokens":7.0,"model":"m"}`, `{"max_tokens":7.0,"model":"m"}`, ""},
		{"Anthropic has no max_tokens", most(7), "/v1/messages", nil, `{"model":"m"}`, `{"model":"m","max_tokens":7}`, ""},
		{"a number in words passes", most(7), "/v1/messages", nil, `{"max_tokens":1e3,"max_tokens":"9","model":"m"}`, `{"max_tokens":7,"max_tokens":"9","model":"m"}`, ""},
		{"chat has a cap it did not ask for", most(7), "/v1/chat/completions", nil, `{"model":"m","max_tokens":9,"max_completion_tokens":10}`, `{"model":"m","max_tokens":7,"max_completion_tokens":7}`, ""},
		{"an unbounded answer of chat is longer than the cap", most(7), "/v1/chat/completions", nil, `{"model":"m"}`, `{"model":"m","max_completion_tokens":7}`, ""},
		{"an unbounded response is longer than the cap", most(7), "/v1/responses", nil, `{"model":"m"}`, `{"model":"m","max_output_tokens":7}`, ""},
		{"an unbounded answer of Gemini is longer than the cap", most(7), generate, nil, `{"contents":[]}`, `{"contents":[],"generationConfig":{"maxOutputTokens":7}}`, ""},
		{"Gemini's other parameters keep the cap out", most(7), generate, nil, `{"generationConfig":{"topK":1}}`, `{"generationConfig":{"topK":1,"maxOutputTokens":7}}`, ""},
		{"responses pass the cap", most(7), "/v1/responses", nil, `{"model":"m","max_output_tokens":9}`, `{"model":"m","max_output_tokens":7}`, ""},
		{"Gemini passes the cap", most(7), generate, nil, `{"generationConfig":{"maxOutputTokens":9,"a":{}}}`, `{"generationConfig":{"maxOutputTokens":7,"a":{}}}`, ""},
		{"another spelling passes the cap", most(7), generate, nil, `{"generation_config":{"max_output_tokens":9}}`, `{"generation_config":{"max_output_tokens":7}}`, ""},
		{"a field is left in", drop("temperature", "top_k"), "/v1/messages", nil, `{"temperature":1, "model":"m", "top_k":5}`, `{"model":"m"}`, ""},
		{"a comma is left in", drop("a", "c"), "/v1/messages", nil, "{\n\"a\":1,\n\"b\":2,\n\"c\":3\n}", "{\n\"b\":2\n}", ""},
		{"all but nothing is left in", drop("a", "b"), "/v1/messages", nil, `{ "a":1 , "b":[] }`, `{  }`, ""},
		{"a field deeper down goes, too", drop("temperature"), "/v1/messages", nil, `{"metadata":{"temperature":1}}`, `{"metadata":{"temperature":1}}`, ""},
		{"Gemini's sampling stays", drop("temperature"), generate, nil, `{"generationConfig":{"temperature":1,"topK":2}}`, `{"generationConfig":{"topK":2}}`, ""},
		{"Gemini's config stays", limited(native(t), config.Limits{Drop: []string{"generationConfig"}, MaxOutput: 1}), generate, nil, `{"generationConfig":{"maxOutputTokens":2},"contents":[]}`, `{"contents":[]}`, ""},
		{"betas are not mapped", limited(native(t), betas), "/v1/messages", beta, `{"model":"m"}`, `{"model":"m"}`, "anthropic-beta: x,c"},
		{"no beta leaves an empty header", limited(native(t), betas), "/v1/messages", http.Header{"Anthropic-Beta": {"a"}}, `{"model":"m"}`, `{"model":"m"}`, "-anthropic-beta"},
		{"betas that pass are rewritten", limited(native(t), betas), "/v1/messages", http.Header{"Anthropic-Beta": {"c , d"}}, `{"model":"m"}`, `{"model":"m"}`, ""},
		{"betas of the body are not mapped", limited(bedrockTarget(t, config.Invoke), betas), "/v1/messages", beta, `{"model":"m"}`, `{"anthropic_beta":["x","c"],"anthropic_version":"bedrock-2023-05-31"}`, "accept: application/json; -anthropic-version; -anthropic-beta"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			rw, err := ForTarget(row.target, row.target, sent(t, row.path, row.header, row.body))
			got := string(rw.Body)
			if rw.Body == nil {
				got = row.body
			}
			if err != nil || got != row.want || changed(rw) != row.headers {
				t.Errorf("ForTarget() = %s, %q, %v, want %s, %q", got, changed(rw), err, row.want, row.headers)
			}
		})
	}
}

func TestThinkingOfAnotherFamilyStaysBehind(t *testing.T) {
	const skip = `"skip_thought_signature_validator"`
	rows := []struct{ name, path, body, want string }{
		{"thinking goes on", "/v1/messages",
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"}, {"type":"text","text":"b"} ,{"type":"redacted_thinking","data":"d"}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]}]}`},
		{"thinking between tools takes a comma along", "/v1/messages",
			`{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1"},{"type":"thinking"},{"type":"thinking"},{"type":"tool_use","id":"2"}]}]}`,
			`{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1"},{"type":"tool_use","id":"2"}]}]}`},
		{"a turn of thinking alone is left empty", "/v1/messages",
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking"}]},{"role":"user","content":"b"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`},
		{"an empty turn goes", "/v1/messages", `{"model":"m","messages":[{"role":"assistant","content":[]}]}`, `{"model":"m","messages":[{"role":"assistant","content":[]}]}`},
		{"a user's block goes", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":[{"type":"thinking"}]}]}`, `{"model":"m","messages":[{"role":"user","content":[{"type":"thinking"}]}]}`},
		{"a text about thinking goes", "/v1/messages", `{"model":"m","messages":[{"role":"assistant","content":"{\"type\":\"thinking\"}"}]}`, `{"model":"m","messages":[{"role":"assistant","content":"{\"type\":\"thinking\"}"}]}`},
		{"thinking as a request goes", "/v1/messages", `{"model":"m","thinking":{"type":"adaptive"},"messages":[]}`, `{"model":"m","thinking":{"type":"adaptive"},"messages":[]}`},
		{"Gemini's signatures go on, or go", generate,
			`{"contents":[{"role":"model","parts":[{"functionCall":{},"thoughtSignature":"abc"},{"text":"x","thought_signature":"d"}]},{"parts":[{"text":"thoughtSignature"}]}]}`,
			`{"contents":[{"role":"model","parts":[{"functionCall":{},"thoughtSignature":` + skip + `},{"text":"x","thought_signature":` + skip + `}]},{"parts":[{"text":"thoughtSignature"}]}]}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			target, first := native(t), native(t)
			for family, want := range map[string]string{"a": row.body, "b": row.want} {
				target.Family, first.Family = family, "a"
				rw, err := ForTarget(target, first, sent(t, row.path, nil, row.body))
				got := string(rw.Body)
				if rw.Body == nil {
					got = row.body
				}
				if err != nil || got != want {
					t.Errorf("ForTarget() for family %s after a = %s, %v, want %s", family, got, err, want)
				}
			}
		})
	}
}

func TestARequestOfManyFieldsIsRefused(t *testing.T) {
	body := `{"model":"m"` + strings.Repeat(`,"a":1`, maxMembers-1) + `}`
	if _, err := Read(Incoming{Path: "/v1/messages", Body: []byte(body)}, 1<<20); err != nil {
		t.Errorf("Read() of %d fields = %v, want nil", maxMembers, err)
	}
	body = body[:len(body)-1] + `,"b":2}`
	if _, err := Read(Incoming{Path: "/v1/messages", Body: []byte(body)}, 1<<20); err != ErrMany {
		t.Errorf("Read() of %d fields = %v, want %v", maxMembers+1, err, ErrMany)
	}
}
