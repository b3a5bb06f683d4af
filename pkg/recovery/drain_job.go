package recovery

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/provider"
	"understudy/pkg/token"
)

const (
	// holdEvery is the pause between two words to the queue that a job is still worked on.
	holdEvery = 10 * time.Second
	// overTime is how much longer than a chain's total deadline a call may take: Envoy and the service answer in it.
	overTime = 30 * time.Second
	// maxResult is the largest answer that is kept.
	maxResult = 32 << 20
	// keepTrying is for how long an answer that was paid for is offered to a store that does not take it.
	keepTrying = time.Minute
	// retryFirst and retryMost bound the pause before a job that failed runs again; it doubles with every run.
	retryFirst = 5 * time.Second
	retryMost  = 5 * time.Minute
)

// resultHeaders say where an answer came from.
func resultHeaders() []string {
	return []string{"x-llm-target", "x-llm-rung", "x-llm-attempts", "x-llm-fallback-reason", "request-id", "x-request-id"}
}

// flight is one run of a job.
type flight struct {
	*drain
	work  *queue.Work
	stops int           // the drain's, when it began
	quit  chan struct{} // ends the heartbeat
	beat  sync.WaitGroup
}

// landing is what came of a run.
type landing struct {
	state  queue.State // "": it must run again
	result queue.Result
	class  string // why it must run again, or what state came of
	fails  string // what failed on the way, a reason to stop the drain; "": nothing
}

// hold keeps the job ours until land.
func (f *flight) hold() {
	f.quit = make(chan struct{})
	f.beat.Go(func() {
		tick := time.NewTicker(holdEvery)
		defer tick.Stop()
		for {
			select {
			case <-f.quit:
				return
			case <-tick.C:
				ctx, cancel := context.WithTimeout(f.flying, giveBack)
				_ = f.work.Hold(ctx) // Should somebody else get the job, too, still only one result counts.
				cancel()
			}
		}
	})
}

func (f *flight) release() {
	close(f.quit)
	f.beat.Wait()
}

// back returns the job to the queue, also while the service stops.
func (f *flight) back(after time.Duration) {
	f.release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.flying), giveBack)
	defer cancel()
	if err := f.work.Later(ctx, after); err != nil {
		f.Log.Warn("a job will run again when its time with us is up: the queue does not answer",
			"chain", f.chain, "job", f.work.Job.ID, "error", err.Error())
	}
}

// run calls Envoy and tells the queue and the drain what came of it.
func (f *flight) run() {
	defer f.rise()
	l := f.call()
	if l.fails != "" && f.flying.Err() == nil {
		f.stop(f.stops, l.fails)
	}
	switch {
	case l.state != "" && f.finish(l):
	case f.flying.Err() != nil:
		f.back(0)
	default:
		f.back(jittered(doubled(retryFirst, retryMost, f.work.Job.Attempts-1), f.Config().Recovery.Jitter))
	}
	outcome := l.class
	if l.state != "" {
		outcome = string(l.state)
	}
	f.Count(f.chain, outcome)
	f.Log.Info("job", "chain", f.chain, "job", f.work.Job.ID, "result", outcome, "class", l.class, "run", f.work.Job.Attempts)
}

// doubled is first, doubled n times, and no more than most.
func doubled(first, most time.Duration, n int) time.Duration {
	for d := first; ; d *= 2 {
		if n--; n < 0 || d >= most {
			return min(d, most)
		}
	}
}

// finish records the result, as long as it makes sense to try.
func (f *flight) finish(l landing) bool {
	if l.fails == "" {
		f.well(f.stops)
	}
	ctx, cancel := context.WithTimeout(f.flying, keepTrying)
	defer cancel()
	for {
		err := f.work.Finish(ctx, l.result, l.state)
		if err == nil {
			f.release()
			return true
		}
		f.Log.Warn("a job's result is not kept yet: the store does not take it", "chain", f.chain, "job", f.work.Job.ID, "error", err.Error())
		if !pause(ctx, lookEvery) {
			return false
		}
	}
}

// call sends the job along its chain.
func (f *flight) call() landing {
	cfg := f.Config()
	ch, key := cfg.ChainNamed(f.chain), f.Key()
	if ch == nil || len(key) == 0 {
		return again("not_ready")
	}
	life := ch.Deadlines.Total + overTime
	ctx, cancel := context.WithTimeout(f.flying, life)
	defer cancel()
	req, err := f.request(ctx, cfg)
	if err != nil {
		return again("not_ready")
	}
	req.Header.Set("x-llm-internal", token.SignUntil(key, token.Job, token.JobName(f.chain, f.work.Job.Tenant), time.Now().Add(life)))
	resp, err := f.Client.Do(req)
	if err != nil {
		return again("gateway")
	}
	defer resp.Body.Close()
	return readRun(resp, f.work.Job.Path)
}

func (f *flight) request(ctx context.Context, cfg *config.Config) (*http.Request, error) {
	job := f.work.Job
	url := strings.TrimSuffix(cfg.Envoy.Gateway.String(), "/") + job.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(f.work.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	for name, value := range job.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("idempotency-key", job.Key)
	req.Header.Set("x-llm-degrade", "none")
	return req, nil
}

// again is a run that came to nothing, which is a reason to stop.
func again(why string) landing { return landing{class: why, fails: why} }

// readRun reads an answer. One that does not say after how many attempts it came is not of the chain: Envoy, or a replica
// that does not know our key, made it.
func readRun(resp *http.Response, path string) landing {
	if resp.Header.Get("x-llm-attempts") == "" {
		return again("gateway")
	}
	path, _, _ = strings.Cut(path, "?")
	api, _ := provider.Endpoint(path)
	r := classify.New(classify.Options{API: api, Now: time.Now()})
	r.Header(resp.StatusCode, resp.Header.Get)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResult+1))
	if len(body) > maxResult {
		return tooLarge()
	}
	r.Feed(body)
	l := landed(r.End(err == nil))
	if l.state == "" {
		return l
	}
	l.result = queue.Result{Status: resp.StatusCode, ContentType: resp.Header.Get("content-type"), Headers: told(resp.Header), Body: body}
	// A fallback served because a target before it fails: an answer, but no sign of health.
	if why, ok := classify.ParseClass(resp.Header.Get("x-llm-fallback-reason")); ok && why.Trips() {
		l.fails = why.String()
	}
	return l
}

// landed says what a verdict means for the job.
func landed(v classify.Verdict) landing {
	class := v.Class.String()
	switch v.Class {
	case classify.OK, classify.Refusal, classify.Filtered:
		return landing{state: queue.Done, class: class}
	case classify.Invalid, classify.ContextLength:
		return landing{state: queue.Failed, class: class}
	}
	return again(class)
}

// tooLarge ends a job whose answer cannot be kept: the next would be no smaller, and cost as much.
func tooLarge() landing {
	return landing{state: queue.Failed, class: "too_large", result: queue.Result{
		Status: http.StatusBadGateway, ContentType: "application/json",
		Body: []byte(`{"type":"error","error":{"type":"api_error","message":"the answer is larger than the gateway keeps"}}`),
	}}
}

func told(h http.Header) map[string]string {
	m := map[string]string{}
	for _, name := range resultHeaders() {
		if v := h.Get(name); v != "" {
			m[name] = v
		}
	}
	return m
}
