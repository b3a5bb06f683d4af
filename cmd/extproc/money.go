package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/chain/budget"
	"understudy/pkg/once"
	"understudy/pkg/processor"
	"understudy/pkg/store"
)

// ledger is what keeps spending in bounds, and has one execution for each idempotency key.
//
// Ownership: the app makes it with newLedger, start runs it, stop waits for all that start began.
type ledger struct {
	money *processor.Money
	keys  *once.Keys

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newLedger(s *store.Store, p *processor.Processor, reg prometheus.Registerer, log *slog.Logger) *ledger {
	replica := rand.Text() // a restart is another one
	changes := counter(reg, "budget_transitions_total", "Changes of a budget's state: closed, soft, open.", "chain", "from", "to")
	l := &ledger{
		money: &processor.Money{
			Meter: budget.New(budget.Options{
				Replica: replica, Store: s.Bucket(store.BucketOptions{Name: "spend"}),
				Notify: func(t budget.Transition) {
					changes.WithLabelValues(t.Key.Chain, t.From.String(), t.To.String()).Inc()
					log.Warn("budget "+t.To.String(), "chain", t.Key.Chain, "from", t.From.String(), "to", t.To.String(), "reopens", t.Reopens)
				},
			}),
			Ramp: budget.NewRamp(replica, s.Bucket(store.BucketOptions{Name: "ramps"})),
		},
		keys: once.New(s.Bucket(store.BucketOptions{Name: "claims", MaxBytes: 256 << 20, Keep: true}),
			s.Bucket(store.BucketOptions{Name: "answers", MaxBytes: 1 << 30})),
	}
	p.Spend(l.money)
	p.Identify(l.keys)
	reg.MustRegister(&spendCollector{p: p, money: l.money,
		spent:     prometheus.NewDesc("understudy_spend_usd_total", "What attempts cost, by the prices of the config.", []string{"chain", "target"}, nil),
		estimated: prometheus.NewDesc("understudy_spend_estimated_usd_total", "The part of it that was estimated: answers that were cut, or told no usage.", []string{"chain", "target"}, nil),
		remaining: prometheus.NewDesc("understudy_budget_remaining_usd", "What a chain's budget has left, as this replica knows; with a budget for each tenant, of the tightest.", []string{"chain"}, nil),
		state:     prometheus.NewDesc("understudy_budget_state", "State of a chain's budget: 0 closed, 1 soft, 2 open; with a budget for each tenant, the worst.", []string{"chain"}, nil),
	})
	return l
}

func (l *ledger) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.money.Meter.Start(ctx)
	l.money.Ramp.Start(ctx)
	l.wg.Go(func() { l.keys.Run(ctx) })
}

// stop tells the store what was spent. It comes after the last attempt.
func (l *ledger) stop(ctx context.Context) error {
	err := l.money.Meter.Stop(ctx)
	_ = l.money.Ramp.Stop(ctx) // its numbers are of the last minutes only
	l.cancel()
	l.wg.Wait()
	return err
}

// spendCollector shows what was spent and what is left.
type spendCollector struct {
	p                           *processor.Processor
	money                       *processor.Money
	spent, estimated, remaining *prometheus.Desc
	state                       *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (c *spendCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.spent
	ch <- c.estimated
	ch <- c.remaining
	ch <- c.state
}

// Collect is prometheus.Collector's.
func (c *spendCollector) Collect(ch chan<- prometheus.Metric) {
	c.money.Spend.Each(func(chain, target string, sum budget.Sum) {
		ch <- prometheus.MustNewConstMetric(c.spent, prometheus.CounterValue, sum.Total.USD(), chain, target)
		ch <- prometheus.MustNewConstMetric(c.estimated, prometheus.CounterValue, sum.Estimated.USD(), chain, target)
	})
	for _, chain := range c.p.Book().Config.Chains {
		if chain.Budget.USD > 0 {
			left := c.money.Meter.Remaining(chain.Name, chain.Budget)
			ch <- prometheus.MustNewConstMetric(c.remaining, prometheus.GaugeValue, left.USD(), chain.Name)
			state := c.money.Meter.Strictest(chain.Name, chain.Budget)
			ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, float64(state), chain.Name)
		}
	}
}
