package recovery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/token"
)

// key signs in these tests.
var key = []byte("0123456789abcdef0123456789abcdef")

// gateway is an Envoy that answers polls from a script; synctest bubbles know no sockets.
type gateway struct {
	mu   sync.Mutex
	seen []seen
	say  func(w http.ResponseWriter, r *http.Request)
}

// seen is a poll as the gateway got it.
type seen struct {
	at                   time.Time
	path, provider       string
	ifNoneMatch, ifSince string
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	purpose, name, err := token.Check(key, r.Header.Get("x-llm-internal"), time.Now())
	if err != nil || purpose != token.Feed {
		return nil, fmt.Errorf("x-llm-internal allows %q, %w", purpose, err)
	}
	g.mu.Lock()
	g.seen = append(g.seen, seen{time.Now(), r.URL.Path, name, r.Header.Get("if-none-match"), r.Header.Get("if-modified-since")})
	say := g.say
	g.mu.Unlock()
	w := httptest.NewRecorder()
	say(w, r)
	return w.Result(), nil
}

func (g *gateway) answer(say func(w http.ResponseWriter, r *http.Request)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.say = say
}

func (g *gateway) polls() []seen {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]seen{}, g.seen...)
}

// says answers with a page.
func says(page string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }
}

func indicates(word string) func(http.ResponseWriter, *http.Request) {
	return says(`{"status":{"indicator":"` + word + `"}}`)
}

// bench is a Feeds at work in a bubble, with what it told.
type bench struct {
	*Feeds
	g    *gateway
	log  *bytes.Buffer
	cfg  atomic.Pointer[config.Config]
	key  atomic.Pointer[[]byte]
	ills []time.Time // of each call of Sooner
}

// polling runs test with a Feeds at work on one feed.
func polling(t *testing.T, say func(http.ResponseWriter, *http.Request), test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{g: &gateway{say: say}, log: &bytes.Buffer{}}
		b.cfg.Store(configured(t, ""))
		b.key.Store(&key)
		b.Feeds = &Feeds{
			Config: b.cfg.Load,
			Key:    func() []byte { return *b.key.Load() },
			Client: &http.Client{Transport: b.g},
			Sooner: func(_ string, ill time.Time) { b.ills = append(b.ills, ill) },
			Log:    slog.New(slog.NewTextHandler(b.log, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); b.Run(ctx) }()
		defer func() { cancel(); <-over }()
		test(b)
	})
}

