package processor

import (
	"context"
	"log/slog"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain"
	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/provider"
	"understudy/pkg/provider/credential"
)

// state is how far an attempt has come.
type state uint8

const (
	starting  state = iota // nothing read yet
	uploading              // a protected request whose body is awaited
	waiting                // a short rate limit is waited out before the same target is tried again
	sent                   // the request is with the target; nothing of the answer is known
	holding                // the answer's headers are kept back
	committed              // headers have left for the client
	watching               // the chain only observes: the answer passes while it is read
	passing                // an answer that is not ours to judge: of Envoy's own to a request that got no target, or to a probe
	finished               // nothing more to decide; whatever Envoy still says is acknowledged
)

func (s state) String() string {
	return [...]string{"starting", "uploading", "waiting", "sent", "holding", "committed", "watching", "passing", "finished"}[s]
}

// attempt is one try of an exchange at one target, from the request's headers to the last byte of the answer.
//
// Ownership: the pump of its stream, which calls close at the end. Only who has the pump's turn touches it.
type attempt struct {
	ctx       context.Context // of the stream
	interrupt func(func())    // gives something that Envoy did not send its turn
	p         *Processor
	conn      *connAddr // nil: not known
	book      *chain.Book
	creds     *credential.Set
	prices    *budget.Prices

	out    []*extproc.ProcessingResponse
	bodies []*bodyMessage // those that are in out

	state   state
	api     classify.API
	unheard bool // Envoy waits for no reply and heeds none
	noBody  bool // the request ended with its headers
	run     bool // the call runs a queued request
	over    bool // the verdict has been reported
	replay  bool // the answer is another exchange's, under the same key

	head     head
	chain    *config.Chain
	plan     *chain.Plan
	past     []chain.Past
	body     provider.Request
	early    []byte         // of the body, while it streams in; only where unheard
	probed   *config.Target // the call is a probe of ours
	drill    rehearsal
	try      *chain.Try
	reserved int64 // bytes taken from the process's bound for the request's body, and for a copy of the answer

	cost costs

	identity identity
	usage    metadata // to be told with the next message: what the attempt used
	call     outbound
	judged   map[string]error // why targets do not fit, as far as it was asked
	home     string           // provider that holds what the request names; "": the first target's

	answer  answer
	copy    keepsake
	clock   clock
	moments moments
	closing *Record // to be told of: the exchange, which has its answer; nil: nothing
	why     string  // x-llm-fallback-reason, as told
	mode    string  // the degraded mode that answers
	degrade string  // x-llm-degraded, as told
	status  int     // given to the client, 0: none by this attempt
	refused string  // why the queue did not take the request, or money kept the last target out
}

func newAttempt(ctx context.Context, p *Processor) *attempt {
	l := p.live.Load()
	return &attempt{ctx: ctx, p: p, book: l.book, creds: l.creds, prices: l.prices}
}

// step takes one message from Envoy.
func (a *attempt) step(m *extproc.ProcessingRequest) {
	from := time.Now()
	switch r := m.Request.(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		a.unheard = m.ObservabilityMode
		a.requestHeaders(r.RequestHeaders)
	case *extproc.ProcessingRequest_RequestBody:
		if body, whole := a.gather(r.RequestBody); whole {
			a.requestBody(body)
		}
		observe(a.p.metrics.requestOverhead, time.Since(from), a.head.trace)
	case *extproc.ProcessingRequest_ResponseHeaders:
		a.responseHeaders(r.ResponseHeaders, m.Attributes)
		observe(a.p.metrics.responseOverhead, time.Since(from), a.head.trace)
	case *extproc.ProcessingRequest_ResponseBody:
		a.responseBody(r.ResponseBody.Body, r.ResponseBody.EndOfStream)
	case *extproc.ProcessingRequest_ResponseTrailers:
		a.responseTrailers()
	}
}

