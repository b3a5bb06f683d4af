package scripted

import (
	"fmt"
	"net/http"
)

// openAIFaults are the errors that Chat Completions and Responses share:
// developers.openai.com/docs/guides/error-codes.
var openAIFaults = map[int]fault{
	200: {"server_error", "server_is_overloaded", "Overloaded"},
	400: {"invalid_request_error", "", "Invalid value for 'messages'"},
	401: {"invalid_request_error", "invalid_api_key", "Incorrect API key provided"},
	402: {"insufficient_quota", "insufficient_quota", "Insufficient Balance"},
	403: {"invalid_request_error", "unsupported_country_region_territory", "Country, region, or territory not supported"},
	404: {"invalid_request_error", "model_not_found", "The model does not exist"},
	408: {"timeout", "", "Request timed out"},
	413: {"invalid_request_error", "", "Request too large"},
	422: {"invalid_request_error", "", "Unprocessable"},
	429: {"requests", "rate_limit_exceeded", "Rate limit reached for requests"},
	498: {"capacity_exceeded", "capacity_exceeded", "Flex tier capacity exceeded"}, // Groq
	503: {"service_unavailable_error", "server_is_overloaded", "The server is overloaded"},
	529: {"service_unavailable_error", "server_is_overloaded", "Overloaded"},
}

// openAICodes are errors that are told by their code alone, at several statuses.
var openAICodes = map[string]fault{
	"insufficient_quota":      {"insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."},
	"context_length_exceeded": {"invalid_request_error", "context_length_exceeded", "This model's maximum context length is 128000 tokens."},
	"resource_unavailable":    {"server_error", "resource_unavailable", "429 Resource Unavailable"},
	"content_filter":          {"", "content_filter", "The response was filtered due to the prompt triggering content management policy."},
}

func openAIFault(status int, code string) fault {
	if f, ok := openAICodes[code]; ok {
		return f
	}
	f, ok := openAIFaults[status]
	if !ok {
		f = fault{"server_error", "", "The server had an error while processing your request"}
	}
	f.code = orElse(code, f.code)
	return f
}

func openAIProblem(status int, code string) string {
	f := openAIFault(status, code)
	told := "null"
	if f.code != "" {
		told = quote(f.code)
	}
	return fmt.Sprintf(`{"error":{"message":%s,"type":%s,"param":null,"code":%s}}`, quote(f.message), quote(f.kind), told)
}

// chat speaks POST /v1/chat/completions. Shapes: the types of openai-go v3.
type chat struct{ events }

func (c chat) stream(m message) (before, content, after []string) {
	before = []string{c.chunk(m, `{"role":"assistant","content":"","refusal":null}`, "null")}
	for _, text := range m.texts {
		content = append(content, c.chunk(m, fmt.Sprintf(`{"content":%s}`, quote(text)), "null"))
	}
	finish := c.finish(m)
	if m.tool {
		call := quote("call_" + m.id)
		after = append(after,
			c.chunk(m, fmt.Sprintf(`{"tool_calls":[{"index":0,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`, call, quote(ToolName)), "null"),
			c.chunk(m, fmt.Sprintf(`{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}`, quote(toolInput[:10])), "null"),
			c.chunk(m, fmt.Sprintf(`{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}`, quote(toolInput[10:])), "null"))
	}
	if m.ending == "refusal" {
		after = append(after, c.chunk(m, `{"refusal":"I can't help "}`, "null"), c.chunk(m, `{"refusal":"with that."}`, "null"))
	}
	after = append(after, c.chunk(m, `{}`, quote(finish)))
	if m.usage {
		after = append(after, data(fmt.Sprintf(`{%s,"choices":[],"usage":%s}`, c.envelope(m, "chat.completion.chunk"), c.usage(m))))
	}
	return before, content, append(after, data("[DONE]"))
}

func (c chat) chunk(m message, delta, finish string) string {
	return data(fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}],"usage":null}`,
		c.envelope(m, "chat.completion.chunk"), delta, finish))
}

func (chat) envelope(m message, object string) string {
	return fmt.Sprintf(`"id":%s,"object":%s,"created":1790000000,"model":%s,"service_tier":%s`,
		quote("chatcmpl-"+m.id), quote(object), quote(m.model), quote(orElse(m.tier, "default")))
}

func (chat) usage(m message) string { return m.used().openAIUsage("prompt", "completion") }

func (c chat) answer(m message) string {
	text, refusal, tools := quote(m.text()), "null", ""
	if m.ending == "refusal" {
		text, refusal = "null", quote("I can't help with that.")
	}
	if m.tool {
		tools = fmt.Sprintf(`,"tool_calls":[{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}]`, quote("call_"+m.id), quote(ToolName), quote(toolInput))
	}
	return fmt.Sprintf(`{%s,"choices":[{"index":0,"message":{"role":"assistant","content":%s,"refusal":%s%s},"logprobs":null,"finish_reason":%s}],"usage":%s}`,
		c.envelope(m, "chat.completion"), text, refusal, tools, quote(c.finish(m)), c.usage(m))
}

func (chat) finish(m message) string {
	switch {
	case m.ending == "filter":
		return "content_filter"
	case m.tool:
		return "tool_calls"
	}
	return "stop"
}

func (chat) inBand(_, code string) string {
	return data(openAIProblem(500, orElse(code, "server_is_overloaded")))
}

func (chat) problem(_ http.Header, status int, code string) string {
	return openAIProblem(status, code)
}
