package classify

import (
	"strings"
	"testing"
)

// A content event allocates nothing (see state_test.go). These are the ceilings of what a response takes from its head to its
// verdict, however long it is. Who needs more raises them in the same change, and says why.
func TestAResponseAllocatesNoMoreThanItsCeiling(t *testing.T) {
	const begin, end = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5","content":[{"type":"text","text":"`,
		`"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":20,"service_tier":"standard"}}`
	for _, row := range []struct {
		name, contentType, body string
		allocs                  float64
	}{
		{"a whole answer", "application/json", begin + "hello" + end, 19},
		{"a whole answer of 100 KB", "application/json", begin + strings.Repeat("all the world ", 7_000) + end, 19},
		{"a stream", "text/event-stream", wholeStream, 24},
	} {
		body := []byte(row.body)
		got := testing.AllocsPerRun(100, func() {
			r := New(Options{API: AnthropicMessages, Stream: row.contentType != "application/json"})
			r.Header(200, func(name string) string {
				if name == "content-type" {
					return row.contentType
				}
				return ""
			})
			r.Feed(body)
			if v := r.End(true); v.Class != OK {
				t.Fatalf("%s: End() = %+v, want ok", row.name, v)
			}
		})
		t.Logf("%s: %v allocations", row.name, got)
		if got > row.allocs {
			t.Errorf("allocations for %s = %v, want at most %v", row.name, got, row.allocs)
		}
	}
}

const wholeStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5\",\"usage\":{\"input_tokens\":25}}}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n" +
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
