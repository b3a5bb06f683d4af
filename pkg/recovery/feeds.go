package recovery

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/token"
)

const (
	// pollEvery is the pause between two polls of a feed, give or take half of recovery.jitter.
	pollEvery = time.Minute
	// pollBound ends one poll.
	pollBound = 10 * time.Second
	// maxPage is the most that is read of a page: those of large providers have some 100 KiB.
	maxPage = 2 << 20
	// stale is how long a page that cannot be read any more still counts.
	stale = 5 * time.Minute
)

// Feeds polls the providers' status pages. What they say is shown, and may bring a trial forward; it opens and closes
// nothing, as pages are late and a green one says little about a model.
//
// Ownership: who makes it fills the fields, then calls Run once. Concurrency: Statuses may be called by any goroutine.
type Feeds struct {
	Config func() *config.Config
	Key    func() []byte // signs x-llm-internal; nil: not known yet
	Client *http.Client
	// Sooner is told that a provider's page says operational again, which last said otherwise at ill.
	Sooner func(provider string, ill time.Time)
	Log    *slog.Logger

	wg sync.WaitGroup // polls

	mu    sync.Mutex // guards the field below, and what it points to
	feeds map[string]*feed
}

// feed is what is known of one provider's page.
type feed struct {
	source  config.StatusFeed
	known   version
	next    time.Time // of a poll
	running bool
	failed  bool // the last poll did

	status Status
	ill    time.Time // when it last said that it is not operational
}

// Run polls until ctx is done, and waits for what it began.
func (f *Feeds) Run(ctx context.Context) {
	defer f.wg.Wait()
	for pause(ctx, time.Second) {
		key := f.Key()
		if key == nil {
			continue
		}
		cfg := f.Config()
		for _, name := range f.due(cfg, time.Now()) {
			f.wg.Go(func() { f.poll(ctx, cfg, name, key) })
		}
	}
}

// Statuses is what the page of each provider that has one said last.
func (f *Feeds) Statuses() map[string]Status {
	all := map[string]Status{}
	for name, p := range f.Config().Providers {
		if p.StatusFeed != nil {
			all[name] = unheard()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, x := range f.feeds {
		if _, ok := all[name]; ok && time.Since(x.status.At) < stale {
			all[name] = x.status
		}
	}
	return all
}

// due takes the feeds whose time has come, and forgets what the config does not have any more.
func (f *Feeds) due(cfg *config.Config, now time.Time) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feeds == nil {
		f.feeds = map[string]*feed{}
	}
	maps.DeleteFunc(f.feeds, func(name string, x *feed) bool {
		p := cfg.Providers[name]
		return p == nil || p.StatusFeed == nil || !same(*p.StatusFeed, x.source)
	})
	for name, p := range cfg.Providers {
		if p.StatusFeed == nil {
			continue
		}
		x := f.feeds[name]
		if x == nil {
			x = &feed{source: *p.StatusFeed, status: unheard()}
			f.feeds[name] = x
		}
		if !x.running && !now.Before(x.next) {
			x.running = true
			names = append(names, name)
		}
	}
	return names
}

func same(a, b config.StatusFeed) bool {
	return a.URL.String() == b.URL.String() && a.Component == b.Component
}

// poll asks for a page once.
func (f *Feeds) poll(ctx context.Context, cfg *config.Config, name string, key []byte) {
	f.mu.Lock()
	x := f.feeds[name]
	if x == nil { // another config has come
		f.mu.Unlock()
		return
	}
	known, part := x.known, x.source.Component
	f.mu.Unlock()

	got, err := f.get(ctx, cfg.Envoy.Gateway, token.Sign(key, token.Feed, name, time.Now()), known)
	if err == nil && got.data != nil {
		got.status, err = readPage(got.data, part)
	}
	if ctx.Err() == nil {
		f.took(x, name, got, err, time.Now().Add(jittered(pollEvery, cfg.Recovery.Jitter)))
	}
}

func jittered(d time.Duration, jitter float64) time.Duration {
	return time.Duration(float64(d) * (1 + jitter*(rand.Float64()-0.5)))
}

// version is what a server knows a page's version by.
type version struct{ etag, modified string }

// answer is a page, or that it is the same as before: then data is nil.
type answer struct {
	data    []byte
	version version
	status  Status
}

func (f *Feeds) get(ctx context.Context, gateway *url.URL, signed string, known version) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, pollBound)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(gateway.String(), "/")+"/.understudy/feed", nil)
	if err != nil {
		return answer{}, err
	}
	for header, value := range map[string]string{
		"x-llm-internal": signed, "accept": "application/json", "user-agent": "understudy",
		"if-none-match": known.etag, "if-modified-since": known.modified,
	} {
		if value != "" {
			req.Header.Set(header, value)
		}
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	return read(resp, known)
}

func read(resp *http.Response, known version) (answer, error) {
	switch {
	case resp.StatusCode == http.StatusNotModified && known != version{}:
		return answer{version: known}, nil
	case resp.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("the answer is a %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err == nil && len(data) > maxPage {
		err = fmt.Errorf("it is longer than %d bytes", maxPage)
	}
	return answer{data: data, version: version{resp.Header.Get("etag"), resp.Header.Get("last-modified")}}, err
}

// took takes down what a poll came to, and tells what is new.
func (f *Feeds) took(x *feed, name string, got answer, err error, next time.Time) {
	f.mu.Lock()
	was, failed, ill := x.status, x.failed, x.ill
	x.running, x.next, x.failed = false, next, err != nil
	if err == nil {
		x.learn(got, time.Now())
	}
	is := x.status
	f.mu.Unlock()

	switch {
	case err != nil && !failed:
		f.Log.Warn("status feed cannot be read", "provider", name, "error", err.Error())
	case is.level != was.level || is.Incident != was.Incident:
		f.Log.Info("provider status", "provider", name, "indicator", string(is.Indicator), "component", is.Component, "incident", is.Incident)
	}
	if is.level == Operational && was.level > Operational {
		f.Sooner(name, ill)
	}
}

// learn takes an answer. Caller holds mu.
func (x *feed) learn(got answer, now time.Time) {
	if got.data != nil {
		x.status = got.status
	}
	x.status.At, x.known = now, got.version
	if x.status.level > Operational {
		x.ill = now
	}
}
