package scripted

import (
	"fmt"
	"net/http"
	"strings"
)

// anthropic speaks POST /v1/messages. Shapes: platform.claude.com/docs/en/api/errors and the types of
// anthropic-sdk-go v2.
type anthropic struct{ events }

func (anthropic) alive() string { return named("ping", `{"type": "ping"}`) }

const refusalDetails = `{"type":"refusal","category":"cyber","explanation":"declined"}`

func (a anthropic) stream(m message) (before, content, after []string) {
	before = []string{
		named("message_start", fmt.Sprintf(`{"type":"message_start","message":{"id":%s,"type":"message","role":"assistant","model":%s,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{%s,"output_tokens":1,"service_tier":%s}}}`,
			quote("msg_"+m.id), quote(m.model), m.used().anthropicInput(), quote(orElse(m.tier, "standard")))),
		named("ping", `{"type": "ping"}`),
	}
	stop, details := a.stop(m)
	after = []string{
		named("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%s,"stop_sequence":null,"stop_details":%s},"usage":{"output_tokens":%d%s}}`, quote(stop), details, m.used().Output, m.iterations())),
		named("message_stop", `{"type":"message_stop"}`),
	}
	if len(m.texts) == 0 { // refused before any output: "content may be empty"
		return before, nil, after
	}
	at := 0
	if m.think {
		before = append(before, a.block(0, `{"type":"thinking","thinking":"","signature":""}`, thinkingDeltas...)...)
		at++
	}
	text := a.block(at, `{"type":"text","text":""}`)
	before, after = append(before, text[0]), append(text[1:], after...)
	for _, text := range m.texts {
		content = append(content, named("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%s}}`, at, quote(text))))
	}
	if m.tool {
		call := a.block(at+1, fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":{}}`, quote("toolu_"+m.id), quote(ToolName)), toolDeltas...)
		after = append(append(text[1:], call...), after[1:]...)
	}
	return before, content, after
}

// block are the events of a content block.
func (anthropic) block(at int, start string, deltas ...string) []string {
	list := []string{named("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, at, start))}
	for _, delta := range deltas {
		list = append(list, named("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, at, delta)))
	}
	return append(list, named("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, at)))
}

// The one call that answers make, its argument with what JSON and UTF-8 make difficult, and the one thought.
const (
	ToolName  = "look_up"
	toolInput = `{"city":"Zürich \"\u00e9\"","days":3}`
	thought   = "Let me think: é, 🎭."
	signature = "EqQBCgIYAhIM+/scripted=="
)

var (
	thinkingDeltas = []string{
		`{"type":"thinking_delta","thinking":"Let me think: "}`,
		`{"type":"thinking_delta","thinking":"é, 🎭."}`,
		`{"type":"signature_delta","signature":"` + signature + `"}`,
	}
	toolDeltas = []string{
		fmt.Sprintf(`{"type":"input_json_delta","partial_json":%s}`, quote(toolInput[:10])),
		fmt.Sprintf(`{"type":"input_json_delta","partial_json":%s}`, quote(toolInput[10:])),
	}
)

func (a anthropic) answer(m message) string {
	var blocks []string
	if m.think {
		blocks = append(blocks, fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":%s}`, quote(thought), quote(signature)))
	}
	if len(m.texts) > 0 {
		blocks = append(blocks, fmt.Sprintf(`{"type":"text","text":%s}`, quote(m.text())))
	}
	if m.tool {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":%s}`, quote("toolu_"+m.id), quote(ToolName), toolInput))
	}
	stop, details := a.stop(m)
	return fmt.Sprintf(`{"id":%s,"type":"message","role":"assistant","model":%s,"content":[%s],"stop_reason":%s,"stop_sequence":null,"stop_details":%s,"usage":{%s,"output_tokens":%d,"service_tier":%s%s}}`,
		quote("msg_"+m.id), quote(m.model), strings.Join(blocks, ","), quote(stop), details, m.used().anthropicInput(), m.used().Output, quote(orElse(m.tier, "standard")), m.iterations())
}

func (anthropic) stop(m message) (reason, details string) {
	switch {
	case m.ending != "":
	case m.tool:
		return "tool_use", "null"
	default:
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
func (anthropic) problem(_ http.Header, status int, code string) string {
	return anthropicProblem(status, code)
}

func anthropicProblem(status int, code string) string {
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
