package classify

import (
	"time"

	"understudy/pkg/classify/decode"
	"understudy/pkg/classify/jsonscan"
)

// Options says what is known of a response before it arrives.
type Options struct {
	API       API       // APIUnknown: told apart from content type and first bytes
	Stream    bool      // the request asked for a stream; a hint, what is on the wire decides
	AskedTier string    // the request's service_tier, or the speed "fast"; "" when absent
	Now       time.Time // when the headers arrived, for retry hints that are a date; zero: the Date header
	MaxEvent  int       // bytes of one event, frame or element; 0 is 1 MiB; a larger one makes the answer malformed

	// Opaque is for an endpoint whose answers are in no dialect, such as embeddings and speech: a success is told by its
	// status and its end alone. Errors are read as ever.
	Opaque bool

	// IgnoreTier is for a provider that echoes a tier it did not serve: tiers are told and not compared.
	IgnoreTier bool
}

// Limits of what is read of one response.
const (
	defaultMaxEvent = 1 << 20
	maxDecoded      = 512 << 20 // bytes that an encoded body may decode to; more makes it malformed
	maxErrorBody    = 64 << 10  // bytes of an error's body that are looked at
)

// Response reads one HTTP response as it arrives and says what it was. The order of calls is Header, Feed for each
// piece of the body, and End or Abort; the verdict is final then. It belongs to one goroutine, starts none, and needs
// no closing. What it holds does not grow with the body: one event of at most MaxEvent bytes, 64 KiB of an error's
// body, and the window of a content coding.
type Response struct {
	o Options
	d *dialect // nil while unknown

	headed bool
	status int
	hints
	spokenMS int64 // the pause that an error's message asks for

	dec    *decode.Decoder // nil for identity
	in     reader
	fed    int64
	before int64 // bytes fed before the piece that is being read

	events  int64 // read so far
	content int64 // bytes of content in them
	facts   facts
	scan    *jsonscan.Scanner // of a text that comes in pieces
	started bool              // content was seen
	ended   bool              // the end marker was seen: nothing behind it counts

	cut       bool // the body was cut below HTTP
	cutCoding bool // the body was cut inside its content coding
	told      decision
	failed    []byte // the event that decided a failure
	safe      int64  // how much may be passed on, once frozen
	frozen    bool
	final     bool
}

// reader reads one kind of body, decoded.
type reader interface {
	feed(p []byte)
	end()        // the body ended; Response.cut and cutCoding say whether it was cut
	safe() int64 // bytes that may be passed on, if the body is not encoded
}

// usualTexts is how many texts most answers have.
const usualTexts = 4

// New returns a reader for one response.
func New(o Options) *Response {
	if o.MaxEvent <= 0 {
		o.MaxEvent = defaultMaxEvent
	}
	r := &Response{o: o, d: dialectOf(o.API)}
	r.facts.texts = make([]textFact, 0, usualTexts)
	return r
}

// Header takes the status and the headers, once, before any body. get is asked for lower-case names and returns ""
// for a header that is absent.
func (r *Response) Header(status int, get func(lowerCaseName string) string) {
	r.headed, r.status = true, status
	r.hints = readHints(get, r.o.Now)
	if r.encoding != "" {
		r.dec = decode.New(r.encoding, maxDecoded, func(p []byte) { r.in.feed(p) })
	}
	switch {
	case !answer(status):
		r.in = &failure{r: r}
	case r.o.Opaque:
		r.in = &opaque{r: r}
	default:
		r.in = &sniffer{r: r}
	}
}

// answer reports whether a status promises an answer: an LLM call has no use for 204, nor for 1xx and 3xx.
func answer(status int) bool { return status >= 200 && status < 300 && status != 204 }

// trouble is the error that the current body or event tells of, its class, and the status it would honestly have. told
// says that the error itself told the class, not only its status.
func (r *Response) trouble() (t trouble, c Class, status int, told bool) {
	t = troubleOf(&r.facts, r.status, r.o.AskedTier)
	c, status, told = r.dialect().classify(t)
	if r.told.Class == None {
		r.spokenMS = r.facts.retryDelay()
		if r.spokenMS == 0 {
			r.spokenMS = spokenAfter(t.text)
		}
	}
	return t, c, status, told
}

