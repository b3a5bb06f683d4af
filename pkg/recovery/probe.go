// Package recovery makes the service's own calls, all of them through Envoy: probes that show whether a provider is
// back, and polls of status feeds.
package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/provider"
	"understudy/pkg/token"
)

const (
	// queueMost bounds the wait for recovery.rate, and patience one probe: a provider that takes longer for one token is
	// not back. Together they end before a fleet gives the probe to another replica.
	queueMost = 10 * time.Second
	patience  = 30 * time.Second
	// maxAnswer is how much of a probe's answer is read. Who says more is alive.
	maxAnswer = 256 << 10
	// pingTokens is about what the question costs, with a provider's own wrapping.
	pingTokens = 16
	// defaultPause is how long a rate limit that names no end keeps the next probe back.
	defaultPause = 5 * time.Second
)

// Result is what a probe showed.
type Result string

// The results. Unknown says nothing about the provider: the probe did not get there, or the account may ask no more.
const (
	Alive   Result = "alive"
	Dead    Result = "dead"
	Unknown Result = "unknown"
)

// Prober probes half-open targets.
//
// Concurrency: safe for all.
type Prober struct {
	Config  func() *config.Config
	Breaker func(target string) *breaker.Breaker
	Key     func() []byte // signs x-llm-internal; empty: there is none yet
	Client  *http.Client  // goes to Envoy and follows no redirect: the token is for nobody else
	Count   func(target string, r Result)
	Log     *slog.Logger

	mu     sync.Mutex // guards the fields below
	limit  *rate.Limiter
	perSec float64
	hour   time.Time // the one that spent counts
	spent  int64     // tokens
	told   bool      // that they are used up
}

// Probe tries target once, if its breaker is half-open, and tells the breaker what came of it.
func (p *Prober) Probe(ctx context.Context, target string) {
	b, cfg := p.Breaker(target), p.Config()
	t := cfg.Targets[target]
	if b == nil || t == nil {
		return
	}
	permit, err := b.Trial()
	if err != nil {
		return
	}
	defer permit.Release()
	if !p.affordable(ctx, cfg.Recovery) {
		return
	}
	result, v := p.try(ctx, cfg, t)
	if result == Dead && ctx.Err() != nil {
		result = Unknown // we left, not the provider
	}
	p.Count(target, result)
	p.Log.Info("probe", "target", target, "result", string(result), "class", v.Class.String(), "detail", v.Detail)
	switch {
	case result == Alive:
		permit.Done(breaker.Success)
	case result == Dead:
		b.Blame(v.Class.String())
		permit.Done(breaker.Failure)
	case v.Class == classify.RateLimited:
		b.Cool(time.Now().Add(pauseOf(v, t)))
	}
}

// pauseOf is how long a rate limit keeps the next probe back: no longer than an open period would.
func pauseOf(v classify.Verdict, t *config.Target) time.Duration {
	if v.RetryAfterMS <= 0 {
		return defaultPause
	}
	longest := max(t.Breaker.OpenFor, t.Breaker.MaxOpenFor)
	return time.Duration(min(v.RetryAfterMS, longest.Milliseconds())) * time.Millisecond
}

// affordable waits for the rate and its jitter, and refuses what would exceed the hour's tokens.
func (p *Prober) affordable(ctx context.Context, r config.Recovery) bool {
	ctx, cancel := context.WithTimeout(ctx, queueMost)
	defer cancel()
	return p.room(int64(r.ProbeTokens)) && p.limiter(r.Rate).Wait(ctx) == nil &&
		pause(ctx, time.Duration(rand.Float64()*r.Jitter*float64(time.Second)))
}

// room says whether fewer than most tokens were spent in this hour. That they were not is logged once.
func (p *Prober) room(most int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.hour) >= time.Hour {
		p.hour, p.spent, p.told = now, 0, false
	}
	if p.spent < most {
		return true
	}
	if !p.told {
		p.told = true
		p.Log.Warn("no probe: recovery.probe_tokens are used up for this hour", "until", p.hour.Add(time.Hour))
	}
	return false
}

func (p *Prober) spend(tokens int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent += tokens
}

func (p *Prober) limiter(perSecond float64) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit == nil || p.perSec != perSecond {
		p.limit, p.perSec = rate.NewLimiter(rate.Limit(perSecond), 1), perSecond
	}
	return p.limit
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// try sends the probe through Envoy and reads the answer.
func (p *Prober) try(ctx context.Context, cfg *config.Config, t *config.Target) (Result, classify.Verdict) {
	path, api := probePath(cfg, t)
	key := p.Key()
	switch {
	case path == "":
		return Unknown, classify.Verdict{Detail: "no chain protects a path of this dialect"}
	case len(key) == 0:
		return Unknown, classify.Verdict{Detail: "no key yet to sign with"}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(w httptrace.WroteRequestInfo) { sent.Store(w.Err == nil) },
	})
	body := shape(api, t.Probe)
	req, err := request(ctx, cfg.Envoy.Gateway.String(), path, body)
	if err != nil {
		return Unknown, classify.Verdict{Detail: err.Error()}
	}
	req.Header.Set("x-llm-internal", token.Sign(key, token.Probe, t.Name, time.Now()))
	guess := int64(t.Probe.MaxTokens + pingTokens)
	resp, err := p.Client.Do(req)
	switch {
	case err == nil:
		defer resp.Body.Close()
		return p.read(resp, reads(t, path, api, body), guess)
	case sent.Load() && ctx.Err() != nil:
		// Envoy and this service answer for themselves in less: it is the provider that keeps silent.
		p.spend(guess)
		return Dead, classify.Verdict{Class: classify.Timeout, Detail: "probe"}
	}
	return Unknown, classify.Verdict{Detail: "envoy.gateway does not answer"}
}

