package classify

import "bytes"

// sniffer waits for the first bytes of an answer, and then reads on with the reader they call for: wrong content
// types are common (wire-formats 13.6).
type sniffer struct {
	r    *Response
	head []byte // first bytes, from the first that is no line end
	base int64  // line ends before them: keep-alives
}

// bodyKind is what a body looks like.
type bodyKind uint8

const (
	kindUnknown bodyKind = iota // too few bytes
	kindEvents
	kindDocument
	kindElements
	kindFrames
	kindHTML
)

// maxHead is how many bytes the sniffer waits for at most.
const maxHead = 64

func (s *sniffer) feed(p []byte) {
	if len(s.head) == 0 {
		rest := bytes.TrimLeft(p, "\r\n")
		s.base += int64(len(p) - len(rest))
		p = rest
	}
	known := len(s.head)
	n := min(len(p), maxHead-known)
	head := p[:n]
	if known > 0 {
		head = append(s.head, head...)
	}
	kind := s.kind(head, known)
	switch {
	case kind == kindUnknown:
		s.head = append(s.head[:0], head...)
	case known == 0:
		s.become(kind, p, nil) // in one piece, as it came: nothing has to be copied
	default:
		s.become(kind, head, p[n:])
	}
}

// kind tells the body by head, of which known bytes did not tell it.
func (s *sniffer) kind(head []byte, known int) bodyKind {
	for i := known + 1; i <= len(head); i++ {
		if kind := s.r.sniff(head[:i]); kind != kindUnknown {
			return kind
		}
	}
	if len(head) == maxHead {
		return kindDocument
	}
	return kindUnknown
}

// become hands over to the reader for kind, which gets the first bytes and the rest.
func (s *sniffer) become(kind bodyKind, head, rest []byte) {
	r := s.r
	switch kind {
	case kindEvents:
		r.in = newEvents(r, s.base)
	case kindFrames:
		r.in = newFrames(r, s.base)
	case kindElements:
		r.in = newElements(r, s.base)
	default:
		r.in = newDocument(r, s.base)
	}
	if kind == kindHTML {
		r.freeze(s.base)
		r.decide(Malformed, "html")
	}
	r.in.feed(head)
	if len(rest) > 0 {
		r.in.feed(rest)
	}
}

// end settles a body that ended before it could be told.
func (s *sniffer) end() {
	if len(s.head) == 0 {
		s.empty()
		return
	}
	kind := kindDocument
	switch {
	case s.r.eventStream:
		kind = kindEvents
	case s.r.amazonStream:
		kind = kindFrames
	}
	s.become(kind, s.head, nil)
	s.r.in.end()
}

// empty settles a body without a byte.
func (s *sniffer) empty() {
	phase := PhaseBody
	if s.r.Streaming() || s.r.o.Stream {
		phase = PhaseEnd
	}
	s.r.decideAt(phase, Truncated, "empty", 0)
}

// safe leaves out the first bytes: they may be of an event that is not here yet.
func (s *sniffer) safe() int64 { return s.base }

const bom = "\xEF\xBB\xBF"

// sniff tells a body by its first bytes. Only where they leave it open the content type decides. A frame starts with
// its length, whose first byte is 0 up to 16 MiB.
func (r *Response) sniff(head []byte) bodyKind {
	if len(head) < len(bom) && bytes.HasPrefix([]byte(bom), head) {
		return kindUnknown
	}
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte(bom)), " \t\r\n")
	switch {
	case len(head) == 0:
		return kindUnknown
	case head[0] == 0:
		return kindFrames
	case head[0] == '[':
		return kindElements
	case head[0] == '{':
		return kindDocument
	case head[0] == '<':
		return kindHTML
	case head[0] == ':', r.eventStream:
		return kindEvents
	}
	kind := sniffField(head)
	if kind == kindDocument && r.amazonStream {
		return kindFrames
	}
	return kind
}

// sniffField reports whether head starts with a field of an event.
func sniffField(head []byte) bodyKind {
	for _, field := range []string{"data", "event", "id", "retry"} {
		n := min(len(field), len(head))
		if string(head[:n]) != field[:n] {
			continue
		}
		if len(head) <= len(field) {
			return kindUnknown
		}
		if bytes.IndexByte([]byte(":\r\n"), head[len(field)]) >= 0 {
			return kindEvents
		}
	}
	return kindDocument
}
