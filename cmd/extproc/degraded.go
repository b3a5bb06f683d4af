package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/admin"
	"understudy/pkg/config"
	"understudy/pkg/degrade"
	"understudy/pkg/degrade/cache"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/processor"
	"understudy/pkg/recovery"
	"understudy/pkg/store"
)

const (
	// jobLease is how long a job, or a notice, stays with a replica that does not say that it is still at it.
	jobLease = 30 * time.Second
	// The values of a chain in the bucket of switches; none is on.
	switchOff = "off"
	switchOn  = "on"
)

// degraded is what serves when nothing answers, and what catches up afterwards.
//
// Ownership: the app makes it with newDegraded, start runs it, stop waits for all that start began.
type degraded struct {
	processor *processor.Processor
	ladder    *degrade.Ladder
	drainer   *recovery.Drainer
	notifier  *recovery.Notifier
	switches  *store.Bucket
	queues    *recovery.QueueCollector
	log       *slog.Logger

	mu  sync.Mutex // mu guards off
	off map[string]bool

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newDegraded(s *store.Store, p *processor.Processor, reg prometheus.Registerer, client *calls, log *slog.Logger) (*degraded, error) {
	cfg := func() *config.Config { return p.Book().Config }
	seal, err := sealer(cfg().Store.Encrypt)
	if err != nil {
		return nil, err
	}
	jobs := newQueue(s, seal, cfg, counter(reg, "jobs_total", "Queued requests by what became of them.", "chain", "outcome"))
	runs := counter(reg, "job_runs_total", "Runs of queued requests: done, failed, or the class for which they run again.", "chain", "outcome")
	hooks := counter(reg, "webhooks_total", "Calls of webhooks by what came of them.", "chain", "result")
	d := &degraded{
		processor: p, log: log, off: map[string]bool{},
		ladder: degrade.New(cache.New(s.Bucket(store.BucketOptions{Name: "cache", MaxBytes: cfg().Store.MaxCache, Seal: seal})), jobs, log),
		drainer: &recovery.Drainer{
			Config: cfg, Queue: jobs, Key: p.Key, Client: client.client, Log: log,
			Open: p.Pace, Live: p.Live,
			Count: func(chain, outcome string) { runs.WithLabelValues(chain, outcome).Inc() },
		},
		notifier: recovery.NewNotifier(cfg, jobs.Notices(), func(chain string, t recovery.Told) {
			hooks.WithLabelValues(chain, string(t)).Inc()
		}, log),
		switches: s.Bucket(store.BucketOptions{Name: "switches"}),
	}
	d.queues = recovery.NewQueueCollector(context.Background(), func() []string { return queued(cfg()) }, jobs.Stats)
	reg.MustRegister(d.queues)
	p.Degrade(d.ladder, d.closed)
	// A chain that is off must serve nobody while the watch of its switch begins.
	var chains []string
	for _, ch := range cfg().Chains {
		chains = append(chains, ch.Name)
	}
	if err := takeOver(s, d.switches, chains, d.turn); err != nil {
		log.Warn("the switches of the chains are not known at the start", "error", err.Error())
	}
	return d, nil
}

// newQueue lays the jobs out in the store: what waits is bounded, and refused beyond it.
func newQueue(s *store.Store, seal *store.Sealer, cfg func() *config.Config, count *prometheus.CounterVec) *queue.Queue {
	records := s.Bucket(store.BucketOptions{Name: "jobs", Seal: seal})
	return &queue.Queue{
		Parts: queue.Parts{
			Records: records,
			Dead:    s.Bucket(store.BucketOptions{Name: "dead", Seal: seal}),
			Bodies:  s.Bucket(store.BucketOptions{Name: "bodies", MaxBytes: cfg().Store.MaxJobs, Keep: true, Seal: seal}),
			Results: s.Bucket(store.BucketOptions{Name: "results", Seal: seal}),
			Jobs:    queue.Over(s.Queue(store.QueueOptions{Name: "jobs", Lease: jobLease})),
			Outbox:  queue.Over(s.Queue(store.QueueOptions{Name: "notices", Lease: jobLease})),
		},
		Config: cfg,
		Count:  func(chain, outcome string) { count.WithLabelValues(chain, outcome).Inc() },
	}
}

func counter(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_" + name, Help: help}, labels)
	reg.MustRegister(c)
	return c
}

// sealer is nil where nothing is encrypted.
func sealer(secret config.Secret) (*store.Sealer, error) {
	if secret.Ref() == "" {
		return nil, nil
	}
	keys, err := secret.Keys()
	if err != nil {
		return nil, fmt.Errorf("store.encrypt: %w", err)
	}
	var list [][]byte
	for i := range keys {
		list = append(list, keys[i][:])
	}
	return store.NewSealer(list)
}

// queued are the chains that may have jobs.
func queued(cfg *config.Config) []string {
	var names []string
	for _, ch := range cfg.Chains {
		if slices.Contains(ch.Degrade, "queue") {
			names = append(names, ch.Name)
		}
	}
	return names
}

func (d *degraded) start(ctx context.Context) {
	ctx, d.cancel = context.WithCancel(ctx)
	d.drainer.Start(ctx)
	d.wg.Go(func() { d.ladder.Run(ctx) })
	d.wg.Go(func() { d.notifier.Run(ctx) })
	d.wg.Go(func() { d.switches.Watch(ctx, d.turn) })
}

// stop lets jobs in flight end as long as ctx lasts.
func (d *degraded) stop(ctx context.Context) error {
	err := d.drainer.Stop(ctx)
	d.cancel()
	d.wg.Wait()
	return err
}

// closed lets the chains of a target that is well again catch up.
func (d *degraded) closed(target string) {
	for _, ch := range d.processor.Book().Config.Chains {
		if ch.Has(target) {
			go d.drainer.Wake(ch.Name)
		}
	}
}

// turn hears of a switch.
func (d *degraded) turn(e store.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.off, e.Key)
	if !e.Deleted && string(e.Value) == switchOff {
		d.off[e.Key] = true
	}
	d.processor.SwitchOff(maps.Clone(d.off))
}

// offBy is who has switched a chain off, "" when it is on.
func (d *degraded) offBy(c *config.Chain) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.Off.Force:
		return "config"
	case d.off[c.Name]:
		return "operator"
	}
	return ""
}

// flip switches a chain off or on, for all replicas and for good.
func (d *degraded) flip(ctx context.Context, chain string, off bool) error {
	if d.processor.Book().Config.ChainNamed(chain) == nil {
		return admin.ErrUnknown
	}
	value := switchOn // A watch says nothing of a value that was deleted before it began.
	if off {
		value = switchOff
	}
	_, err := d.switches.Put(ctx, chain, []byte(value), 0)
	if err == nil {
		d.log.Warn("chain switched", "chain", chain, "off", off)
	}
	return err
}
