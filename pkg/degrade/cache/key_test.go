package cache

import (
	"errors"
	"fmt"
	"testing"

	"understudy/pkg/classify"
)

const (
	anthropic = classify.AnthropicMessages
	chat      = classify.OpenAIChat
	responses = classify.OpenAIResponses
	gemini    = classify.Gemini
)

// bodies are requests with one question in it, "%s" being further members.
var bodies = map[classify.API]string{
	anthropic: `{"model":"m","max_tokens":5,"system":"s","messages":[{"role":"user","content":"hi"}]%s}`,
	chat:      `{"model":"m","messages":[{"role":"user","content":"hi"}]%s}`,
	responses: `{"model":"m","instructions":"s","input":"hi"%s}`,
	gemini:    `{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"hi"}]}]%s}`,
}

func request(api classify.API, more string) Request {
	return Request{Chain: "c", API: api, Path: "/v1/x", Body: fmt.Appendf(nil, bodies[api], more)}
}

func exact(t testing.TB, r Request) digest {
	t.Helper()
	k, err := KeyOf(r, false)
	if err != nil {
		t.Fatalf("KeyOf(%s) = %v, want a key", r.Body, err)
	}
	return k.exact
}

func TestWhatDoesNotCountIsTheSameRequest(t *testing.T) {
	for api, d := range dialects {
		plain := exact(t, request(api, ""))
		for name, rule := range d.root {
			if rule != volatile && rule != storing {
				continue
			}
			for _, value := range []string{`"a"`, `{"user_id":"b"}`, `true`, `null`} {
				if got := exact(t, request(api, fmt.Sprintf(`,%q:%s`, name, value))); got != plain {
					t.Errorf("with %s: %s a request of API %d is another, want the same", name, value, api)
				}
			}
		}
	}
}

func TestWhatCountsIsAnotherRequest(t *testing.T) {
	for api := range dialects {
		plain := exact(t, request(api, ""))
		for _, more := range []string{
			`,"temperature":0.5`, `,"stream":true`, `,"stream_options":{"include_usage":true}`, `,"tools":[{"name":"t"}]`, `,"top_p":1`,
			`,"stop":["x"]`, `,"seed":1`, `,"tool_choice":"none"`, `,"response_format":{"type":"json_object"}`, `,"a-new-field":0`,
			`,"thinking":{"type":"adaptive"}`, `,"reasoning":{"effort":"low"}`, `,"inference_geo":"eu"`,
			`,"x":{"metadata":1}`, `,"tools":[{"name":"t","input_schema":{"properties":{"cache_control":{"type":"string"}}}}]`,
		} {
			if got := exact(t, request(api, more)); got == plain {
				t.Errorf("with %s a request of API %d is the same, want another", more, api)
			}
		}
	}
}

func TestNothingIsSharedAcross(t *testing.T) {
	base := request(anthropic, "")
	base.Tenant, base.Version, base.Beta = "t", "2026-10-21", "a,b"
	rows := []struct {
		name   string
		change func(*Request)
		same   bool
	}{
		{"chains", func(r *Request) { r.Chain = "d" }, false},
		{"tenants", func(r *Request) { r.Tenant = "u" }, false},
		{"a tenant and none", func(r *Request) { r.Tenant = "" }, false},
		{"a chain's and a tenant's name that run together", func(r *Request) { r.Chain, r.Tenant = "ct", "" }, false},
		{"names that run together the other way", func(r *Request) { r.Chain, r.Tenant = "", "ct" }, false},
		{"paths", func(r *Request) { r.Path = "/v1/y" }, false},
		{"dialects", func(r *Request) { r.API = chat }, false},
		{"versions", func(r *Request) { r.Version = "2023-06-01" }, false},
		{"betas", func(r *Request) { r.Beta = "a" }, false},
		{"betas in another order", func(r *Request) { r.Beta = " b , a,a" }, true},
		{"a version with space", func(r *Request) { r.Version += " " }, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := base
			row.change(&r)
			a, errA := KeyOf(base, true)
			b, errB := KeyOf(r, true)
			if errA != nil || errB != nil || (a.exact == b.exact) != row.same || (a.near.id == b.near.id) != row.same {
				t.Errorf("KeyOf(%+v) shares = %v, near %v, %v, %v, want %v", r, a.exact == b.exact, a.near.id == b.near.id, errA, errB, row.same)
			}
		})
	}
}

func TestNamesWithBytesOfTheKeysOwn(t *testing.T) {
	a, b := request(chat, ""), request(chat, "")
	a.Chain, a.Tenant = "c\x00\x01x", "y"
	b.Chain, b.Tenant = "c", "x\x00\x01y"
	c, d := a, b
	c.Chain, d.Tenant = "c\x00x", "x\x00y"
	if exact(t, a) == exact(t, b) || exact(t, c) == exact(t, d) {
		t.Error("chains and tenants with the same bytes between them share, want none to")
	}
}

