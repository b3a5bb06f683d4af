package processor

import (
	"net/http"
	"strings"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/provider"
)

// What enforcing would have done, as understudy_unenforced_total counts it.
const (
	wouldSkip     = "skip"     // the breaker or a cooldown would have passed the target over
	wouldFailOver = "failover" // the next target would have been tried
	wouldFail     = "fail"     // no target would have been left, or the answer would have been ended
	wouldTimeOut  = "timeout"  // a deadline would have ended the attempt
)

// observe sends the request to the primary whatever its breaker says, and as it came: its model and its body are the
// client's business, host and credential alone are the primary's.
func (a *attempt) observe(x chain.Exchange) {
	if len(a.past) > 0 {
		// The answer was lost below HTTP. Envoy asks again, which it would not without us.
		a.refuse(http.StatusServiceUnavailable, "unavailable", "the provider could not be reached")
		return
	}
	x.Attempt = 1 // the only one
	try, err := a.plan.Observe(x)
	a.try = try
	if err != nil {
		a.would(wouldSkip)
	}
	if !time.Now().Before(a.clock.total) {
		a.would(wouldFail)
		a.clock.stop()
	}
	asIs := *try.Target
	asIs.Tier, asIs.Speed = "", "" // what the client asks for is not changed
	a.call.tier = provider.AskedTier(&asIs, a.body)
	if a.unheard { // it goes its own way
		a.sendOff(&extproc.CommonResponse{})
		return
	}
	path, query, _ := strings.Cut(a.head.target, "?")
	rw, err := provider.ForPassthrough(try.Target.Provider, a.chain.API.Standard(path)+"?"+query)
	if err == nil {
		err = a.prove(try.Target.Provider, &rw, nil)
	}
	if err != nil {
		a.try.Release()
		a.try = nil
		a.refuse(http.StatusServiceUnavailable, "not_ready", "the gateway has no credential for this provider")
		return
	}
	a.sendOff(a.common(try.Target.Provider, rw))
}

func (a *attempt) would(decision string) {
	a.p.metrics.unenforced.WithLabelValues(a.chain.Name, a.try.Target.Name, decision).Inc()
}

// overdue counts a deadline that would have ended the attempt: the breaker takes it for the failure that it is.
func (a *attempt) overdue() {
	a.would(wouldTimeOut)
	a.try.Report(classify.Verdict{Class: classify.Timeout})
	a.clock.watch(a.clock.sentAt)
}

// watch lets the headers pass as they came.
func (a *attempt) watch(end bool) {
	a.state, a.status, a.moments.committed = watching, a.answer.status, time.Now()
	if a.chain.Commit != config.CommitComplete {
		a.clock.released() // it would have been committed, which is no failure
	}
	a.send(responseHeaders(&mutation{}))
	if end {
		a.watched(a.answer.resp.End(true))
	}
}

// watchBody lets a piece of the body pass while it is read.
func (a *attempt) watchBody(p []byte, end bool) {
	a.read(p)
	for len(p) > maxChunk {
		a.sendBody(p[:maxChunk], false)
		p = p[maxChunk:]
	}
	a.sendBody(p, end)
	if end {
		a.watched(a.answer.resp.End(true))
	}
}

// watched counts a verdict and what it would have led to.
func (a *attempt) watched(v classify.Verdict) {
	a.clock.stop()
	outcome := OutcomeServed
	if fails(v) {
		a.report(v) // first: the breaker that it may open decides what could have followed
		if !a.returns(v) {
			outcome = OutcomeFailed
		}
	}
	if d := a.decision(v); d != "" {
		a.would(d)
	}
	a.report(v)
	a.p.account(a, v, outcome)
	if a.state == watching {
		a.state = finished
	}
}

// decision is what enforcing would have made of v, "" for an answer that passes.
func (a *attempt) decision(v classify.Verdict) string {
	committed := a.state == watching && (a.chain.Commit == config.CommitHeaders ||
		a.chain.Commit == config.CommitFirstContent && a.answer.resp.Streaming() && v.Partial)
	switch {
	case committed && (!fails(v) || a.answer.status >= 300):
		return ""
	case committed:
		return wouldFail
	case a.try.More(v):
		return wouldFailOver
	case fails(v) && !a.returns(v):
		return wouldFail
	}
	return ""
}

// broken counts an answer that its provider's side broke off. Before its headers, Envoy may ask for another attempt.
func (a *attempt) broken(v classify.Verdict) {
	early := a.state == sent
	a.watched(v)
	if early {
		a.p.memo.Add(a.head.exchange.ID, a.pastOf(v))
	}
}

// observing says whether the attempt is one that must not be changed.
func (a *attempt) observing() bool { return a.chain != nil && (a.chain.Observe || a.unheard) }

// overhear forgets what the request says of an exchange: where Envoy goes on without us, that is a client's word.
func (a *attempt) overhear() {
	a.head.exchange = chain.Exchange{ID: a.head.requestID, Start: time.Now()}
}

// gather gives the request's body once it is whole: Envoy buffers it for us where it waits for us.
func (a *attempt) gather(b *extproc.HttpBody) (body []byte, whole bool) {
	if !a.unheard {
		return b.Body, true
	}
	if a.state != uploading {
		return nil, false
	}
	a.early = append(a.early, b.Body...)
	size := int64(len(a.early))
	if size > a.book.Config.Server.MaxBody || size > a.reserved && !a.reserve(size-a.reserved) {
		a.state = finished
	}
	if a.state == uploading && !b.EndOfStream {
		return nil, false
	}
	body, a.early = a.early, nil
	return body, a.state == uploading
}
