package classify

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// threadTime is the time this benchmark's thread has run. On a machine that others use too, that is the time that
// says something.
func threadTime(b *testing.B) time.Duration {
	runtime.LockOSThread() // for good: the benchmark has the thread to itself
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// reportRate reports bytes a loop as megabytes a second of the thread's time.
func reportRate(b *testing.B, bytes int, spent time.Duration) {
	b.ReportMetric(float64(bytes)*float64(b.N)/spent.Seconds()/1e6, "cpuMB/s")
}

func BenchmarkStreamFeed(b *testing.B) {
	for _, tt := range contentEvents {
		for _, chunk := range []struct {
			name   string
			events int
		}{{"one-event", 1}, {"16-events", 16}} {
			b.Run(tt.name+"/"+chunk.name, func(b *testing.B) {
				r, p := response(tt.api, tt.head), []byte(strings.Repeat(tt.event, chunk.events))
				b.ReportAllocs()
				from := threadTime(b)
				for b.Loop() {
					r.Feed(p)
				}
				reportRate(b, len(p), threadTime(b)-from)
				b.ReportMetric(float64(len(tt.event)), "B/event")
				if v := r.Verdict(); v.Class != None {
					b.Fatalf("Verdict() = %+v, want none", v)
				}
			})
		}
	}
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
			if got := testing.AllocsPerRun(50, feed); got != 0 {
				t.Errorf("%s: allocations for 20 events, %d bytes at a time = %v, want 0", tt.name, n, got)
			}
		}
	}
}
