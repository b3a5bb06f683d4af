package processor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// What became of an exchange, as understudy_exchanges_total counts it.
const (
	OutcomeServed   = "served"
	OutcomeFallback = "fallback"
	OutcomeDegraded = "degraded"
	OutcomeFailed   = "failed"
	OutcomeCanceled = "canceled"
)

// Metrics are the counters of the outside contract. Label values come from the config and from closed sets only.
type Metrics struct {
	reg                               prometheus.Registerer
	attempts, exchanges, fallbacks    *prometheus.CounterVec
	degraded, clientRetries, tiers    *prometheus.CounterVec
	transitions, unenforced           *prometheus.CounterVec
	drillAttempts, drillExchanges     *prometheus.CounterVec
	contentSeconds                    *prometheus.HistogramVec
	requestOverhead, responseOverhead prometheus.Observer
}

// NewMetrics makes the metrics and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "understudy_" + name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		return h
	}
	overhead := histogram("overhead_seconds", "Time this service spent on one phase of an attempt.",
		prometheus.ExponentialBuckets(10e-6, 4, 8), "phase")
	return &Metrics{
		reg:            reg,
		attempts:       counter("attempts_total", "Attempts by what the answer really was.", "chain", "target", "class"),
		exchanges:      counter("exchanges_total", "Client requests by what became of them.", "chain", "outcome"),
		fallbacks:      counter("fallback_serves_total", "Exchanges answered by another target than the primary.", "chain", "target"),
		degraded:       counter("degraded_total", "Exchanges answered by a degraded mode.", "chain", "mode"),
		clientRetries:  counter("client_retries_total", "Requests that a client's SDK marked as its own retry.", "chain"),
		tiers:          counter("tier_downgrades_total", "Answers at a lower service tier than asked.", "target", "asked", "served"),
		transitions:    counter("breaker_transitions_total", "Changes of a breaker's state.", "target", "from", "to"),
		unenforced:     counter("unenforced_total", "What enforcing would have done where a chain only observes.", "chain", "target", "decision"),
		drillAttempts:  counter("drill_attempts_total", "Attempts of marked drill requests by what the answer really was.", "chain", "target", "class"),
		drillExchanges: counter("drill_exchanges_total", "Marked drill requests by what became of them.", "chain", "outcome"),
		contentSeconds: histogram("first_content_seconds", "Time from sending an attempt's request to the first content of its stream.",
			prometheus.ExponentialBuckets(0.05, 2, 12), "target"),
		requestOverhead:  overhead.WithLabelValues("request"),
		responseOverhead: overhead.WithLabelValues("response"),
	}
}

// expect begins the series of what may happen for the first time at 0: Prometheus' increase() does not see a series that
// begins with its first event.
func (m *Metrics) expect(cfg *config.Config) {
	for target := range cfg.Targets {
		for _, change := range [][2]breaker.State{
			{breaker.Closed, breaker.Open}, {breaker.Open, breaker.HalfOpen}, {breaker.Open, breaker.Closed},
			{breaker.HalfOpen, breaker.Open}, {breaker.HalfOpen, breaker.Closed},
		} {
			m.transitions.WithLabelValues(target, change[0].String(), change[1].String())
		}
	}
	for _, ch := range cfg.Chains {
		m.expectOf(ch)
	}
}

func (m *Metrics) expectOf(ch *config.Chain) {
	m.clientRetries.WithLabelValues(ch.Name)
	for _, outcome := range []string{OutcomeServed, OutcomeFallback, OutcomeDegraded, OutcomeFailed, OutcomeCanceled} {
		m.exchanges.WithLabelValues(ch.Name, outcome)
	}
	for _, mode := range ch.Degrade {
		m.degraded.WithLabelValues(ch.Name, mode)
	}
	for i, rung := range ch.Rungs {
		for _, member := range rung.All() {
			if i > 0 {
				m.fallbacks.WithLabelValues(ch.Name, member.Target.Name)
			}
			for _, pages := range []classify.Class{classify.Auth, classify.Quota} {
				m.attempts.WithLabelValues(ch.Name, member.Target.Name, pages.String())
			}
		}
	}
}

