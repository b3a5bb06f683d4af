package classify

import "understudy/pkg/classify/jsonscan"

// dialect is how one endpoint speaks: where its facts stand, and what its events and bodies mean.
type dialect struct {
	api  API
	tree *jsonscan.Paths // where the facts stand, errorPaths included

	is    func(f *facts) bool    // the first event, or the body, looks like this dialect
	event func(f *facts) meaning // of one event of a stream, whose name is its type where it has none
	body  func(f *facts) meaning // of a JSON body

	endMark    string // the end marker's name, for the detail of a truncated stream
	done       bool   // "data: [DONE]" is the end marker
	cachedIn   bool   // usage counts cached tokens as input
	tierAtEnd  bool   // the tier is the asked one until the last event
	overloaded int    // the HTTP status of an overload
	money      int    // the HTTP status of a spent budget
}

// meaning is what one event, or a whole body, says about the answer.
type meaning struct {
	known   bool   // it is of the dialect
	content bool   // it carries something the model made
	failed  bool   // it is an error, told by its error facts
	stop    Class  // refused, filtered, or failed by a reason to stop
	detail  string // of stop, or of unfinished
	end     bool   // it is the end marker
	enough  bool   // a clean end from here on is complete

	unfinished bool // of a body: it stops before its answer does
}

// errorPaths are where errors stand in every dialect: proxies answer in a dialect of their own.
var errorPaths = map[string]jsonscan.Field{
	"type":                      factType,
	"object":                    factObject,
	"status":                    factStatus,
	"code":                      factFlatCode,
	"message":                   factFlatText,
	"detail":                    factFlatText,
	"raw_status_code":           factErrorStatus,
	"error":                     factError,
	"error.type":                factErrorType,
	"error.code":                factErrorCode,
	"error.message":             factErrorText,
	"error.status":              factErrorStatus,
	"error.details.error_code":  factErrorCode,
	"error.metadata.error_type": factErrorType,

	"error.innererror.code":       factErrorInner, // Azure
	"error.metadata.limit_source": factErrorInner, // OpenRouter

	// Google's details are an array.
	"error.details.*.reason":     factErrorName,
	"error.details.*.retryDelay": factRetryDelay,

	// AWS: "AWS decoders are case-insensitive; some services send Message".
	"__type":             factErrorName,
	"Message":            factFlatText,
	"originalStatusCode": factOrigin,

	"request_id": factRequestID,
}

// dialects are told apart in this order.
var dialects = []*dialect{&bedrockInvoke, &anthropic, &vertex, &responses, &gemini, &converse, &chat}

// anyPaths are the paths of all dialects, to read what comes before the dialect is known.
var anyPaths = []map[string]jsonscan.Field{
	errorPaths, anthropicPaths, bedrockPaths, responsesPaths, geminiPaths, conversePaths, chatPaths,
}

// anyTree has them where they stand, and those of errors inside an array: "frequently wrapped in an array"
// (wire-formats 4). elementTree has all of them inside an array, whose elements are events; errorTree those of
// errors alone.
var (
	anyTree     = jsonscan.NewPaths(append(anyPaths, inArray(errorPaths))...)
	errorTree   = jsonscan.NewPaths(errorPaths)
	elementTree = jsonscan.NewPaths(inArray(anyPaths...), map[string]jsonscan.Field{"*": factElement})
)

// inArray moves paths into the elements of an array.
func inArray(sets ...map[string]jsonscan.Field) map[string]jsonscan.Field {
	out := map[string]jsonscan.Field{}
	for _, set := range sets {
		for path, field := range set {
			out["*."+path] = field
		}
	}
	return out
}

// dialectOf is the dialect of an endpoint, nil for APIUnknown.
func dialectOf(api API) *dialect {
	for _, d := range dialects {
		if d.api == api {
			return d
		}
	}
	return nil
}

// detect tells the dialect by what one event or body says; nil if that could be of any, as an unknown event could.
func detect(f *facts) *dialect {
	for _, d := range dialects {
		if d.is(f) {
			return d
		}
	}
	return nil
}

// stops are the reasons to stop that are not a good end. Refused and filtered answers are whole answers; the others
// are failures. Every other reason, also an unknown one, is a good end.
var stops = map[string]stop{
	"refusal":                      {Refusal, "wire-formats 1c: stop_reason refusal"},
	"content_filter":               {Filtered, "wire-formats 5c: moderation cut; 6: incomplete_details.reason"},
	"error":                        {ServerError, "wire-formats 9: OpenRouter choices[].finish_reason error"},
	"insufficient_system_resource": {Overloaded, "wire-formats 9: DeepSeek"},
	"aborted":                      {ServerError, "wire-formats 9: DeepSeek"},

	// Converse (wire-formats 3), and InvokeModel with a guardrail.
	"guardrail_intervened":   {Filtered, "wire-formats 3: stopReason"},
	"content_filtered":       {Filtered, "wire-formats 3: stopReason"},
	"malformed_model_output": {ServerError, "wire-formats 3: stopReason; the model failed"},
	"malformed_tool_use":     {ServerError, "wire-formats 3: stopReason; the model failed"},
	"INTERVENED":             {Filtered, "general knowledge: amazon-bedrock-guardrailAction"},

	// Gemini. "Refusal: … safety finish reasons; filtered: a content filter blocked prompt or output" (the contract).
	"SAFETY":                   {Refusal, "wire-formats 8: finishReason"},
	"IMAGE_SAFETY":             {Refusal, "wire-formats 8: finishReason"},
	"RECITATION":               {Filtered, "wire-formats 8: finishReason"},
	"IMAGE_RECITATION":         {Filtered, "wire-formats 8: finishReason"},
	"BLOCKLIST":                {Filtered, "wire-formats 8: finishReason"},
	"PROHIBITED_CONTENT":       {Filtered, "wire-formats 8: finishReason"},
	"IMAGE_PROHIBITED_CONTENT": {Filtered, "wire-formats 8: finishReason"},
	"SPII":                     {Filtered, "wire-formats 8: finishReason"},
	"LANGUAGE":                 {Filtered, "wire-formats 8: finishReason; flagged for its language"},
	"OTHER":                    {ServerError, "wire-formats 8: finishReason; the model failed"},
	"IMAGE_OTHER":              {ServerError, "wire-formats 8: finishReason; the model failed"},
	"NO_IMAGE":                 {ServerError, "wire-formats 8: finishReason; the model failed"},
	"MALFORMED_FUNCTION_CALL":  {ServerError, "wire-formats 8: finishReason; the model failed"},
	"UNEXPECTED_TOOL_CALL":     {ServerError, "wire-formats 8: finishReason; the model failed"},
	"TOO_MANY_TOOL_CALLS":      {ServerError, "wire-formats 8: finishReason; the model failed"},
}

type stop struct {
	class  Class
	source string
}

// stopped adds what a stop reason says to m.
func (m meaning) stopped(reason string) meaning {
	if reason == "" { // as in nearly all events
		return m
	}
	if c := stops[reason].class; c != None {
		m.stop, m.detail = c, reason
	}
	return m
}
