package degrade

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"understudy/pkg/classify"
)

// begun is a stream of each dialect that has said something, as in the providers' documentation.
var begun = map[classify.API]string{
	classify.AnthropicMessages: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
	classify.OpenAIChat: "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n" +
		"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n",
	classify.OpenAIResponses: "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\"}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hi\"}\n\n",
}

func TestADeadStreamIsAnErrorOfTheOfficialSDKs(t *testing.T) {
	cut := classify.Verdict{Class: classify.Truncated, Status: 502}
	rows := []struct {
		name   string
		api    classify.API
		v      classify.Verdict
		failed string
		want   string // in the SDK's error
	}{
		{"a cut message looks whole", classify.AnthropicMessages, cut, "", "the answer was cut off: truncated"},
		{"a cut completion looks whole", classify.OpenAIChat, cut, "", "the answer was cut off: truncated"},
		{"a cut response looks whole", classify.OpenAIResponses, cut, "", "the answer was cut off: truncated"},
		{"the provider's own error is lost", classify.AnthropicMessages, cut, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"} }`, "Overloaded"},
		{"an error on several lines is lost", classify.AnthropicMessages, cut, "{\"type\":\"error\",\n\"error\":{\"type\":\"overloaded_error\",\n\n\"message\":\"Overloaded\"}}", "Overloaded"},
		{"the provider's own error in a chunk is lost", classify.OpenAIChat, cut, `{"choices":[],"error":{"code":502,"message":"upstream died"}}`, "upstream died"},
		{"an error inside a choice looks whole", classify.OpenAIChat, cut, `{"choices":[{"finish_reason":"error","error":{"code":502,"message":"died"}}]}`, "cut off"},
		{"a nested error is lost", classify.OpenAIResponses, cut, `{"type":"error","error":{"code":"rate_limit_exceeded","message":"slow down"}}`, "slow down"},
		{"a flat error looks whole", classify.OpenAIResponses, cut, `{"type":"error","code":"rate_limit_exceeded","message":"slow down","sequence_number":2}`, "cut off"},
		{"a failed response looks whole", classify.OpenAIResponses, cut, `{"type":"response.failed","response":{"error":{"code":"server_error","message":"boom"}}}`, "cut off"},
		{"an error that is not JSON looks whole", classify.OpenAIResponses, cut, `{"type":"error"`, "cut off"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			end := StreamEnd(row.api, row.v, []byte(row.failed), 2)
			n, err := newSDKs(t, 200, "text/event-stream", append([]byte(begun[row.api]), end...)).listen(row.api)
			if n != 2 || err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("the SDK reads %d events and %v of %s, want 2 and an error with %q", n, err, end, row.want)
			}
			for _, good := range []string{"message_stop", "[DONE]", "response.completed", "finish_reason\":\"stop"} {
				if strings.Contains(string(end), good) {
					t.Errorf("StreamEnd() = %s, want no %s", end, good)
				}
			}
		})
	}
}

// TestADeadStreamOfGeminiIsAnError reads by the documented fields: its SDK is not among our modules.
func TestADeadStreamOfGeminiIsAnError(t *testing.T) {
	text := "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}],\"role\":\"model\"}}]}\r\n\r\n"
	rows := []struct {
		name   string
		v      classify.Verdict
		failed string
		want   geminiErrorBody
		class  classify.Class // what we would read in it
	}{
		{"a cut answer looks whole", classify.Verdict{Class: classify.Truncated, Status: 502}, "",
			geminiErrorBody{502, "the answer was cut off: truncated", "INTERNAL"}, classify.ServerError},
		{"a failure behind a good status is none", classify.Verdict{Class: classify.Malformed, Status: 200}, "",
			geminiErrorBody{500, "the answer was cut off: malformed", "INTERNAL"}, classify.ServerError},
		{"a stop of ours is the caller's", classify.Verdict{Class: classify.Canceled, Status: 499}, "",
			geminiErrorBody{503, "the answer was cut off: canceled", "UNAVAILABLE"}, classify.Overloaded},
		{"the provider's own error is lost", classify.Verdict{Class: classify.Overloaded, Status: 503}, `{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}`,
			geminiErrorBody{503, "busy", "UNAVAILABLE"}, classify.Overloaded},
		{"an error on several lines is lost", classify.Verdict{Class: classify.Overloaded, Status: 503}, "{\"error\":{\"code\":503,\n\"message\":\"busy\",\n\"status\":\"UNAVAILABLE\"}}",
			geminiErrorBody{503, "busy", "UNAVAILABLE"}, classify.Overloaded},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			end := string(StreamEnd(classify.Gemini, row.v, []byte(row.failed), 1))
			data, isData := strings.CutPrefix(end, "data: ")
			if got := geminiErrorIn(t, []byte(data)); got != row.want || !isData || strings.Index(end, "\n") != len(end)-3 || !strings.HasSuffix(end, "}\r\n\r\n") {
				t.Errorf("StreamEnd() = %q, want an event of one line with %v", end, row.want)
			}
			whole := Answer{Status: 200, Body: []byte(text + end), Headers: map[string]string{"content-type": "text/event-stream"}}
			if v := judge(classify.Gemini, whole, whole.Body); v.Class != row.class || v.Complete || !v.Partial {
				t.Errorf("class of %s = %+v, want a partial %s", whole.Body, v, row.class)
			}
		})
	}
}

