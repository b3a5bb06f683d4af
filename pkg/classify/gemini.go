package classify

import (
	"strings"

	"understudy/pkg/classify/jsonscan"
)

// gemini is Google's generateContent and streamGenerateContent, on the Gemini API and on Vertex (wire-formats 8).
var gemini = dialect{
	api:        Gemini,
	tree:       jsonscan.NewPaths(errorPaths, geminiPaths),
	is:         geminiIs,
	event:      geminiMeaning,
	body:       geminiBody,
	endMark:    "finishReason",
	cachedIn:   true, // "promptTokenCount (includes cached)"
	overloaded: 503,
	money:      429,
}

// geminiPaths are where an answer, and each chunk of a stream, has its facts.
var geminiPaths = map[string]jsonscan.Field{
	"modelVersion": factModel,
	"responseId":   factRequestID,

	"candidates":                factGemini,
	"candidates.*":              factChoice,
	"candidates.*.index":        factIndex,
	"candidates.*.finishReason": factStop,

	"candidates.*.content.parts.*.text":                  factText,
	"candidates.*.content.parts.*.thoughtSignature":      factRepeat,
	"candidates.*.content.parts.*.functionCall":          factPart,
	"candidates.*.content.parts.*.inlineData":            factPart,
	"candidates.*.content.parts.*.fileData":              factPart,
	"candidates.*.content.parts.*.executableCode":        factPart,
	"candidates.*.content.parts.*.codeExecutionResult":   factPart,
	"candidates.*.content.parts.*.executableCode.code":   factText,
	"candidates.*.content.parts.*.functionCall.name":     factText,
	"candidates.*.content.parts.*.functionResponse":      factPart,
	"candidates.*.content.parts.*.functionResponse.name": factRepeat,

	"promptFeedback":             factGemini,
	"promptFeedback.blockReason": factReason,

	// "Repeated running totals on many chunks, last non-nil wins".
	"usageMetadata":                         factGemini,
	"usageMetadata.promptTokenCount":        factInput,
	"usageMetadata.cachedContentTokenCount": factCacheRead,
	"usageMetadata.candidatesTokenCount":    factOutput,
	"usageMetadata.thoughtsTokenCount":      factThoughts,
	"usageMetadata.toolUsePromptTokenCount": factToolInput,
	"usageMetadata.serviceTier":             factTier,
	"usageMetadata.trafficType":             factTier, // Vertex
}

// geminiIs also knows the dialect by an error, whose status is a word in capitals.
func geminiIs(f *facts) bool {
	s := f.text(factErrorStatus)
	return f.has(factGemini) || s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

// geminiMeaning reads a chunk or an answer: they are alike. A prompt that was blocked has its reason in the first
// chunk only, and no candidate ever.
func geminiMeaning(f *facts) meaning {
	m := meaning{
		known:   f.has(factGemini),
		content: f.content(),
		failed:  f.has(factError),
		enough:  f.allFinished() || f.last(factReason) != "",
	}
	if why := f.text(factReason); why != "" {
		m.stop, m.detail = Filtered, "prompt blocked"
		if plainName(why) {
			m.detail = why
		}
	}
	return m.stopped(f.text(factStop))
}

// geminiBody reads a whole answer. "Empty 200" answers happen: no candidate, no reason.
func geminiBody(f *facts) meaning {
	m := geminiMeaning(f)
	m.unfinished = !m.enough
	return m
}
