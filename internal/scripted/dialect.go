package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// dialect is how one API, or a platform that serves it, says things. The wire texts are templates, so that they read, and order their keys, as the
// real ones do; every value that is not a constant goes through [quote].
type dialect interface {
	// stream is a whole streamed answer: lifecycle events, content events, and the end.
	stream(m message) (before, content, after []string)
	// answer is a whole answer as JSON.
	answer(m message) string
	// inBand is an error after a 200: kind is "error" or "failed".
	inBand(kind, code string) string
	// problem is the body of an error status or, at 200, of an answer that is an error. It may set headers.
	problem(h http.Header, status int, code string) string
	// mime is the content-type of a stream.
	mime() string
	// alive is what only keeps a stream alive.
	alive() string
}

// events are server-sent events, as most dialects stream.
type events struct{}

func (events) mime() string  { return "text/event-stream; charset=utf-8" }
func (events) alive() string { return ": keep-alive\n\n" }

// message is what an answer says.
type message struct {
	id     string // unique to the answer
	model  string
	tier   string   // served
	texts  []string // one a content event
	think  bool     // the model thinks first
	tool   bool     // and calls a tool in the end
	ending string   // "refusal", "filter" or "" for a good end
	usage  bool     // chat: the client asked for the usage chunk
	tokens *Tokens  // nil: the usual
	calls  []Call   // Anthropic: what was called before
}

func (m message) text() string { return strings.Join(m.texts, "") }

// Text is the whole text that a good answer of n content events carries, each with size bytes of filler. It names
// who answered what, so that a lost, repeated or misdelivered piece shows.
func Text(provider, model, id string, n, size int) string {
	return strings.Join(texts(provider, model, id, n, size), "")
}

func texts(provider, model, id string, n, size int) []string {
	filler := strings.Repeat("~", size)
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("[%s %s %s %d]%s", provider, model, id, i, filler)
	}
	return list
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string always marshals
	return string(b)
}

// named is a server-sent event with a name.
func named(event, data string) string { return "event: " + event + "\ndata: " + data + "\n\n" }

// data is a server-sent event without a name.
func data(s string) string { return "data: " + s + "\n\n" }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// fault is one row of a dialect's error table.
type fault struct{ kind, code, message string }
