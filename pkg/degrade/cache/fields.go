package cache

import "understudy/pkg/classify"

// rule is what a member of a request means for its answer. Everything without a rule is part of the question.
type rule uint8

const (
	asked    rule = iota
	volatile      // who asks, how it is billed, how fast it goes: the answer would be the same
	storing       // volatile; false forbids to store the answer
	secret        // carries a credential, so that nothing of the request is kept
	state         // names what a provider holds, so that the request alone does not say what the answer is
	kind          // may name such a thing
)

// place is where in a request a member stands.
type place uint8

const (
	plain place = iota // in what is data to us, as a tool's schema or arguments
	root
	block // a message, a part of its content, an item, a tool
)

// inside is the place of what stands under key. The arrays' elements are where their array is.
func (p place) inside(key []byte) place {
	switch p {
	case root:
		switch string(key) {
		case "messages", "system", "input", "tools", "mcp_servers", "contents":
			return block
		}
	case block:
		switch string(key) {
		case "content", "source", "tools", "mcpServers", "streamableHttpTransport":
			return block
		}
	}
	return plain
}

// dialect is how the requests of one endpoint are read.
type dialect struct {
	root     map[string]rule
	anywhere map[string]rule

	turns    string // the member with the turns of the conversation
	parts    string // in a turn: its parts, or its text
	partType string // of a part with text; "" where parts have no type
}

// rule is the rule for key at place p.
func (d *dialect) rule(p place, key []byte) rule {
	switch {
	case p == root && d.root[string(key)] != asked:
		return d.root[string(key)]
	case p == block && blocks[string(key)] != asked:
		return blocks[string(key)]
	}
	return d.anywhere[string(key)]
}

// blocks are the rules for members of blocks, in every dialect.
var blocks = map[string]rule{
	// Marks for a provider's prompt cache: "cached prefixes" make input cheaper, not other.
	"cache_control":           volatile,
	"prompt_cache_breakpoint": volatile,

	"authorization_token": secret, // Anthropic mcp_servers[]
	"authorization":       secret, // Responses, tools[] of type mcp: "An OAuth access token"
	"headers":             secret, // the same, and Gemini's mcpServers: "Use for authentication or other purposes"

	"type": kind,
}

// dialects are the endpoints whose requests can be read. The fields are those of the official SDKs: anthropic-sdk-go
// MessageNewParams and BetaMessageNewParams, openai-go ChatCompletionNewParams and responses.ResponseNewParams, genai's
// GenerateContentConfig.
var dialects = map[classify.API]*dialect{
	classify.AnthropicMessages: {
		root: map[string]rule{
			"metadata":      volatile, // "An object describing metadata about the request": the end user
			"service_tier":  volatile, // "priority capacity (if available) or standard capacity"
			"speed":         volatile, // "output-tokens-per-second"; the same model
			"cache_control": volatile, // as in blocks, for all of the request
			"store":         storing,  // not Anthropic's, but said of every dialect

			"container":             state, // "Container identifier for reuse across requests"
			"thread":                state, // "Server-held conversation state"
			"diagnostics":           state, // previous_message_id, which the answer is compared with
			"fallback_credit_token": state, // good once, for five minutes
		},
		turns: "messages", parts: "content", partType: "text",
	},
	classify.OpenAIChat: {
		root:  openAI(),
		turns: "messages", parts: "content", partType: "text",
	},
	classify.OpenAIResponses: {
		root: openAI(),
		anywhere: map[string]rule{
			"domain_secrets": secret, // of a container's network_policy
			"container_id":   state,  // "container_reference"
		},
		turns: "input", parts: "content", partType: "input_text",
	},
	classify.Gemini: {
		root: map[string]rule{
			"labels":        volatile, // "user-defined metadata to break down billed charges"
			"store":         storing,
			"cachedContent": state, "cached_content": state,
		},
		anywhere: map[string]rule{ // of tools that call others; Google reads both spellings
			"authConfig": secret, "auth_config": secret,
			"apiAuth": secret, "api_auth": secret,
			"apiKey": secret, "api_key": secret,
		},
		turns: "contents", parts: "parts",
	},
}

// openAI are the rules for both of OpenAI's endpoints. What only one of them knows, the other refuses.
func openAI() map[string]rule {
	return map[string]rule{
		"metadata":               volatile, // "for storing additional information about the object"
		"user":                   volatile, // "A stable identifier for your end-users"
		"safety_identifier":      volatile, // "to help detect users […] that may be violating OpenAI's usage policies"
		"prompt_cache_key":       volatile, // "to optimize your cache hit rates"
		"prompt_cache_retention": volatile, // "The retention policy for the prompt cache"
		"prompt_cache_options":   volatile, // "Options for prompt caching"
		"service_tier":           volatile, // "the processing type used for serving the request"
		"store":                  storing,  // "Whether to store the generated model response for later retrieval"

		"previous_response_id": state, // "to create multi-turn conversations"
		"conversation":         state, // its items "are prepended"
		"background":           state, // the answer is a promise
		"prompt":               state, // "Reference to a prompt template", which can change
	}
}
