package scripted

import (
	"fmt"
	"strings"
)

// anthropic speaks POST /v1/messages. Shapes: platform.claude.com/docs/en/api/errors and the types of
// anthropic-sdk-go v2.
type anthropic struct{}

const refusalDetails = `{"type":"refusal","category":"cyber","explanation":"declined"}`

func (a anthropic) stream(m message) (before, content, after []string) {
	before = []string{
		named("message_start", fmt.Sprintf(`{"type":"message_start","message":{"id":%s,"type":"message","role":"assistant","model":%s,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":11,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":%s}}}`,
			quote("msg_"+m.id), quote(m.model), quote(orElse(m.tier, "standard")))),
		named("ping", `{"type": "ping"}`),
	}
	stop, details := a.stop(m)
	after = []string{
		named("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%s,"stop_sequence":null,"stop_details":%s},"usage":{"output_tokens":%d}}`, quote(stop), details, len(m.texts))),
		named("message_stop", `{"type":"message_stop"}`),
	}
	if len(m.texts) == 0 { // refused before any output: "content may be empty"
		return before, nil, after
	}
	before = append(before, named("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
	after = append([]string{named("content_block_stop", `{"type":"content_block_stop","index":0}`)}, after...)
	for _, text := range m.texts {
		content = append(content, named("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`, quote(text))))
	}
	return before, content, after
}

func (a anthropic) answer(m message) string {
	blocks := ""
	if len(m.texts) > 0 {
		blocks = fmt.Sprintf(`{"type":"text","text":%s}`, quote(m.text()))
	}
	stop, details := a.stop(m)
	return fmt.Sprintf(`{"id":%s,"type":"message","role":"assistant","model":%s,"content":[%s],"stop_reason":%s,"stop_sequence":null,"stop_details":%s,"usage":{"input_tokens":11,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":%d,"service_tier":%s}}`,
		quote("msg_"+m.id), quote(m.model), blocks, quote(stop), details, len(m.texts), quote(orElse(m.tier, "standard")))
}

func (anthropic) stop(m message) (reason, details string) {
	if m.ending == "" {
		return "end_turn", "null"
	}
	return "refusal", refusalDetails
}

// A space before the last brace is common on the real wire.
func (anthropic) inBand(_, code string) string {
	return named("error", fmt.Sprintf(`{"type":"error","error":{"details":null,"type":%s,"message":"Overloaded"} }`, quote(orElse(code, "overloaded_error"))))
}

var anthropicFaults = map[int]fault{
	200: {"overloaded_error", "", "Overloaded"},
	400: {"invalid_request_error", "", "messages: at least one message is required"},
	401: {"authentication_error", "", "invalid x-api-key"},
	402: {"billing_error", "", "Your credit balance is too low"},
	403: {"permission_error", "", "Your API key does not have permission to use this resource"},
	404: {"not_found_error", "", "model: no-such-model"},
	408: {"timeout_error", "", "Request timed out"},
	413: {"request_too_large", "", "Request exceeds the maximum size"},
	422: {"invalid_request_error", "", "unprocessable"},
	429: {"rate_limit_error", "", "This request would exceed your organization's rate limit"},
	503: {"overloaded_error", "", "Overloaded"},
	504: {"timeout_error", "", "Request timed out"},
	529: {"overloaded_error", "", "Overloaded"},
}

// A code is either an error type or, below it, a `details.error_code`.
func (anthropic) problem(status int, code string) string {
	f, ok := anthropicFaults[status]
	if !ok {
		f = fault{"api_error", "", "Internal server error"}
	}
	details := "null"
	switch {
	case code == "spend_limit": // told by the message alone
		f.message = "You have reached your specified API usage limits. You will regain access on 2027-01-01."
	case strings.HasSuffix(code, "_error"):
		f.kind = code
	case code != "":
		details = fmt.Sprintf(`{"error_code":%s}`, quote(code))
	}
	return fmt.Sprintf(`{"type":"error","error":{"type":%s,"message":%s,"details":%s},"request_id":"req_scripted"}`, quote(f.kind), quote(f.message), details)
}
