package scripted

import (
	"fmt"
	"net/http"
	"strings"
)

// gemini checks a call of Gemini's, wherever it is served, by what stands behind the model in the path.
func (x *exchange) gemini(verb string) *refusal {
	invalid := func(reason string) *refusal {
		return googleRefusal(http.StatusBadRequest, "INVALID_ARGUMENT", "%s", reason)
	}
	x.ask.Stream = verb == "streamGenerateContent"
	array := x.ask.Stream && x.r.URL.Query().Get("alt") != "sse"
	x.dialect = gemini{array: array}
	switch {
	case verb != "generateContent" && verb != "streamGenerateContent":
		return googleRefusal(http.StatusNotFound, "NOT_FOUND", "no such path: %s", x.r.RequestURI)
	case x.wrongForm() != "":
		return invalid(x.wrongForm())
	}
	members := x.object()
	if name := someOf(members, "model", "stream", "messages"); name != "" {
		return invalid(fmt.Sprintf("Invalid JSON payload received. Unknown name %q: Cannot find field.", name))
	}
	if _, ok := members["contents"]; !ok {
		return invalid("contents is not specified")
	}
	return nil
}

// gemini speaks generateContent and streamGenerateContent (wire-formats 8). Without alt=sse a stream is one JSON array.
type gemini struct{ array bool }

func (g gemini) mime() string {
	if g.array {
		return "application/json; charset=UTF-8"
	}
	return "text/event-stream"
}

func (g gemini) alive() string {
	if g.array {
		return "\n"
	}
	return ": keep-alive\r\n\r\n"
}

func (g gemini) stream(m message) (before, content, after []string) {
	for i, text := range m.texts {
		content = append(content, g.chunk(i == 0, g.object(m, g.textPart(text), "", i+1)))
	}
	if m.think {
		before = []string{g.chunk(true, g.object(m, g.thoughtPart(), "", 0))}
		if len(content) > 0 {
			content[0] = g.chunk(false, g.object(m, g.textPart(m.texts[0]), "", 1))
		}
	}
	if m.tool {
		after = append(after, g.chunk(len(m.texts) == 0, g.object(m, g.callPart(), "", len(m.texts))))
	}
	end := g.object(m, "", g.finish(m), len(m.texts))
	if m.ending == "filter" && len(m.texts) == 0 {
		end = g.blocked(m)
	}
	after = append(after, g.chunk(len(m.texts) == 0 && len(before) == 0 && !m.tool, end))
	if g.array {
		after = append(after, "]")
	}
	return before, content, after
}

// chunk is one object of a stream.
func (g gemini) chunk(first bool, object string) string {
	switch {
	case !g.array:
		return "data: " + object + "\r\n\r\n"
	case first:
		return "[" + object + "\n"
	}
	return ",\r\n" + object + "\n"
}

func (gemini) textPart(text string) string { return fmt.Sprintf(`{"text":%s}`, quote(text)) }
func (gemini) thoughtPart() string {
	return fmt.Sprintf(`{"text":%s,"thought":true}`, quote(thought))
}
func (gemini) callPart() string {
	return fmt.Sprintf(`{"functionCall":{"name":%s,"args":%s},"thoughtSignature":%s}`, quote(ToolName), toolInput, quote(signature))
}

// finish: a refusal is told as a filter's work here.
func (gemini) finish(m message) string {
	if m.ending != "" {
		return "SAFETY"
	}
	return "STOP"
}

// object is a GenerateContentResponse; usage repeats as a running total.
func (gemini) object(m message, parts, finish string, tokens int) string {
	end := ""
	if finish != "" {
		end = `,"finishReason":` + quote(finish)
	}
	return fmt.Sprintf(`{"candidates":[{"content":{"parts":[%s],"role":"model"},"index":0%s}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":%d,"totalTokenCount":%d},"modelVersion":%s,"responseId":%s}`,
		parts, end, tokens, 11+tokens, quote(m.model), quote("gem_"+m.id))
}

func (gemini) blocked(m message) string {
	return fmt.Sprintf(`{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":11,"totalTokenCount":11},"modelVersion":%s,"responseId":%s}`,
		quote(m.model), quote("gem_"+m.id))
}

func (g gemini) answer(m message) string {
	var parts []string
	if m.think {
		parts = append(parts, g.thoughtPart())
	}
	if len(m.texts) > 0 {
		parts = append(parts, g.textPart(m.text()))
	}
	if m.tool {
		parts = append(parts, g.callPart())
	}
	if m.ending == "filter" && len(m.texts) == 0 {
		return g.blocked(m)
	}
	return g.object(m, strings.Join(parts, ","), g.finish(m), len(m.texts))
}

func (g gemini) inBand(_, code string) string {
	e := googleProblem(http.StatusServiceUnavailable, code)
	if g.array {
		return ",\r\n" + e + "\n"
	}
	return "data: " + e + "\r\n\r\n"
}

func (gemini) problem(_ http.Header, status int, code string) string {
	if status == http.StatusOK {
		return googleProblem(http.StatusServiceUnavailable, code)
	}
	return googleProblem(status, code)
}
