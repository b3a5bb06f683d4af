package degrade

import "bytes"

// anthropicMessage has what the official SDK requires of a message, the details that are null included.
type anthropicMessage struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Role         string          `json:"role"`
	Model        string          `json:"model"`
	Content      []anthropicText `json:"content"`
	StopReason   *string         `json:"stop_reason"`
	StopSequence *string         `json:"stop_sequence"`
	StopDetails  *struct{}       `json:"stop_details"`
	Container    *struct{}       `json:"container"`
	Usage        anthropicUsage  `json:"usage"`
	Job          *Job            `json:"job,omitempty"`
}

// anthropicText is a block of text, and what is added to one.
type anthropicText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type anthropicUsage struct {
	Input      int `json:"input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"`
	CacheRead  int `json:"cache_read_input_tokens"`
	Output     int `json:"output_tokens"`
}

// anthropicEvent is every event of a stream but message_delta, each with the fields it has.
type anthropicEvent struct {
	Type    string            `json:"type"`
	Message *anthropicMessage `json:"message,omitempty"`
	Index   *int              `json:"index,omitempty"`
	Block   *anthropicText    `json:"content_block,omitempty"`
	Delta   *anthropicText    `json:"delta,omitempty"`
}

// anthropicDelta is message_delta. "stop_reason, stop_sequence and stop_details are always sent" (the Go SDK).
type anthropicDelta struct {
	Type  string `json:"type"`
	Delta struct {
		StopReason   *string   `json:"stop_reason"`
		StopSequence *string   `json:"stop_sequence"`
		StopDetails  *struct{} `json:"stop_details"`
	} `json:"delta"`
	Usage anthropicUsage `json:"usage"`
}

func anthropicSaid(s Saying, content []anthropicText) anthropicMessage {
	return anthropicMessage{ID: "msg_" + s.ID, Type: "message", Role: "assistant", Model: s.Model, Content: content, Job: s.Job}
}

func anthropicBody(s Saying) []byte {
	m := anthropicSaid(s, []anthropicText{{Type: "text", Text: s.Text}})
	m.StopReason = new("end_turn")
	return encode(m)
}

func anthropicStream(s Saying) []byte {
	var out bytes.Buffer
	say := func(e anthropicEvent) { event(&out, e.Type, encode(e)) }
	m := anthropicSaid(s, []anthropicText{})
	say(anthropicEvent{Type: "message_start", Message: &m})
	say(anthropicEvent{Type: "content_block_start", Index: new(0), Block: &anthropicText{Type: "text"}})
	say(anthropicEvent{Type: "content_block_delta", Index: new(0), Delta: &anthropicText{Type: "text_delta", Text: s.Text}})
	say(anthropicEvent{Type: "content_block_stop", Index: new(0)})
	end := anthropicDelta{Type: "message_delta"}
	end.Delta.StopReason = new("end_turn")
	event(&out, end.Type, encode(end))
	say(anthropicEvent{Type: "message_stop"})
	return out.Bytes()
}