func (a *attempt) send(m *extproc.ProcessingResponse) { a.out = append(a.out, m) }

// sendBody sends on a piece of the answer.
func (a *attempt) sendBody(p []byte, end bool) {
	m := a.p.bodies.Get().(*bodyMessage)
	a.bodies = append(a.bodies, m)
	m.streamed.Body, m.streamed.EndOfStream = p, end
	a.send(&m.resp)
}

// flush sends what the last step decided. It blocks while a slow client is not reading: the pump then takes no
// more from Envoy, which is the back pressure that reaches the provider.
func (a *attempt) flush(stream extproc.ExternalProcessor_ProcessServer) error {
	if a.closing != nil && a.closing.level() >= slog.LevelWarn {
		a.publish() // at once: its client may never read it
	}
	defer a.publish() // which nobody waits for
	from := time.Now()
	if a.unheard {
		a.reuse()
	}
	var told *extproc.ProcessingResponse
	if n := len(a.out); n > 0 && a.usage != nil {
		told = a.out[n-1]
		a.usage.in(told)
		a.usage = nil
	}
	for i, m := range a.out {
		a.out[i] = nil
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if told != nil {
		told.ProtoReflect().SetUnknown(nil) // it may be used again
	}
	if len(a.out) > 0 {
		a.reuse()
		a.clock.blocked(time.Since(from))
		if a.state >= sent && a.body.Size() == 0 && !a.copy.wanted {
			a.unreserve()
		}
	}
	return nil
}

// reuse gives back what has been sent; the room for a burst is not kept.
func (a *attempt) reuse() {
	a.out = a.out[:0]
	for i, m := range a.bodies {
		m.streamed.Body, a.bodies[i] = nil, nil
		a.p.bodies.Put(m)
	}
	if a.bodies = a.bodies[:0]; cap(a.bodies) > 4 {
		a.bodies = nil
	}
}

// close ends an attempt whose stream is gone. What is not known by then, the access log may tell.
func (a *attempt) close() {
	a.unreserve()
	a.dropHeld()
	switch {
	case a.state == waiting: // the client left; nothing was tried
		a.unwait()
		a.abandonKey()
		a.p.account(a, classify.Verdict{Class: classify.Canceled}, OutcomeCanceled)
		a.publish()
	case !a.over && a.try != nil:
		a.p.await(a) // and no more here: whoever hears why it ended has it now
	default:
		a.publish()
	}
}

// abandon gives up an attempt that panicked, without a verdict.
func (a *attempt) abandon() {
	if a.try == nil || a.over {
		return
	}
	a.over = true
	a.try.Release()
	if a.state >= sent {
		a.bill(classify.Verdict{Class: classify.Canceled}) // the provider is at work
	}
	a.giveBack()
	if a.state == committed {
		a.abandonKey()
		a.p.account(a, classify.Verdict{}, OutcomeFailed)
	}
}

// abort is the verdict of an attempt that we or the transport ended.
func (a *attempt) abort(c classify.Class, detail string) classify.Verdict {
	return a.answer.reader(a).Abort(c, detail)
}

// report counts the verdict once: breaker, metrics, what later attempts may want to know.
func (a *attempt) report(v classify.Verdict) {
	if a.over {
		return
	}
	a.over = true
	if a.drill.marked {
		a.rehearsed(v)
		return
	}
	a.try.Report(v)
	a.bill(v)
	a.p.metrics.attempt(a, v)
	a.traced(v)
	for _, w := range a.p.watchers {
		w.Attempt(a.try.Target.Name, v)
	}
}

func (a *attempt) reserve(n int64) bool {
	if a.p.inflight.Add(n) > a.book.Config.Server.MaxInflightBody {
		a.p.inflight.Add(-n)
		return false
	}
	a.reserved += n
	return true
}

func (a *attempt) unreserve() {
	a.p.inflight.Add(-a.reserved)
	a.reserved = 0
}
