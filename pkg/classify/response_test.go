package classify

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// headers makes a Header argument of names and values in turn.
func headers(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

var eventStream = headers("content-type", "text/event-stream")

// Events of the three dialects, by short names.
const (
	aStart    = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5\",\"content\":[],\"usage\":{\"input_tokens\":25,\"output_tokens\":1,\"service_tier\":\"standard\"}}}\n\n"
	aPing     = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
	aBlock    = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
	aText     = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
	aRefusal  = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\",\"stop_details\":{\"category\":\"cyber\"}},\"usage\":{\"output_tokens\":4}}\n\n"
	aEnd      = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n"
	aStop     = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	aOverload = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	comment   = ": keep-alive\n\n"

	cRole    = "data: {\"model\":\"gpt-5.5\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"finish_reason\":null}]}\n\n"
	cEmpty   = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n"
	cText    = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n"
	cRefusal = "data: {\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"No\"},\"finish_reason\":null}]}\n\n"
	cTool    = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n"
	cReason  = "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Hm\"}}]}\n\n"
	cStop    = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	cFilter  = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\n"
	cError   = "data: {\"error\":{\"message\":\"m\",\"type\":\"server_error\",\"code\":null}}\n\n"
	cDone    = "data: [DONE]\n\n"

	rCreated = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null,\"output\":[]}}\n\n"
	rItem    = "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\",\"content\":[]}}\n\n"
	rPart    = "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"part\":{\"type\":\"output_text\",\"text\":\"\"}}\n\n"
	rText    = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
	rNothing = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"\"}\n\n"
	rRefusal = "event: response.refusal.delta\ndata: {\"type\":\"response.refusal.delta\",\"delta\":\"No\"}\n\n"
	rFailed  = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"m\"}}}\n\n"
	rDone    = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null}}\n\n"
)

func TestContentStartsAStreamAndLifecycleEventsDoNot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		api    API
		events []string
		want   []Progress
	}{
		{"anthropic: lifecycle, then text", AnthropicMessages, []string{aStart, aPing, comment, aBlock, aText, aEnd, aStop},
			[]Progress{Waiting, Waiting, Waiting, Waiting, Started, Started, Started}},
		{"anthropic: an overload before content", AnthropicMessages, []string{aStart, aPing, aOverload}, []Progress{Waiting, Waiting, Decided}},
		{"anthropic: an overload after content", AnthropicMessages, []string{aStart, aText, aOverload}, []Progress{Waiting, Started, Decided}},
		{"anthropic: a refusal is known before the end", AnthropicMessages, []string{aStart, aRefusal, aStop}, []Progress{Waiting, Decided, Decided}},
		{"anthropic: an answer without content", AnthropicMessages, []string{aStart, aEnd, aStop}, []Progress{Waiting, Waiting, Waiting}},
		{"chat: role and empty choices, then text", OpenAIChat, []string{cEmpty, cRole, comment, cText, cStop, cDone},
			[]Progress{Waiting, Waiting, Waiting, Started, Started, Started}},
		{"chat: a tool call is content", OpenAIChat, []string{cRole, cTool}, []Progress{Waiting, Started}},
		{"chat: reasoning is content", OpenAIChat, []string{cRole, cReason}, []Progress{Waiting, Started}},
		{"chat: a refusal is decided at its first piece", OpenAIChat, []string{cRole, cRefusal, cText}, []Progress{Waiting, Decided, Decided}},
		{"chat: a filter is decided by its finish reason", OpenAIChat, []string{cRole, cText, cFilter, cDone}, []Progress{Waiting, Started, Decided, Decided}},
		{"chat: an error stays one after [DONE]", OpenAIChat, []string{cRole, cError, cDone}, []Progress{Waiting, Decided, Decided}},
		{"responses: lifecycle, then text", OpenAIResponses, []string{rCreated, rItem, rPart, rNothing, rText, rDone},
			[]Progress{Waiting, Waiting, Waiting, Waiting, Started, Started}},
		{"responses: a refusal is decided at its first piece", OpenAIResponses, []string{rCreated, rRefusal}, []Progress{Waiting, Decided}},
		{"responses: a failure before content", OpenAIResponses, []string{rCreated, rItem, rFailed}, []Progress{Waiting, Waiting, Decided}},
	} {
		r := New(Options{API: tt.api})
		r.Header(200, eventStream)
		var got []Progress
		for _, ev := range tt.events {
			got = append(got, r.Feed([]byte(ev)))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: Feed = %v, want %v", tt.name, got, tt.want)
		}
		if v := r.Verdict(); v.Class == OK {
			t.Errorf("%s: Verdict() before the end = %+v, want no ok", tt.name, v)
		}
	}
}

