package classify

import (
	"bytes"
	"sync"

	"understudy/pkg/classify/jsonscan"
	"understudy/pkg/classify/sse"
)

// stream is what the events of a stream have said so far, whatever they are framed in.
type stream struct {
	r      *Response
	known  bool // an event of the dialect was seen
	enough bool // the stream may end here without its marker, if it ends as HTTP wants
	dead   bool // broken: nothing more is read
}

// events reads a text/event-stream.
type events struct {
	stream
	framer *sse.Framer
	base   int64 // bytes before the framer's first
}

func newEvents(r *Response, base int64) *events {
	return &events{stream: stream{r: r}, base: base, framer: sse.New(r.o.MaxEvent)}
}

func (e *events) safe() int64 { return e.base + e.framer.End() }

func (e *events) feed(p []byte) {
	if e.dead {
		return
	}
	e.framer.Feed(p)
	for ev, ok := e.framer.Next(); ok && !e.dead; ev, ok = e.framer.Next() {
		e.event(ev, false)
	}
	if e.framer.Err() != nil && !e.r.ended {
		e.fail(e.safe(), nil, Malformed, "event too long")
		e.dead = true
	}
}

// event reads one event. That of a tail was not finished by a blank line.
func (e *events) event(ev sse.Event, tail bool) {
	r := e.r
	if r.ended {
		return
	}
	data := bytes.TrimSpace(ev.Data)
	switch {
	case ev.Bare:
		e.bare(ev, data)
		return
	case string(data) == "[DONE]":
		e.done()
		return
	case len(data) == 0 && string(ev.Name) != "error":
		return
	}
	r.facts.next()
	switch named := string(ev.Name) == "error"; {
	case r.read(r.tree(), data), named:
		e.apply(ev.Name, data, e.base+ev.Start)
	case tail: // it was cut, and the answer with it
		e.enough = false
	default:
		e.fail(e.base+ev.Start, data, Malformed, "event not json")
		e.dead = true
	}
}

// bare takes lines that are no event but may be an error all the same: Gemini's front end writes "a bare, un-prefixed
// JSON {"error":...} line inside the SSE body" (wire-formats 8).
func (e *events) bare(ev sse.Event, data []byte) {
	e.r.facts.next()
	if e.r.read(errorTree, data) && e.r.facts.has(factError) {
		e.apply(nil, data, e.base+ev.Start)
	}
}

// tree is where the facts stand.
func (r *Response) tree() *jsonscan.Paths {
	if r.d == nil {
		return anyTree
	}
	return r.d.tree
}

// scanners are for texts that come in one piece: an open stream needs none between its events. A Response has no owner whose
// they could be.
var scanners = sync.Pool{New: func() any { return new(jsonscan.Scanner) }}

// read searches one JSON text for facts, and reports whether it is well formed.
func (r *Response) read(tree *jsonscan.Paths, data []byte) bool {
	s := scanners.Get().(*jsonscan.Scanner)
	defer func() {
		r.facts.scan = r.scan
		s.Reset(nil, nil)
		scanners.Put(s)
	}()
	s.Reset(tree, &r.facts)
	r.facts.scan = s
	r.facts.iterating = false // a text that broke off may have left it
	return s.Feed(data) == len(data) && s.State() == jsonscan.Whole
}

// ownScan begins a text that comes in pieces.
func (r *Response) ownScan(tree *jsonscan.Paths) {
	r.scan = jsonscan.New(tree, &r.facts)
	r.facts.scan = r.scan
}

// done takes "[DONE]": it ends a chat, but says nothing of how it went (wire-formats 9: vLLM sends it after an
// error), and nothing at all where no choice came before it.
func (s *stream) done() {
	if s.r.dialect().done && s.r.facts.seen != 0 {
		s.r.ended = true
	}
}

// apply takes what an event that starts at from says. Its name stands in for a type that its data lacks.
func (s *stream) apply(name, data []byte, from int64) {
	r := s.r
	if !r.facts.has(factType) && len(name) > 0 {
		r.facts.keep(factType, name)
	}
	if r.d == nil {
		r.d = detect(&r.facts)
	}
	m := r.dialect().event(&r.facts)
	r.events++
	s.known = s.known || m.known
	if m.content {
		r.content += r.facts.size(len(data))
	}
	switch {
	case m.failed || string(name) == "error":
		s.error(data, from)
		return
	case m.stop == Refusal || m.stop == Filtered:
		r.decideAt(r.phase(), m.stop, m.detail, r.status)
	case m.stop != None:
		s.fail(from, data, m.stop, m.detail)
	}
	r.started = r.started || m.content && r.told.Class == None
	s.enough = m.enough
	r.ended = r.ended || m.end
}

// error takes an error event that starts at from.
func (s *stream) error(data []byte, from int64) {
	t, class, status, _ := s.r.trouble()
	s.failAs(from, data, class, t.detail(), status)
}

// fail decides a failure by an event that starts at from.
func (s *stream) fail(from int64, data []byte, c Class, detail string) {
	s.failAs(from, data, c, detail, 0)
}

func (s *stream) failAs(from int64, data []byte, c Class, detail string, status int) {
	if s.r.told.Class == None {
		s.r.failed = bytes.Clone(data)
	}
	s.r.decideAt(s.r.phase(), c, detail, status)
	s.r.freeze(from)
}

// end settles the stream by how it ended.
func (e *events) end() {
	if ev, ok := e.framer.Tail(); ok && !e.dead {
		e.event(ev, true)
	}
	e.settle()
}

// settle decides what the stream was, once it has ended.
func (s *stream) settle() {
	r := s.r
	complete := !r.cutCoding && (r.ended || s.enough && !r.cut)
	switch {
	case complete:
		r.decideAt(PhaseEnd, OK, "", r.status)
	case r.events > 0 && !s.known:
		r.decideAt(PhaseEnd, Malformed, "no event of the dialect", 0)
	default:
		r.decideAt(PhaseEnd, Truncated, "no "+r.endMark(), 0)
	}
	r.told.Complete = complete && !r.frozen
}

// endMark is what an unfinished stream lacks.
func (r *Response) endMark() string {
	if r.d == nil {
		return "end marker"
	}
	return r.d.endMark
}
