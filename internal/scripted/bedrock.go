package scripted

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// Bedrock plays Anthropic's Messages on Amazon Bedrock (wire-formats 2), by Surface "invoke", "messages" or "mantle".
type Bedrock struct {
	plainPlatform
	Surface string
	Auth    Auth
	Clock   func() time.Time // of the Date header; nil: time.Now
}

func (b Bedrock) call(x *exchange) *refusal {
	x.w.Header().Set("x-amzn-requestid", "req-"+x.p.name)
	if b.Clock != nil {
		x.w.Header().Set("date", b.Clock().UTC().Format(http.TimeFormat))
	}
	if err := b.Auth.check(x.r, x.body); err != nil {
		return awsDenied(err)
	}
	if b.Surface == "invoke" {
		return b.invoke(x)
	}
	return b.messages(x)
}

func awsDenied(err error) *refusal {
	if aws := (awsError{}); errors.As(err, &aws) {
		return awsRefusal(http.StatusForbidden, aws.exception, "%s", aws.message)
	}
	return awsRefusal(http.StatusForbidden, "AccessDeniedException", "%s", err)
}

// invoke is POST /model/{id}/invoke and …/invoke-with-response-stream.
func (Bedrock) invoke(x *exchange) *refusal {
	x.dialect = invokeModel{}
	path := escapedSegments(x.r.URL)
	if len(path) != 3 || path[0] != "model" || path[2] != "invoke" && path[2] != "invoke-with-response-stream" || !x.onlyBeta() {
		return awsRefusal(http.StatusNotFound, "UnknownOperationException", "no such path: %s", x.r.RequestURI)
	}
	x.ask.Stream = path[2] != "invoke"
	if x.ask.Model = x.p.known(path[1]); x.ask.Model == "" {
		return awsRefusal(http.StatusNotFound, "ResourceNotFoundException", "Could not resolve the foundation model from the model identifier: %s", path[1])
	}
	if wrong := wrongInvoke(x); wrong != "" {
		return awsRefusal(http.StatusBadRequest, "ValidationException", "%s", wrong)
	}
	return nil
}

// wrongInvoke: "model and stream go from the body; anthropic-version becomes anthropic_version there, anthropic-beta
// anthropic_beta, anthropic-user-profile-id user_profile_id" (anthropic-sdk-go/bedrock/bedrock.go).
func wrongInvoke(x *exchange) string {
	members := x.object()
	if wrong := x.wrongForm(); wrong != "" {
		return wrong
	}
	for _, name := range []string{"anthropic-version", "anthropic-beta", "anthropic-user-profile-id"} {
		if x.r.Header.Get(name) != "" {
			return "the header " + name + " is none of Bedrock's"
		}
	}
	if name := someOf(members, "model", "stream", "service_tier", "speed", "fallbacks", "inference_geo"); name != "" {
		return "extraneous key [" + name + "] is not permitted"
	}
	if v := text(members, "anthropic_version"); v != "bedrock-2023-05-31" && v != "2026-10-21" {
		return "anthropic_version: got " + string(members["anthropic_version"])
	}
	if betas, ok := members["anthropic_beta"]; ok {
		var list []string
		if json.Unmarshal(betas, &list) != nil || len(list) == 0 {
			return "anthropic_beta: want a list of names, got " + string(betas)
		}
	}
	return wrongMessages(members)
}

// messages is POST /anthropic/v1/messages: "keep body/headers as first-party (model, stream, anthropic-version)".
func (Bedrock) messages(x *exchange) *refusal {
	x.dialect = anthropic{}
	if x.r.URL.Path != "/anthropic/v1/messages" || !x.onlyBeta() {
		return anthropicRefusal(http.StatusNotFound, "not_found_error", "no such path: %s", x.r.RequestURI)
	}
	return x.firstParty("service_tier", "speed", "fallbacks", "inference_geo")
}

// firstParty checks a request that is as Anthropic's own API takes it, but for some members.
func (x *exchange) firstParty(without ...string) *refusal {
	bad := func(reason string) *refusal {
		return anthropicRefusal(http.StatusBadRequest, "invalid_request_error", "%s", reason)
	}
	members := x.object()
	if wrong := x.wrongForm(); wrong != "" {
		return bad(wrong)
	}
	if x.r.Header.Get("anthropic-version") == "" {
		return bad("anthropic-version: header is required")
	}
	if name := someOf(members, append(without, "anthropic_version", "anthropic_beta")...); name != "" {
		return bad(name + ": Extra inputs are not permitted")
	}
	if !x.p.has(x.ask.Model) {
		return anthropicRefusal(http.StatusNotFound, "not_found_error", "model: %s", x.ask.Model)
	}
	if wrong := wrongMessages(members); wrong != "" {
		return bad(wrong)
	}
	return nil
}

