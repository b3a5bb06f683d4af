package provider

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHowLargeARequestIs(t *testing.T) {
	image := strings.Repeat("iVBORw0KGgo", 1000)
	rows := []struct {
		name, path, body string
		tokens, bytes    int64
	}{
		{"Anthropic's limit is not read", "/v1/messages", `{"max_tokens":10}`, 10, 17},
		{"a later limit of Chat's is not the most", "/v1/chat/completions", `{"max_tokens":5,"max_completion_tokens":7,"n":3}`, 21, 48},
		{"the limit of a response is not read", "/v1/responses", `{"max_output_tokens":9}`, 9, 23},
		{"Gemini's limit is not read", "/v1beta/models/g:generateContent", `{"generationConfig":{"maxOutputTokens":4,"candidateCount":2}}`, 8, 61},
		{"of a limit said twice the smaller one is read", "/v1/messages", `{"max_tokens":10,"max_tokens":9000}`, 9000, 35},
		{"Gemini's limit in its other spelling is not read", "/v1beta/models/g:generateContent", `{"generation_config":{"maxOutputTokens":4}}`, 4, 43},
		{"no limit is one", "/v1/responses", `{}`, 0, 2},
		{"a text is a limit", "/v1/messages", `{"max_tokens":"10"}`, 0, 19},
		{"a negative limit counts", "/v1/messages", `{"max_tokens":-1}`, 0, 17},
		{"an image counts as text", "/v1/messages", `{"max_tokens":1,"d":"` + image + `"}`, 1, 24 - 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			q, err := Read(Incoming{Path: row.path, Body: []byte(row.body)}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if got := q.MaxTokens(); got != row.tokens {
				t.Errorf("MaxTokens() of %.60s = %d, want %d", row.body, got, row.tokens)
			}
			if got := q.TextBytes(); got != row.bytes {
				t.Errorf("TextBytes() of %.60s = %d, want %d", row.body, got, row.bytes)
			}
		})
	}
}

// textBytes counts byte by byte.
func textBytes(body []byte) int64 {
	total, run := int64(len(body)), int64(0)
	for _, c := range body {
		if strings.IndexByte("+/-_=", c) >= 0 || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
			run++
			continue
		}
		if run >= longRun {
			total -= run
		}
		run = 0
	}
	return total
}

func TestEveryLongRunIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(longRun-2, longRun+2), rapid.IntRange(0, 4*longRun))
		var body []byte
		for _, n := range rapid.SliceOfN(length, 0, 8).Draw(t, "runs") {
			body = append(append(body, strings.Repeat("A", n)...), rapid.SampledFrom([]string{" ", `"`, ""}).Draw(t, "gap")...)
		}
		q := Request{body: body}
		if got, want := q.TextBytes(), textBytes(body); got != want {
			t.Fatalf("TextBytes() of %d bytes = %d, want %d", len(body), got, want)
		}
	})
}