func TestSafeIsTheEndOfTheLastAcceptedEvent(t *testing.T) {
	for _, tt := range []struct {
		name         string
		api          API
		stream       string
		safe, failed string // what may be passed on; the event that failed
	}{
		{"a whole stream", AnthropicMessages, aStart + aText + aEnd + aStop, aStart + aText + aEnd + aStop, ""},
		{"half an event", AnthropicMessages, aStart + aText[:40], aStart, ""},
		{"a comment is harmless", AnthropicMessages, aStart + comment + aText[:40], aStart + comment, ""},
		{"an error and what is behind it", AnthropicMessages, aStart + comment + aOverload + aStop, aStart + comment,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
		{"an event that is not JSON", OpenAIChat, cText + "data: {\"a\":}\n\n" + cDone, cText, `{"a":}`},
		{"a refusal goes on", OpenAIChat, cRole + cRefusal + cStop + cDone, cRole + cRefusal + cStop + cDone, ""},
		{"a filtered answer goes on", OpenAIChat, cText + cFilter + cDone, cText + cFilter + cDone, ""},
		{"an error behind a refusal", OpenAIChat, cRefusal + cError, cRefusal, ""},
		{"a finish reason that is a failure", OpenAIChat, cText + strings.Replace(cFilter, "content_filter", "error", 1) + cDone, cText,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`},
		{"an event over the limit", OpenAIChat, cText + "data: " + strings.Repeat("x", 1000) + "\n\n", cText, ""},
		{"the first bytes of an event", OpenAIChat, "dat", "", ""},
		{"the first bytes behind blank lines", OpenAIChat, "\n\ndat", "\n\n", ""},
		{"blank lines before the first event", OpenAIChat, "\n\n" + cText + cText[:9], "\n\n" + cText, ""},
		{"nothing but blank lines", OpenAIChat, "\n\n", "\n\n", ""},
		{"a page", OpenAIChat, "<html></html>", "", ""},
		{"half a JSON body", OpenAIChat, `{"choices":[`, `{"choices":[`, ""},
		{"JSON up to its fault", OpenAIChat, `{"choices":[}`, `{"choices":[`, ""},
		{"JSON behind a byte order mark", OpenAIChat, "\xEF\xBB\xBF{\"choices\":[]}", "\xEF\xBB\xBF{\"choices\":[]}", ""},
		{"a CRLF stream up to its last LF", OpenAIChat, "data: {}\r\n\r\n" + "data: x", "data: {}\r\n\r\n", ""},
	} {
		for _, n := range []int{1, 7, 5000} {
			r := New(Options{API: tt.api, MaxEvent: 300})
			r.Header(200, headers())
			for p := []byte(tt.stream); len(p) > 0; p = p[min(n, len(p)):] {
				r.Feed(p[:min(n, len(p))])
			}
			if got := r.Safe(); got != int64(len(tt.safe)) {
				t.Errorf("%s, %d bytes at a time: Safe() = %d, want %d", tt.name, n, got, len(tt.safe))
			}
			if got := string(r.FailedEvent()); got != tt.failed {
				t.Errorf("%s, %d bytes at a time: FailedEvent() = %s, want %s", tt.name, n, got, tt.failed)
			}
		}
	}
}

func TestAnErrorsBodyIsSafeWhole(t *testing.T) {
	r := New(Options{API: OpenAIChat})
	r.Header(500, headers())
	r.Feed([]byte("<html>"))
	r.Feed([]byte("</html>"))
	if got := r.Safe(); got != 13 {
		t.Errorf("Safe() = %d, want 13", got)
	}
	if r.End(true); r.Safe() != 13 {
		t.Errorf("Safe() at the end = %d, want 13", r.Safe())
	}
}

func TestAnAbortKeepsWhatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int // 0: no response
		body   string
		abort  Class
		want   string // class, phase, status, partial, complete, model, input tokens
	}{
		{"no response at all", 0, "", Transport, "transport transport 503 false false  0"},
		{"our deadline before any header", 0, "", Timeout, "timeout transport 504 false false  0"},
		{"our deadline before the first byte", 200, "", Timeout, "timeout first 504 false false  0"},
		{"our deadline before content", 200, aStart + aPing, Timeout, "timeout first 504 false false claude-sonnet-5 25"},
		{"our deadline after content", 200, aStart + aText, Timeout, "timeout stream 504 true false claude-sonnet-5 25"},
		{"a hang-up after content", 200, aStart + aText, Canceled, "canceled stream 499 true false claude-sonnet-5 25"},
		{"a reset after content", 200, aStart + aText, Transport, "transport stream 503 true false claude-sonnet-5 25"},
		{"a hang-up inside a JSON body", 200, `{"model":"m","content":[{"text":"a"}`, Canceled, "canceled body 499 true false m 0"},
		{"a hang-up behind a whole JSON body", 200, `{"type":"message","model":"m","content":[],"stop_reason":"end_turn"}`, Canceled, "ok body 200 false true m 0"},
		{"our deadline behind a whole JSON body", 200, `{"type":"error","error":{"type":"overloaded_error"}}`, Timeout, "overloaded body 529 false false  0"},
		{"a hang-up behind the end marker", 200, aStart + aText + aEnd + aStop, Canceled, "ok end 200 false true claude-sonnet-5 25"},
		{"a hang-up after a refusal", 200, aStart + aRefusal, Canceled, "refusal first 200 false false claude-sonnet-5 25"},
		{"a reset after an error", 200, aStart + aOverload, Transport, "overloaded first 529 false false claude-sonnet-5 25"},
		{"a reset inside an error's body", 529, `{"type":"error","error":{"type":"ov`, Transport, "overloaded status 529 false false  0"},
		{"our deadline inside an error's body", 400, ``, Timeout, "invalid status 400 false false  0"},
		{"a hang-up inside an error's body", 529, `{"type":`, Canceled, "canceled body 499 false false  0"},
	} {
		r := New(Options{API: AnthropicMessages})
		if tt.status != 0 {
			r.Header(tt.status, eventStream)
			r.Feed([]byte(tt.body))
		}
		v := r.Abort(tt.abort, "why")
		got := strings.Join([]string{v.Class.String(), string(v.Phase), fmt.Sprint(v.Status, v.Partial, v.Complete), v.Model, fmt.Sprint(v.Usage.Input)}, " ")
		if got != tt.want {
			t.Errorf("%s: Abort(%v) = %s, want %s", tt.name, tt.abort, got, tt.want)
		}
		if v.Class == tt.abort && v.Detail != "why" {
			t.Errorf("%s: Detail = %q, want the caller's", tt.name, v.Detail)
		}
	}
}

func TestAVerdictIsFinal(t *testing.T) {
	r := New(Options{API: AnthropicMessages})
	r.Header(200, eventStream)
	r.Feed([]byte(aStart + aText + aEnd + aStop))
	want := r.End(true)
	r.Feed([]byte(aOverload))
	if got := r.End(false); !same(got, want) || want.Class != OK {
		t.Errorf("second End = %+v, want %+v", got, want)
	}
	if got := r.Abort(Timeout, "late"); !same(got, want) {
		t.Errorf("Abort after End = %+v, want %+v", got, want)
	}
	if got := New(Options{}).End(true).Class; got != Transport {
		t.Errorf("End without a response = %v, want %v", got, Transport)
	}
}

func TestAnEncodedBodyThatIsCutIsTruncated(t *testing.T) {
	stream := aStart + aText + aEnd + aStop
	for coding := range encoders {
		body := encoded(t, coding, []byte(stream))
		for n := 1; n < len(body); n++ {
			r := New(Options{API: AnthropicMessages})
			r.Header(200, headers("content-type", "text/event-stream", "content-encoding", coding))
			r.Feed(body[:n])
			if v := r.End(true); v.Class != Truncated || v.Complete {
				t.Errorf("%s, %d of %d bytes: End = %v, complete %v, want %v, false", coding, n, len(body), v.Class, v.Complete, Truncated)
			}
		}
		r := New(Options{API: AnthropicMessages})
		r.Header(200, headers("content-encoding", coding))
		if !r.Encoded() || r.Feed([]byte(aStart)) != Decided {
			t.Errorf("%s: plain text is not found out", coding)
		}
		if v := r.Verdict(); v.Class != Malformed {
			t.Errorf("%s: plain text = %v, want %v", coding, v.Class, Malformed)
		}
	}
}

func TestOnlyACodingOtherThanIdentityCounts(t *testing.T) {
	for header, want := range map[string]bool{"": false, "identity": false, "gzip": true, " GZIP ": true, "identity, br": true, "gzip, br": true} {
		r := New(Options{})
		r.Header(200, headers("content-encoding", header))
		if got := r.Encoded(); got != want {
			t.Errorf("Encoded() with %q = %v, want %v", header, got, want)
		}
	}
}

func TestAStreamIsToldByItsFirstBytes(t *testing.T) {
	for _, tt := range []struct {
		contentType, body string
		before, after     bool
	}{
		{"text/event-stream", "", true, true},
		{"Text/Event-Stream; charset=utf-8", aStart, true, true},
		{"application/json", aStart, false, true},
		{"", cText, false, true},
		{"", "retry: 3\n\n", false, true},
		{"", "id\n", false, true},
		{"", "identity", false, false},
		{"", "dat", false, false},
		{"", comment, false, true},
		{"text/event-stream", "{}", true, false},
		{"text/event-stream", " [", true, false},
		{"text/event-stream", "<html>", true, false},
		{"text/event-stream", "foo: bar\n", true, true},
		{"text/plain", strings.Repeat(" ", 100), false, false},
	} {
		r := New(Options{})
		r.Header(200, headers("content-type", tt.contentType))
		if got := r.Streaming(); got != tt.before {
			t.Errorf("Streaming() of %q = %v, want %v", tt.contentType, got, tt.before)
		}
		r.Feed([]byte(tt.body))
		if got := r.Streaming(); got != tt.after {
			t.Errorf("Streaming() of %q with %.20q = %v, want %v", tt.contentType, tt.body, got, tt.after)
		}
	}
}

func TestAnEmptyBodyIsTruncatedWhereItsEndWasExpected(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		kind string
		want Phase
	}{
		{Options{}, "application/json", PhaseBody},
		{Options{Stream: true}, "application/json", PhaseEnd},
		{Options{}, "text/event-stream", PhaseEnd},
	} {
		r := New(tt.o)
		r.Header(200, headers("content-type", tt.kind))
		if v := r.End(true); v.Class != Truncated || v.Phase != tt.want {
			t.Errorf("End of an empty %s = %v, %v, want %v, %v", tt.kind, v.Class, v.Phase, Truncated, tt.want)
		}
	}
}

func TestALargeBodyIsReadWithoutBeingHeld(t *testing.T) {
	piece := []byte(strings.Repeat("0123456789abcdef", 4096))
	r := New(Options{API: OpenAIChat})
	r.Header(200, headers())
	r.Feed([]byte(`{"choices":[{"message":{"content":"`))
	if n := testing.AllocsPerRun(200, func() { r.Feed(piece) }); n != 0 {
		t.Errorf("allocations for a piece of a body = %v, want 0", n)
	}
	r.Feed([]byte(`"},"finish_reason":"stop"}],"model":"m"}`))
	if v := r.End(true); v.Class != OK || v.Model != "m" {
		t.Errorf("End = %+v, want ok and the model", v)
	}

	r = New(Options{API: OpenAIChat})
	r.Header(400, headers())
	r.Feed([]byte(`{"error":{"code":"context_length_exceeded","message":"`))
	for range 100 {
		r.Feed(piece)
	}
	if v := r.End(true); v.Class != ContextLength || len(r.in.(*failure).body) > maxErrorBody {
		t.Errorf("End of a large error = %v, %d bytes held, want %v, at most %d", v.Class, len(r.in.(*failure).body), ContextLength, maxErrorBody)
	}
}

func TestAnEventOverTheLimitIsMalformed(t *testing.T) {
	long := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 2<<20) + "\"}}]}\n\n")
	for _, n := range []int{1000, len(long)} {
		r := New(Options{API: OpenAIChat})
		r.Header(200, eventStream)
		for p := bytes.Clone(long); len(p) > 0; p = p[min(n, len(p)):] {
			r.Feed(p[:min(n, len(p))])
		}
		if v := r.End(true); v.Class != Malformed || v.Detail != "event too long" {
			t.Errorf("End = %v %q, want %v \"event too long\"", v.Class, v.Detail, Malformed)
		}
	}
}
