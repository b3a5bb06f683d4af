package classify

// opaque reads the body of an answer that is in no dialect: only that it came, and whole.
type opaque struct {
	r *Response
	n int64
}

func (o *opaque) feed(p []byte) { o.n += int64(len(p)) }
func (o *opaque) safe() int64   { return o.r.fed }

func (o *opaque) end() {
	switch {
	case o.n == 0:
		o.r.decide(Truncated, "empty")
	case o.r.cut || o.r.cutCoding:
		o.r.decide(Truncated, "body cut")
	default:
		o.r.decideAt(PhaseBody, OK, "", o.r.status)
		o.r.told.Complete = true
	}
}
