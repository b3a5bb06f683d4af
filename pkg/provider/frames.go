package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify/eventstream"
)

// Frames turns the answer of Bedrock's InvokeModelWithResponseStream, frames with one of Anthropic's events in each, into
// the server-sent events of Anthropic's own API: the bytes of each event as they came, amazon-bedrock-invocationMetrics
// included, under the name that is its type, as anthropic-sdk-go/bedrock/bedrock.go makes them.
//
// An exception becomes nothing, and ends the stream: what it means is for the verdict, and what the client sees of it for
// the honest end. So does a frame that is not as it should be, with an error. It belongs to one goroutine, starts none,
// and holds one frame at most.
type Frames struct {
	framer *eventstream.Framer
	buf    []byte // the event of a chunk
	ended  bool   // by an exception
	err    error
}

// What breaks a stream of chunks, beside the errors of eventstream.
var (
	ErrFrame = errors.New("a frame of the event stream is no event")
	ErrChunk = errors.New("a chunk of the event stream has no event in it")
)

// NewFrames returns a converter of frames of at most maxFrame bytes.
func NewFrames(maxFrame int) *Frames { return &Frames{framer: eventstream.New(maxFrame)} }

// Convert takes the next bytes, cut anywhere, and appends the events that are whole to out. The error is final.
func (f *Frames) Convert(out, p []byte) ([]byte, error) {
	if f.err != nil || f.ended {
		return out, f.err
	}
	f.framer.Feed(p)
	for fr, ok := f.framer.Next(); ok; fr, ok = f.framer.Next() {
		if out, f.err = f.frame(out, fr); f.err != nil || f.ended {
			return out, f.err
		}
	}
	if cap(f.buf) > maxSpare {
		f.buf = nil
	}
	f.err = f.framer.Err()
	return out, f.err
}

// maxSpare is how large a buffer may be that is kept: streams are many, and long events few.
const maxSpare = 16 << 10

func (f *Frames) frame(out []byte, fr eventstream.Frame) ([]byte, error) {
	switch kind := fr.Headers.Text(eventstream.MessageType); string(kind) {
	case "event":
		name := fr.Headers.Text(eventstream.EventType)
		switch {
		case name == nil:
			return out, ErrFrame
		case string(name) == "chunk":
			return f.chunk(out, fr.Payload)
		}
	case "exception", "error":
		f.ended = true
	case "":
		return out, ErrFrame
	}
	return out, nil
}

// chunk appends the event in {"bytes":"<base64 of one Anthropic event JSON>","p":"<padding>"}.
func (f *Frames) chunk(out, payload []byte) ([]byte, error) {
	coded, ok := plainChunk(payload)
	if !ok {
		var chunk struct {
			Bytes string `json:"bytes"`
		}
		if json.Unmarshal(payload, &chunk) != nil {
			return out, ErrChunk
		}
		coded = []byte(chunk.Bytes)
	}
	n := base64.StdEncoding.DecodedLen(len(coded))
	f.buf = slices.Grow(f.buf[:0], n)[:n]
	n, err := base64.StdEncoding.Decode(f.buf, coded)
	if err != nil || n == 0 {
		return out, ErrChunk
	}
	if name, ok := typeOf(f.buf[:n]); ok {
		out = appendEvent(out, name, f.buf[:n])
	}
	return out, nil
}

// plainChunk is the base64 of a chunk that is written as Bedrock writes it, without a parser: at most padding follows.
func plainChunk(payload []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(payload, []byte(`{"bytes":"`))
	coded, rest, _ := bytes.Cut(rest, []byte{'"'})
	if padding, padded := bytes.CutPrefix(rest, []byte(`,"p":"`)); padded {
		padding, rest, padded = bytes.Cut(padding, []byte{'"'})
		ok = ok && padded && plain(padding)
	}
	return coded, ok && string(rest) == "}" && plain(coded)
}

// plain reports whether the inside of a JSON string stands for itself.
func plain(inside []byte) bool {
	for _, c := range inside {
		if c < ' ' || c == '\\' || c > '~' {
			return false
		}
	}
	return true
}

// typeOf is an event's type, which its name is; false for one that cannot be a name: SDKs skip an event without.
func typeOf(event []byte) ([]byte, bool) {
	if rest, ok := bytes.CutPrefix(event, []byte(`{"type":"`)); ok {
		if name, _, ok := bytes.Cut(rest, []byte{'"'}); ok && plain(name) {
			return name, len(name) > 0
		}
	}
	name := []byte(gjson.GetBytes(event, "type").String())
	return name, len(name) > 0 && !bytes.ContainsAny(name, "\r\n")
}

// appendEvent appends one server-sent event. "One data line per payload line": events have no raw line breaks, but JSON
// may have them between its tokens.
func appendEvent(out, name, event []byte) []byte {
	out = append(append(append(out, "event: "...), name...), "\ndata: "...)
	for {
		end := bytes.IndexAny(event, "\r\n")
		if end < 0 {
			return append(append(out, event...), "\n\n"...)
		}
		out = append(append(out, event[:end]...), "\ndata: "...)
		if event = event[end:]; bytes.HasPrefix(event, []byte("\r\n")) {
			event = event[1:]
		}
		event = event[1:]
	}
}

// Partial reports whether the bytes so far end inside a frame.
func (f *Frames) Partial() bool { return f.framer.Partial() }
