package processor

import (
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
)

// Record is what became of one exchange: all that an incident review asks for, and nothing that a client or a provider
// has said.
type Record struct {
	ID          string // x-llm-exchange
	RequestID   string // the front's x-request-id
	Key         string // idempotency key, shortened
	Chain       string
	Outcome     string // as understudy_exchanges_total counts it
	Target      string // "": none was asked by the attempt that ended it
	Rung        int    // -1 without a target
	Attempts    int    // Envoy's count, skipped slots included
	Status      int    // given to the client; 0: it got none
	Streamed    bool   // a stream was asked for
	Verdict     classify.Verdict
	Cost        budget.Bill // of the attempt that ended it
	Reason      string      // x-llm-fallback-reason
	Ineligible  string      // why targets did not fit the request
	Mode        string      // the degraded mode that answered
	Label       string      // x-llm-degraded: the mode with the job's id, or the answer's age
	Replayed    bool        // the answer is that of an exchange under the same key
	Job         bool        // the run of a queued request, not a client's
	Drill       string      // id of the drill that the exchange, or one of its attempts here, was part of
	Marked      bool        // the request carried its drill: it is no client's
	Fault       string      // what was played in the target's place
	ClientRetry int         // a client's library says that this is its own retry of that number
	Trace       Trace
	Replica     string // that ended it
	Config      string // hash of the configuration that it was served by
	Start, End  time.Time

	// When its last attempt was sent, the first content of that one's answer came, and headers left for the client. Zero:
	// never.
	Sent, Content, Committed time.Time

	// Past are the earlier attempts that this replica has seen fail, oldest first; another replica may have seen more.
	Past []chain.Past
}

// Watcher hears of what happens, on the goroutine to which it happens: it must return at once.
type Watcher interface {
	Exchange(r *Record)
	Attempt(target string, v classify.Verdict) // what one came to, those of marked drill requests aside
	Transition(t breaker.Transition)
}

// Tell makes w hear of everything. It is called before the first attempt.
func (p *Processor) Tell(w Watcher) { p.watchers = append(p.watchers, w) }

// account closes an exchange that has its answer: one count and one line, which waits until the answer has left
// where all is well.
func (p *Processor) account(a *attempt, v classify.Verdict, outcome string) {
	switch {
	case a.drill.marked:
		p.metrics.drillExchanges.WithLabelValues(a.chain.Name, outcome).Inc()
	case !a.run:
		p.count(a, outcome)
	}
	a.closing = a.record(v, outcome)
	p.memo.Forget(a.closing.ID)
}

// publish tells of an exchange that has been accounted for.
func (a *attempt) publish() {
	r, p := a.closing, a.p
	if r == nil {
		return
	}
	a.closing = nil
	r.log(a.ctx, p.log)
	if r.Trace.Sampled {
		p.tracer.Exchange(r)
	}
	for _, w := range p.watchers {
		w.Exchange(r)
	}
}

func (a *attempt) record(v classify.Verdict, outcome string) *Record {
	r := &Record{
		ID: a.head.exchange.ID, RequestID: a.head.requestID, Key: a.shortKey(), Chain: a.chain.Name, Outcome: outcome,
		Rung: -1, Attempts: max(1, a.head.exchange.Attempt), Status: a.status, Streamed: a.body.Stream, Verdict: v,
		Cost: a.cost.bill, Reason: a.why, Ineligible: a.obstacles(), Mode: a.mode, Label: a.degrade, Replayed: a.replay,
		Job: a.run, Drill: a.drill.id(), Marked: a.drill.marked, Fault: a.drill.fault, ClientRetry: a.head.clientRetries, Trace: a.head.trace,
		Replica: a.p.replica, Config: a.book.Config.Hash, Start: a.head.exchange.Start, End: time.Now(),
		Sent: a.moments.sent, Content: a.moments.content, Committed: a.moments.committed,
	}
	if a.try != nil {
		r.Target, r.Rung = a.try.Target.Name, a.try.Rung
	}
	if a.head.exchange.Attempt > 1 { // what failed since this attempt began, too
		r.Past = a.p.memo.Of(r.ID)
	}
	return r
}
