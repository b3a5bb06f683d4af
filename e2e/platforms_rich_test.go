//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	anthropicparam "github.com/anthropics/anthropic-sdk-go/v2/packages/param"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// Requests with all that has to survive: tools, thinking with its signature, images, numbers and text that are easily
// changed on the way, and a field that nobody knows.
const (
	pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

	richMessages = `{"model":"m","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048},` +
		`"system":[{"type":"text","text":"Sei präzise — 🎭 \u00e9 \"q\"","cache_control":{"type":"ephemeral"}}],` +
		`"tools":[{"name":"look_up","description":"weather","input_schema":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","maximum":9007199254740993}},"required":["city"]}}],` +
		`"tool_choice":{"type":"auto"},"metadata":{"user_id":"u-1"},"messages":[` +
		`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}},{"type":"text","text":"Where is this? \u2028 < & >"}]},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQBCkYIARgCKkD+/signed=="},{"type":"redacted_thinking","data":"cmVkYWN0ZWQ="},{"type":"tool_use","id":"toolu_1","name":"look_up","input":{"city":"Zürich","days":1.50}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"sunny"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}]}]}]}`

	richChats = `{"model":"m","temperature":0.30,"max_completion_tokens":4096,"parallel_tool_calls":false,"user":"u-1",` +
		`"tools":[{"type":"function","function":{"name":"look_up","description":"weather","parameters":{"type":"object","properties":{"days":{"type":"integer","maximum":9007199254740993}}}}}],` +
		`"messages":[{"role":"system","content":"Sei präzise — 🎭 \u00e9"},` +
		`{"role":"user","content":[{"type":"text","text":"Where is this? \u2028 < & >"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pixel + `"}}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"look_up","arguments":"{\"city\":\"Zürich\"}"}}]},` +
		`{"role":"tool","tool_call_id":"call_1","content":"sunny"}]}`

	richResponses = `{"model":"m","temperature":0.30,"max_output_tokens":4096,"store":false,"instructions":"Sei präzise — 🎭 \u00e9",` +
		`"tools":[{"type":"function","name":"look_up","parameters":{"type":"object","properties":{"days":{"type":"integer","maximum":9007199254740993}}},"strict":false}],` +
		`"input":[{"role":"user","content":[{"type":"input_text","text":"Where is this? \u2028 < & >"},{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,` + pixel + `"}]},` +
		`{"type":"function_call","call_id":"call_1","name":"look_up","arguments":"{\"city\":\"Zürich\"}"},` +
		`{"type":"function_call_output","call_id":"call_1","output":"sunny"}]}`

	richGemini = `{"systemInstruction":{"parts":[{"text":"Sei präzise — 🎭 \u00e9"}]},"generationConfig":{"temperature":0.30,"maxOutputTokens":4096},` +
		`"tools":[{"functionDeclarations":[{"name":"look_up","parameters":{"type":"OBJECT","properties":{"days":{"type":"INTEGER"}}}}]}],` +
		`"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"` + pixel + `"}},{"text":"Where is this? \u2028 < & >"}]},` +
		`{"role":"model","parts":[{"functionCall":{"name":"look_up","args":{"city":"Zürich"}},"thoughtSignature":"c2lnbmVk"}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"look_up","response":{"weather":"sunny"}}}]}]}`
)

// Gemini's calls: whole, streamed, and streamed as one JSON list.
const (
	geminiPath       = "/v1beta/models/gemini-any:generateContent"
	geminiStreamPath = "/v1beta/models/gemini-any:streamGenerateContent?alt=sse"
	geminiListPath   = "/v1beta/models/gemini-any:streamGenerateContent"
)

// parsed is what an official client made of an answer.
type parsed struct {
	answer
	events []string // of a stream, as the client hands them out
	whole  string   // the message that the client has read or put together, as JSON
}

// rich makes a call with all that has to survive, with the official client where there is one.
func (s *Stack) rich(ctx context.Context, t testing.TB, c call) parsed {
	t.Helper()
	switch c.path {
	case messages:
		return s.richMessages(ctx, t, c)
	case chats:
		return s.richChats(ctx, t, c)
	case responsed:
		return s.richResponses(ctx, t, c)
	}
	return s.richGemini(ctx, t, c)
}

func (s *Stack) richMessages(ctx context.Context, t testing.TB, c call) parsed {
	var resp *http.Response
	opts := []anthropicoption.RequestOption{
		anthropicoption.WithBaseURL(s.front()), anthropicoption.WithAPIKey(clientKey), anthropicoption.WithMaxRetries(0),
		anthropicoption.WithHTTPClient(s.http), anthropicoption.WithResponseInto(&resp),
	}
	for name, value := range c.headers(t) {
		opts = append(opts, anthropicoption.WithHeader(name, value))
	}
	sdk := anthropic.NewClient(opts...)
	params := anthropicparam.Override[anthropic.MessageNewParams](json.RawMessage(richMessages))
	var p parsed
	if !c.stream {
		m, err := sdk.Messages.New(ctx, params)
		if err == nil {
			p.whole = m.RawJSON()
		}
		p.answer = answered(resp, &strings.Builder{}, err)
		return p
	}
	stream := sdk.Messages.NewStreaming(ctx, params)
	defer stream.Close()
	var m anthropic.Message
	for stream.Next() {
		event := stream.Current()
		if event.Type == "ping" {
			continue
		}
		p.events = append(p.events, without(t, event.RawJSON(), "amazon-bedrock-invocationMetrics"))
		c.got(&strings.Builder{}, event.Delta.Text)
		if err := m.Accumulate(event); err != nil {
			t.Errorf("Accumulate(%s) = %v, want nil", event.RawJSON(), err)
		}
	}
	p.whole = marshalled(t, m)
	p.answer = answered(resp, &strings.Builder{}, stream.Err())
	return p
}

func (s *Stack) richChats(ctx context.Context, t testing.TB, c call) parsed {
	var resp *http.Response
	sdk := s.openaiSDK(t, c, &resp)
	params := param.Override[openai.ChatCompletionNewParams](json.RawMessage(richChats))
	var p parsed
	if !c.stream {
		m, err := sdk.Chat.Completions.New(ctx, params)
		if err == nil {
			p.whole = marshalled(t, m)
		}
		p.answer = answered(resp, &strings.Builder{}, err)
		return p
	}
	stream := sdk.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	var m openai.ChatCompletionAccumulator
	for stream.Next() {
		chunk := stream.Current()
		if len(chunk.Choices) == 0 { // of Azure's filter
			continue
		}
		p.events = append(p.events, marshalled(t, chunk))
		if !m.AddChunk(chunk) {
			t.Errorf("AddChunk(%s) = false, want true", chunk.RawJSON())
		}
	}
	p.whole = marshalled(t, m.ChatCompletion)
	p.answer = answered(resp, &strings.Builder{}, stream.Err())
	return p
}

func (s *Stack) richResponses(ctx context.Context, t testing.TB, c call) parsed {
	var resp *http.Response
	sdk := s.openaiSDK(t, c, &resp)
	params := param.Override[responses.ResponseNewParams](json.RawMessage(richResponses))
	var p parsed
	if !c.stream {
		m, err := sdk.Responses.New(ctx, params)
		if err == nil {
			p.whole = m.RawJSON()
		}
		p.answer = answered(resp, &strings.Builder{}, err)
		return p
	}
	stream := sdk.Responses.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		event := stream.Current()
		p.events = append(p.events, event.RawJSON())
		if event.Type == "response.completed" {
			p.whole = event.Response.RawJSON()
		}
	}
	p.answer = answered(resp, &strings.Builder{}, stream.Err())
	return p
}

func (s *Stack) richGemini(ctx context.Context, t testing.TB, c call) parsed {
	req := s.request(ctx, t, c, strings.NewReader(richGemini))
	a := s.do(req)
	p := parsed{answer: a, whole: a.body}
	if c.stream {
		p.events = strings.Split(strings.TrimSuffix(a.body, "\r\n\r\n"), "\r\n\r\n")
		p.whole = p.events[len(p.events)-1]
	}
	return p
}

// marshalled is v as JSON of the fields that its type has.
func marshalled(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// without is a JSON object without some of its members, keys in order.
func without(t testing.TB, object string, names ...string) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	for _, name := range names {
		delete(members, name)
	}
	return marshalled(t, members)
}

// ask is a raw call with a body of its own.
func (s *Stack) ask(t testing.TB, c call, body string) answer {
	t.Helper()
	return s.do(s.request(within(t, patience), t, c, strings.NewReader(body)))
}