func TestMarksOfPromptCachesDoNotCount(t *testing.T) {
	with := `{"model":"m","cache_control":{"type":"ephemeral"},"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],
		"tools":[{"name":"t","cache_control":{"type":"ephemeral"},"input_schema":{}}],
		"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"r","cache_control":{}}],"cache_control":null},
			{"type":"document","source":{"type":"content","content":[{"type":"text","text":"d","cache_control":{}}]}},
			{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`
	without := `{"model":"m","system":[{"type":"text","text":"s"}],"tools":[{"name":"t","input_schema":{}}],
		"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"r"}]},
			{"type":"document","source":{"type":"content","content":[{"type":"text","text":"d"}]}},
			{"type":"text","text":"hi"}]}]}`
	a, b := Request{API: anthropic, Body: []byte(with)}, Request{API: anthropic, Body: []byte(without)}
	if exact(t, a) != exact(t, b) {
		t.Errorf("KeyOf(%s) is another than without marks, want the same", with)
	}
	chatWith := Request{API: chat, Body: []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"hi","prompt_cache_breakpoint":{}}]}]}`)}
	chatWithout := Request{API: chat, Body: []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`)}
	if exact(t, chatWith) != exact(t, chatWithout) {
		t.Errorf("KeyOf(%s) is another than without the mark, want the same", chatWith.Body)
	}
}

func TestRequestsThatAreNotKept(t *testing.T) {
	rows := []struct {
		name string
		api  classify.API
		more string
		want error // nil: it is kept
	}{
		{"a request that forbids to store it", responses, `,"store":false`, ErrPrivate},
		{"a chat that forbids to store it", chat, `,"store":false`, ErrPrivate},
		{"a message that forbids to store it", anthropic, `,"store":false`, ErrPrivate},
		{"an MCP server's token", anthropic, `,"mcp_servers":[{"type":"url","url":"https://x","authorization_token":"t"}]`, ErrPrivate},
		{"an MCP server without a token", anthropic, `,"mcp_servers":[{"type":"url","url":"https://x"}]`, nil},
		{"an MCP tool's token", responses, `,"tools":[{"type":"mcp","authorization":"t"}]`, ErrPrivate},
		{"an MCP tool's headers", responses, `,"tools":[{"type":"mcp","headers":{"x":"t"}}]`, ErrPrivate},
		{"an MCP tool's empty headers", responses, `,"tools":[{"type":"mcp","headers":{},"authorization":null}]`, nil},
		{"an item's MCP tool's token", responses, `,"x":1,"mcp_servers":[{"tools":[{"authorization":"t"}]}]`, ErrPrivate},
		{"a container's secrets", responses, `,"tools":[{"type":"shell","environment":{"network_policy":{"domain_secrets":[{"value":"t"}]}}}]`, ErrPrivate},
		{"a Gemini tool's login", gemini, `,"tools":[{"googleMaps":{"authConfig":{"apiKeyConfig":{}}}}]`, ErrPrivate},
		{"a Gemini MCP server's headers", gemini, `,"tools":[{"mcpServers":[{"streamableHttpTransport":{"headers":{"a":"b"}}}]}]`, ErrPrivate},
		{"a function with an argument of that name", chat, `,"tools":[{"type":"function","function":{"parameters":{"properties":{"headers":{"type":"object"},"authorization":{"type":"string"}}}}}]`, nil},
		{"an earlier response", responses, `,"previous_response_id":"resp_1"`, ErrState},
		{"no earlier response", responses, `,"previous_response_id":null`, nil},
		{"a conversation", responses, `,"conversation":{"id":"c"}`, ErrState},
		{"a response in the background", responses, `,"background":true`, ErrState},
		{"a response not in the background", responses, `,"background":false`, nil},
		{"a template", responses, `,"prompt":{"id":"p"}`, ErrState},
		{"a container by its id", responses, `,"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"c"}}]`, ErrState},
		{"a container", anthropic, `,"container":"c"`, ErrState},
		{"a thread", anthropic, `,"thread":{"type":"create"}`, ErrState},
		{"a message to compare with", anthropic, `,"diagnostics":{"previous_message_id":"m"}`, ErrState},
		{"a token of a refusal", anthropic, `,"fallback_credit_token":"t"`, ErrState},
		{"cached content", gemini, `,"cachedContent":"c"`, ErrState},
		{"a secret beside a state", responses, `,"background":true,"store":false`, ErrPrivate},
		{"a state beside a secret", responses, `,"background":true,"store":false`, ErrState},
		{"a key twice", chat, `,"model":"n"`, ErrUnread},
		{"a broken body", chat, `,`, ErrUnread},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := request(row.api, row.more)
			if k, err := KeyOf(r, true); !errors.Is(err, row.want) || err != nil && k != (Key{}) {
				t.Errorf("KeyOf(%s) = %v, %v, want %v", r.Body, k, err, row.want)
			}
		})
	}
	item := Request{API: responses, Body: []byte(`{"input":[{"type":"item_reference","id":"i"}]}`)}
	if _, err := KeyOf(item, false); !errors.Is(err, ErrState) {
		t.Errorf("KeyOf(%s) = %v, want %v", item.Body, err, ErrState)
	}
	if _, err := KeyOf(Request{API: classify.BedrockConverse, Body: []byte(`{}`)}, false); !errors.Is(err, ErrUnread) {
		t.Errorf("KeyOf() of a dialect without rules = %v, want %v", err, ErrUnread)
	}
}