// watch registers what is read from the processor when it is asked for.
func (m *Metrics) watch(p *Processor) {
	m.reg.MustRegister(&liveCollector{p: p,
		state:   prometheus.NewDesc("understudy_breaker_state", "State of a target's breaker: 0 closed, 1 half-open, 2 open.", []string{"target"}, nil),
		share:   prometheus.NewDesc("understudy_breaker_share", "Share of traffic that a target's breaker lets through: less than 1 while it ramps up.", []string{"target"}, nil),
		cooling: prometheus.NewDesc("understudy_cooldown_seconds", "Seconds until a rate-limited target is tried again, 0 when it may be.", []string{"target"}, nil),
		forced:  prometheus.NewDesc("understudy_breaker_forced", "Whether an operator keeps a target's breaker open (1) or closed (-1), or it decides itself (0).", []string{"target"}, nil),
		held:    prometheus.NewDesc("understudy_held_bytes", "Bytes of answers kept back or not yet sent on.", nil, nil),
		drill:   prometheus.NewDesc("understudy_drill_active", "Whether requests of clients meet drilled faults now (1).", []string{"chain"}, nil),
		info:    prometheus.NewDesc("understudy_config_info", "The configuration in use, by its hash.", []string{"hash"}, nil),
	})
}

type liveCollector struct {
	p                                                *Processor
	state, share, cooling, forced, held, info, drill *prometheus.Desc
}

func (c *liveCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.share, c.cooling, c.forced, c.held, c.info, c.drill} {
		ch <- d
	}
}

func (c *liveCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	book := c.p.Book()
	for name := range book.Config.Targets {
		b := book.Breaker(name)
		gauge(c.state, float64(b.State()), name)
		gauge(c.share, b.Share(), name)
		gauge(c.cooling, max(0, time.Until(b.Cooling()).Seconds()), name)
		gauge(c.forced, float64(b.Forced()), name)
	}
	for _, ch := range book.Config.Chains {
		active := 0.0
		if c.p.Drilling(ch.Name) != nil {
			active = 1
		}
		gauge(c.drill, active, ch.Name)
	}
	gauge(c.held, float64(c.p.held.Load()))
	gauge(c.info, 1, book.Config.Hash)
}

func (m *Metrics) firstContent(a *attempt, now time.Time) {
	if a.drill.marked || a.drill.fault != "" {
		return
	}
	observe(m.contentSeconds.WithLabelValues(a.try.Target.Name), now.Sub(a.clock.sentAt), a.head.trace)
}

// observe notes a duration, with the trace in which it can be looked at as the bucket's exemplar.
func observe(o prometheus.Observer, d time.Duration, t Trace) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && t.Sampled {
		e.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": t.String()})
		return
	}
	o.Observe(d.Seconds())
}

// attempt counts an attempt's verdict.
func (m *Metrics) attempt(a *attempt, v classify.Verdict) {
	m.attempts.WithLabelValues(a.chain.Name, a.try.Target.Name, v.Class.String()).Inc()
	if v.Downgraded {
		m.tiers.WithLabelValues(a.try.Target.Name, tierLabel(v.AskedTier), tierLabel(v.ServedTier)).Inc()
	}
}

// tierLabel keeps the label set closed: a tier that providers may invent is "other".
func tierLabel(tier string) string {
	switch tier {
	case "auto", "default", "standard", "standard_only", "flex", "scale", "priority", "fast", "ultrafast", "batch":
		return tier
	}
	return "other"
}

// count counts an exchange of a client.
func (p *Processor) count(a *attempt, outcome string) {
	p.metrics.exchanges.WithLabelValues(a.chain.Name, outcome).Inc()
	switch outcome {
	case OutcomeFallback:
		p.metrics.fallbacks.WithLabelValues(a.chain.Name, a.try.Target.Name).Inc()
	case OutcomeDegraded:
		p.metrics.degraded.WithLabelValues(a.chain.Name, a.mode).Inc()
	}
}