// decision is the part of the verdict that is decided, once, rather than gathered.
type decision struct {
	Class             Class
	Phase             Phase
	Detail            string
	Status            int
	Complete, Partial bool
}

// Feed takes body bytes as received, still content-encoded; p is not kept. How the body is cut into pieces makes no
// difference to any result. Only an event stream is ever Started: a JSON body is one answer, and is Waiting until its
// end unless it is found not to be JSON. An error status is Waiting for the end of its body, too.
func (r *Response) Feed(p []byte) Progress {
	if r.final || r.in == nil {
		return r.progress()
	}
	r.before = r.fed
	r.fed += int64(len(p))
	if r.dec == nil {
		r.in.feed(p)
	} else if r.dec.Write(p) != nil {
		r.undecodable()
	}
	return r.progress()
}

// undecodable takes a body that is not in its content coding. An error still has its status, and what was decoded.
func (r *Response) undecodable() {
	if _, isError := r.in.(*failure); !isError {
		r.freeze(0)
		r.decide(Malformed, "content-encoding "+r.encoding)
	}
}

func (r *Response) progress() Progress {
	switch {
	case r.told.Class != None && r.told.Class != OK:
		return Decided
	case r.started:
		return Started
	}
	return Waiting
}

// End says that the body has ended: clean as HTTP wants it, or cut. The verdict is final; later calls return it
// again. An answer that was cut is Transport, unless its end marker or the end of its JSON was there; an error that was
// cut is told by what is there.
func (r *Response) End(clean bool) Verdict {
	if r.final {
		return r.Verdict()
	}
	if r.in == nil {
		return r.Abort(Transport, "no response")
	}
	r.cut, r.before = !clean, r.fed
	r.cutCoding = r.dec != nil && !r.dec.Whole()
	r.in.end()
	if !clean && r.told.Class == Truncated {
		r.told.Class, r.told.Detail, r.told.Status = Transport, "body cut", r.dialect().honest(Transport)
	}
	r.final = true
	return r.Verdict()
}

// Abort ends the reading with a class that the bytes do not tell: our own deadline, a hang-up, a transport fault.
// What is known so far is kept: usage, model, and content seen. A class that was already decided stays, a complete
// answer stays OK, and an error status that broke off speaks for itself unless the client hung up.
func (r *Response) Abort(c Class, detail string) Verdict {
	if r.final {
		return r.Verdict()
	}
	switch _, isError := r.in.(*failure); {
	case isError && c != Canceled, r.whole():
		r.in.end()
	case r.in == nil:
		r.decideAt(PhaseTransport, c, detail, 0)
	default:
		r.decide(c, detail)
	}
	r.final = true
	return r.Verdict()
}

// whole reports whether the answer has come to its end marker, or to the end of its JSON.
func (r *Response) whole() bool {
	_, isJSON := r.in.(*document)
	return r.ended || isJSON && r.scan.State() == jsonscan.Whole
}

// dialect is the dialect, Chat's while it is not known: it is what compatible servers speak.
func (r *Response) dialect() *dialect {
	if r.d == nil {
		return &chat
	}
	return r.d
}

// decide decides the class where the reader stands, with the status such an answer would honestly have.
func (r *Response) decide(c Class, detail string) { r.decideAt(r.phase(), c, detail, 0) }

// decideAt decides the class, once: the first fault is the one that counts.
func (r *Response) decideAt(p Phase, c Class, detail string, status int) {
	if r.told.Class != None {
		return
	}
	r.told.Class, r.told.Phase, r.told.Detail = c, p, detail
	r.told.Status = firstStatus(status, r.dialect().honest(c))
	r.told.Partial = c != OK && (r.started || !r.Streaming() && r.facts.content())
}

