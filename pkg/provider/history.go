package provider

import (
	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// foreignSignature stands for a thought signature that another model made: "Gemini 3 answers 400" to a function call
// without any, and this value skips the check (Google's thought-signatures guide).
const foreignSignature = `"skip_thought_signature_validator"`

// planHistory takes out of the turns what the first target's model signed, for a target of another family, which would
// refuse it. Within a family signatures hold, on whatever platform.
func (r *Request) planHistory(p plan, t, first *config.Target) {
	if first == nil || first.Family == t.Family {
		return
	}
	switch r.route.api {
	case classify.AnthropicMessages:
		p["messages"] = change{inside: unthink}
	case classify.Gemini:
		p["contents"] = change{inside: unsign}
	}
}

// unthink leaves out the thinking of assistant turns. A turn of nothing else goes as a whole: "all messages must have
// non-empty content", while turns of one role may follow each other.
func unthink(e *editor, messages gjson.Result) {
	e.array(messages, func(message gjson.Result) bool {
		content := message.Get("content")
		if message.Get("role").Str != "assistant" || !content.IsArray() {
			return true
		}
		blocks, thoughts := 0, 0
		content.ForEach(func(_, block gjson.Result) bool {
			blocks++
			if thinks(block) {
				thoughts++
			}
			return true
		})
		if thoughts > 0 && thoughts == blocks {
			return false
		}
		e.array(content, func(block gjson.Result) bool { return !thinks(block) })
		return true
	})
}

func thinks(block gjson.Result) bool {
	kind := block.Get("type").Str
	return kind == "thinking" || kind == "redacted_thinking"
}

// unsign replaces the signatures of parts.
func unsign(e *editor, contents gjson.Result) {
	signature := change{inside: func(e *editor, v gjson.Result) { e.replace(v, foreignSignature) }}
	parts := plan{"thoughtSignature": signature, "thought_signature": signature}
	e.array(contents, func(content gjson.Result) bool {
		e.array(content.Get("parts"), func(part gjson.Result) bool {
			e.object(part, parts)
			return true
		})
		return true
	})
}

// cutTurn reports whether taking the thinking out breaks the turn that is going on: "when `thinking` is enabled, a final
// `assistant` message must start with a thinking block (preceding the lastmost set of `tool_use` and `tool_result`
// blocks)". Adaptive thinking does not ask for that.
func cutTurn(root gjson.Result) bool {
	if root.Get("thinking.type").Str != "enabled" {
		return false
	}
	last := false
	root.Get("messages").ForEach(func(_, message gjson.Result) bool {
		last = false
		message.Get("content").ForEach(func(_, block gjson.Result) bool {
			last = last || block.Get("type").Str == "tool_result"
			return true
		})
		return true
	})
	return last
}
