package rehearse

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"understudy/pkg/classify"
)

const anthropicAPI = classify.AnthropicMessages

// got is an answer as it came.
func got(api classify.API, stream bool, status int, kind, body string, err error) *answer {
	a := &answer{status: status, header: http.Header{"Content-Type": {kind}}, body: []byte(body), err: err}
	a.read(call{api: api, stream: stream})
	return a
}

func TestAnswersAreReadInTheirDialects(t *testing.T) {
	events := func(lines ...string) string { return "data: " + strings.Join(lines, "\n\ndata: ") + "\n\n" }
	for name, row := range map[string]struct {
		a           *answer
		text, fault string
		class       classify.Class
	}{
		"a message": {got(anthropicAPI, false, 200, "application/json", `{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`, nil), "hi", "", classify.OK},
		"its stream": {got(anthropicAPI, true, 200, "text/event-stream", events(`{"type":"message_start","message":{"content":[]}}`, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"h"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"i"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`), nil), "hi", "", classify.OK},
		"one that fails": {got(anthropicAPI, true, 200, "text/event-stream", events(`{"type":"message_start","message":{}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"h"}}`,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), nil), "h", "Overloaded", classify.Overloaded},
		"a completion": {got(classify.OpenAIChat, false, 200, "application/json", `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`, nil), "hi", "", classify.OK},
		"its stream that fails": {got(classify.OpenAIChat, true, 200, "text/event-stream", events(`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"h"},"finish_reason":null}]}`,
			`{"error":{"message":"down","type":"server_error","param":null,"code":null}}`), nil), "h", "down", classify.ServerError},
		"a response": {got(classify.OpenAIResponses, false, 200, "application/json", `{"object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]}`, nil), "hi", "", classify.OK},
		"one that failed": {got(classify.OpenAIResponses, true, 200, "text/event-stream", events(`{"type":"response.output_text.delta","delta":"h"}`,
			`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"down"}}}`), nil), "h", "down", classify.ServerError},
		"Gemini's":          {got(classify.Gemini, false, 200, "application/json", `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}]}`, nil), "hi", "", classify.OK},
		"Gemini's error":    {got(classify.Gemini, false, 503, "application/json", `{"error":{"code":503,"message":"down","status":"UNAVAILABLE"}}`, nil), "", "down", classify.Overloaded},
		"another's error":   {got(anthropicAPI, false, 503, "application/json", `{"error":{"message":"down","type":"x"}}`, nil), "", "", classify.Overloaded},
		"a page":            {got(anthropicAPI, false, 502, "text/html", `<html>`, nil), "", "", classify.ServerError},
		"another's success": {got(anthropicAPI, false, 200, "application/json", `{"object":"chat.completion","choices":[]}`, nil), "", "", classify.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			if row.a.text != row.text || row.a.fault != row.fault || row.a.verdict.Class != row.class {
				t.Errorf("read(%s) = %q, fault %q, class %s, want %q, %q, %s", row.a.body, row.a.text, row.a.fault, row.a.verdict.Class, row.text, row.fault, row.class)
			}
		})
	}
}

// FuzzRead: what an answer holds never stops a drill.
func FuzzRead(f *testing.F) {
	f.Add(uint8(1), true, 200, "text/event-stream", "data: {\"type\":\"error\",\"error\":{}}\n\n")
	f.Add(uint8(4), false, 503, "application/json", `{"error":{"code":1}}`)
	f.Fuzz(func(_ *testing.T, api uint8, stream bool, status int, kind, body string) {
		_ = got(classify.API(api%5), stream, status, kind, body, nil).String()
	})
}

const good = `{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`

