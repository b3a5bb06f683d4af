package processor

import (
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/classify"
)

// What enforcing would have done, as understudy_unenforced_total counts it.
const (
	wouldSkip     = "skip"     // the breaker or a cooldown would have passed the target over
	wouldFailOver = "failover" // the next target would have been tried
	wouldFail     = "fail"     // no target would have been left
	wouldTimeOut  = "timeout"  // a deadline would have ended the attempt
)

// observe sends the request to the primary whatever its breaker says.
func (a *attempt) observe(x chain.Exchange) {
	try, err := a.plan.Observe(x)
	a.try = try
	if err != nil {
		a.would(wouldSkip)
	}
	a.clock.stop()
	a.upstream()
}

func (a *attempt) would(decision string) {
	a.p.metrics.unenforced.WithLabelValues(a.chain.Name, a.try.Target.Name, decision).Inc()
}

// watch lets the headers pass as they came.
func (a *attempt) watch(end bool) {
	a.state = watching
	a.send(responseHeaders(&mutation{}))
	if end {
		a.watched(a.answer.resp.End(true))
	}
}

// watchBody lets a piece of the body pass while it is read.
func (a *attempt) watchBody(p []byte, end bool) {
	w := &a.answer
	if progress := w.resp.Feed(p); progress == classify.Started && !w.started {
		w.started = true
		now := time.Now()
		a.p.metrics.firstContent(a, now)
		if now.Sub(a.clock.sentAt) > a.chain.Deadlines.FirstContent {
			a.would(wouldTimeOut)
		}
	}
	a.sendBody(p, end)
	if end {
		a.watched(w.resp.End(true))
	}
}

// watched counts a verdict and what it would have led to.
func (a *attempt) watched(v classify.Verdict) {
	if fails(v) && !a.returns(v) || a.plan.Advances(v, a.try.Index) {
		if a.try.More(v) {
			a.would(wouldFailOver)
		} else {
			a.would(wouldFail)
		}
	}
	a.report(v)
	a.p.account(a, v, outcomeServed)
	if a.state == watching {
		a.state = finished
	}
}
