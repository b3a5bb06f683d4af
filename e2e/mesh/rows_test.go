//go:build mesh

package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"

	"understudy/internal/scripted"
	"understudy/internal/stage"
)

// The kinds of call that a client makes.
const (
	messages  = "/v1/messages"
	chats     = "/v1/chat/completions"
	responsed = "/v1/responses"
)

// row is one exchange and what must come of it.
type row struct {
	name   string
	chain  string // its own
	on     []string
	commit string
	path   string
	stream bool
	script string
	size   int               // bytes of the prompt; 0: a word
	header map[string]string // that a client adds

	by       string // account that answers; "": nobody, and the client gets status
	attempts int
	reason   string // of the last failed attempt
	status   int
	calls    string // how many requests each provider sees, as "a:1 b:1"
}

// failoverRows are the suite that every set-up passes.
var failoverRows = []row{
	{name: "a healthy primary answers alone", chain: "healthy", on: []string{"a", "b"}, path: messages, stream: true,
		script: "*=ok", by: "a", attempts: 1, calls: "a:1 b:0"},
	{name: "529 of the primary", chain: "overloaded", on: []string{"a", "b"}, path: messages,
		script: "a=529; b=ok", by: "b", attempts: 2, reason: "overloaded", calls: "a:1 b:1"},
	{name: "529 of the primary, for a client of OpenAI's dialect", chain: "overloaded-chat", on: []string{"c", "d"}, path: chats,
		script: "c=529; d=ok", by: "d", attempts: 2, reason: "overloaded", calls: "c:1 d:1"},
	{name: "a stream that turns out overloaded before its first content", chain: "in-band", on: []string{"a", "b"}, path: messages, stream: true,
		script: "a=error-start; b=ok", by: "b", attempts: 2, reason: "overloaded", calls: "a:1 b:1"},
	{name: "a chat stream whose first event is an error", chain: "in-band-chat", on: []string{"c", "d"}, path: chats, stream: true,
		script: "c=error-first; d=ok", by: "d", attempts: 2, reason: "overloaded", calls: "c:1 d:1"},
	{name: "a provider that refuses connections", chain: "refused", on: []string{"dead", "b"}, path: messages, stream: true,
		script: "b=ok", by: "b", attempts: 2, reason: "transport", calls: "b:1"},
	{name: "a provider that resets before its headers", chain: "reset", on: []string{"a", "b"}, path: messages, stream: true,
		script: "a=reset; b=ok", by: "b", attempts: 2, reason: "transport", calls: "a:1 b:1"},
	{name: "a body that dies while it is held", chain: "held", on: []string{"a", "b"}, commit: "complete", path: messages, stream: true,
		script: "a=cut how=reset; b=ok", by: "b", attempts: 2, reason: "transport", calls: "a:1 b:1"},
	{name: "a JSON answer that dies half-way", chain: "half", on: []string{"a", "b"}, path: messages,
		script: "a=cut how=reset; b=ok", by: "b", attempts: 2, reason: "transport", calls: "a:1 b:1"},
	{name: "five megabytes of prompt, twice", chain: "big", on: []string{"a", "b"}, path: messages, stream: true, size: 5 << 20,
		script: "a=529; b=ok", by: "b", attempts: 2, reason: "overloaded", calls: "a:1 b:1"},
	{name: "no target can be reached", chain: "unreachable", on: []string{"dead", "gone"}, path: messages, status: http.StatusServiceUnavailable},
	{name: "every target is overloaded", chain: "spent", on: []string{"c", "d"}, path: chats, script: "*=529",
		status: http.StatusServiceUnavailable, calls: "c:1 d:1"},
	{name: "a client that says what only we may say", chain: "steered", on: []string{"a", "b"}, path: messages, stream: true,
		script: "*=ok after=100ms", header: steering, by: "a", attempts: 1, calls: "a:1 b:0"},
	{name: "a provider that says what only we may say", chain: "evil", on: []string{"a", "b"}, path: messages, stream: true,
		script: "a=529 evil; b=ok evil", by: "b", attempts: 2, reason: "overloaded", calls: "a:1 b:1"},
}

