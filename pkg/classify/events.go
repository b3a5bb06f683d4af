package classify

import (
	"bytes"

	"understudy/pkg/classify/jsonscan"
	"understudy/pkg/classify/sse"
)

// events reads an event stream.
type events struct {
	r      *Response
	framer *sse.Framer
	base   int64 // bytes before the framer's first
	known  bool  // an event of the dialect was seen
	enough bool  // the stream may end here without its marker, if it ends as HTTP wants
	dead   bool  // broken: nothing more is read
}

func newEvents(r *Response, base int64) *events {
	return &events{r: r, base: base, framer: sse.New(r.o.MaxEvent)}
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
	case string(data) == "[DONE]":
		e.done()
		return
	case len(data) == 0 && string(ev.Name) != "error":
		return
	}
	r.facts.next()
	switch named := string(ev.Name) == "error"; {
	case r.read(r.tree(), data), named:
		e.apply(ev, data)
	case !tail: // a tail that is not JSON was cut
		e.fail(e.base+ev.Start, data, Malformed, "event not json")
		e.dead = true
	}
}

// tree is where the facts stand.
func (r *Response) tree() *jsonscan.Paths {
	if r.d == nil {
		return anyTree
	}
	return r.d.tree
}

// read searches one JSON text for facts, and reports whether it is well formed.
func (r *Response) read(tree *jsonscan.Paths, data []byte) bool {
	r.scan.Reset(tree)
	return r.scan.Feed(data) == len(data) && r.scan.State() == jsonscan.Whole
}

// done takes "[DONE]": it ends a chat, but says nothing of how it went (wire-formats 9: vLLM sends it after an
// error), and nothing at all where no choice came before it.
func (e *events) done() {
	if e.r.dialect().done && e.r.facts.seen != 0 {
		e.r.ended = true
	}
}

// apply takes what an event says. Its name stands in for a type that its data lacks.
func (e *events) apply(ev sse.Event, data []byte) {
	r := e.r
	if !r.facts.has(factType) && len(ev.Name) > 0 {
		r.facts.keep(factType, ev.Name)
	}
	if r.d == nil {
		r.d = detect(&r.facts)
	}
	m := r.d.event(&r.facts)
	r.events++
	e.known = e.known || m.known
	switch {
	case m.failed || string(ev.Name) == "error":
		e.error(ev, data)
		return
	case m.stop == Refusal || m.stop == Filtered:
		r.decideAt(r.phase(), m.stop, m.detail, r.status)
	case m.stop != None:
		e.fail(e.base+ev.Start, data, m.stop, m.detail)
	}
	r.started = r.started || m.content && r.told.Class == None
	e.enough = m.enough
	r.ended = r.ended || m.end
}

// error takes an error event.
func (e *events) error(ev sse.Event, data []byte) {
	t := troubleOf(&e.r.facts, e.r.status, e.r.o.AskedTier)
	class, status, _ := e.r.d.classify(t)
	e.failAs(e.base+ev.Start, data, class, t.detail(), status)
}

// fail decides a failure by an event that starts at from.
func (e *events) fail(from int64, data []byte, c Class, detail string) {
	e.failAs(from, data, c, detail, 0)
}

func (e *events) failAs(from int64, data []byte, c Class, detail string, status int) {
	if e.r.told.Class == None {
		e.r.failed = bytes.Clone(data)
	}
	e.r.decideAt(e.r.phase(), c, detail, status)
	e.r.freeze(from)
}

// end settles the stream by how it ended.
func (e *events) end() {
	if ev, ok := e.framer.Tail(); ok && !e.dead {
		e.event(ev, true)
	}
	r := e.r
	complete := !r.cutCoding && (r.ended || e.enough && !r.cut)
	switch {
	case complete:
		r.decideAt(PhaseEnd, OK, "", r.status)
	case r.events > 0 && !e.known:
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
