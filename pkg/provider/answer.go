package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
)

// Bounds of a platform's error.
const (
	maxErrorBody = 64 << 10 // bytes of a body that are read
	maxErrorText = 4 << 10  // bytes that are shown of one that is not JSON
)

// platformError is what a platform's error says, whatever its shape.
type platformError struct {
	name     string // AWS's exception, Google's status, or OpenAI's code
	message  string
	id       string          // of the request
	original json.RawMessage // the body: JSON, or its text as a JSON string
}

// ErrorIn is the body of an error answer, brought into the dialect of api: body itself if it is in it already.
// Otherwise it tells what the platform's error says, and keeps the original in its details. The status stays.
// Of a body in a content coding, which nobody asked for, it is the same of what that holds.
func ErrorIn(api classify.API, status int, header http.Header, body []byte) []byte {
	coding := strings.ToLower(strings.TrimSpace(header.Get("content-encoding")))
	if plain, err := decode(body, coding, maxErrorBody); err == nil {
		body = plain
	}
	root := readable(body)
	if spoken(api, root) {
		return body
	}
	if root.IsArray() {
		root = root.Get("0") // "frequently wrapped in an array" (wire-formats 4)
		if spoken(api, root) {
			return []byte(root.Raw)
		}
	}
	e := readError(root, header)
	e.original = original(body)
	if e.message == "" {
		e.message = "the provider answered with status " + strconv.Itoa(status)
	}
	switch api {
	case classify.AnthropicMessages:
		return e.anthropic(status)
	case classify.Gemini:
		return e.google(status)
	}
	return e.openAI(status)
}

// readable is the body as JSON, nothing if it is none.
func readable(body []byte) gjson.Result {
	if len(body) > maxErrorBody || !json.Valid(body) {
		return gjson.Result{}
	}
	return gjson.Parse(string(body))
}

// spoken reports whether an error is of the dialect: its SDKs find in it what they look for.
func spoken(api classify.API, root gjson.Result) bool {
	e := root.Get("error")
	switch api {
	case classify.AnthropicMessages:
		return root.Get("type").Str == "error" && e.Get("type").Str != ""
	case classify.Gemini:
		return e.Get("code").Type == gjson.Number && e.Get("status").Str != ""
	}
	return e.IsObject() && e.Get("message").Type == gjson.String && root.Get("type").Str != "error"
}

// readError reads the shapes of AWS ("type from header X-Amzn-ErrorType (cut after first `:`, keep after `#`), else body
// `code`, else body `__type`; text in `message`"), Google ({"error":{code,message,status}}), OpenAI and Azure
// ({"error":{code,message}}, or flat), and Anthropic.
func readError(root gjson.Result, header http.Header) platformError {
	e := root
	if inner := root.Get("error"); inner.IsObject() {
		e = inner
	}
	name := first(header.Get("x-amzn-errortype"), root.Get("__type").Str, e.Get("status").Str, e.Get("code").Str, e.Get("type").Str)
	name, _, _ = strings.Cut(name, ":")
	if _, after, ok := strings.Cut(name, "#"); ok {
		name = after
	}
	return platformError{
		name:    name,
		message: first(e.Get("message").Str, e.Get("Message").Str, root.Get("error").Str, root.Get("detail").Str),
		id:      first(header.Get("request-id"), header.Get("x-amzn-requestid"), header.Get("apim-request-id"), header.Get("x-request-id")),
	}
}

// original is a body for the details of another.
func original(body []byte) json.RawMessage {
	if root := readable(body); root.Exists() {
		return json.RawMessage(body)
	}
	text, _ := json.Marshal(string(bytes.ToValidUTF8(body[:min(len(body), maxErrorText)], nil))) // a string always marshals
	return text
}

