package classify

import "understudy/pkg/classify/jsonscan"

// chat is the Chat Completions API (wire-formats 5) as OpenAI and the compatible servers speak it (9).
var chat = dialect{
	api:        OpenAIChat,
	tree:       jsonscan.NewPaths(errorPaths, chatPaths),
	is:         func(f *facts) bool { return f.has(factShape) },
	event:      chatMeaning,
	body:       chatBody,
	endMark:    "[DONE]",
	done:       true,
	cachedIn:   true,
	overloaded: 503,
	money:      429,
}

// chatPaths are where a completion, and each chunk of a stream, has its facts.
var chatPaths = map[string]jsonscan.Field{
	"model":                   factModel,
	"service_tier":            factTier,
	"choices":                 factShape,
	"choices.*":               factChoice,
	"choices.*.index":         factIndex,
	"choices.*.finish_reason": factStop,
	"choices.*.text":          factText,

	"choices.*.delta.content":                         factText,
	"choices.*.delta.content.*":                       factPart,
	"choices.*.delta.reasoning_content":               factText,
	"choices.*.delta.reasoning":                       factText,
	"choices.*.delta.reasoning_details.*":             factPart,
	"choices.*.delta.tool_calls.*":                    factPart,
	"choices.*.delta.tool_calls.*.function.arguments": factText,
	"choices.*.delta.function_call":                   factPart,
	"choices.*.delta.audio":                           factPart,
	"choices.*.delta.images.*":                        factPart,
	"choices.*.delta.refusal":                         factRefusal,

	"choices.*.message.content":                         factText,
	"choices.*.message.content.*":                       factPart,
	"choices.*.message.reasoning_content":               factText,
	"choices.*.message.tool_calls.*":                    factPart,
	"choices.*.message.tool_calls.*.function.arguments": factText,
	"choices.*.message.function_call":                   factPart,
	"choices.*.message.audio":                           factPart,
	"choices.*.message.refusal":                         factRefusal,

	// OpenRouter reports a provider's failure inside the choice, Groq beside it.
	"choices.*.error":                       factError,
	"choices.*.error.code":                  factErrorCode,
	"choices.*.error.message":               factErrorText,
	"choices.*.error.metadata.error_type":   factErrorType,
	"choices.*.error.metadata.limit_source": factErrorInner,
	"x_groq.error":                          factError,

	"usage.prompt_tokens":                              factInput,
	"usage.completion_tokens":                          factOutput,
	"usage.prompt_tokens_details.cached_tokens":        factCacheRead,
	"usage.prompt_tokens_details.cache_write_tokens":   factCacheWrite,
	"x_groq.usage.prompt_tokens":                       factInput,
	"x_groq.usage.completion_tokens":                   factOutput,
	"usage.prompt_cache_hit_tokens":                    factCacheRead, // DeepSeek
	"usage.completion_tokens_details.reasoning_tokens": factReasoning,
	"usage.prompt_tokens_details.audio_tokens":         factInputAudio,
	"usage.completion_tokens_details.audio_tokens":     factOutputAudio,
}

// chatMeaning reads a chunk or a completion: they differ in delta and message only.
func chatMeaning(f *facts) meaning {
	m := meaning{
		known:   f.has(factShape),
		content: f.has(factShape) && f.content(),
		failed:  f.has(factError) || f.text(factObject) == "error",
		enough:  f.allFinished(),
	}
	if f.has(factRefusal) {
		m.stop, m.detail = Refusal, "refusal"
	}
	return m.stopped(f.text(factStop))
}

// chatBody reads a whole completion; one without a choice answers nothing.
func chatBody(f *facts) meaning {
	m := chatMeaning(f)
	if m.known && f.seen == 0 {
		m.unfinished, m.detail = true, "no choice"
	}
	return m
}
