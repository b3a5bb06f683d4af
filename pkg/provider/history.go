package provider

import (
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// foreignSignature stands for a thought signature that another model made: "Gemini 3 answers 400" to a function call
// without any, and this value skips the check (Google's thought-signatures guide).
const foreignSignature = `"skip_thought_signature_validator"`

// planHistory takes out of the turns what the first target's model signed, for a target of another family, which would
// refuse it. Within a family signatures hold, on whatever platform.
func (r *Request) planHistory(p *plan, t, first *config.Target) {
	if first == nil || first.Family == t.Family {
		return
	}
	switch r.route.api {
	case classify.AnthropicMessages:
		p.put("messages", change{inside: unthink})
	case classify.Gemini:
		p.put("contents", change{inside: unsign})
	}
}

// unthink leaves out the thinking of assistant turns. A turn of nothing else goes as a whole: "all messages must have
// non-empty content", while turns of one role may follow each other.
func unthink(e *editor, messages value) {
	e.array(messages, func(message value) bool {
		content := message.get("content")
		if message.get("role").str() != "assistant" || !content.isArray() {
			return true
		}
		blocks, thoughts := 0, 0
		for block := range content.elements {
			blocks++
			if thinks(block) {
				thoughts++
			}
		}
		if thoughts > 0 && thoughts == blocks {
			return false
		}
		e.array(content, func(block value) bool { return !thinks(block) })
		return true
	})
}

func thinks(block value) bool {
	kind := block.get("type").str()
	return kind == "thinking" || kind == "redacted_thinking"
}

// unsign replaces the signatures of parts.
func unsign(e *editor, contents value) {
	signature := change{inside: func(e *editor, v value) { e.replace(v, foreignSignature) }}
	parts := plan{{"thoughtSignature", signature}, {"thought_signature", signature}}
	e.array(contents, func(content value) bool {
		e.array(content.get("parts"), func(part value) bool {
			e.object(part, parts)
			return true
		})
		return true
	})
}

// cutTurn reports whether taking the thinking out breaks the turn that is going on: "when `thinking` is enabled, a final
// `assistant` message must start with a thinking block (preceding the lastmost set of `tool_use` and `tool_result`
// blocks)". Adaptive thinking does not ask for that.
func cutTurn(root value) bool {
	if root.get("thinking", "type").str() != "enabled" {
		return false
	}
	last := false
	for message := range root.get("messages").elements {
		last = false
		for block := range message.get("content").elements {
			last = last || block.get("type").str() == "tool_result"
		}
	}
	return last
}
