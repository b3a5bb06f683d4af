package degrade

import (
	"bytes"
	"encoding/json"
	"net/http"

	"understudy/pkg/classify"
)

// responseError is the `error` event of the Responses API: by its schema flat, on the wire also nested. SDKs raise
// an error only for the nested form.
type responseError struct {
	Type string `json:"type"`
	openAIErrorBody
	SequenceNumber int64           `json:"sequence_number"`
	Error          openAIErrorBody `json:"error"`
}

type responseFailed struct {
	Type           string `json:"type"`
	SequenceNumber int64  `json:"sequence_number"`
	Response       struct {
		Object string `json:"object"`
		Status string `json:"status"`
		Error  struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	} `json:"response"`
}

// StreamEnd is the honest end of a committed stream of server-sent events that died with v: what a client of api
// understands as an error, never as an end. failed is the data of the provider's own error event, which goes out as
// it came where the dialect's clients would see it; nil when there was none. events counts the events sent so far.
func StreamEnd(api classify.API, v classify.Verdict, failed []byte, events int64) []byte {
	message := cutOff(v)
	if v.Class == classify.Canceled {
		v.Status = http.StatusServiceUnavailable // by us: who left does not read this
	}
	var out bytes.Buffer
	switch api {
	case classify.AnthropicMessages:
		// The official SDK knows an error by the event's name only.
		event(&out, "error", pick(failed, errorBody(api, v.Status, "", message)))
	case classify.OpenAIResponses:
		responsesEnd(&out, v, failed, events)
	case classify.Gemini:
		geminiEvent(&out, pick(failed, errorBody(api, v.Status, "", message)))
	default:
		event(&out, "", pick(failed, errorBody(api, v.Status, v.Class.String(), message)))
	}
	return out.Bytes()
}

// ArrayEnd is StreamEnd for a stream that is one JSON array, Gemini's: a last element, and the array's end. begun says
// that a part of the array was sent; that it ends with a whole element is the caller's business.
func ArrayEnd(v classify.Verdict, failed []byte, begun bool) []byte {
	if v.Class == classify.Canceled {
		v.Status = http.StatusServiceUnavailable
	}
	out := []byte{'['}
	if begun {
		out[0] = ','
	}
	return append(append(out, pick(failed, errorBody(classify.Gemini, v.Status, "", cutOff(v)))...), ']')
}

func cutOff(v classify.Verdict) string { return "the answer was cut off: " + v.Class.String() }

// responsesEnd says it twice, as OpenAI does: SDKs raise `error` with an error in it, and some other clients
// understand only response.failed.
func responsesEnd(out *bytes.Buffer, v classify.Verdict, failed []byte, events int64) {
	message := cutOff(v)
	e := responseError{Type: "error", openAIErrorBody: openAIErrorOf(v.Status, "server_error", message), SequenceNumber: events}
	e.Error = e.openAIErrorBody
	event(out, "error", pick(failed, encode(e)))
	if typeOf(failed) == "response.failed" {
		event(out, "response.failed", failed)
		return
	}
	f := responseFailed{Type: "response.failed", SequenceNumber: events + 1}
	f.Response.Object, f.Response.Status = "response", "failed"
	f.Response.Error.Code, f.Response.Error.Message = "server_error", message
	event(out, "response.failed", encode(f))
}

// Whole is the error answer for a response that failed with v behind a good status: the provider's own error
// where failed, the event that carried it, is one in the dialect.
func Whole(api classify.API, v classify.Verdict, failed []byte) Answer {
	a := Error(api, v.Status, v.Detail, "the provider reported "+v.Class.String())
	a.Body = pick(failed, a.Body)
	return a
}

// pick takes the provider's event when it is what a client sees as an error: an object with an error object in it.
func pick(failed, ours []byte) []byte {
	var e struct {
		Error map[string]json.RawMessage `json:"error"`
	}
	if json.Unmarshal(failed, &e) == nil && len(e.Error) > 0 {
		return failed
	}
	return ours
}

func typeOf(event []byte) string {
	var e struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(event, &e) // not JSON: no type
	return e.Type
}

func event(out *bytes.Buffer, name string, data []byte) {
	if name != "" {
		out.WriteString("event: " + name + "\n")
	}
	for line := range bytes.Lines(data) {
		out.WriteString("data: ")
		out.Write(bytes.TrimRight(line, "\r\n"))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
}
