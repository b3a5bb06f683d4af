package degrade

import "bytes"

// responseObject has what the official SDK requires of a response, the details that are null included.
type responseObject struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	CreatedAt         int64             `json:"created_at"`
	Status            string            `json:"status"`
	Error             *struct{}         `json:"error"`
	IncompleteDetails *struct{}         `json:"incomplete_details"`
	Instructions      *string           `json:"instructions"`
	Metadata          struct{}          `json:"metadata"`
	Model             string            `json:"model"`
	Output            []responseMessage `json:"output"`
	ParallelToolCalls bool              `json:"parallel_tool_calls"`
	Temperature       *float64          `json:"temperature"`
	ToolChoice        string            `json:"tool_choice"`
	Tools             []struct{}        `json:"tools"`
	TopP              *float64          `json:"top_p"`
	Usage             *responseUsage    `json:"usage"`
	Job               *Job              `json:"job,omitempty"`
}

// responseMessage is the one item of the output.
type responseMessage struct {
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Status  string         `json:"status"`
	Role    string         `json:"role"`
	Content []responseText `json:"content"`
}

type responseText struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations"`
	Logprobs    []struct{} `json:"logprobs"`
}

type responseUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached     int `json:"cached_tokens"`
		CacheWrite int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// responseEvent is every event of a stream, each with the fields it has.
type responseEvent struct {
	Type           string           `json:"type"`
	SequenceNumber int              `json:"sequence_number"`
	Response       *responseObject  `json:"response,omitempty"`
	OutputIndex    *int             `json:"output_index,omitempty"`
	Item           *responseMessage `json:"item,omitempty"`
	ItemID         string           `json:"item_id,omitempty"`
	ContentIndex   *int             `json:"content_index,omitempty"`
	Part           *responseText    `json:"part,omitempty"`
	Delta          *string          `json:"delta,omitempty"`
	Text           *string          `json:"text,omitempty"`
	Logprobs       []struct{}       `json:"logprobs,omitzero"`
}

func responseSaid(s Saying, status string, output []responseMessage) responseObject {
	return responseObject{
		ID: "resp_" + s.ID, Object: "response", CreatedAt: s.Created.Unix(), Status: status, Model: s.Model, Output: output,
		ParallelToolCalls: true, ToolChoice: "auto", Tools: []struct{}{}, Job: s.Job,
	}
}

func responseItem(s Saying, status string, content []responseText) responseMessage {
	return responseMessage{ID: "msg_" + s.ID, Type: "message", Status: status, Role: "assistant", Content: content}
}

func responsePart(text string) responseText {
	return responseText{Type: "output_text", Text: text, Annotations: []struct{}{}, Logprobs: []struct{}{}}
}

func responseCompleted(s Saying) responseObject {
	item := responseItem(s, "completed", []responseText{responsePart(s.Text)})
	r := responseSaid(s, "completed", []responseMessage{item})
	r.Usage = new(responseUsage)
	return r
}

func responseBody(s Saying) []byte { return encode(responseCompleted(s)) }

func responseStream(s Saying) []byte {
	var out bytes.Buffer
	for i, e := range responseEvents(s) {
		e.SequenceNumber = i
		event(&out, e.Type, encode(e))
	}
	return out.Bytes()
}

// responseEvents are the events in their order, still without sequence numbers.
func responseEvents(s Saying) []responseEvent {
	begun, done := responseSaid(s, "in_progress", []responseMessage{}), responseCompleted(s)
	empty, part := responsePart(""), done.Output[0].Content[0]
	opened, id, zero := responseItem(s, "in_progress", []responseText{}), done.Output[0].ID, new(0)
	return []responseEvent{
		{Type: "response.created", Response: &begun},
		{Type: "response.in_progress", Response: &begun},
		{Type: "response.output_item.added", OutputIndex: zero, Item: &opened},
		{Type: "response.content_part.added", OutputIndex: zero, ItemID: id, ContentIndex: zero, Part: &empty},
		{Type: "response.output_text.delta", OutputIndex: zero, ItemID: id, ContentIndex: zero, Delta: &s.Text, Logprobs: []struct{}{}},
		{Type: "response.output_text.done", OutputIndex: zero, ItemID: id, ContentIndex: zero, Text: &s.Text, Logprobs: []struct{}{}},
		{Type: "response.content_part.done", OutputIndex: zero, ItemID: id, ContentIndex: zero, Part: &part},
		{Type: "response.output_item.done", OutputIndex: zero, Item: &done.Output[0]},
		{Type: "response.completed", Response: &done},
	}
}
