package classify

import (
	"strings"

	"understudy/pkg/classify/jsonscan"
)

// responses is the Responses API (wire-formats 6).
var responses = dialect{
	api:        OpenAIResponses,
	tree:       jsonscan.NewPaths(errorPaths, responsesPaths),
	is:         responsesIs,
	event:      responsesEvent,
	body:       responsesBody,
	endMark:    "response.completed",
	cachedIn:   true,
	tierAtEnd:  true, // "response.created echoes the request (may be auto)"
	overloaded: 503,
	money:      429,
}

// responsesPaths are where a response, and each event of a stream, has its facts.
var responsesPaths = responsesTable()

// responsesTable lists the facts of a response object twice: it is a body, and it stands inside events.
func responsesTable() map[string]jsonscan.Field {
	paths := map[string]jsonscan.Field{
		// Deltas, and the events that repeat a finished part: that is content, and no more of it.
		"delta":             factText,
		"text":              factRepeat,
		"arguments":         factRepeat,
		"input":             factRepeat,
		"refusal":           factRefusal,
		"partial_image_b64": factRepeat,

		"part.refusal":           factRefusal,
		"item.content.*.refusal": factRefusal,
	}
	for path, field := range map[string]jsonscan.Field{
		"model":                      factModel,
		"status":                     factStatus,
		"service_tier":               factTier,
		"incomplete_details.reason":  factReason,
		"output":                     factShape,
		"output.*.content.*.text":    factText,
		"output.*.name":              factText,
		"output.*.content.*.refusal": factRefusal,
		"content_filters.*.blocked":  factBlocked, // Azure
		"error":                      factError,
		"error.type":                 factErrorType,
		"error.code":                 factErrorCode,
		"error.message":              factErrorText,
		"usage.input_tokens":         factInput,
		"usage.output_tokens":        factOutput,
		"usage.input_tokens_details.cached_tokens":                             factCacheRead,
		"usage.input_tokens_details.cache_write_tokens":                        factCacheWrite,
		"usage.output_tokens_details.reasoning_tokens":                         factReasoning,
		"usage.input_tokens_details.cache_write_tokens_details.ttl_12h_tokens": factCacheLong,
	} {
		paths[path] = field
		if field == factText { // it was there in deltas
			field = factRepeat
		}
		paths["response."+path] = field
	}
	return paths
}

func responsesIs(f *facts) bool {
	t := f.text(factType)
	return strings.HasPrefix(t, "response.") || f.text(factObject) == "response" || t == "error" && f.has(factFlatCode)
}

func responsesEvent(f *facts) meaning {
	t := f.text(factType)
	m := meaning{known: strings.HasPrefix(t, "response."), failed: t == "error" || f.has(factError)}
	switch t {
	case "response.completed", "response.incomplete":
		m.end = true
		m = responsesEnd(f, m)
	case "response.failed":
		m.failed = true
	case "response.refusal.delta", "response.refusal.done", "response.content_part.done", "response.output_item.done":
		if f.has(factRefusal) || strings.HasPrefix(t, "response.refusal.") && f.content() {
			m.stop, m.detail = Refusal, "refusal"
		}
	default:
		// What an item or part is announced with is no content yet.
		m.content = f.content() && !strings.HasSuffix(t, ".added")
	}
	return m
}

// responsesEnd reads the state of a response that came to its end.
func responsesEnd(f *facts, m meaning) meaning {
	if f.has(factRefusal) {
		m.stop, m.detail = Refusal, "refusal"
	}
	if f.has(factBlocked) {
		m.stop, m.detail = Filtered, "content_filter"
	}
	if f.text(factStatus) == "cancelled" {
		m.stop, m.detail = Canceled, "cancelled"
	}
	return m.stopped(f.text(factReason))
}

func responsesBody(f *facts) meaning {
	status := f.text(factStatus)
	m := meaning{
		known:   f.text(factObject) == "response" || f.has(factShape),
		content: f.content(),
		failed:  status == "failed" || f.has(factError),
	}
	return responsesEnd(f, m)
}
