package processor

import (
	"slices"
	"strings"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// answer is a target's response while it passes.
type answer struct {
	resp            *classify.Response // nil until headers came
	status          int
	contentType     string
	contentEncoding string
	header          map[string]string // of an error answer

	held      [][]byte // received; from next on, not yet sent
	next      int
	heldBytes int64 // of held, as counted in the process's bound
	fed       int64 // bytes received
	sent      int64 // bytes sent on
	started   bool  // content has been seen
	ended     bool  // the body is complete
	trailers  bool  // a trailers message waits for its reply
	bodyless  bool  // the response ended with its headers
	homing    bool  // its id, and who made it, are to be remembered
}

// reader is the response's classifier, also where no response came.
func (w *answer) reader(a *attempt) *classify.Response {
	if w.resp == nil {
		w.resp = classify.New(classify.Options{
			API: a.reads(), Stream: a.body.Stream, AskedTier: a.call.tier, Opaque: a.api == classify.APIUnknown,
			IgnoreTier: !a.try.Target.Provider.TierCheck, Now: time.Now(),
		})
	}
	return w.resp
}

func (a *attempt) responseHeaders(h *extproc.HttpHeaders, attributes map[string]*structpb.Struct) {
	if a.state != sent {
		a.letPass()
		return
	}
	w := &a.answer
	fields := make(map[string]string, len(h.Headers.GetHeaders()))
	for _, f := range h.Headers.GetHeaders() {
		fields[f.Key] = value(f)
	}
	w.status = atoi(fields[":status"])
	w.contentType, w.contentEncoding = fields["content-type"], fields["content-encoding"]
	a.observeLimits(fields)
	if isError(w.status) {
		w.header = fields
	}
	why, local := localReply(attributes)
	if local && a.head.exchange.Attempt <= 0 && !lost(why) {
		a.bypassed()
		return
	}
	a.state = holding
	a.clock.held(time.Now(), a.chain)
	if local {
		a.unreachable(why)
		return
	}
	w.reader(a).Header(w.status, func(name string) string { return fields[name] })
	a.copy.wanted = a.copies()
	if a.observing() {
		a.watch(h.EndOfStream)
		return
	}
	if a.chain.Commit == config.CommitHeaders && !(isError(w.status) && a.foreign()) { // what is to be translated is read first
		a.commit(nil)
	}
	if h.EndOfStream {
		w.bodyless = true
		a.endOfBody()
	}
}

// lost says that Envoy's own reply is about the provider, and not, say, the rate limit of another filter between us and
// it. Only a listener that is not ours has such filters.
func lost(why string) bool {
	return strings.HasPrefix(why, "upstream") ||
		slices.Contains([]string{"no_healthy_upstream", "cluster_not_found", "stream_idle_timeout"}, why)
}

// bypassed lets another filter's reply through, which was given instead of the target's: it says nothing about that.
func (a *attempt) bypassed() {
	a.clock.stop()
	a.status = a.answer.status
	a.report(classify.Verdict{Class: classify.Canceled, Detail: "answered by another filter"})
	a.abandonKey()
	a.p.account(a, classify.Verdict{Class: classify.Canceled}, OutcomeCanceled)
	a.letPass()
}

// unreachable acts on Envoy's own reply, which says that the target gave none.
func (a *attempt) unreachable(why string) {
	v := a.abort(classify.Transport, why)
	if why == "cluster_not_found" { // Envoy's configuration is not this service's, by which no provider was asked
		a.try.Release()
		a.giveBack()
		a.p.log.Error("envoy has no cluster for a target of this configuration", "target", a.try.Target.Name, "cluster", a.try.Target.Provider.Cluster)
	}
	if a.observing() {
		a.state, a.status = passing, a.answer.status
		a.watched(v)
		m := &mutation{}
		m.remove("x-llm-failover")
		a.send(responseHeaders(m))
		return
	}
	a.failed(v)
}

func (a *attempt) responseBody(p []byte, end bool) {
	switch a.state {
	case holding, committed:
	case passing:
		a.sendBody(p, end)
		return
	case watching:
		a.watchBody(p, end)
		return
	default: // the answer has been replaced or ended by us
		return
	}
	w := &a.answer
	progress := a.read(p)
	a.keep(p)
	if progress == classify.Decided {
		a.decided(w.resp.Verdict())
	} else if a.state == holding {
		a.maybeCommit(progress)
	}
	if end {
		a.endOfBody()
		return
	}
	a.forward()
}

// read reads a piece of the body, and the clock by what it was.
func (a *attempt) read(p []byte) classify.Progress {
	w, now := &a.answer, time.Now()
	events := w.resp.Events()
	progress := w.resp.Feed(p)
	w.fed += int64(len(p))
	if w.resp.Events() > events || !w.resp.Streaming() {
		a.clock.event(now)
	}
	if progress != classify.Waiting && !w.started {
		w.started = true
		a.clock.content(now)
		if w.resp.Streaming() {
			a.clock.window(now, w.resp.Content())
		}
		if progress == classify.Started {
			a.moments.content = now
			a.p.metrics.firstContent(a, now)
		}
	}
	return progress
}

// maybeCommit commits when the policy says so or the hold is full.
func (a *attempt) maybeCommit(progress classify.Progress) {
	full := a.answer.heldBytes > a.chain.Hold.Bytes || a.p.inflight.Load() > a.book.Config.Server.MaxInflightBody
	switch {
	case a.chain.Commit == config.CommitComplete && full:
		a.failed(a.abort(classify.Truncated, "hold.bytes"))
	case a.chain.Commit == config.CommitFirstContent && (full || progress == classify.Started):
		v := a.answer.resp.Verdict()
		v.Class = classify.OK // so far: it may still give way for its tier
		if v.Downgraded && a.try.More(v) {
			a.failOver(v)
			return
		}
		a.commit(nil)
	}
}

// decided acts on a class that is known before the answer's end.
func (a *attempt) decided(v classify.Verdict) {
	switch {
	case a.state == committed:
		if fails(v) {
			a.cut(v)
		}
	case a.state != holding:
	case fails(v) || a.try.Advances(v):
		a.failed(v)
	case a.chain.Commit != config.CommitComplete:
		a.commit(nil)
	}
}

// fails says whether v is a response that must not pass as an answer. A refusal is an answer.
func fails(v classify.Verdict) bool {
	switch v.Class {
	case classify.None, classify.OK, classify.Refusal, classify.Filtered:
		return false
	}
	return true
}

// endOfBody acts when the response is whole, as far as HTTP can tell.
func (a *attempt) endOfBody() {
	if a.state != holding && a.state != committed {
		return
	}
	a.answer.ended = true
	v := a.answer.resp.End(true)
	switch {
	case a.state == holding && (fails(v) || a.try.Advances(v)):
		a.failed(v)
	case a.state == holding:
		a.commit(nil)
		a.served(v)
	case fails(v) && a.answer.status < 300:
		a.cut(v)
	default:
		a.served(v)
	}
}

func (a *attempt) responseTrailers() {
	switch a.state {
	case holding, committed:
		a.answer.trailers = true
		a.endOfBody()
	case watching:
		a.watched(a.answer.resp.End(true))
		a.send(responseTrailers())
	default:
		a.send(responseTrailers())
	}
}

// served reports an answer that has been let through whole.
func (a *attempt) served(v classify.Verdict) {
	a.forward()
	a.finish()
	a.report(v)
	a.preserve(v)
	a.settleDown(v)
	a.p.account(a, v, a.outcome(v))
}

func (a *attempt) finish() {
	a.state = finished
	a.clock.stop()
	a.dropHeld()
}

// failed acts on an answer that must not, or need not, be the client's: the next target, or the last word.
//
// A failure is reported first: the breaker that it may open decides what can follow.
func (a *attempt) failed(v classify.Verdict) {
	if fails(v) {
		a.report(v)
	}
	if a.skewed(v) {
		a.again(v)
		return
	}
	if a.try.More(v) {
		a.failOver(v)
		return
	}
	a.last(v)
}

func atoi(s string) int {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || n > 1e6 {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// localReply tells Envoy's own reply from a provider's answer, and why it was made. Envoy's
// response.code_details is "via_upstream" where "the response code was set by the upstream"; otherwise a word,
// sometimes with more in braces.
func localReply(attributes map[string]*structpb.Struct) (why string, local bool) {
	for _, s := range attributes {
		details := s.GetFields()["response.code_details"].GetStringValue()
		if details != "" && details != "via_upstream" {
			return firstWord(details), true
		}
	}
	return "", false
}

func firstWord(details string) string {
	for i, c := range details {
		if c == '{' || c == ' ' {
			return details[:i]
		}
	}
	return details
}

// outcome is what became of an exchange that got its target's own answer.
func (a *attempt) outcome(v classify.Verdict) string {
	switch {
	case !a.returns(v):
		return OutcomeFailed
	case a.mode != "":
		return OutcomeDegraded
	case a.try.Rung > 0:
		return OutcomeFallback
	}
	return OutcomeServed
}
