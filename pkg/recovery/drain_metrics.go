package recovery

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/degrade/queue"
)

const (
	// lookBound ends one look at a chain's queue.
	lookBound = time.Second
	// lookKept is how long one is good for.
	lookKept = time.Second
)

// QueueCollector shows how many jobs wait and run, and how old the oldest is. A chain whose queue does not answer is
// left out: an old number would look like a fresh one.
type QueueCollector struct {
	ctx    context.Context // of the looks: a scrape has none
	chains func() []string
	stats  func(ctx context.Context, chain string) (queue.Stats, error)

	jobs, oldest *prometheus.Desc

	mu    sync.Mutex // mu guards looks, and what they hold while one is taken.
	looks map[string]look
}

type look struct {
	at    time.Time
	stats queue.Stats
	err   error
}

// NewQueueCollector shows the queues of chains, which may change, until ctx ends.
func NewQueueCollector(ctx context.Context, chains func() []string, stats func(ctx context.Context, chain string) (queue.Stats, error)) *QueueCollector {
	return &QueueCollector{
		ctx: ctx, chains: chains, stats: stats, looks: map[string]look{},
		jobs: prometheus.NewDesc("understudy_queue_jobs", "Queued requests of a chain that are not finished: queued, or running.",
			[]string{"chain", "state"}, nil),
		oldest: prometheus.NewDesc("understudy_queue_oldest_seconds", "Age of a chain's oldest queued request that is not finished; 0 when there is none.",
			[]string{"chain"}, nil),
	}
}

// Describe is prometheus.Collector's.
func (c *QueueCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.jobs; ch <- c.oldest }

// Each calls f with the queue of each chain that answers, as it was a second ago at most.
func (c *QueueCollector) Each(f func(chain string, s queue.Stats)) {
	chains := c.chains()
	for i, l := range c.lookAt(chains) {
		if l.err == nil {
			f(chains[i], l.stats)
		}
	}
}

// Collect is prometheus.Collector's.
func (c *QueueCollector) Collect(ch chan<- prometheus.Metric) {
	c.Each(func(chain string, s queue.Stats) {
		ch <- prometheus.MustNewConstMetric(c.jobs, prometheus.GaugeValue, float64(s.Waiting), chain, string(queue.Queued))
		ch <- prometheus.MustNewConstMetric(c.jobs, prometheus.GaugeValue, float64(s.Running), chain, string(queue.Running))
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age(s.Oldest), chain)
	})
}

func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Seconds())
}

// lookAt looks at all chains at once, at each once a second however many scrape. Scrapes wait for one another: the
// lock's holder is bounded by lookBound.
func (c *QueueCollector) lookAt(chains []string) []look {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := make([]look, len(chains))
	var wg sync.WaitGroup
	for i, chain := range chains {
		fresh[i] = c.looks[chain]
		if time.Since(fresh[i].at) >= lookKept {
			wg.Go(func() { fresh[i] = c.look(chain) })
		}
	}
	wg.Wait()
	c.looks = map[string]look{}
	for i, chain := range chains {
		c.looks[chain] = fresh[i]
	}
	return fresh
}

func (c *QueueCollector) look(chain string) look {
	ctx, cancel := context.WithTimeout(c.ctx, lookBound)
	defer cancel()
	s, err := c.stats(ctx, chain)
	return look{time.Now(), s, err}
}
