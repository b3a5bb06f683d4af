package classify

import (
	"bytes"

	"understudy/pkg/classify/jsonscan"
)

// elements reads a JSON array whose elements are events: what Gemini streams unless it is asked for SSE. In any other
// array it looks for an error only, as the front end of Vertex wraps one.
type elements struct {
	stream
	at   int64  // bytes read, as far as they are JSON
	good int64  // where the last accepted element ends
	held []byte // the current element, with what parts it from the one before
	bom  bool   // looked for
}

func newElements(r *Response, base int64) *elements {
	r.facts.next()
	r.ownScan(elementTree)
	return &elements{stream: stream{r: r}, at: base, good: base}
}

// safe goes up to the end of an element; only the end of the array lets the rest pass.
func (e *elements) safe() int64 { return e.good }

// feed reads on, byte by byte between elements: the array can end there. An element can only end at a brace. The sniffer's bytes come first and in one piece, so a byte order
// mark is whole.
func (e *elements) feed(p []byte) {
	if !e.bom && bytes.HasPrefix(p, []byte(bom)) {
		p = p[len(bom):]
		e.at += int64(len(bom))
		e.good = e.at
	}
	e.bom = true
	for len(p) > 0 && !e.dead {
		n := bytes.IndexByte(p, '}') + 1
		switch {
		case !e.r.facts.inElement:
			n = 1
		case n == 0:
			n = len(p)
		}
		n = min(n, e.r.o.MaxEvent+1-len(e.held))
		e.take(p[:n])
		p = p[n:]
	}
}

// take reads a piece with at most one end of an element, its last byte.
func (e *elements) take(b []byte) {
	r := e.r
	e.held = append(e.held, b...)
	e.at += int64(r.scan.Feed(b))
	if !r.facts.inElement && !r.facts.element { // white space without end is no event
		e.held = bytes.TrimRight(e.held, " \t\r\n")
	}
	switch {
	case r.scan.State() == jsonscan.Broken:
		e.broken("not json")
	case r.facts.element:
		r.facts.element = false
		e.element()
	case len(e.held) > r.o.MaxEvent:
		e.broken("event too long")
	case r.scan.State() == jsonscan.Whole:
		e.good, r.ended = e.at, e.enough
	}
}

func (e *elements) broken(detail string) {
	e.fail(e.good, nil, Malformed, detail)
	e.dead = true
}

// element takes the element that has just ended.
func (e *elements) element() {
	r := e.r
	if r.d == nil {
		r.d = detect(&r.facts)
	}
	if r.d == &gemini || r.facts.has(factError) {
		e.apply(nil, bytes.TrimLeft(e.held, "[, \t\r\n"), e.good)
	}
	e.good, e.held = e.at, spare(e.held)
}

// end settles the array by what it was.
func (e *elements) end() {
	r := e.r
	phase := PhaseBody
	if r.Streaming() {
		phase = PhaseEnd
	}
	switch {
	case r.scan.State() != jsonscan.Whole:
		r.decideAt(phase, Truncated, "json cut", 0)
		r.freeze(e.good)
	case phase == PhaseBody:
		r.decideAt(phase, Malformed, "json of another kind", 0)
	case r.events == 0 && len(bytes.Trim(e.held, "[], \t\r\n")) > 0:
		r.decideAt(phase, Malformed, "no event of the dialect", 0)
	}
	e.settle()
}
