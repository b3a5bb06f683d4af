package recovery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
)

const (
	hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	urlToken   = "token-in-the-url"
)

// town is a Notifier over the real queue, with receivers by host: real HTTP over pipes.
type town struct {
	*Notifier
	t      *testing.T
	queue  *queue.Queue
	outbox *line
	dead   *shelf
	conf   atomic.Pointer[config.Config]
	down   atomic.Bool // nobody can connect
	log    lockedBuffer
	told   chan struct{} // something was counted since it was last read

	mu     sync.Mutex
	calls  []call
	counts map[string]int
}

// call is a webhook as its receiver got it.
type call struct {
	at     time.Time
	host   string
	header http.Header
	body   []byte
}

func (c call) String() string {
	return fmt.Sprintf("%s %s %s", c.at, c.header.Get("webhook-id"), c.body)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// hookTo is a config whose chains, named as their receivers' hosts, have a webhook.
func hookTo(t *testing.T, hosts ...string) *config.Config {
	t.Helper()
	t.Setenv("HOOK_SECRET", hookSecret)
	cfg := &config.Config{Jobs: config.Jobs{Keep: 48 * time.Hour}}
	for _, host := range hosts {
		cfg.Chains = append(cfg.Chains, chainTo(t, "http://"+host+"/hook?token="+urlToken, true))
	}
	return cfg
}

func chainTo(t *testing.T, to string, private bool) *config.Chain {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := config.ReadSecret("env:HOOK_SECRET")
	if err != nil {
		t.Fatal(err)
	}
	return &config.Chain{Name: u.Hostname(), Queue: config.Queue{Notify: &config.Webhook{URL: u, Secret: secret, Private: private}}}
}

func newTown(t *testing.T, cfg *config.Config) *town {
	w := &town{t: t, counts: map[string]int{}, told: make(chan struct{}, 1)}
	w.conf.Store(cfg)
	w.queue, w.outbox, w.dead = newQueue(w.conf.Load)
	w.Notifier = NewNotifier(w.conf.Load, w.queue.Notices(), w.tally, slog.New(slog.NewTextHandler(&w.log, nil)))
	return w
}

func (w *town) tally(chain string, o Told) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[chain+" "+string(o)]++
	select {
	case w.told <- struct{}{}:
	default:
	}
}

func (w *town) counted(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[key]
}

// await waits until a call was counted under key more than n times.
func (w *town) await(key string, n int) {
	w.t.Helper()
	for deadline := time.After(10 * time.Second); w.counted(key) <= n; {
		select {
		case <-w.told:
		case <-deadline:
			w.t.Fatalf("after 10 s %d calls are %s, want more than %d\n%s", w.counted(key), key, n, w.log.String())
		}
	}
}

// wantCounts fails unless exactly these calls were counted.
func (w *town) wantCounts(want string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := fmt.Sprint(w.counts); got != want {
		w.t.Errorf("counted calls = %s, want %s\n%s", got, want, w.log.String())
	}
}

func (w *town) called() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// inTown runs test in a bubble. Receivers answer with say.
func inTown(t *testing.T, cfg *config.Config, say http.HandlerFunc, test func(t *testing.T, w *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, cfg)
		lis := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: w.receive(say)}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(lis) })
		w.private = direct(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if w.down.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return lis.dial(ctx, network, addr)
		})
		w.public = nil // a call of it would panic
		test(t, w)
		_ = server.Close()
		wg.Wait()
		for _, secret := range []string{urlToken, hookSecret, strings.TrimPrefix(hookSecret, "whsec_"), "the answer, a secret"} {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("the log shows %q:\n%s", secret, w.log.String())
			}
		}
	})
}

func (w *town) receive(say http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.calls = append(w.calls, call{time.Now(), r.Host, r.Header, body})
		w.mu.Unlock()
		w.verify(r.Header, body)
		say(rw, r)
	}
}

// verify holds a call against the official library, as its receiver would, at the moment that it gets it.
func (w *town) verify(header http.Header, body []byte) {
	verifier, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		w.t.Error(err)
		return
	}
	if err := verifier.Verify(body, header); err != nil {
		w.t.Errorf("Verify(%s, %v) = %v, want nil", body, header, err)
	}
	if err := verifier.Verify(append(body, ' '), header); err == nil {
		w.t.Error("Verify(another body) = nil, want an error")
	}
}

// run runs the Notifier during test.
func (w *town) run(test func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	test()
	cancel()
	wg.Wait()
}

// script answers each call with the next of its steps, and the last again.
func script(steps ...http.HandlerFunc) http.HandlerFunc {
	var next atomic.Int64
	return func(rw http.ResponseWriter, r *http.Request) {
		steps[min(int(next.Add(1)), len(steps))-1](rw, r)
	}
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			rw.Header().Set(headers[i], headers[i+1])
		}
		rw.WriteHeader(code)
	}
}

// hang never answers.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// gaps are the pauses between calls.
func gaps(calls []call) (d []time.Duration) {
	for i := 1; i < len(calls); i++ {
		d = append(d, calls[i].at.Sub(calls[i-1].at))
	}
	return d
}
