package degrade

import (
	"net/http"
	"slices"
	"time"

	"understudy/pkg/classify"
)

// Saying is a sentence of ours that a client gets as the assistant's message, in a whole and successful answer.
type Saying struct {
	Status  int    // a good one; 0 is 200
	Model   string // as the client asked for it
	ID      string // what the dialect's ids are made of; another one for each exchange
	Text    string
	Stream  bool // the client asked for a stream
	Array   bool // and that is one JSON array
	Usage   bool // of Chat: the client asked for include_usage; in the other dialects usage is always told
	Job     *Job // nil: nothing was queued
	Created time.Time
}

// Job is what a client is told of its request that was queued: the object `job` beside the fields of the dialect.
type Job struct {
	ID              string `json:"id"`
	Location        string `json:"location"` // where its state and result are
	State           string `json:"state"`
	ExpectedSeconds int64  `json:"expected_seconds"` // until there is a result
}

// sayers write a Saying in each dialect, as a JSON body and as a stream.
var sayers = map[classify.API]struct{ body, stream func(Saying) []byte }{
	classify.AnthropicMessages: {anthropicBody, anthropicStream},
	classify.OpenAIChat:        {chatBody, chatStream},
	classify.OpenAIResponses:   {responseBody, responseStream},
	classify.Gemini:            {geminiBody, geminiStream},
}

// Say is s as an answer in the dialect of api: one message of one text, that ended as it should and used no tokens.
// It does not depend on what was asked for: a request for JSON of some schema, for a tool call, or for several choices
// (n) gets the same single text. Where the API is not known, it is {"message": …}, never a stream.
//
// A job is told in the object that a body is, and in a stream in the first one that describes the answer:
// message_start's message, the first chunk, and every `response` of the Responses API, whose clients keep the last.
func Say(api classify.API, s Saying) Answer {
	if s.Status == 0 {
		s.Status = http.StatusOK
	}
	say, ok := sayers[api]
	switch {
	case !ok:
		return spoken(s, "application/json", encode(plainAnswer{Message: s.Text, Job: s.Job}))
	case s.Stream && s.Array:
		return spoken(s, "application/json", slices.Concat([]byte{'['}, say.body(s), []byte{']'}))
	case s.Stream:
		return spoken(s, "text/event-stream", say.stream(s))
	}
	return spoken(s, "application/json", say.body(s))
}

func spoken(s Saying, kind string, body []byte) Answer {
	return Answer{Status: s.Status, Body: body, Headers: map[string]string{"content-type": kind}}
}

type plainAnswer struct {
	Message string `json:"message"`
	Job     *Job   `json:"job,omitempty"`
}
