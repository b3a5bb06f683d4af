package processor

import (
	"encoding/hex"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Trace is an exchange's place in a distributed trace; the zero Trace is in none.
type Trace struct {
	ID      [16]byte // zero: none
	Parent  [8]byte  // the span that the exchange is a child of; zero: none
	Span    [8]byte  // the exchange's own, the same on every replica; set where Sampled
	Sampled bool     // spans are wanted
}

// String is the trace's id in hex, "" for none.
func (t Trace) String() string {
	if t.ID == ([16]byte{}) {
		return ""
	}
	return hex.EncodeToString(t.ID[:])
}

// Tracer hears of exchanges and attempts whose spans are wanted, on the goroutine to which it happens: it must return at
// once.
type Tracer interface {
	// Join says whether the spans of an exchange are wanted, and gives it a trace if it has none. An exchange of no id
	// shares nothing with its other attempts.
	Join(exchange string, t Trace) Trace
	Attempt(r *AttemptRecord)
	Exchange(r *Record)
}

// Trace lets t hear of attempts and exchanges. It is called before the first attempt.
func (p *Processor) Trace(t Tracer) { p.tracer = t }

// AttemptRecord is what became of one attempt that went to its target.
type AttemptRecord struct {
	Trace    Trace
	Exchange string // id
	Attempt  int    // Envoy's number
	Chain    *config.Chain
	Target   *config.Target
	Rung     int
	Stream   bool
	Verdict  classify.Verdict
	Cost     budget.Bill
	Drill    string // id of the drill that it was part of
	Fault    string // what was played in the target's place

	// When it was sent, its first content came, and its verdict was known. Content is zero without any.
	Sent, Content, End time.Time
}

// join finds the exchange's place in its trace.
func (a *attempt) join() {
	if a.p.tracer == nil {
		a.head.trace.Sampled = false
		return
	}
	a.head.trace = a.p.tracer.Join(a.head.exchange.ID, a.head.trace)
}

// traced tells the tracer of the attempt's verdict.
func (a *attempt) traced(v classify.Verdict) {
	if !a.head.trace.Sampled {
		return
	}
	a.p.tracer.Attempt(&AttemptRecord{
		Trace: a.head.trace, Exchange: a.head.exchange.ID, Attempt: a.head.exchange.Attempt, Chain: a.chain, Target: a.try.Target,
		Rung: a.try.Rung, Stream: a.body.Stream, Verdict: v, Cost: a.cost.bill, Drill: a.drill.id(), Fault: a.drill.fault,
		Sent: a.moments.sent, Content: a.moments.content, End: time.Now(),
	})
}

// moments are when an attempt came how far; zero: not yet, or never.
type moments struct{ sent, content, committed time.Time }

// traceparent is the length of version 00 of W3C's header, after which a later version may say more.
const traceparent = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// traceOf reads W3C Trace Context's traceparent: "version-format = trace-id "-" parent-id "-" trace-flags", all of
// lower-case hex. What is not valid is no trace: "If the trace-id value is invalid … vendors MUST ignore the traceparent".
func traceOf(h *corev3.HeaderValue) (t Trace) {
	s := h.RawValue
	if len(s) == 0 {
		s = []byte(h.Value)
	}
	var version, flags [1]byte
	switch {
	case len(s) < traceparent, s[2] != '-', s[35] != '-', s[52] != '-':
		return Trace{}
	case !lowerHex(version[:], s[:2]), !lowerHex(t.ID[:], s[3:35]), !lowerHex(t.Parent[:], s[36:52]), !lowerHex(flags[:], s[53:55]):
		return Trace{}
	case version[0] == 0xff, version[0] == 0 && len(s) > traceparent, len(s) > traceparent && s[traceparent] != '-':
		return Trace{}
	case t.ID == [16]byte{}, t.Parent == [8]byte{}:
		return Trace{}
	}
	t.Sampled = flags[0]&1 == 1
	return t
}

// lowerHex reads src into dst, unless it has another byte than 0-9 and a-f.
func lowerHex(dst, src []byte) bool {
	for _, c := range src {
		if c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, src)
	return err == nil
}