// invokeModel is Anthropic's dialect as InvokeModel says it: its events in frames of AWS's event stream, and AWS's
// errors.
type invokeModel struct{ anthropic }

func (invokeModel) mime() string  { return "application/vnd.amazon.eventstream" }
func (invokeModel) alive() string { return chunk(`{"type": "ping"}`) }

func (i invokeModel) stream(m message) (before, content, after []string) {
	before, content, after = i.anthropic.stream(m)
	return framed(before, m), framed(content, m), framed(after, m)
}

// framed puts server-sent events into frames. The last one gets what Bedrock adds to it.
func framed(events []string, m message) []string {
	var frames []string
	for _, event := range events {
		_, body, _ := strings.Cut(strings.TrimSuffix(event, "\n\n"), "\ndata: ")
		if body == `{"type":"message_stop"}` {
			body = fmt.Sprintf(`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":11,"outputTokenCount":%d,"invocationLatency":120,"firstByteLatency":60}}`, len(m.texts))
		}
		if body != `{"type": "ping"}` { // there are none on Bedrock unasked
			frames = append(frames, chunk(body))
		}
	}
	return frames
}

// chunk is an event with one of Anthropic's inside: {"bytes":"<base64>","p":"<padding>"}.
func chunk(event string) string {
	const padding = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	payload := fmt.Sprintf(`{"bytes":"%s","p":"%s"}`, base64.StdEncoding.EncodeToString([]byte(event)), padding[:len(event)%len(padding)])
	return frame(payload, ":event-type", "chunk", ":content-type", "application/json", ":message-type", "event")
}

// frame encodes a message with headers of names and values.
func frame(payload string, headers ...string) string {
	msg := eventstream.Message{Payload: []byte(payload)}
	for i := 0; i < len(headers); i += 2 {
		msg.Headers.Set(headers[i], eventstream.StringValue(headers[i+1]))
	}
	var out bytes.Buffer
	_ = eventstream.NewEncoder().Encode(&out, msg) // a buffer takes everything
	return out.String()
}

// inBand is an exception frame; of "failed" an error frame, which has only headers; of a code of Anthropic's an event.
func (i invokeModel) inBand(kind, code string) string {
	const told = "Too many requests, please wait before trying again."
	code = orElse(code, "serviceUnavailableException")
	switch {
	case strings.HasSuffix(code, "_error"):
		return framed([]string{i.anthropic.inBand(kind, code)}, message{})[0]
	case kind == "failed":
		return frame("", ":message-type", "error", ":error-code", code, ":error-message", told)
	}
	payload := fmt.Sprintf(`{"message":%s}`, quote(told))
	if code == "modelStreamErrorException" {
		payload = fmt.Sprintf(`{"message":%s,"originalMessage":"Overloaded","originalStatusCode":529}`, quote(told))
	}
	return frame(payload, ":exception-type", code, ":content-type", "application/json", ":message-type", "exception")
}

// bedrockFaults are the exceptions by status (wire-formats 2a).
var bedrockFaults = map[int]fault{
	200: {"ServiceUnavailableException", "", "Bedrock is unable to process your request."},
	400: {"ValidationException", "", "The provided request is not valid"},
	403: {"AccessDeniedException", "", "You don't have access to the model with the specified model ID."},
	404: {"ResourceNotFoundException", "", "Could not resolve the foundation model"},
	408: {"ModelTimeoutException", "", "Model has timed out in processing the request. Try your request again."},
	424: {"ModelErrorException", "", "The system encountered an unexpected error during processing."},
	429: {"ThrottlingException", "", "Too many requests, please wait before trying again."},
	503: {"ServiceUnavailableException", "", "Bedrock is unable to process your request."},
}

func (invokeModel) problem(h http.Header, status int, code string) string {
	if status == 529 { // capacity is told as Anthropic does
		return anthropicProblem(status, code)
	}
	f, ok := bedrockFaults[status]
	if !ok {
		f = fault{"InternalServerException", "", "The system encountered an unexpected error during processing. Try your request again."}
	}
	h.Set("x-amzn-errortype", orElse(code, f.kind)+":http://internal.amazon.com/coral/com.amazon.bedrock/")
	return fmt.Sprintf(`{"message":%s}`, quote(f.message))
}
