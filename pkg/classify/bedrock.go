package classify

import "understudy/pkg/classify/jsonscan"

// bedrockInvoke is Anthropic's Messages on InvokeModel and InvokeModelWithResponseStream (wire-formats 2): Anthropic's
// bodies and events, the events in base64 inside the frames of AWS, and AWS's errors around them.
var bedrockInvoke = dialect{
	api:        BedrockInvoke,
	tree:       jsonscan.NewPaths(errorPaths, anthropicPaths, bedrockPaths),
	is:         func(f *facts) bool { return f.has(factMetrics) },
	event:      bedrockEvent,
	body:       anthropicBody,
	endMark:    anthropic.endMark,
	overloaded: anthropic.overloaded,
	money:      anthropic.money,
}

// bedrockPaths are what Bedrock adds to a message and to the last event of a stream.
var bedrockPaths = map[string]jsonscan.Field{
	"amazon-bedrock-guardrailAction": factStop, // general knowledge: INTERVENED or NONE

	// "In the last decoded event (message_stop)": it counts as Anthropic does, cached tokens apart.
	"amazon-bedrock-invocationMetrics":                            factMetrics,
	"amazon-bedrock-invocationMetrics.inputTokenCount":            factInput,
	"amazon-bedrock-invocationMetrics.outputTokenCount":           factOutput,
	"amazon-bedrock-invocationMetrics.cacheReadInputTokenCount":   factCacheRead,
	"amazon-bedrock-invocationMetrics.cacheWriteInputTokenCount":  factCacheWrite,
	"amazon-bedrock-invocationMetrics.cacheWriteInputTokensCount": factCacheWrite,
}

// bedrockEvent reads an event: a guardrail may tell in any of them that it stepped in.
func bedrockEvent(f *facts) meaning { return anthropicEvent(f).stopped(f.text(factStop)) }

// vertex is Anthropic's Messages on Google's Vertex AI (wire-formats 4): all is Anthropic's, but the front end has
// errors of Google's, often wrapped in an array.
var vertex = dialect{
	api:        AnthropicVertex,
	tree:       anthropic.tree,
	is:         func(*facts) bool { return false }, // its answers are Anthropic's
	event:      anthropicEvent,
	body:       anthropicBody,
	endMark:    anthropic.endMark,
	overloaded: anthropic.overloaded,
	money:      anthropic.money,
}
