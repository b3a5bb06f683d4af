package classify

import "understudy/pkg/classify/jsonscan"

// anthropic is the Messages API (wire-formats 1).
var anthropic = dialect{
	api:  AnthropicMessages,
	tree: jsonscan.NewPaths(errorPaths, anthropicPaths),
	is: func(f *facts) bool {
		t := f.text(factType)
		return anthropicEvents[t] || t == "message" || t == "error" && f.has(factError)
	},
	event:      anthropicEvent,
	body:       anthropicBody,
	endMark:    "message_stop",
	overloaded: 529,
	money:      402,
}

// anthropicPaths are where a message, and each event of a stream, has its facts.
var anthropicPaths = map[string]jsonscan.Field{
	// A message, and the same inside message_start.
	"model":                      factModel,
	"content":                    factShape,
	"content.*.text":             factText,
	"content.*.thinking":         factText,
	"content.*.name":             factText,
	"stop_reason":                factStop,
	"stop_details.category":      factCategory,
	"message.model":              factModel,
	"usage.service_tier":         factTier,
	"usage.speed":                factSpeed,
	"message.usage.speed":        factSpeed,
	"message.usage.service_tier": factTier,

	// The model that goes on after another refused ("One block appears per hop", 1c).
	"content_block.to.model": factModel,

	// Usage: message_start has the input, message_delta counts on ("cumulative", 1f).
	"usage.input_tokens":                                  factInput,
	"usage.output_tokens":                                 factOutput,
	"usage.cache_read_input_tokens":                       factCacheRead,
	"usage.cache_creation_input_tokens":                   factCacheWrite,
	"usage.output_tokens_details.thinking_tokens":         factReasoning,
	"message.usage.input_tokens":                          factInput,
	"message.usage.output_tokens":                         factOutput,
	"message.usage.cache_read_input_tokens":               factCacheRead,
	"message.usage.cache_creation_input_tokens":           factCacheWrite,
	"message.usage.output_tokens_details.thinking_tokens": factReasoning,

	"usage.cache_creation.ephemeral_1h_input_tokens":         factCacheLong,
	"usage.server_tool_use.web_search_requests":              factSearches,
	"message.usage.cache_creation.ephemeral_1h_input_tokens": factCacheLong,
	"message.usage.server_tool_use.web_search_requests":      factSearches,

	// The calls behind the usage, each with its model ("With fallbacks use usage.iterations per model", 1f).
	"usage.iterations":                                            factIteration,
	"usage.iterations.*":                                          factIteration,
	"usage.iterations.*.type":                                     factType,
	"usage.iterations.*.model":                                    factModel,
	"usage.iterations.*.input_tokens":                             factInput,
	"usage.iterations.*.output_tokens":                            factOutput,
	"usage.iterations.*.cache_read_input_tokens":                  factCacheRead,
	"usage.iterations.*.cache_creation_input_tokens":              factCacheWrite,
	"usage.iterations.*.cache_creation.ephemeral_1h_input_tokens": factCacheLong,
	"usage.iterations.*.output_tokens_details.thinking_tokens":    factReasoning,

	// A block's start may already carry content; that of a tool call carries its name.
	"content_block.text":      factText,
	"content_block.thinking":  factText,
	"content_block.data":      factRepeat,
	"content_block.name":      factText,
	"content_block.content.*": factPart,
	"delta.text":              factText,
	"delta.thinking":          factText,
	"delta.signature":         factRepeat,
	"delta.partial_json":      factText,
	"delta.content":           factText,
	"delta.citation":          factPart,

	"delta.stop_reason":           factStop,
	"delta.stop_details.category": factCategory,
}

// anthropicEvents are the events of a stream (1g). Others are skipped.
var anthropicEvents = map[string]bool{
	"message_start": true, "content_block_start": true, "content_block_delta": true, "content_block_stop": true,
	"message_delta": true, "message_stop": true, "ping": true,
}

func anthropicEvent(f *facts) meaning {
	t := f.text(factType)
	m := meaning{known: anthropicEvents[t], failed: t == "error" || f.has(factError)}
	switch t {
	case "content_block_start", "content_block_delta":
		m.content = f.content()
	case "message_delta":
		m = m.stopped(f.text(factStop))
	case "message_stop":
		m.end = true
	}
	return m
}

func anthropicBody(f *facts) meaning {
	m := meaning{
		known:   f.text(factType) == "message" || f.has(factShape),
		content: f.content(),
		failed:  f.text(factType) == "error" || f.has(factError),
	}
	return m.stopped(f.text(factStop))
}
