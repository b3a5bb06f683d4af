package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Platform is where a dialect is served. It takes a request only as the real one wants it: path, headers, body and
// credential; all else is refused in the platform's own words.
type Platform interface {
	// call reads what is asked for into x, or says why not.
	call(x *exchange) *refusal
	// extra are further paths.
	extra(p *Provider, mux *http.ServeMux)
}

// served are the paths of a provider on a platform.
func (p *Provider) served(platform Platform) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", p.answer(platform.call))
	platform.extra(p, mux)
	return mux
}

// plainPlatform has no paths but its calls.
type plainPlatform struct{}

func (plainPlatform) extra(*Provider, *http.ServeMux) {}

// refusal is the answer to a request that is not as it should be.
type refusal struct {
	status int
	reason string
	header map[string]string
	body   string
}

func (r *refusal) send(x *exchange) {
	x.p.log.update(func() { x.req.Refused = r.reason })
	for name, value := range r.header {
		x.w.Header().Set(name, value)
	}
	_ = x.json(r.status, r.body) // who left is on record, by finish
}

// Refusals in the words of AWS, Google, Azure, Anthropic and OpenAI.

func awsRefusal(status int, exception, format string, args ...any) *refusal {
	reason := fmt.Sprintf(format, args...)
	return &refusal{status, reason, map[string]string{"x-amzn-errortype": exception + ":http://internal.amazon.com/coral/com.amazon.coral.service/"},
		fmt.Sprintf(`{"message":%s}`, quote(reason))}
}

func googleRefusal(status int, code, format string, args ...any) *refusal {
	reason := fmt.Sprintf(format, args...)
	return &refusal{status: status, reason: reason, body: googleError(status, code, reason)}
}

func googleError(status int, code, message string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%s,"status":%s}}`, status, quote(message), quote(code))
}

func azureRefusal(status int, code, format string, args ...any) *refusal {
	reason := fmt.Sprintf(format, args...)
	return &refusal{status: status, reason: reason, body: fmt.Sprintf(`{"error":{"code":%s,"message":%s}}`, quote(code), quote(reason))}
}

func anthropicRefusal(status int, kind, format string, args ...any) *refusal {
	reason := fmt.Sprintf(format, args...)
	return &refusal{status: status, reason: reason,
		body: fmt.Sprintf(`{"type":"error","error":{"type":%s,"message":%s},"request_id":"req_scripted"}`, quote(kind), quote(reason))}
}

func openAIRefusal(status int, code, format string, args ...any) *refusal {
	reason := fmt.Sprintf(format, args...)
	return &refusal{status: status, reason: reason,
		body: fmt.Sprintf(`{"error":{"message":%s,"type":"invalid_request_error","param":null,"code":%s}}`, quote(reason), quote(code))}
}

// escapedSegments are the segments of a path as they were sent.
func escapedSegments(u *url.URL) []string {
	return strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
}

// known unescapes a model or deployment of a path, "" if the provider has none of that name.
func (p *Provider) known(escaped string) string {
	name, err := url.PathUnescape(escaped)
	if err != nil || !p.has(name) {
		return ""
	}
	return name
}

func (p *Provider) has(model string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return model != "" && (len(p.models) == 0 || slices.Contains(p.models, model))
}

// object is the body as JSON, nil if it is no object.
func (x *exchange) object() map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(x.body, &members) != nil {
		return nil
	}
	return members
}

// wrongForm says what every platform dislikes of a request that is not a POST of JSON.
func (x *exchange) wrongForm() string {
	switch {
	case x.r.Method != http.MethodPost:
		return "the method is " + x.r.Method + ", want POST"
	case !strings.HasPrefix(x.r.Header.Get("content-type"), "application/json"):
		return "the content-type is " + strconv.Quote(x.r.Header.Get("content-type")) + ", want application/json"
	case x.r.Header.Get("content-encoding") != "":
		return "the body is encoded: " + x.r.Header.Get("content-encoding")
	case x.object() == nil:
		return "the body is no JSON object"
	}
	return ""
}

// onlyBeta: Anthropic's SDKs say ?beta=true on whatever platform, and nothing else.
func (x *exchange) onlyBeta() bool { return x.r.URL.RawQuery == "" || x.r.URL.RawQuery == "beta=true" }

// text is a member of the body that is a string, "" otherwise.
func text(members map[string]json.RawMessage, name string) string {
	var s string
	_ = json.Unmarshal(members[name], &s) // "" for what is none
	return s
}

// someOf is the first of the names that the body has.
func someOf(members map[string]json.RawMessage, names ...string) string {
	for _, name := range names {
		if _, ok := members[name]; ok {
			return name
		}
	}
	return ""
}

// wrongMessages says what Anthropic's model dislikes of a body, wherever it is served.
func wrongMessages(members map[string]json.RawMessage) string {
	var tokens int
	var turns []json.RawMessage
	switch {
	case json.Unmarshal(members["max_tokens"], &tokens) != nil || tokens < 1:
		return "max_tokens: Field required"
	case json.Unmarshal(members["messages"], &turns) != nil || len(turns) == 0:
		return "messages: at least one message is required"
	}
	return ""
}