func configured(t *testing.T, feed string) *config.Config {
	t.Helper()
	if feed == "" {
		feed = `{statuspage: "https://status.example.com/api/v2/summary.json"}`
	}
	cfg, err := config.Parse("test.yaml", []byte(strings.ReplaceAll(`
providers:
  a: {api: anthropic, endpoint: "https://a.example.com", auth: {from: client}, status_feed: FEED}
  b: {api: anthropic, endpoint: "https://b.example.com", auth: {from: client}}
targets: {a/m: {provider: a, model: m}, b/m: {provider: b, model: m}}
chains: {main: {match: [{path: /v1/messages}], targets: [a/m, b/m]}}
`, "FEED", feed)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// after lets d pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) level() Level { return b.Statuses()["a"].Level() }

func TestAFeedIsPolledOnceAMinuteThroughTheGateway(t *testing.T) {
	polling(t, indicates("none"), func(b *bench) {
		after(10*time.Minute + 30*time.Second)
		polls := b.g.polls()
		if n := len(polls); n < 10 || n > 12 {
			t.Errorf("polls in ten and a half minutes = %d, want 11 or one more or less", n)
		}
		for i, p := range polls {
			if p.path != "/.understudy/feed" || p.provider != "a" {
				t.Errorf("poll %d = %s for %q, want /.understudy/feed for a", i, p.path, p.provider)
			}
			if i > 0 && (p.at.Sub(polls[i-1].at) < 54*time.Second || p.at.Sub(polls[i-1].at) > 67*time.Second) {
				t.Errorf("poll %d came %s after the one before, want a minute give or take the jitter", i, p.at.Sub(polls[i-1].at))
			}
		}
	})
}

func TestWhatAFeedSaysIsKept(t *testing.T) {
	polling(t, says(string(fixture(t, "statuspage-outage"))), func(b *bench) {
		if got := b.Statuses(); len(got) != 1 || got["a"] != unheard() {
			t.Errorf("Statuses() before the first poll = %+v, want a: unknown", got)
		}
		after(2 * time.Second)
		if got := b.Statuses()["a"]; got.Indicator != Major || got.Level() != PartialOutage || got.Incident != "Elevated errors on Sonnet" {
			t.Errorf("Statuses()[a] = %+v, want a partial outage with its incident", got)
		}
		after(5 * time.Minute)
		if n := strings.Count(b.log.String(), "provider status"); n != 1 {
			t.Errorf("log = %s\nwant one line for one change", b.log)
		}
	})
}

func TestAPageThatHasNotChangedIsNotSentAgain(t *testing.T) {
	say := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("if-none-match") == `W/"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("etag", `W/"1"`)
		w.Header().Set("last-modified", "Sun, 29 Nov 2026 10:00:00 GMT")
		indicates("minor")(w, r)
	}
	polling(t, say, func(b *bench) {
		after(20 * time.Minute)
		polls := b.g.polls()
		if p := polls[0]; p.ifNoneMatch != "" || p.ifSince != "" {
			t.Errorf("the first poll is conditional: %+v", p)
		}
		if p := polls[len(polls)-1]; p.ifNoneMatch != `W/"1"` || p.ifSince != "Sun, 29 Nov 2026 10:00:00 GMT" {
			t.Errorf("the last poll = %+v, want the conditions of the first answer", p)
		}
		if got := b.level(); got != Degraded {
			t.Errorf("level after twenty minutes of 304 = %d, want %d: it is not stale", got, Degraded)
		}
	})
}

func TestAPageThatCannotBeReadCountsForAWhileAndIsToldOnce(t *testing.T) {
	for name, say := range map[string]func(http.ResponseWriter, *http.Request){
		"an error":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"a redirect":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) },
		"HTML":            says("<html>"),
		"a 304 unasked":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"one without end": says(strings.Repeat(" ", maxPage+1)),
	} {
		t.Run(name, func(t *testing.T) {
			polling(t, indicates("critical"), func(b *bench) {
				after(2 * time.Second)
				b.g.answer(say)
				after(2 * time.Minute)
				if got := b.level(); got != MajorOutage {
					t.Errorf("level after two minutes = %d, want %d as it was", got, MajorOutage)
				}
				after(stale)
				if got := b.level(); got != Unheard {
					t.Errorf("level after more than %s = %d, want %d", stale, got, Unheard)
				}
				if n := strings.Count(b.log.String(), "cannot be read"); n != 1 {
					t.Errorf("log = %s\nwant one line about it", b.log)
				}
			})
		})
	}
}

func TestOnlyATurnToOperationalBringsATrialForward(t *testing.T) {
	polling(t, indicates("none"), func(b *bench) {
		turns := func(word string, want int) {
			t.Helper()
			b.g.answer(indicates(word))
			after(90 * time.Second)
			if got := len(b.ills); got != want {
				t.Errorf("after %q: Sooner was called %d times, want %d", word, got, want)
			}
		}
		turns("none", 0)
		turns("major", 0)
		turns("minor", 0)
		ill := time.Now()
		turns("none", 1)
		turns("none", 1)
		if since := ill.Sub(b.ills[0]); since < 0 || since > 90*time.Second {
			t.Errorf("Sooner's ill is %s before the last time that the page said so, want that time", since)
		}
		turns("maintenance", 1)
		turns("none", 2)
	})
}

func TestAFeedOfAnotherConfigIsAnotherFeed(t *testing.T) {
	polling(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("etag", `"1"`)
		indicates("none")(w, r)
	}, func(b *bench) {
		after(2 * time.Second)
		b.cfg.Store(configured(t, `{statuspage: "https://status.example.com/api/v2/summary.json", component: API}`))
		after(2 * time.Second)
		polls := b.g.polls()
		if n := len(polls); n != 2 || polls[1].ifNoneMatch != "" {
			t.Errorf("polls = %+v, want a second one at once, without the first one's conditions", polls)
		}
		if got := b.level(); got != Unheard {
			t.Errorf("level = %d, want %d: the page has no such component", got, Unheard)
		}
	})
}

func TestNothingIsPolledBeforeThereIsAKey(t *testing.T) {
	polling(t, indicates("none"), func(b *bench) {
		b.key.Store(new([]byte))
		after(5 * time.Minute)
		if polls := b.g.polls(); len(polls) != 0 {
			t.Errorf("polls without a key = %+v, want none", polls)
		}
	})
}
