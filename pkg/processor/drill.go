package processor

import (
	"hash/fnv"
	"net/http"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/drill"
)

// rehearsal is an attempt's part in a game day; the zero rehearsal has none.
type rehearsal struct {
	plan   *drill.Plan
	marked bool   // the request carries the plan: it is no client's
	fault  string // what is played in the target's place
}

// id is that of the plan, also for an attempt that meets no fault: one before it may have, on another replica.
func (r *rehearsal) id() string {
	if r.plan == nil {
		return ""
	}
	return r.plan.ID
}

// Drill makes plans, by chain, those by which requests of clients meet faults, and no others.
func (p *Processor) Drill(plans map[string]*drill.Plan) { p.drills.Store(&plans) }

// Drilling is the plan by which requests of a chain's clients meet faults now, nil without one.
func (p *Processor) Drilling(chain string) *drill.Plan { return p.drilling(p.Book().Config, chain) }

func (p *Processor) drilling(c *config.Config, chain string) *drill.Plan {
	plans := p.drills.Load()
	if plans == nil {
		return nil
	}
	plan := (*plans)[chain]
	if plan == nil || !time.Now().Before(plan.Until) || !drill.Shared(c, c.ChainNamed(chain)) {
		return nil
	}
	return plan
}

// rehearse takes a marked request along the chain that its plan names. It goes the whole ordinary way, but what comes of
// it says nothing to breakers, rate limits, conversations and the metrics of clients' requests.
func (a *attempt) rehearse(name string, noBody bool) {
	plan, err := drill.OfName(name)
	if err != nil || plan.Check(a.book.Config, time.Now()) != nil || !runs(a.book.Config.ChainNamed(plan.Chain), a.head.path()) {
		a.refuse(http.StatusNotFound, "not_found", "this configuration does not know what x-llm-internal names")
		return
	}
	a.drill = rehearsal{plan: plan, marked: true}
	a.chain = a.book.Config.ChainNamed(plan.Chain)
	a.upload(noBody)
}

// enlist lets a client's request be among those of the chain's drill: all attempts of an exchange are, or none.
func (a *attempt) enlist() {
	if a.run || a.drill.marked {
		return
	}
	if plan := a.p.drilling(a.book.Config, a.chain.Name); plan != nil && lot(a.head.exchange.ID) < plan.Share {
		a.drill.plan = plan
	}
}

// lot is a number from 0 to 1 that every replica draws for the exchange.
func lot(exchange string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(exchange))
	return float64(h.Sum32()) / (1 << 32)
}

// target is who is asked: the try's, or the fault that plays it.
func (a *attempt) target() *config.Target {
	t := a.try.Target
	if a.drill.plan == nil {
		return t
	}
	if a.drill.fault = a.drill.plan.Fault(t.Name, a.body.Stream, time.Now()); a.drill.fault == "" {
		return t
	}
	return drill.Instead(t, a.drill.fault)
}

// rehearsed counts what came of a marked request's attempt.
func (a *attempt) rehearsed(v classify.Verdict) {
	a.try.Release()
	a.bill(v)
	a.p.metrics.drillAttempts.WithLabelValues(a.chain.Name, a.try.Target.Name, v.Class.String()).Inc()
	a.traced(v)
}
