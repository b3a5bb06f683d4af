package classify

import "understudy/pkg/classify/jsonscan"

// document reads a JSON body.
type document struct {
	r    *Response
	base int64 // bytes before the body, a byte order mark included
	good int64 // bytes of it that are JSON
	bom  bool  // looked for
}

func newDocument(r *Response, base int64) *document {
	r.facts.next()
	r.ownScan(r.tree())
	return &document{r: r, base: base}
}

func (d *document) safe() int64 { return d.base + d.good }

// feed reads on. The sniffer's bytes come first and in one piece, so a byte order mark is whole.
func (d *document) feed(p []byte) {
	if d.r.scan.State() == jsonscan.Broken || d.r.told.Class != None {
		return
	}
	if !d.bom && len(p) >= len(bom) && string(p[:len(bom)]) == bom {
		p = p[len(bom):]
		d.base += int64(len(bom))
	}
	d.bom = true
	d.good += int64(d.r.scan.Feed(p))
	if d.r.scan.State() == jsonscan.Broken {
		d.r.freeze(d.safe())
		d.r.decide(Malformed, "not json")
	}
}

// end settles the body by what it says.
func (d *document) end() {
	r := d.r
	if r.told.Class != None {
		return
	}
	if r.scan.State() != jsonscan.Whole || r.cutCoding {
		r.decide(Truncated, "json cut")
		return
	}
	if r.d == nil {
		r.d = detect(&r.facts)
	}
	d.settle(r.dialect().body(&r.facts))
}

func (d *document) settle(m meaning) {
	r := d.r
	switch {
	case m.failed:
		t, class, status, _ := r.trouble()
		r.decideAt(PhaseBody, class, t.detail(), status)
		return
	case !m.known:
		d.stranger()
		return
	case m.unfinished && m.stop == None:
		r.decide(Truncated, first(m.detail, "no "+r.endMark()))
		return
	case m.stop == Refusal || m.stop == Filtered:
		r.decideAt(PhaseBody, m.stop, m.detail, r.status)
	case m.stop != None:
		r.decide(m.stop, m.detail)
		return
	default:
		r.decideAt(PhaseBody, OK, "", r.status)
	}
	r.told.Complete = true
}

// stranger settles JSON that is no answer: it is an error where a code that is known says so, whatever its shape.
func (d *document) stranger() {
	if t, class, status, told := d.r.trouble(); told {
		d.r.decideAt(PhaseBody, class, t.detail(), status)
		return
	}
	d.r.decide(Malformed, "json of another kind")
}
