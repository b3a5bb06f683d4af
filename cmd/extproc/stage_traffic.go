package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"understudy/internal/scripted"
)

const (
	trafficPatience = time.Minute      // of one call
	trafficAtOnce   = 100              // most calls at a time: a gateway that hangs gets no more
	trafficReport   = 10 * time.Second // between two lines of what became of the calls
	trafficFresh    = 15 * time.Second // without an answer for so long, something is wrong
	questions       = 50               // different ones, so that a cache has answers to some
)

// demoTraffic calls a gateway as applications do, until it is stopped.
func demoTraffic(ctx context.Context, args []string, std std) error {
	f := flag.NewFlagSet("demo traffic", flag.ContinueOnError)
	gateway := f.String("gateway", "http://127.0.0.1:10000", "URL of Envoy's front")
	every := f.Duration("every", 200*time.Millisecond, "between two calls")
	admin := f.String("admin", "127.0.0.1:8001", "where /readyz is served")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 || *every <= 0 {
		return fmt.Errorf("%w: --every must be more than 0, and nothing else is taken", errUsage)
	}
	t := &traffic{gateway: strings.TrimSuffix(*gateway, "/"), log: slog.New(slog.NewJSONHandler(std.err, nil)), tally: map[string]int{}}
	server, err := scripted.Serve(http.HandlerFunc(t.readyz), *admin, nil)
	if err != nil {
		return err
	}
	defer server.Close()
	t.flow(ctx, *every)
	return nil
}

// traffic makes calls and counts what becomes of them.
//
// Ownership: demoTraffic makes it; flow runs once, and waits for the calls that it began.
type traffic struct {
	gateway string
	log     *slog.Logger

	// mu guards the fields below.
	mu       sync.Mutex
	tally    map[string]int // calls by outcome, since the last report
	answered time.Time      // when the last answer came, whatever it was
}

// flow calls at every interval and reports, until ctx ends.
func (t *traffic) flow(ctx context.Context, every time.Duration) {
	var calls sync.WaitGroup
	defer calls.Wait()
	free := make(chan struct{}, trafficAtOnce)
	next, report := time.NewTicker(every), time.NewTicker(trafficReport)
	defer next.Stop()
	defer report.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-report.C:
			t.report()
		case <-next.C:
			select {
			case free <- struct{}{}:
				calls.Go(func() { t.call(ctx, n); <-free })
			default: // all are under way
			}
		}
	}
}

// call makes the nth call: both dialects, streamed and not.
func (t *traffic) call(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(ctx, trafficPatience)
	defer cancel()
	path, model := "/v1/messages", "claude-sonnet-5"
	if n%2 == 1 {
		path, model = "/v1/chat/completions", "gpt-5.1"
	}
	body := fmt.Sprintf(`{"model":%q,"max_tokens":100,"stream":%t,"messages":[{"role":"user","content":"question %d"}]}`, model, n%4 < 2, n%questions)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.gateway+path, strings.NewReader(body))
	if err != nil {
		t.count("no call: " + err.Error())
		return
	}
	req.Header.Set("content-type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.count("unanswered")
		return
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	t.count(outcome(resp, err))
}

// outcome says in a word or two what a call came to; broken is what reading its body gave.
func outcome(resp *http.Response, broken error) string {
	degraded := resp.Header.Get("x-llm-degraded")
	mode, _, _ := strings.Cut(degraded, ";")
	switch rung := resp.Header.Get("x-llm-rung"); {
	case broken != nil:
		return "cut short"
	case mode != "":
		return "degraded: " + mode
	case resp.StatusCode != http.StatusOK:
		return fmt.Sprintf("status %d", resp.StatusCode)
	case rung != "" && rung != "0":
		return "fallback"
	}
	return "served"
}

func (t *traffic) count(outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tally[outcome]++
	if outcome != "unanswered" {
		t.answered = time.Now()
	}
}

func (t *traffic) report() {
	t.mu.Lock()
	tally := t.tally
	t.tally = map[string]int{}
	t.mu.Unlock()
	t.log.Info("calls", "outcomes", tally)
}

// fresh is nil while answers come.
func (t *traffic) fresh() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.answered) > trafficFresh {
		return errors.New("no answer has come of late")
	}
	return nil
}

func (t *traffic) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := t.fresh(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