// anthropicNames are the error types of Anthropic (anthropic-sdk-go/shared) that exceptions of AWS (bedrockruntime,
// wire-formats 2a) and statuses of Google mean.
var anthropicNames = map[string]string{
	"ThrottlingException":           "rate_limit_error",
	"ServiceQuotaExceededException": "rate_limit_error",
	"AccessDeniedException":         "permission_error",
	"UnrecognizedClientException":   "authentication_error",
	"InvalidSignatureException":     "authentication_error",
	"ExpiredTokenException":         "authentication_error",
	"ValidationException":           "invalid_request_error",
	"ResourceNotFoundException":     "not_found_error",
	"ModelTimeoutException":         "timeout_error",
	"ModelNotReadyException":        "overloaded_error",
	"ServiceUnavailableException":   "overloaded_error",
	"ConflictException":             "conflict_error",

	"RESOURCE_EXHAUSTED":  "rate_limit_error",
	"PERMISSION_DENIED":   "permission_error",
	"UNAUTHENTICATED":     "authentication_error",
	"INVALID_ARGUMENT":    "invalid_request_error",
	"FAILED_PRECONDITION": "invalid_request_error",
	"NOT_FOUND":           "not_found_error",
	"DEADLINE_EXCEEDED":   "timeout_error",
	"UNAVAILABLE":         "overloaded_error",
	"ABORTED":             "conflict_error",
}

// names are the names of an error by its status: Anthropic's type (wire-formats 1a), OpenAI's type (5a) and Google's
// status (8).
var names = map[int]struct{ anthropic, openAI, google string }{
	400: {"invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"},
	401: {"authentication_error", "invalid_request_error", "UNAUTHENTICATED"},
	402: {"billing_error", "insufficient_quota", "RESOURCE_EXHAUSTED"},
	403: {"permission_error", "invalid_request_error", "PERMISSION_DENIED"},
	404: {"not_found_error", "invalid_request_error", "NOT_FOUND"},
	408: {"timeout_error", "server_error", "DEADLINE_EXCEEDED"},
	409: {"conflict_error", "invalid_request_error", "ABORTED"},
	413: {"request_too_large", "invalid_request_error", "INVALID_ARGUMENT"},
	429: {"rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"},
	503: {"overloaded_error", "service_unavailable_error", "UNAVAILABLE"},
	504: {"timeout_error", "server_error", "DEADLINE_EXCEEDED"},
	529: {"overloaded_error", "service_unavailable_error", "UNAVAILABLE"},
}

// named are the names of status.
func named(status int) struct{ anthropic, openAI, google string } {
	n, ok := names[status]
	switch {
	case ok:
		return n
	case status >= 400 && status < 500 && status != 424: // 424: "model failed" (wire-formats 2a)
		return names[400]
	}
	n.anthropic, n.openAI, n.google = "api_error", "server_error", "INTERNAL"
	return n
}

type details struct {
	Original json.RawMessage `json:"original"`
}

func (e platformError) anthropic(status int) []byte {
	var out struct {
		Type  string `json:"type"`
		Error struct {
			Type    string  `json:"type"`
			Message string  `json:"message"`
			Details details `json:"details"`
		} `json:"error"`
		RequestID string `json:"request_id,omitempty"`
	}
	out.Type, out.RequestID = "error", e.id
	out.Error.Type = first(anthropicNames[e.name], named(status).anthropic)
	out.Error.Message, out.Error.Details.Original = e.message, e.original
	text, _ := json.Marshal(out) // strings and well-formed JSON always marshal
	return text
}

func (e platformError) openAI(status int) []byte {
	var out struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    *string `json:"code"`
			Details details `json:"details"`
		} `json:"error"`
	}
	out.Error.Message, out.Error.Type, out.Error.Details.Original = e.message, named(status).openAI, e.original
	if e.name != "" {
		out.Error.Code = &e.name
	}
	text, _ := json.Marshal(out)
	return text
}

// google says the original in a google.rpc.DebugInfo: details are messages there.
func (e platformError) google(status int) []byte {
	type debugInfo struct {
		Type   string `json:"@type"`
		Detail string `json:"detail"`
	}
	var out struct {
		Error struct {
			Code    int         `json:"code"`
			Message string      `json:"message"`
			Status  string      `json:"status"`
			Details []debugInfo `json:"details"`
		} `json:"error"`
	}
	out.Error.Code, out.Error.Message, out.Error.Status = status, e.message, named(status).google
	out.Error.Details = []debugInfo{{"type.googleapis.com/google.rpc.DebugInfo", string(e.original)}}
	text, _ := json.Marshal(out)
	return text
}
