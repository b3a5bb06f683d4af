package cache

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"slices"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
	"understudy/pkg/classify/sse"
)

// callsTools says that an answer calls a tool, the client's or the provider's, or holds what such a call gave. A part of
// an answer whose kind is not known counts as one. It fails for what is no answer, or only the beginning of one.
func callsTools(api classify.API, contentType string, body []byte) (bool, error) {
	in := callers[api]
	if in == nil {
		return false, errors.New("it is in no dialect that the cache knows")
	}
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return false, fmt.Errorf("its content type %q is none", contentType)
	case kind == "application/json":
		return inDocument(body, in)
	case kind == "text/event-stream":
		return inStream(body, in)
	}
	return false, fmt.Errorf("it is %s, in which no tool calls can be seen", kind)
}

// inDocument reads a whole answer. Gemini streams an array of them.
func inDocument(body []byte, calls func(gjson.Result) bool) (bool, error) {
	doc := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) || !doc.IsObject() && !doc.IsArray() {
		return false, errors.New("it is no JSON object")
	}
	if slices.ContainsFunc(doc.Array(), cutOff) {
		return false, errors.New("a limit cut it off")
	}
	return slices.ContainsFunc(doc.Array(), calls), nil
}

// cutOff says, in any dialect, that an answer was cut off by max_tokens or the context's end, or that an event tells so.
func cutOff(doc gjson.Result) bool {
	for _, path := range []string{"stop_reason", "delta.stop_reason", "choices.#.finish_reason", "status", "response.status", "candidates.#.finishReason"} {
		for _, said := range doc.Get(path).Array() {
			if oneOf(said, "max_tokens", "model_context_window_exceeded", "length", "incomplete", "MAX_TOKENS") {
				return true
			}
		}
	}
	return false
}

func inStream(body []byte, calls func(gjson.Result) bool) (bool, error) {
	f := sse.New(AnswerMost)
	f.Feed(body)
	events, found := 0, false
	read := func(ev sse.Event) error {
		if len(ev.Data) == 0 || bytes.Equal(bytes.TrimSpace(ev.Data), []byte("[DONE]")) {
			return nil
		}
		events++
		here, err := inDocument(ev.Data, calls)
		found = found || here
		return err
	}
	for ev, ok := f.Next(); ok; ev, ok = f.Next() {
		if err := read(ev); err != nil {
			return false, fmt.Errorf("event %d: %w", events, err)
		}
	}
	if ev, ok := f.Tail(); ok {
		if err := read(ev); err != nil {
			return false, fmt.Errorf("event %d: %w", events, err)
		}
	}
	if events == 0 {
		return false, errors.New("it has no events")
	}
	return found, f.Err()
}

// callers say whether a body or an event of a stream calls a tool.
var callers = map[classify.API]func(gjson.Result) bool{
	classify.AnthropicMessages: anthropicCalls,
	classify.OpenAIChat:        chatCalls,
	classify.OpenAIResponses:   responsesCalls,
	classify.Gemini:            geminiCalls,
}

// anthropicCalls: "tool_use", "server_tool_use", "mcp_tool_use", "web_search_tool_result" … are content blocks
// (anthropic-sdk-go ContentBlockUnion, BetaContentBlockUnion), whole or begun by an event.
func anthropicCalls(doc gjson.Result) bool {
	said := []string{"text", "thinking", "redacted_thinking", "fallback"}
	return others(doc.Get("content.#.type"), said) || others(doc.Get("content_block.type"), said) ||
		oneOf(doc.Get("stop_reason"), "tool_use", "pause_turn") || oneOf(doc.Get("delta.stop_reason"), "tool_use", "pause_turn")
}

// responsesCalls: items are "function_call", "web_search_call", "mcp_approval_request" … (openai-go
// ResponseOutputItemUnion), in the response or in an event about one.
func responsesCalls(doc gjson.Result) bool {
	said := []string{"message", "reasoning"}
	return others(doc.Get("output.#.type"), said) || others(doc.Get("response.output.#.type"), said) || others(doc.Get("item.type"), said)
}

func chatCalls(doc gjson.Result) bool {
	for _, choice := range doc.Get("choices").Array() {
		for _, part := range []string{"message", "delta"} {
			said := choice.Get(part)
			if len(said.Get("tool_calls").Array()) > 0 || said.Get("function_call").IsObject() {
				return true
			}
		}
		if oneOf(choice.Get("finish_reason"), "tool_calls", "function_call") {
			return true
		}
	}
	return false
}

// geminiCalls: a part has a key for what it is (genai Part).
func geminiCalls(doc gjson.Result) bool {
	said := []string{"text", "thought", "thoughtSignature", "inlineData", "fileData"}
	found := false
	for _, candidate := range doc.Get("candidates").Array() {
		for _, part := range candidate.Get("content.parts").Array() {
			part.ForEach(func(key, _ gjson.Result) bool {
				found = found || !slices.Contains(said, key.Str)
				return !found
			})
		}
	}
	return found
}

// others says that one of the kinds, a name or a list of names, is not in known.
func others(kinds gjson.Result, known []string) bool {
	return slices.ContainsFunc(kinds.Array(), func(k gjson.Result) bool { return !slices.Contains(known, k.Str) })
}

func oneOf(r gjson.Result, names ...string) bool { return slices.Contains(names, r.Str) }