func request(ctx context.Context, gateway, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(gateway, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	req.Header.Set("anthropic-version", "2023-06-01")
	return req, nil
}

// read reads an answer. guess is what it costs, in tokens, if it made some and does not say how many.
func (p *Prober) read(resp *http.Response, api classify.API, guess int64) (Result, classify.Verdict) {
	if resp.Header.Get(token.Mark) == "" {
		// Envoy, or a replica that does not know our key, answered: it says nothing of the provider.
		return Unknown, classify.Verdict{Detail: "the probe did not get through"}
	}
	r := classify.New(classify.Options{API: api, Now: time.Now()})
	r.Header(resp.StatusCode, resp.Header.Get)
	n, err := io.Copy(feeder{r}, io.LimitReader(resp.Body, maxAnswer))
	v := r.End(err == nil)
	used := v.Usage.Input + v.Usage.Output + v.Usage.CacheRead + v.Usage.CacheWrite
	if used == 0 && resp.StatusCode < 300 {
		used = max(guess, n/4) // a token is about four bytes
	}
	p.spend(used)
	if n == maxAnswer && resp.StatusCode < 300 {
		return Alive, v
	}
	return judge(v), v
}

type feeder struct{ r *classify.Response }

func (f feeder) Write(p []byte) (int, error) {
	f.r.Feed(p)
	return len(p), nil
}

// judge says whether a provider that answers v is back. A complaint about the request, a max_tokens of 1 above all,
// or about the account shows that somebody reads requests.
func judge(v classify.Verdict) Result {
	switch {
	case v.Class.Trips():
		return Dead
	case v.Class == classify.RateLimited, v.Class == classify.Capacity, v.Class == classify.Canceled, v.Class == classify.None:
		return Unknown
	}
	return Alive
}

// probePath is a path on which Envoy protects t's dialect, and the endpoint that it names: a path of a chain that t
// serves before any other, as a server of one dialect need not have all of its endpoints.
func probePath(cfg *config.Config, t *config.Target) (string, classify.API) {
	for _, path := range append(served(cfg, t), cfg.Protected()...) {
		api, standard := provider.Endpoint(path)
		if slices.Contains(t.Provider.API.Paths(), standard) {
			return strings.Replace(path, "{model}", url.PathEscape(t.Probe.Model), 1), api
		}
	}
	return "", classify.APIUnknown
}

// reads is the dialect in which t's platform answers a probe.
func reads(t *config.Target, path string, api classify.API, body []byte) classify.API {
	q, err := provider.Read(provider.Incoming{Path: path, Body: body}, int64(len(body)))
	if err != nil {
		return api
	}
	if rw, err := provider.ForTarget(t, t, q); err == nil && rw.Answer != classify.APIUnknown {
		return rw.Answer
	}
	return api
}

// served are the paths that the match rules of t's chains name.
func served(cfg *config.Config, t *config.Target) []string {
	var paths []string
	for _, ch := range cfg.Chains {
		if !slices.ContainsFunc(ch.Rungs, func(r config.Rung) bool { return r.Has(t) }) {
			continue
		}
		for _, m := range ch.Matches {
			paths = append(paths, m.Path)
		}
	}
	return paths
}

// shape is the cheapest request of a dialect: one token, no thinking, nothing stored. OpenAI's limits include what a
// model thinks, and models that cannot think refuse to be told not to.
func shape(api classify.API, p config.Probe) []byte {
	message := []map[string]string{{"role": "user", "content": "ping"}}
	body := map[string]any{"model": p.Model}
	switch api {
	case classify.AnthropicMessages:
		body["max_tokens"], body["messages"] = p.MaxTokens, message
		body["thinking"] = map[string]string{"type": "disabled"}
	case classify.OpenAIResponses: // takes no less than 16
		body["max_output_tokens"], body["input"], body["store"] = max(p.MaxTokens, 16), "ping", false
	case classify.Gemini: // the model is in the path
		body = map[string]any{
			"contents":         []map[string]any{{"role": "user", "parts": []map[string]string{{"text": "ping"}}}},
			"generationConfig": map[string]int{"maxOutputTokens": p.MaxTokens},
		}
	default:
		body["max_completion_tokens"], body["messages"], body["store"] = p.MaxTokens, message, false
	}
	b, _ := json.Marshal(body) // maps of strings and numbers always marshal
	return b
}
