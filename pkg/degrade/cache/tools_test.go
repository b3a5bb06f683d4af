package cache

import (
	"testing"

	"understudy/pkg/classify"
)

func TestWhichAnswersCallTools(t *testing.T) {
	const doc, stream = "application/json", "text/event-stream; charset=utf-8"
	rows := []struct {
		name  string
		api   classify.API
		kind  string
		body  string
		calls bool
	}{
		{"a text calls", anthropic, doc, `{"type":"message","content":[{"type":"thinking","thinking":"tool_use"},{"type":"text","text":"tool_use"}],"stop_reason":"end_turn"}`, false},
		{"a message's call", anthropic, doc, `{"content":[{"type":"text","text":"x"},{"type":"tool_use","id":"t","name":"n","input":{}}],"stop_reason":"tool_use"}`, true},
		{"a provider's own tool", anthropic, doc, `{"content":[{"type":"server_tool_use"},{"type":"web_search_tool_result"},{"type":"text","text":"x"}],"stop_reason":"end_turn"}`, true},
		{"an MCP server's tool", anthropic, doc, `{"content":[{"type":"mcp_tool_use"}]}`, true},
		{"a block of tomorrow", anthropic, doc, `{"content":[{"type":"teleport"}]}`, true},
		{"a turn that pauses", anthropic, doc, `{"content":[],"stop_reason":"pause_turn"}`, true},
		{"a stream of text calls", anthropic, stream, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\nevent: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n", false},
		{"a stream's call", anthropic, stream, "data: {\"content_block\":{\"type\":\"text\"}}\n\ndata: {\"content_block\":{\"type\":\"tool_use\"}}\n\n", true},
		{"a call before a text", anthropic, stream, "data: {\"content_block\":{\"type\":\"tool_use\"}}\n\ndata: {\"content_block\":{\"type\":\"text\"}}\n\ndata: {}", true},
		{"a stream's call without its blank line", anthropic, stream, "data: {\"content_block\":{\"type\":\"tool_use\"}}", true},
		{"a stream's reason alone", anthropic, stream, "data: {\"delta\":{\"stop_reason\":\"tool_use\"}}\r\n\r\n", true},
		{"a completion calls", chat, doc, `{"choices":[{"message":{"content":"x","tool_calls":[],"function_call":null},"finish_reason":"stop"}]}`, false},
		{"a completion's call", chat, doc, `{"choices":[{"message":{"content":null}},{"message":{"tool_calls":[{"id":"c"}]}}]}`, true},
		{"an old function's call", chat, doc, `{"choices":[{"message":{"function_call":{"name":"f"}}}]}`, true},
		{"chunks of text call", chat, stream, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n", false},
		{"a chunk's call", chat, stream, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\ndata: [DONE]\n\n", true},
		{"a chunk's reason alone", chat, stream, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n", true},
		{"a response calls", responses, doc, `{"output":[{"type":"reasoning"},{"type":"message","content":[]}],"tools":[{"type":"function","name":"web_search_call"}]}`, false},
		{"a response's call", responses, doc, `{"output":[{"type":"function_call"}]}`, true},
		{"a response's search", responses, doc, `{"output":[{"type":"web_search_call"},{"type":"message"}]}`, true},
		{"a request for approval", responses, doc, `{"output":[{"type":"mcp_approval_request"}]}`, true},
		{"a response's stream calls", responses, stream, "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\"}}\n\nevent: response.completed\ndata: {\"response\":{\"output\":[{\"type\":\"message\"}]}}\n\n", false},
		{"a response's stream's call", responses, stream, "data: {\"item\":{\"type\":\"custom_tool_call\"}}\n\n", true},
		{"a call that only the end tells", responses, stream, "data: {\"response\":{\"output\":[{\"type\":\"mcp_call\"}]}}\n\n", true},
		{"candidates call", gemini, doc, `{"candidates":[{"content":{"parts":[{"text":"x","thought":true}]}}]}`, false},
		{"a candidate's call", gemini, doc, `{"candidates":[{"content":{"parts":[{"text":"x"},{"functionCall":{"name":"f"}}]}}]}`, true},
		{"a call in a streamed array", gemini, doc, `[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]},{"candidates":[{"content":{"parts":[{"executableCode":{}}]}}]}]`, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if got, err := callsTools(row.api, row.kind, []byte(row.body)); got != row.calls || err != nil {
				t.Errorf("callsTools(%d, %s) = %v, %v, want %v", row.api, row.body, got, err, row.calls)
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	rows := []struct {
		name       string
		api        classify.API
		kind, body string
	}{
		{"no JSON", chat, "application/json", `{"choices":[`},
		{"a number", chat, "application/json", `1`},
		{"a page", chat, "text/html", `<html>`},
		{"no content type", chat, "", `{}`},
		{"AWS's frames", anthropic, "application/vnd.amazon.eventstream", "\x00\x00"},
		{"a stream of nothing", chat, "text/event-stream", ": ping\n\ndata: [DONE]\n\n"},
		{"an event that is no JSON", chat, "text/event-stream", "data: {}\n\ndata: {\n\n"},
		{"a last event that is no JSON", chat, "text/event-stream", "data: {}\n\ndata: {"},
		{"a message that max_tokens cut", anthropic, "application/json", `{"content":[{"type":"text","text":"x"}],"stop_reason":"max_tokens"}`},
		{"a message that the context's end cut", anthropic, "application/json", `{"content":[],"stop_reason":"model_context_window_exceeded"}`},
		{"a stream that max_tokens cut", anthropic, "text/event-stream", "data: {\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"},
		{"a completion of which one choice was cut", chat, "application/json", `{"choices":[{"finish_reason":"stop"},{"finish_reason":"length"}]}`},
		{"chunks that were cut", chat, "text/event-stream", "data: {\"choices\":[{\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"},
		{"a response that was cut", responses, "application/json", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`},
		{"a response's stream that was cut", responses, "text/event-stream", "data: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\"}}\n\n"},
		{"a candidate that was cut", gemini, "application/json", `{"candidates":[{"finishReason":"MAX_TOKENS"}]}`},
		{"a dialect without rules", classify.BedrockConverse, "application/json", `{}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if got, err := callsTools(row.api, row.kind, []byte(row.body)); err == nil {
				t.Errorf("callsTools(%d, %q, %q) = %v, want an error", row.api, row.kind, row.body, got)
			}
		})
	}
}

// FuzzCallsTools: no answer makes it panic, and only JSON and streams are read.
func FuzzCallsTools(f *testing.F) {
	f.Add("application/json", []byte(`{"content":[{"type":"text"}],"choices":[{"delta":{}}],"output":[1],"candidates":[{"content":{"parts":[{}]}}]}`))
	f.Add("text/event-stream", []byte("data: {\"item\":{}}\n\ndata: [DONE]"))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		for api := classify.APIUnknown; api <= classify.AnthropicVertex; api++ {
			if calls, err := callsTools(api, kind, body); calls && err != nil {
				t.Fatalf("callsTools(%d, %q, %q) = true, %v, want one", api, kind, body, err)
			}
		}
	})
}
