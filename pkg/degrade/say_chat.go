package degrade

import "bytes"

// chatCompletion is a completion, and a chunk of one.
type chatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
	Job     *Job         `json:"job,omitempty"`
}

// chatChoice has a message in a completion, a delta in a chunk.
type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitempty"`
	Delta        *chatDelta   `json:"delta,omitempty"`
	Logprobs     *struct{}    `json:"logprobs"`
	FinishReason *string      `json:"finish_reason"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func chatSaid(s Saying, object string, choices []chatChoice) chatCompletion {
	return chatCompletion{ID: "chatcmpl-" + s.ID, Object: object, Created: s.Created.Unix(), Model: s.Model, Choices: choices}
}

func chatBody(s Saying) []byte {
	message := &chatMessage{Role: "assistant", Content: s.Text}
	c := chatSaid(s, "chat.completion", []chatChoice{{Message: message, FinishReason: new("stop")}})
	c.Usage, c.Job = new(chatUsage), s.Job
	return encode(c)
}

// chatStream ends with a chunk of usage and no choice, where the client asked for it (wire-formats 5f).
func chatStream(s Saying) []byte {
	chunk := func(choices ...chatChoice) chatCompletion { return chatSaid(s, "chat.completion.chunk", choices) }
	chunks := []chatCompletion{
		chunk(chatChoice{Delta: &chatDelta{Role: "assistant", Content: new("")}}),
		chunk(chatChoice{Delta: &chatDelta{Content: &s.Text}}),
		chunk(chatChoice{Delta: new(chatDelta), FinishReason: new("stop")}),
	}
	chunks[0].Job = s.Job
	if s.Usage {
		usage := chatSaid(s, "chat.completion.chunk", []chatChoice{})
		usage.Usage = new(chatUsage)
		chunks = append(chunks, usage)
	}
	var out bytes.Buffer
	for _, c := range chunks {
		event(&out, "", encode(c))
	}
	event(&out, "", []byte("[DONE]"))
	return out.Bytes()
}
