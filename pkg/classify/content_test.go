package classify

import "testing"

func TestContentIsCountedWithoutWhatFramesIt(t *testing.T) {
	audio := `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"audio":{"data":"AAAA"}}}]}`
	rows := []struct {
		name string
		api  API
		text string
		want int64
	}{
		{"text counts by its bytes", AnthropicMessages, "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"grüße\"}}\n\n", 7},
		{"an escape counts as what it stands for", AnthropicMessages, "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\u00fc\\n\"}}\n\n", 3},
		{"thinking counts", AnthropicMessages, "data: {\"type\":\"content_block_delta\",\"delta\":{\"thinking\":\"hm\"}}\n\n", 2},
		{"pings and starts do not", AnthropicMessages, ": x\n\ndata: {\"type\":\"ping\"}\n\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\"}}\n\n", 0},
		{"the arguments of a call count", OpenAIChat, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}` + "\n\n", 5},
		{"of what is not text the event counts", OpenAIChat, "data: " + audio + "\n\n", int64(len(audio))},
		{"what repeats a finished part does not", OpenAIResponses, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"abc\"}\n\n" +
			"data: {\"type\":\"response.output_text.done\",\"text\":\"abc\"}\n\n", 3},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			for _, n := range []int{1, 7, len(r.text)} { // however it is cut
				got := New(Options{API: r.api, Stream: true})
				got.Header(200, func(name string) string { return map[string]string{"content-type": "text/event-stream"}[name] })
				for rest := r.text; rest != ""; {
					piece := rest[:min(n, len(rest))]
					got.Feed([]byte(piece))
					rest = rest[len(piece):]
				}
				if got.Content() != r.want {
					t.Errorf("Content() in pieces of %d = %d, want %d", n, got.Content(), r.want)
				}
			}
		})
	}
}
