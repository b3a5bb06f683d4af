package classify

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"understudy/pkg/classify/eventstream"
	"understudy/pkg/classify/jsonscan"
)

// frames reads an application/vnd.amazon.eventstream body, Bedrock's.
type frames struct {
	stream
	framer *eventstream.Framer
	base   int64  // bytes before the framer's first
	buf    []byte // the event inside a chunk
}

func newFrames(r *Response, base int64) *frames {
	return &frames{stream: stream{r: r}, base: base, framer: eventstream.New(r.o.MaxEvent)}
}

func (f *frames) safe() int64 { return f.base + f.framer.End() }

func (f *frames) feed(p []byte) {
	if f.dead {
		return
	}
	f.framer.Feed(p)
	for fr, ok := f.framer.Next(); ok && !f.dead; fr, ok = f.framer.Next() {
		f.frame(fr)
	}
	f.buf = spare(f.buf)
	if err := f.framer.Err(); err != nil {
		f.fail(f.safe(), nil, Malformed, frameFault(err))
		f.dead = true
	}
}

// spare is a buffer for the next event; what a long one has left is not kept.
func spare(buf []byte) []byte {
	if cap(buf) > maxSpare {
		return nil
	}
	return buf[:0]
}

// maxSpare is how large a buffer may be that is kept: streams are many, and long events few.
const maxSpare = 16 << 10

// frameFault is the detail of what broke the framing.
func frameFault(err error) string {
	if errors.Is(err, eventstream.ErrTooLong) {
		return "event too long"
	}
	return err.Error()
}

// frame reads one message. "Bedrock exception frames live in headers": an exception has its name there, an error all
// it says.
func (f *frames) frame(fr eventstream.Frame) {
	if f.r.ended {
		return
	}
	f.r.facts.next()
	name := fr.Headers.Text(eventstream.ExceptionType)
	switch kind := fr.Headers.Text(eventstream.MessageType); {
	case string(kind) == "exception" || name != nil:
		f.r.read(anyTree, fr.Payload)
		f.exception(fr, name)
	case string(kind) == "error":
		f.r.facts.keep(factFlatText, fr.Headers.Text(eventstream.ErrorMessage))
		f.exception(fr, fr.Headers.Text(eventstream.ErrorCode))
	default:
		f.message(fr, fr.Headers.Text(eventstream.EventType))
	}
}

// exception takes a message that ends the stream by a fault.
func (f *frames) exception(fr eventstream.Frame, name []byte) {
	r := f.r
	if len(name) > 0 {
		r.facts.keep(factErrorName, name)
	}
	r.facts.mark(factError)
	r.tell(nil)
	r.events++
	f.error(bytes.TrimSpace(fr.Payload), f.base+fr.Start)
}

// message takes an event. One that is a chunk has an event of the model inside, without a name.
func (f *frames) message(fr eventstream.Frame, name []byte) {
	data := fr.Payload
	if string(name) == "chunk" {
		name = nil
		var ok bool
		if data, ok = f.chunk(fr.Payload); !ok {
			f.broken(fr, "chunk not base64")
			return
		}
	}
	switch {
	case len(data) == 0:
	case f.r.read(f.r.tree(), data):
		f.r.tell(name)
		f.apply(name, data, f.base+fr.Start)
	default:
		f.broken(fr, "event not json")
	}
}

func (f *frames) broken(fr eventstream.Frame, detail string) {
	f.fail(f.base+fr.Start, fr.Payload, Malformed, detail)
	f.dead = true
}

// tell settles the dialect of a stream in frames by the first of them: name is that of the event, nil in a chunk.
func (r *Response) tell(name []byte) {
	switch {
	case r.d != nil:
	case name != nil:
		r.d = &converse
	default:
		r.d = &bedrockInvoke
	}
}

// nowhere asks for no facts: a text is only checked.
var nowhere = jsonscan.NewPaths()

// chunk decodes {"bytes":"<base64>","p":"<padding>"}. What it returns is good until the next call.
func (f *frames) chunk(payload []byte) ([]byte, bool) {
	if !f.r.read(nowhere, payload) {
		return nil, false
	}
	coded := member(payload, "bytes")
	if bytes.IndexByte(coded, '\\') >= 0 {
		coded = unescape(coded)
	}
	n := base64.StdEncoding.DecodedLen(len(coded))
	f.buf = slices.Grow(f.buf[:0], n)[:n]
	n, err := base64.StdEncoding.Decode(f.buf, coded)
	return f.buf[:n], err == nil && n > 0
}

// unescape undoes the escapes of a JSON string: some encoders escape a slash or a plus.
func unescape(raw []byte) []byte {
	var s string
	if json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &s) != nil {
		return nil
	}
	return []byte(s)
}

// member finds the string under a key of the object that p holds, as it stands; nil if there is none. p is well-formed
// JSON.
func member(p []byte, key string) []byte {
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := stringEnd(p, i+1)
			if value := valueOf(p[min(end+1, len(p)):]); depth == 1 && string(p[i+1:end]) == key && value != nil {
				return value[:stringEnd(value, 0)]
			}
			i = end
		}
	}
	return nil
}

// valueOf is what follows the quote of the string value of a key that has just ended; nil if it was no key, or its
// value is no string.
func valueOf(p []byte) []byte {
	p, isKey := bytes.CutPrefix(bytes.TrimLeft(p, " \t\r\n"), []byte{':'})
	p, isString := bytes.CutPrefix(bytes.TrimLeft(p, " \t\r\n"), []byte{'"'})
	if !isKey || !isString {
		return nil
	}
	return p
}

// stringEnd is the place of the quote that ends the string whose content starts at i.
func stringEnd(p []byte, i int) int {
	for i < len(p) && p[i] != '"' {
		if p[i] == '\\' {
			i++
		}
		i++
	}
	return min(i, len(p))
}

// end settles the stream. "Complete = decoded message_stop then clean EOF at a frame boundary".
func (f *frames) end() {
	if f.framer.Partial() && !f.dead {
		f.r.decideAt(PhaseEnd, Truncated, "frame cut", 0)
		f.r.freeze(f.safe())
	}
	f.settle()
}
