package classify

import "understudy/pkg/classify/jsonscan"

// converse is Bedrock's Converse and ConverseStream (wire-formats 3). An event's type is the name of its frame.
var converse = dialect{
	api:        BedrockConverse,
	tree:       jsonscan.NewPaths(errorPaths, conversePaths),
	is:         func(f *facts) bool { return f.has(factConverse) },
	event:      converseEvent,
	body:       converseBody,
	endMark:    "messageStop",
	overloaded: 503,
	money:      402,
}

// conversePaths are where an answer, and each event of a stream, has its facts.
var conversePaths = map[string]jsonscan.Field{
	"stopReason":       factStop,
	"serviceTier.type": factTier,

	"usage.inputTokens":           factInput, // "excludes cache"
	"usage.outputTokens":          factOutput,
	"usage.cacheReadInputTokens":  factCacheRead,
	"usage.cacheWriteInputTokens": factCacheWrite,

	"output.message":                                               factConverse,
	"output.message.content.*.text":                                factText,
	"output.message.content.*.toolUse.name":                        factText,
	"output.message.content.*.reasoningContent.reasoningText.text": factText,
	"output.message.content.*.reasoningContent":                    factPart,
	"output.message.content.*.citationsContent.content.*.text":     factText,
	"output.message.content.*.image":                               factPart,

	"start.toolUse.name":                     factText,
	"delta.text":                             factText,
	"delta.citation":                         factPart,
	"delta.image":                            factPart,
	"delta.toolUse.input":                    factText,
	"delta.reasoningContent.text":            factText,
	"delta.reasoningContent.signature":       factRepeat,
	"delta.reasoningContent.redactedContent": factPart,
}

// converseEvents are the events of a stream. Others are skipped.
var converseEvents = map[string]bool{
	"messageStart": true, "contentBlockStart": true, "contentBlockDelta": true, "contentBlockStop": true,
	"messageStop": true, "metadata": true,
}

// converseEvent reads an event: "messageStop = content complete, metadata (normally the last event, order U) =
// accounting complete".
func converseEvent(f *facts) meaning {
	t, stopped := f.text(factType), f.last(factStop) != ""
	m := meaning{known: converseEvents[t], enough: stopped, failed: f.has(factError)}
	switch t {
	case "contentBlockStart", "contentBlockDelta":
		m.content = f.content()
	case "messageStop":
		m = m.stopped(f.text(factStop))
	case "metadata":
		m.end = stopped
	}
	return m
}

func converseBody(f *facts) meaning {
	m := meaning{known: f.has(factConverse), content: f.content(), failed: f.has(factError), unfinished: !f.has(factStop)}
	return m.stopped(f.text(factStop))
}
