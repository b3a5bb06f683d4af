package classify

import (
	"fmt"
	"strings"
	"testing"
)

// answered is the verdict of a stream that ended clean.
func answered(api API, stream string) Verdict {
	r := New(Options{API: api})
	r.Header(200, eventStream)
	r.Feed([]byte(stream))
	return r.End(true)
}

func TestTheProvidersOwnCallsAreTheLastOnesTold(t *testing.T) {
	call := func(kind string, in int) string {
		return fmt.Sprintf(`{"type":%q,"model":"m","input_tokens":%d}`, kind, in)
	}
	told := func(calls ...string) string {
		return `event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{},"usage":{"iterations":[` + strings.Join(calls, ",") + `]}}` + "\n\n"
	}
	many := make([]string, maxIterations+5)
	for i := range many {
		many[i] = call("message", i)
	}
	for _, tt := range []struct {
		name, stream string
		calls        int
		last, input  int64 // input of the last call, and of the whole
	}{
		{"none told", aStart + aText + aStop, 0, 0, 25},
		{"an empty list", aStart + told() + aStop, 0, 0, 25},
		{"a longer list takes the place of a shorter one", aStart + told(call("message", 1)) + told(call("message", 1), call("compaction", 7)) + aStop, 2, 7, 25},
		{"a shorter list takes the place of a longer one", aStart + told(call("message", 1), call("message", 2)) + told(call("message", 3)) + aStop, 1, 3, 25},
		{"an element that is no call", aStart + told("null", "5", call("message", 4)) + aStop, 1, 4, 25},
		{"more calls than are kept", aStart + told(many...) + aStop, maxIterations, maxIterations + 4, 25},
		{"a call with nested counts", aStart + told(`{"type":"message","cache_creation":{"ephemeral_1h_input_tokens":3},"input_tokens":9}`) + aStop, 1, 9, 25},
	} {
		v := answered(AnthropicMessages, tt.stream)
		last := int64(0)
		if n := len(v.Iterations); n > 0 {
			last = v.Iterations[n-1].Input
		}
		if len(v.Iterations) != tt.calls || last != tt.last || v.Usage.Input != tt.input {
			t.Errorf("%s: iterations %+v, usage %+v, want %d, the last with %d, and input %d", tt.name, v.Iterations, v.Usage, tt.calls, tt.last, tt.input)
		}
	}
}

func TestWhatNoCountCoversIsEstimated(t *testing.T) {
	chunk := func(text string, usage int) string {
		counted := "null"
		if usage > 0 {
			counted = fmt.Sprintf(`{"prompt_tokens":5,"completion_tokens":%d}`, usage)
		}
		return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}],\"usage\":%s}\n\n", text, counted)
	}
	long := strings.Repeat("x", 4000) // more than is kept of one text
	for _, tt := range []struct {
		name, stream string
		want         int64
		estimated    bool
	}{
		{"nothing was made", cRole, 0, false},
		{"a stream without usage", chunk("12345678", 0) + cStop + cDone, 2, true},
		{"part of a token counts as one", chunk("123456789", 0), 3, true},
		{"a long text counts whole", chunk(long, 0), 1000, true},
		{"escapes count as what they stand for", chunk("ééé\"\n\t", 0) + chunk("\u2028", 0), 3, true},
		{"usage at the end covers all", chunk("12345678", 0) + cStop + chunk("", 7) + cDone, 7, false},
		{"running usage covers what came before", chunk("12345678", 3) + chunk("1234", 0), 4, true},
		{"running usage to the end", chunk("12345678", 3) + chunk("1234", 4), 4, false},
		{"a count of zero is a count", chunk("1234", 0) + "data: {\"choices\":[],\"usage\":{\"completion_tokens\":0}}\n\n", 0, false},
	} {
		if u := answered(OpenAIChat, tt.stream).Usage; u.Output != tt.want || u.Estimated != tt.estimated {
			t.Errorf("%s: usage %+v, want output %d, estimated %v", tt.name, u, tt.want, tt.estimated)
		}
	}
}

func TestAnErrorsBodyIsNoOutput(t *testing.T) {
	r := New(Options{API: OpenAIChat})
	r.Header(500, headers())
	r.Feed([]byte(`{"choices":[{"message":{"content":"not an answer"}}]}`))
	if u := r.End(true).Usage; u != (Usage{}) {
		t.Errorf("usage of an error = %+v, want none", u)
	}
}

func TestAFallbackThatServedIsTheModel(t *testing.T) {
	for _, tt := range []struct{ name, iterations, want string }{
		{"no fallback", `{"type":"message","model":"a"}`, "claude-sonnet-5"},
		{"one", `{"type":"message","model":"a"},{"type":"fallback_message","model":"b"}`, "b"},
		{"the last of two", `{"type":"fallback_message","model":"b"},{"type":"fallback_message","model":"c"}`, "c"},
		{"one without a name", `{"type":"fallback_message"}`, "claude-sonnet-5"},
	} {
		delta := "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1,\"iterations\":[" + tt.iterations + "]}}\n\n"
		if v := answered(AnthropicMessages, aStart+aText+delta+aStop); v.Model != tt.want || v.Class != OK {
			t.Errorf("%s: model %q, class %v, want %q, ok", tt.name, v.Model, v.Class, tt.want)
		}
	}
}
