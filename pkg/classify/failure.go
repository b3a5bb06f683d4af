package classify

import (
	"bytes"
	"strconv"

	"understudy/pkg/classify/eventstream"
	"understudy/pkg/classify/sse"
)

// failure reads the body of an error status: the class is told by both, at the end.
type failure struct {
	r    *Response
	body []byte // its first 64 KiB
}

func (f *failure) feed(p []byte) {
	f.body = append(f.body, p[:min(len(p), maxErrorBody-len(f.body))]...)
}

func (f *failure) safe() int64 { return f.r.fed }

// end decides the class: a code in the body beats the status, unless no LLM API uses that status at all.
func (f *failure) end() {
	r := f.r
	if statusClass(r.status) == Malformed {
		r.decideAt(PhaseStatus, Malformed, "status "+strconv.Itoa(r.status), 0)
		return
	}
	f.find()
	if r.errorName != "" {
		r.facts.keep(factErrorName, []byte(r.errorName))
	}
	if r.d == nil {
		r.d = detect(&r.facts)
	}
	t, class, status, told := r.trouble()
	phase := PhaseStatus
	if told {
		phase = PhaseBody
	}
	r.decideAt(phase, class, t.detail(), status)
}

// findFrame looks in the first frame of AWS's.
func (f *failure) findFrame() {
	framer := eventstream.New(maxErrorBody)
	framer.Feed(f.body)
	fr, _ := framer.Next()
	f.r.read(anyTree, fr.Payload)
	if name := fr.Headers.Text(eventstream.ExceptionType); name != nil {
		f.r.facts.keep(factErrorName, name)
	}
}

// find looks for the error's facts, those of any dialect since a proxy may have answered: in JSON, which may be cut,
// or in an event stream ("SSE body on 4xx", wire-formats 13.6).
func (f *failure) find() {
	f.r.facts.next()
	body := bytes.TrimLeft(bytes.TrimPrefix(f.body, []byte(bom)), " \t\r\n")
	if len(body) > 0 && (body[0] == '{' || body[0] == '[') {
		f.r.read(anyTree, body)
		return
	}
	if len(body) > 0 && body[0] == 0 {
		f.findFrame()
		return
	}
	framer := sse.New(maxErrorBody)
	framer.Feed(f.body)
	for ev, ok := framer.Next(); ok; ev, ok = framer.Next() {
		if f.r.read(anyTree, ev.Data); f.r.facts.has(factError) {
			return
		}
	}
	if ev, ok := framer.Tail(); ok {
		f.r.read(anyTree, ev.Data)
	}
}
