package processor

import (
	"log/slog"
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
)

// Record is what became of one exchange: all that an incident review asks for, and nothing that a client or a provider
// has said.
type Record struct {
	ID         string // x-llm-exchange
	RequestID  string // the front's x-request-id
	Key        string // idempotency key, shortened
	Chain      string
	Outcome    string // as understudy_exchanges_total counts it
	Target     string // "": none was asked by the attempt that ended it
	Rung       int    // -1 without a target
	Attempts   int    // Envoy's count, skipped slots included
	Verdict    classify.Verdict
	Reason     string // x-llm-fallback-reason
	Ineligible string // why targets did not fit the request
	Mode       string // the degraded mode that answered
	Job        bool   // the run of a queued request, not a client's
	Drill      string // id of the drill that the exchange, or one of its attempts here, was part of
	Start, End time.Time

	// Past are the earlier attempts that this replica has seen fail, oldest first; another replica may have seen more.
	Past []chain.Past
}

// Watcher hears of what happens, on the goroutine to which it happens: it must return at once.
type Watcher interface {
	Exchange(r *Record)
	Transition(t breaker.Transition)
}

// Judge is a Watcher that also hears what each attempt at a target came to, those of marked drill requests aside.
type Judge interface {
	Watcher
	Attempt(target string, v classify.Verdict)
}

// Tell makes w hear of every exchange and transition. It is called before the first attempt.
func (p *Processor) Tell(w Watcher) {
	p.watchers = append(p.watchers, w)
	if j, ok := w.(Judge); ok {
		p.judges = append(p.judges, j)
	}
}

// account closes an exchange that has its answer: one line, one count.
func (p *Processor) account(a *attempt, v classify.Verdict, outcome string) {
	switch {
	case a.drill.marked:
		p.metrics.drillExchanges.WithLabelValues(a.chain.Name, outcome).Inc()
	case !a.run:
		p.count(a, outcome)
	}
	r := a.record(v, outcome)
	p.memo.Forget(r.ID)
	r.log(p.log)
	for _, w := range p.watchers {
		w.Exchange(r)
	}
}

func (a *attempt) record(v classify.Verdict, outcome string) *Record {
	r := &Record{
		ID: a.head.exchange.ID, RequestID: a.head.requestID, Key: a.shortKey(), Chain: a.chain.Name, Outcome: outcome,
		Rung: -1, Attempts: max(1, a.head.exchange.Attempt), Verdict: v, Reason: a.why, Ineligible: a.obstacles(),
		Mode: a.mode, Job: a.run, Drill: a.drill.id(), Start: a.head.exchange.Start, End: time.Now(), Past: a.past,
	}
	if a.try != nil {
		r.Target, r.Rung = a.try.Target.Name, a.try.Rung
	}
	return r
}

// log writes the one line of the exchange.
func (r *Record) log(log *slog.Logger) {
	say := log.Info
	if r.Outcome == outcomeFailed || r.Outcome == outcomeDegraded {
		say = log.Warn
	}
	say("exchange",
		slog.String("id", r.ID),
		slog.String("request_id", r.RequestID),
		slog.String("key", r.Key),
		slog.String("chain", r.Chain),
		slog.String("outcome", r.Outcome),
		slog.String("target", r.Target),
		slog.Int("rung", r.Rung),
		slog.Int("attempts", r.Attempts),
		slog.String("class", r.Verdict.Class.String()),
		slog.String("phase", string(r.Verdict.Phase)),
		slog.String("detail", r.Verdict.Detail),
		slog.String("reason", r.Reason),
		slog.String("ineligible", r.Ineligible),
		slog.String("mode", r.Mode),
		slog.Bool("job", r.Job),
		slog.String("drill", r.Drill),
		slog.String("provider_request_id", r.Verdict.RequestID),
		slog.Int64("took_ms", r.End.Sub(r.Start).Milliseconds()),
	)
}