// phase is where the reader stands.
func (r *Response) phase() Phase {
	switch {
	case !r.Streaming():
		return PhaseBody
	case r.started:
		return PhaseStream
	}
	return PhaseFirst
}

// freeze stops the bytes that may be passed on at n. In an encoded body n is a place in the decoded text, and says
// nothing of the bytes as they came: those before the piece that told may be passed on.
func (r *Response) freeze(n int64) {
	if r.frozen {
		return
	}
	if r.safe, r.frozen = n, true; r.dec != nil {
		r.safe = r.before
	}
}

// Events is how many events of the stream have been read so far; comments and events without data are none.
func (r *Response) Events() int64 { return r.events }

// Content is how many bytes of content the stream has brought so far, without what frames them.
func (r *Response) Content() int64 { return r.content }

// Verdict is what is known now; its Class is None while undecided.
func (r *Response) Verdict() Verdict {
	d := r.dialect()
	v := Verdict{
		Class: r.told.Class, Phase: r.told.Phase, Detail: r.told.Detail, Status: r.told.Status,
		Complete: r.told.Complete, Partial: r.told.Partial,
	}
	v.Trips, v.Advances = v.Class.Trips(), v.Class.Advances()
	v.Model = first(r.facts.fallback(), r.facts.last(factModel))
	v.Usage, v.Iterations = r.usage(), r.facts.calls(d.cachedIn)
	v.RequestID = first(r.requestID, r.facts.last(factRequestID))
	if v.Class != None && v.Class != OK {
		v.RetryAfterMS, v.ShouldRetry = r.pause(v.Class, r.spokenMS), r.retry()
	}
	if v.Class == Refusal {
		v.RefusalCategory = r.facts.last(factCategory)
	}
	v.AskedTier, v.ServedTier = r.o.AskedTier, r.servedTier()
	v.Downgraded = answer(r.status) && !r.o.IgnoreTier && downgraded(v.AskedTier, v.ServedTier)
	return v
}

// usage is what was counted, and an estimate of what was not.
func (r *Response) usage() Usage {
	u := r.facts.tokens.usage(r.dialect().cachedIn)
	if answer(r.status) {
		u.estimate(r.facts.uncounted())
	}
	return u
}

// servedTier is the tier the provider says it served. Who asked Anthropic for fast mode asked for a speed. Azure tells
// in headers alone that a deployment of provisioned throughput was full and a standard one answered.
func (r *Response) servedTier() string {
	switch {
	case r.dialect().tierAtEnd && r.Streaming() && !r.ended:
		return ""
	case r.o.AskedTier == "fast" && r.facts.last(factSpeed) != "":
		return r.facts.last(factSpeed)
	case r.hints.servedTier != "":
		return r.hints.servedTier
	case r.facts.last(factTier) == "" && r.spilled:
		return "standard"
	}
	return r.facts.last(factTier)
}

// Safe is how many body bytes from the start may go to the client: up to the end of the last complete, well-formed
// and accepted event (an SSE event with its blank line, a frame, an element of an array), without the event that decided a failure and all behind it. Of a JSON
// body, an error's body and an encoded body it is all that was fed while nothing was wrong.
func (r *Response) Safe() int64 {
	switch {
	case r.frozen:
		return r.safe
	case r.in == nil || r.dec != nil:
		return r.fed
	case r.final && r.told.Complete:
		return r.fed
	}
	return r.in.safe()
}

// FailedEvent is the data of the event that decided a failure, nil if none did: for building an honest end. Of AWS's
// frames it is what was to be read: the event in a chunk, the payload of an exception.
func (r *Response) FailedEvent() []byte { return r.failed }

// Streaming reports whether the body is a stream of events, by its first bytes or, before they are here, by its content
// type.
func (r *Response) Streaming() bool {
	switch r.in.(type) {
	case *events, *frames:
		return true
	case *elements:
		return r.d == &gemini
	case *sniffer:
		return r.eventStream || r.amazonStream
	}
	return false
}

// Encoded reports whether the body has a content coding other than identity.
func (r *Response) Encoded() bool { return r.encoding != "" }