func TestWhatIsNotAsPromisedIsTold(t *testing.T) {
	fallback := promise{status: 200, rung: 1, targets: []string{"b/x"}, attempts: 2, reason: "overloaded", end: whole, begins: time.Second}
	off := promise{status: 503, rung: nobody, mode: "off", end: failure, text: "Later.", begins: time.Second}
	told := promise{status: 200, rung: nobody, end: told, begins: time.Second, ends: 2 * time.Second}
	sorry := `{"type":"error","error":{"type":"overloaded_error","message":"Later."}}`
	cut := errors.New("unexpected EOF")
	stream := func(err error, more string) *answer {
		return got(anthropicAPI, true, 200, "text/event-stream", "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\"}}\n\n"+more, err)
	}
	overloaded := "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n"
	for _, row := range []struct {
		name    string
		p       promise
		a       *answer
		headers string
		want    string // "" is nothing
	}{
		{"as promised", fallback, got(anthropicAPI, false, 200, "application/json", good, nil), "target=b/x rung=1 attempts=2 fallback-reason=overloaded", ""},
		{"the wrong one", fallback, got(anthropicAPI, false, 200, "application/json", good, nil), "target=a/x rung=0 attempts=1", "x-llm-rung is 0, not 1; x-llm-target is a/x, not b/x; x-llm-fallback-reason is missing, not overloaded; x-llm-attempts is 1, not 2"},
		{"half of it", fallback, got(anthropicAPI, false, 200, "application/json", good[:60], nil), "target=b/x rung=1 attempts=2 fallback-reason=overloaded", "it is not a whole answer in the dialect, but read as truncated"},
		{"a cut one", fallback, got(anthropicAPI, false, 200, "application/json", good, cut), "target=b/x rung=1 attempts=2 fallback-reason=overloaded", "it is not a whole answer in the dialect, but read as ok (the transfer was aborted)"},
		{"a degraded one", fallback, got(anthropicAPI, false, 200, "application/json", good, nil), "target=b/x rung=1 attempts=2 fallback-reason=overloaded degraded=downshift", "x-llm-degraded is downshift, not left out"},
		{"no stream, though one was asked for", fallback, got(anthropicAPI, true, 200, "application/json", good, nil), "target=b/x rung=1 attempts=2 fallback-reason=overloaded", "it is not streamed, as was asked, but application/json"},
		{"nothing", fallback, &answer{err: errLate}, "", "no answer began within 1s: the drill has stopped waiting"},
		{"the owner's words", off, got(anthropicAPI, false, 503, "application/json", sorry, nil), "degraded=off", ""},
		{"other words", off, got(anthropicAPI, false, 503, "application/json", strings.Replace(sorry, "Later", "Never", 1), nil), "degraded=off", `it says "Never.", not "Later."`},
		{"words in another dialect", off, got(anthropicAPI, false, 503, "application/json", `{"error":{"message":"Later."}}`, nil), "degraded=off", "it is not an error in the dialect"},
		{"a success that is none", promise{rung: nobody, end: failure}, got(anthropicAPI, false, 200, "application/json", good, nil), "", "the status is 200, which tells of no failure"},
		{"an honest end", told, stream(nil, overloaded), "", ""},
		{"a cut where an error was promised", told, stream(cut, ""), "", "it is not content, then an error in the dialect"},
		{"a clean end of half an answer", told, stream(nil, ""), "", "but read as truncated"},
		{"a clean end where a cut is honest", promise{status: 200, rung: nobody, end: honest}, stream(nil, ""), "", "it ends cleanly, read as truncated"},
		{"a cut where it is honest", promise{status: 200, rung: nobody, end: honest}, stream(cut, ""), "", ""},
		{"a failure that was found out before", promise{status: 200, rung: 0, end: honest}, got(anthropicAPI, false, 502, "application/json", sorry, nil), "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			for pair := range strings.FieldsSeq(row.headers) {
				name, value, _ := strings.Cut(pair, "=")
				row.a.header.Set("x-llm-"+name, value)
			}
			all := strings.Join(row.p.compare(row.a), "; ")
			if (all == "") != (row.want == "") || !strings.Contains(all, row.want) {
				t.Errorf("compare(%s) = %q, want %q", row.a, all, row.want)
			}
		})
	}
	late := stream(nil, overloaded)
	late.ends = 3 * time.Second
	if all := strings.Join(told.compare(late), "; "); !strings.Contains(all, "it was not over after 2s, but 3s") {
		t.Errorf("compare of an answer that takes 3s = %q, want that it took too long", all)
	}
	queued := got(anthropicAPI, false, 202, "application/json", strings.Replace(good, "hi", "Wait. Job: J1", 1), nil)
	queued.header.Set("x-llm-degraded", "queue; job=J1")
	if all := (promise{status: 202, rung: nobody, mode: "queue; job=", end: whole, text: "Wait."}).compare(queued); len(all) > 0 {
		t.Errorf("compare of a queued request = %q, want nothing", all)
	}
}

func TestNoAnswerIsComparedWithoutHeaders(t *testing.T) {
	if got := (&answer{err: errLate}).String(); !strings.HasPrefix(got, "no answer within ") {
		t.Errorf("String() of no answer = %q", got)
	}
}