// steering is what a client could try to steer Envoy or the service with.
var steering = map[string]string{
	"x-envoy-retry-on":                       "5xx,reset,retriable-status-codes",
	"x-envoy-max-retries":                    "10",
	"x-envoy-retriable-status-codes":         "200",
	"x-envoy-retriable-header-names":         "content-type",
	"x-envoy-upstream-rq-timeout-ms":         "1",
	"x-envoy-upstream-rq-per-try-timeout-ms": "1",
	"x-envoy-attempt-count":                  "5",
	"x-envoy-original-path":                  "/elsewhere",
	"x-envoy-peer-metadata":                  "steered",
	"x-llm-cluster":                          "llm-b",
	"x-llm-failover":                         "next",
	"x-llm-target":                           "steered",
	"x-llm-anything":                         "steered",
}

// rows runs the failover suite through a front.
func rows(t *testing.T, frontURL string, s *stack) {
	for _, r := range failoverRows {
		t.Run(r.name, func(t *testing.T) { r.run(t, frontURL, s) })
	}
}

func (r row) run(t *testing.T, frontURL string, s *stack) {
	a := s.call(within(t, stage.Patience), t, frontURL, r)
	if r.by != "" {
		r.served(t, a)
	} else {
		r.refused(t, a)
	}
	for entry := range strings.FieldsSeq(r.calls) {
		name, count, _ := strings.Cut(entry, ":")
		if got := s.providers[name].Count(t.Name()); strconv.Itoa(got) != count {
			t.Errorf("provider %s saw %d requests, want %s", name, got, count)
		}
	}
	s.clean(t, a)
}

// served checks a good answer and who gave it.
func (r row) served(t testing.TB, a stage.Answer) {
	t.Helper()
	if a.Err != nil || a.Status != http.StatusOK {
		t.Fatalf("the client got %d, %v, want 200 and no error", a.Status, a.Err)
	}
	if want := scripted.Text(r.by, model(r.by), t.Name(), 3, 0); a.Text != want {
		t.Errorf("the answer says %q, want %q", a.Text, want)
	}
	want := map[string]string{"x-llm-target": r.chain + "/" + r.by, "x-llm-attempts": strconv.Itoa(r.attempts), "x-llm-fallback-reason": r.reason}
	for name, value := range want {
		if got := a.Header.Get(name); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
}

// refused checks an error in the client's dialect.
func (r row) refused(t testing.TB, a stage.Answer) {
	t.Helper()
	if a.Status != r.status {
		t.Errorf("the client got %d, %v, want %d", a.Status, a.Err, r.status)
	}
	var body string
	if e := (*anthropic.Error)(nil); errors.As(a.Err, &e) {
		body = e.RawJSON()
	}
	if e := (*openai.Error)(nil); errors.As(a.Err, &e) {
		body = e.RawJSON()
	}
	var e struct{ Type, Message string }
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Type == "" {
		t.Errorf("the client got the error %q, %v, want one of its dialect", body, a.Err)
	}
}

// clean checks that nothing of ours reached a provider, and nothing that steers a client.
func (s *stack) clean(t testing.TB, a stage.Answer) {
	t.Helper()
	for name := range a.Header {
		name = strings.ToLower(name)
		if name == "x-llm-failover" || name == "x-llm-cluster" || name == "x-envoy-ratelimited" {
			t.Errorf("the client was sent %s", name)
		}
	}
	for name, p := range s.providers {
		for _, r := range p.Requests(t.Name()) {
			for header, values := range r.Header {
				if foreign(header) || strings.Contains(strings.Join(values, ","), stage.ClientKey) {
					t.Errorf("provider %s was sent %s: %q", name, header, values)
				}
			}
			if got := r.Header.Get("x-api-key") + strings.TrimPrefix(r.Header.Get("authorization"), "Bearer "); got != key(name) {
				t.Errorf("provider %s was given the credential %q, want %q", name, got, key(name))
			}
		}
	}
}

// foreign reports whether a header is none of a provider's business.
func foreign(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "x-llm-") || strings.HasPrefix(name, "x-envoy-") || strings.HasPrefix(name, "x-forwarded-") || name == "x-request-id"
}

// call makes the row's call with the official client of its dialect, whose own retries are off.
func (s *stack) call(ctx context.Context, t testing.TB, frontURL string, r row) stage.Answer {
	t.Helper()
	headers := map[string]string{scripted.ScriptHeader: r.script, scripted.IDHeader: t.Name(), "x-llm-chain": r.chain}
	for name, value := range r.header {
		headers[name] = value
	}
	prompt := "hello" + strings.Repeat(" and on", r.size/len(" and on"))
	api := "openai"
	if r.path == messages {
		api = "anthropic"
	}
	return stage.Call{API: api, URL: frontURL, Model: "m", Stream: r.stream, Header: headers, HTTP: s.http}.Ask(ctx, prompt)
}
