package classify

import (
	"runtime"
	"strings"
	"testing"
)

// contentEvents are content events of about 200 bytes, as the three dialects send them.
var contentEvents = []struct {
	name        string
	api         API
	head, event string
}{
	{"anthropic", AnthropicMessages,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5\",\"usage\":{\"input_tokens\":25}}}\n\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + strings.Repeat("some words of an answer ", 4) + "\"}}\n\n"},
	{"chat", OpenAIChat, "",
		`data: {"id":"chatcmpl-9x8f7e","object":"chat.completion.chunk","created":1764000000,"model":"gpt-5.5","service_tier":"default","choices":[{"index":0,"delta":{"content":" words"},"finish_reason":null}],"usage":null}` + "\n\n"},
	{"responses", OpenAIResponses, "",
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":12,\"item_id\":\"msg_1a2b3c4d\",\"output_index\":0,\"content_index\":0,\"delta\":\"" + strings.Repeat("words ", 6) + "\"}\n\n"},
}

// response returns a response that is about to read content events.
func response(api API, head string) *Response {
	r := New(Options{API: api})
	r.Header(200, func(name string) string {
		if name == "content-type" {
			return "text/event-stream"
		}
		return ""
	})
	r.Feed([]byte(head))
	return r
}

// stateLimit is what one open stream may hold, in bytes: thousands are open at once.
const stateLimit = 2 << 10

func TestAnOpenStreamHoldsLittle(t *testing.T) {
	for _, tt := range contentEvents {
		event := []byte(tt.event)
		open := make([]*Response, 1000)
		before := heap()
		for i := range open {
			open[i] = response(tt.api, tt.head)
			open[i].Feed(event)
			open[i].Feed(event[:len(event)/2]) // an event that is not here yet is held
		}
		held := (heap() - before) / uint64(len(open))
		if runtime.KeepAlive(open); held > stateLimit+uint64(len(event)) {
			t.Errorf("%s: an open stream holds %d bytes, want at most %d and half an event", tt.name, held, stateLimit)
		}
	}
}

func TestALongEventLeavesNothingBehind(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for _, tt := range []struct {
		name        string
		api         API
		long, small string
	}{
		{"server-sent events", AnthropicMessages, "event: " + long + "\n\n" + strings.Replace(aText, "Hi", long, 1), aText},
		{"frames", BedrockInvoke, chunks(t, strings.Replace(aText, "Hi", long, 1)), chunks(t, aText)},
		{"an array", Gemini, "[" + strings.Replace(gText, "Hi", long, 1), "," + gText},
	} {
		open := make([]*Response, 10)
		before := heap()
		for i := range open {
			open[i] = New(Options{API: tt.api})
			open[i].Header(200, headers())
			for p := []byte(tt.long); len(p) > 0; p = p[min(1000, len(p)):] {
				open[i].Feed(p[:min(1000, len(p))])
			}
			open[i].Feed([]byte(tt.small))
		}
		held := (heap() - before) / uint64(len(open))
		if runtime.KeepAlive(open); open[0].progress() != Started || held > 3*maxSpare {
			t.Errorf("%s: a stream holds %d bytes after a long event, want at most %d; progress %d", tt.name, held, 3*maxSpare, open[0].progress())
		}
	}
}

// heap is how many bytes of the heap are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first leaves what finalizers hold
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestContentEventsAllocateNothing(t *testing.T) {
	for _, tt := range contentEvents {
		r, p := response(tt.api, tt.head), []byte(strings.Repeat(tt.event, 20))
		for _, n := range []int{len(p), 100} {
			feed := func() {
				for rest := p; len(rest) > 0; rest = rest[min(n, len(rest)):] {
					r.Feed(rest[:min(n, len(rest))])
				}
			}
			feed()
			if got := testing.AllocsPerRun(50, feed); got != 0 && !racing {
				t.Errorf("%s: allocations for 20 events, %d bytes at a time = %v, want 0", tt.name, n, got)
			}
		}
	}
}
