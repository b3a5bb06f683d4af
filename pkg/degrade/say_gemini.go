package degrade

import (
	"bytes"
	"encoding/json"
)

// geminiAnswer is an answer of generateContent, and a chunk of streamGenerateContent: they are alike.
type geminiAnswer struct {
	Candidates    []geminiCandidate `json:"candidates"`
	UsageMetadata struct {
		Prompt     int `json:"promptTokenCount"`
		Candidates int `json:"candidatesTokenCount"`
		Total      int `json:"totalTokenCount"`
	} `json:"usageMetadata"`
	ModelVersion string `json:"modelVersion"`
	ResponseID   string `json:"responseId"`
	Job          *Job   `json:"job,omitempty"`
}

type geminiCandidate struct {
	Index        int           `json:"index"`
	Content      geminiContent `json:"content"`
	FinishReason string        `json:"finishReason"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text string `json:"text"`
}

func geminiBody(s Saying) []byte {
	content := geminiContent{Role: "model", Parts: []geminiPart{{Text: s.Text}}}
	return encode(geminiAnswer{
		Candidates:   []geminiCandidate{{Content: content, FinishReason: "STOP"}},
		ModelVersion: s.Model, ResponseID: s.ID, Job: s.Job,
	})
}

// geminiStream is one chunk, as Google ends short answers. It is for alt=sse, which the official SDKs always ask for
// (wire-formats 8); without that a stream is a JSON array.
func geminiStream(s Saying) []byte {
	var out bytes.Buffer
	geminiEvent(&out, geminiBody(s))
	return out.Bytes()
}

// geminiEvent ends its lines as Google does, and has one line of data. The official Go SDK reads no second line, and
// looks for "\n\n" before "\r\n\r\n": it takes all before an event that ends in "\n\n" for that event.
func geminiEvent(out *bytes.Buffer, data []byte) {
	out.WriteString("data: ")
	_ = json.Compact(out, data) // ours, or one of the provider's that pick has read
	out.WriteString("\r\n\r\n")
}
