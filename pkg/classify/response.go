package classify

import "time"

// Options says what is known of a response before it arrives.
type Options struct {
	API       API       // APIUnknown: told apart from content type and first bytes
	Stream    bool      // the request asked for a stream; a hint, what is on the wire decides
	AskedTier string    // the request's service_tier, "" when absent
	Now       time.Time // when the headers arrived, for a Retry-After that is a date; zero: the Date header
	MaxEvent  int       // bytes of one SSE event; 0 is 1 MiB; a larger one makes the answer malformed
}

// Response reads one HTTP response as it arrives. It belongs to one goroutine.
type Response struct {
	o       Options
	verdict Verdict
	fed     int64
	final   bool
}

// New returns a reader for one response.
func New(o Options) *Response { return &Response{o: o} }

// Header takes the status and the headers, once, before any body. get is asked for lower-case names.
func (r *Response) Header(status int, get func(lowerCaseName string) string) {
	r.verdict.Status = status
}

// Feed takes body bytes as received, still content-encoded; p is not kept.
func (r *Response) Feed(p []byte) Progress {
	r.fed += int64(len(p))
	return Waiting
}

// End says that the body has ended: clean as HTTP wants it, or cut. The verdict is final.
func (r *Response) End(clean bool) Verdict {
	if !r.final && clean && r.verdict.Status == 200 {
		r.verdict.Class = OK
	}
	r.final = true
	return r.verdict
}

// Abort ends the reading with a class that the bytes do not tell: our deadline, a hang-up, a transport fault.
func (r *Response) Abort(c Class, detail string) Verdict {
	if !r.final {
		r.verdict.Class, r.verdict.Detail, r.final = c, detail, true
	}
	return r.verdict
}

// Verdict is what is known now; its Class is None while undecided.
func (r *Response) Verdict() Verdict { return r.verdict }

// Safe is how many body bytes from the start may go to the client.
func (r *Response) Safe() int64 { return r.fed }

// FailedEvent is the data of the event that decided a failure, nil if none did.
func (r *Response) FailedEvent() []byte { return nil }

// Streaming reports whether the body is an event stream.
func (r *Response) Streaming() bool { return r.o.Stream }

// Encoded reports whether the body has a content coding other than identity.
func (r *Response) Encoded() bool { return false }