// TestClientsThatKnowOnlyResponseFailedSeeIt reads the events as a client does that ignores `error`.
func TestClientsThatKnowOnlyResponseFailedSeeIt(t *testing.T) {
	rows := []struct{ name, failed, want string }{
		{"there is no response.failed", "", "the answer was cut off: timeout"},
		{"an error of the provider replaces response.failed", `{"type":"error","error":{"code":"x","message":"y"}}`, "the answer was cut off: timeout"},
		{"the provider's own response.failed is lost", `{"type":"response.failed","sequence_number":7,"response":{"error":{"code":"server_error","message":"boom"}}}`, "boom"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			v := classify.Verdict{Class: classify.Timeout, Status: 504}
			end := string(StreamEnd(classify.OpenAIResponses, v, []byte(row.failed), 7))
			_, last, _ := strings.Cut(end, "event: response.failed\ndata: ")
			var e responses.ResponseStreamEventUnion
			if err := json.Unmarshal([]byte(last), &e); err != nil {
				t.Fatalf("StreamEnd() = %s: %v", end, err)
			}
			got := e.AsResponseFailed().Response.Error
			if e.Type != "response.failed" || e.SequenceNumber < 7 || got.Message != row.want || got.Code != "server_error" {
				t.Errorf("the last event is %s, want response.failed with %q", last, row.want)
			}
			if !strings.HasSuffix(end, "\n\n") {
				t.Errorf("StreamEnd() = %q, want a blank line at its end: no event counts before that", end)
			}
		})
	}
}

func TestADeadStreamIsNotTheCallersFault(t *testing.T) {
	for _, v := range []classify.Verdict{{Class: classify.Truncated}, {Class: classify.Truncated, Status: 200}, {Class: classify.Canceled, Status: 499}} {
		for _, api := range apis {
			end := string(StreamEnd(api, v, nil, 0))
			if strings.Contains(end, "invalid_request_error") {
				t.Errorf("StreamEnd(%s, status %d) = %s, want a fault of the server", v.Class, v.Status, end)
			}
		}
	}
}

// TestADeadArrayOfGeminiIsAnError: without alt=sse a stream is one JSON array, in which an event would be no JSON.
func TestADeadArrayOfGeminiIsAnError(t *testing.T) {
	const text = "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}],\"role\":\"model\"}}]}"
	for _, row := range []struct{ name, sent, failed, message string }{
		{"a cut array looks whole", text, "", "the answer was cut off: truncated"},
		{"an array of which nothing was sent does not begin", "", "", "the answer was cut off: truncated"},
		{"the provider's own error is lost", text, `{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}`, "busy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			all := row.sent + string(ArrayEnd(classify.Verdict{Class: classify.Truncated, Status: 502}, []byte(row.failed), row.sent != ""))
			var elements []struct{ Error geminiErrorBody }
			if err := json.Unmarshal([]byte(all), &elements); err != nil || len(elements) == 0 || elements[len(elements)-1].Error.Message != row.message {
				t.Errorf("the array is %s (%v), want JSON that ends in an error with %q", all, err, row.message)
			}
			whole := Answer{Status: 200, Headers: map[string]string{"content-type": "application/json"}}
			if v := judge(classify.Gemini, whole, []byte(all)); v.Complete || !v.Class.Trips() {
				t.Errorf("class of %s = %+v, want a failure", all, v)
			}
		})
	}
}
