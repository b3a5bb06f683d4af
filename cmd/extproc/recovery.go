package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
	"understudy/pkg/processor"
	"understudy/pkg/recovery"
)

// calls are those that the service makes on its own account, all of them through Envoy.
//
// Ownership: the app makes it with newCalls, start runs it, stop waits.
type calls struct {
	processor *processor.Processor
	log       *slog.Logger
	client    *http.Client
	prober    *recovery.Prober
	feeds     *recovery.Feeds
	probes    *prometheus.CounterVec

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newCalls(p *processor.Processor, log *slog.Logger) *calls {
	c := &calls{processor: p, log: log, client: envoyClient(), probes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "understudy_probes_total", Help: "Probes of a target by what they showed: alive, dead or unknown."}, []string{"target", "result"})}
	cfg := func() *config.Config { return p.Book().Config }
	c.prober = &recovery.Prober{
		Config: cfg, Breaker: func(target string) *breaker.Breaker { return p.Book().Breaker(target) },
		Key: p.Key, Client: c.client, Count: c.count, Log: log,
	}
	c.feeds = &recovery.Feeds{Config: cfg, Key: p.Key, Client: c.client, Sooner: c.sooner, Log: log}
	return c
}

// envoyClient goes straight to Envoy: a proxy of the environment is for other programs, and what Envoy redirects to
// is not ours to follow.
func envoyClient() *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 30 * time.Second,
			DisableCompression: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *calls) run() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.wg.Go(func() { c.feeds.Run(ctx) })
}

func (c *calls) stop() {
	c.cancel()
	c.wg.Wait()
	c.client.CloseIdleConnections()
}

func (c *calls) count(target string, r recovery.Result) {
	c.probes.WithLabelValues(target, string(r)).Inc()
}

// sooner ends the open periods of a provider's targets that began before its page last told of trouble, so that they
// are tried now: one that began later belongs to trouble that the page does not tell of, or was prolonged by a trial
// that another replica has brought forward.
func (c *calls) sooner(provider string, ill time.Time) {
	book := c.processor.Book()
	for name, t := range book.Config.Targets {
		b := book.Breaker(name)
		truth := b.Truth()
		if t.Provider.Name != provider || b.State() != breaker.Open || truth.Since.After(ill) {
			continue
		}
		truth.Gen++
		truth.Until = time.Now().UTC()
		if b.Follow(truth) {
			c.log.Info("trial brought forward, as the status page says operational again", "target", name, "provider", provider)
		}
	}
}

// statusCollector tells what the providers' status pages say.
type statusCollector struct {
	feeds *recovery.Feeds
	desc  *prometheus.Desc
}

func newStatusCollector(f *recovery.Feeds) statusCollector {
	return statusCollector{f, prometheus.NewDesc("understudy_provider_status",
		"What a provider's status page says: 0 operational, 1 degraded or in maintenance, 2 partial outage, 3 major outage, -1 unknown.",
		[]string{"provider"}, nil)}
}

func (s statusCollector) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

func (s statusCollector) Collect(ch chan<- prometheus.Metric) {
	for name, status := range s.feeds.Statuses() {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(status.Level()), name)
	}
}

// readyCollector tells which providers can be given their credential now; the log says why one cannot.
type readyCollector struct {
	processor *processor.Processor
	desc      *prometheus.Desc
}

func newReadyCollector(p *processor.Processor) readyCollector {
	return readyCollector{p, prometheus.NewDesc("understudy_provider_ready",
		"Whether a provider's calls can be given their credential (1) or its targets are passed over (0).", []string{"provider"}, nil)}
}

func (r readyCollector) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

func (r readyCollector) Collect(ch chan<- prometheus.Metric) {
	book := r.processor.Book()
	for name, p := range book.Config.Providers {
		ready := 1.0
		if book.Ready != nil && book.Ready(p) != nil {
			ready = 0
		}
		ch <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, ready, name)
	}
}
