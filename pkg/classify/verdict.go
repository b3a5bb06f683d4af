// Package classify reads an LLM provider's HTTP answer as it arrives and says what it really was.
//
// It is pure: bytes in, Verdict out; no clock, no I/O, no goroutine, nothing of Envoy.
//
// Read are the dialects of API, each as a JSON body and as a stream. A stream comes as server-sent events, as AWS's
// binary frames (Bedrock), or as a JSON array whose elements are events (Gemini without alt=sse). What is on the wire
// decides, not the content type: a body that starts with a zero byte is frames, with "[" an array, with "{" JSON, with
// "<" a page, with a field or a comment events. Facts of the wire have their source beside them, a section of the
// project's wire reference ("2b"), or are marked general knowledge.
//
// # Speed
//
// Content events are read without allocation, the check that they are well-formed JSON included, and an open stream
// holds less than 2 KiB and the half of an event that is here. Events of about 200 bytes, one at a time and 16 at a time,
// on one core of a shared 2.8 GHz Xeon, ten runs, in MB of the thread's own time a second; others used the machine too,
// so the best run is beside the median:
//
//	go test ./pkg/classify/... -run '^$' -bench 'StreamFeed|Framer' -benchtime 0.15s -count 10 -cpu 1 > new.txt
//	benchstat -filter .unit:cpuMB/s new.txt
//
//	                                  median     best
//	StreamFeed/anthropic/one-event  336 ± 40%     475
//	StreamFeed/anthropic/16-events  356 ± 37%     529
//	StreamFeed/chat/one-event       228 ± 63%     377
//	StreamFeed/chat/16-events       285 ± 29%     369
//	StreamFeed/responses/one-event  372 ± 24%     455
//	StreamFeed/responses/16-events  456 ± 19%     535
//	Framer/one-event               1699 ± 25%    2365
//	Framer/16-events               1926 ±  9%    2120
//	Framer/cut-events              1632 ± 18%    2392
package classify

// API is the wire dialect of one endpoint.
type API uint8

// The endpoints that can be read.
const (
	APIUnknown        API = iota // told apart from content type and first bytes
	AnthropicMessages            // POST /v1/messages
	OpenAIChat                   // POST /v1/chat/completions
	OpenAIResponses              // POST /v1/responses
	Gemini                       // POST …/models/{model}:generateContent and :streamGenerateContent, on Vertex too
	BedrockInvoke                // POST /model/{id}/invoke and /invoke-with-response-stream, of an Anthropic model
	BedrockConverse              // POST /model/{id}/converse and /converse-stream
	AnthropicVertex              // POST …/publishers/anthropic/models/{model}:rawPredict and :streamRawPredict
)

// Class is what a response was. Its strings are in the outside contract.
type Class uint8

// The verdict classes, in the order of the contract. None is "not known yet".
const (
	None Class = iota
	OK
	Overloaded
	ServerError
	Timeout
	Transport
	Truncated
	Malformed
	RateLimited
	Capacity
	Quota
	Auth
	Invalid
	ContextLength
	Refusal
	Filtered
	Canceled
)

// Phase is where the class was decided.
type Phase string

// The phases.
const (
	PhaseStatus    Phase = "status"    // status line or headers
	PhaseBody      Phase = "body"      // JSON body
	PhaseFirst     Phase = "first"     // stream, before any content
	PhaseStream    Phase = "stream"    // stream, after content
	PhaseEnd       Phase = "end"       // at the end of the stream
	PhaseTransport Phase = "transport" // no usable response
)

// Verdict is what one response was.
type Verdict struct {
	Class           Class  `json:"class"`
	Trips           bool   `json:"trips"`
	Advances        bool   `json:"advances"` // by default; a chain's policy may decide otherwise
	Phase           Phase  `json:"phase"`
	Detail          string `json:"detail"`   // the provider's own code or type, or a short reason; never content
	Status          int    `json:"status"`   // the status an honest answer would have had
	Complete        bool   `json:"complete"` // the answer came to its end, also a refused or filtered one
	Partial         bool   `json:"partial"`  // content was seen before the class was decided; never for ok
	RetryAfterMS    int64  `json:"retry_after_ms"`
	AskedTier       string `json:"asked_tier"`
	ServedTier      string `json:"served_tier"`
	Downgraded      bool   `json:"downgraded"`
	Model           string `json:"model"`
	RequestID       string `json:"request_id"`
	Usage           Usage  `json:"usage"`
	RefusalCategory string `json:"refusal_category"`

	Iterations  []IterationUsage `json:"iterations,omitempty"`   // the provider's own calls behind Usage, as it told them
	ShouldRetry *bool            `json:"should_retry,omitempty"` // x-should-retry of an answer that is not ok; nil if it was not there
}

// Progress is what is known of a response while it arrives.
type Progress uint8

// The progress of a response.
const (
	Waiting Progress = iota // nothing yet says what the answer is
	Started                 // content has been seen and nothing is wrong so far
	Decided                 // the class is known and is not OK; a refusal or filtered answer may still have bytes to come
)
