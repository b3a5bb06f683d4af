package rehearse

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/classify/sse"
)

// answer is what came of a request.
type answer struct {
	status  int // 0: nothing came
	header  http.Header
	body    []byte
	err     error // why the transfer did not end as it should
	verdict classify.Verdict
	text    string        // that the model says
	fault   string        // the message of the dialect's error
	flat    bool          // no stream, though one was asked for
	begins  time.Duration // until the headers
	ends    time.Duration
}

// read reads the body as a client of the dialect would.
func (a *answer) read(c call) {
	r := classify.New(classify.Options{API: c.api, Stream: c.stream, IgnoreTier: true})
	r.Header(a.status, a.header.Get)
	r.Feed(a.body)
	a.verdict = r.End(a.err == nil)
	kind := a.header.Get("content-type")
	a.flat = c.stream && !strings.HasPrefix(kind, eventStream)
	for _, doc := range documents(kind, a.body) {
		a.document(c.api, doc)
	}
}

const eventStream = "text/event-stream"

// documents are the pieces of JSON in a body: its events, or itself.
func documents(contentType string, body []byte) [][]byte {
	if !strings.HasPrefix(contentType, eventStream) {
		return [][]byte{body}
	}
	var docs [][]byte
	f := sse.New(len(body) + 1)
	f.Feed(append(body[:len(body):len(body)], "\n\n"...))
	for {
		e, ok := f.Next()
		if !ok {
			return docs
		}
		docs = append(docs, append([]byte(nil), e.Data...))
	}
}

// document reads what one piece says.
func (a *answer) document(api classify.API, doc []byte) {
	if fault := problem(api, doc); fault != "" {
		a.fault = fault
	}
	var v struct {
		Content []part          `json:"content"` // Anthropic's
		Type    string          `json:"type"`
		Delta   json.RawMessage `json:"delta"`
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
		} `json:"choices"`
		Output []struct {
			Content []part `json:"content"`
		} `json:"output"`
		Candidates []struct {
			Content struct {
				Parts []part `json:"parts"`
			} `json:"content"`
		} `json:"candidates"`
	}
	if json.Unmarshal(doc, &v) != nil {
		return
	}
	say := func(parts ...part) {
		for _, p := range parts {
			a.text += p.Text
		}
	}
	switch api {
	case classify.AnthropicMessages:
		var d part
		_ = json.Unmarshal(v.Delta, &d) // "" for another delta
		say(append(v.Content, d)...)
	case classify.OpenAIChat:
		for _, c := range v.Choices {
			say(part{c.Message.Content}, part{c.Delta.Content})
		}
	case classify.OpenAIResponses:
		var d string
		if v.Type == "response.output_text.delta" {
			_ = json.Unmarshal(v.Delta, &d)
		}
		say(part{d})
		for _, o := range v.Output {
			say(o.Content...)
		}
	case classify.Gemini:
		for _, c := range v.Candidates {
			say(c.Content.Parts...)
		}
	}
}

// problem is the message of an error in the dialect, "" for what is none.
func problem(api classify.API, doc []byte) string {
	var v struct {
		Type     string `json:"type"`
		Error    *oops  `json:"error"`
		Response struct {
			Error *oops `json:"error"`
		} `json:"response"`
		oops
	}
	if json.Unmarshal(doc, &v) != nil {
		return ""
	}
	switch {
	case api == classify.AnthropicMessages && (v.Type != "error" || v.Error == nil || v.Error.Type == ""):
		return ""
	case api == classify.OpenAIResponses && v.Response.Error != nil: // response.failed
		return v.Response.Error.Message
	case api == classify.OpenAIResponses && v.Type == "error" && v.Error == nil:
		return v.Message
	case v.Error == nil:
		return ""
	case api == classify.Gemini && (v.Error.Status == "" || string(v.Error.Code) == ""):
		return ""
	}
	return v.Error.Message
}

// oops is what the dialects' errors have.
type oops struct {
	Type    string          `json:"type"`
	Message string          `json:"message"`
	Code    json.RawMessage `json:"code"`
	Status  string          `json:"status"`
}

// most is how much of an answer's text a sentence quotes, in bytes.
const most = 160

// String is the answer for a report.
func (a *answer) String() string {
	if a.status == 0 {
		return fmt.Sprintf("no answer within %s (%v)", a.ends.Round(10*time.Millisecond), a.err)
	}
	say := []string{fmt.Sprintf("status %d", a.status)}
	add := func(format string, args ...any) { say = append(say, fmt.Sprintf(format, args...)) }
	if t := a.header.Get("x-llm-target"); t != "" {
		add("by %s", t)
	}
	if r := a.header.Get("x-llm-rung"); r != "" {
		add("rung %s", r)
	}
	for _, name := range []string{"x-llm-attempts", "x-llm-fallback-reason", "x-llm-degraded", "x-should-retry", "retry-after"} {
		if v := a.header.Get(name); v != "" {
			add("%s: %s", name, v)
		}
	}
	add("read as %s", a.verdict.Class)
	switch {
	case a.fault != "":
		add("error %.*q", most, a.fault)
	case a.text != "":
		add("saying %.*q", most, a.text)
	case a.status >= 400:
		add("body %.*q", most, a.body)
	}
	if a.err != nil {
		add("transfer aborted")
	}
	add("begun after %s, over after %s", a.begins.Round(10*time.Millisecond), a.ends.Round(10*time.Millisecond))
	return strings.Join(say, ", ")
}
