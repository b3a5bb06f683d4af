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
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/provider"
	"understudy/pkg/token"
)

const (
	// patience bounds one probe. A provider that takes longer for one token is not back.
	patience = 30 * time.Second
	// maxAnswer is how much of a probe's answer is read.
	maxAnswer = 256 << 10
)

// Result is what a probe showed.
type Result string

// The results. Unknown says nothing about the provider: the probe itself could not be made, or was the caller's fault.
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
	Key     func() []byte // signs x-llm-internal
	Client  *http.Client
	Count   func(target string, r Result)
	Log     *slog.Logger

	mu     sync.Mutex // guards the fields below
	limit  *rate.Limiter
	perSec float64
	hour   time.Time // the one that spent counts
	spent  int64     // tokens
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
	result, v := Unknown, classify.Verdict{}
	if p.affordable(ctx, cfg.Recovery) {
		result, v = p.try(ctx, cfg, t)
	}
	p.Count(target, result)
	p.Log.Info("probe", "target", target, "result", string(result), "class", v.Class.String(), "detail", v.Detail)
	switch result {
	case Alive:
		permit.Done(breaker.Success)
	case Dead:
		b.Blame(v.Class.String())
		permit.Done(breaker.Failure)
	}
}

// affordable waits for the rate and its jitter, and refuses what would exceed the hour's tokens.
func (p *Prober) affordable(ctx context.Context, r config.Recovery) bool {
	if p.remaining(r) <= 0 {
		p.Log.Warn("no probe: recovery.probe_tokens are used up for this hour")
		return false
	}
	if p.limiter(r.Rate).Wait(ctx) != nil {
		return false
	}
	return pause(ctx, time.Duration(rand.Float64()*r.Jitter*float64(time.Second)))
}

func (p *Prober) remaining(r config.Recovery) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.hour) >= time.Hour {
		p.hour, p.spent = now, 0
	}
	return int64(r.ProbeTokens) - p.spent
}

func (p *Prober) spend(u classify.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent += u.Input + u.Output + u.CacheRead + u.CacheWrite
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
	if path == "" {
		return Unknown, classify.Verdict{}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(cfg.Envoy.Gateway.String(), "/")+path, bytes.NewReader(shape(api, t.Probe)))
	if err != nil {
		return Unknown, classify.Verdict{}
	}
	req.Header.Set("content-type", "application/json")
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("x-llm-internal", token.Sign(p.Key(), token.Probe, t.Name, time.Now()))
	resp, err := p.Client.Do(req)
	if err != nil {
		return Unknown, classify.Verdict{Detail: "envoy.gateway does not answer"}
	}
	defer resp.Body.Close()
	return p.read(resp, api)
}

func (p *Prober) read(resp *http.Response, api classify.API) (Result, classify.Verdict) {
	if resp.Header.Get(token.Mark) == "" {
		// Envoy, or a replica that does not know our key, answered: it says nothing of the provider.
		return Unknown, classify.Verdict{Detail: "the probe did not get through"}
	}
	r := classify.New(classify.Options{API: api, Now: time.Now()})
	r.Header(resp.StatusCode, resp.Header.Get)
	_, err := io.Copy(feeder{r}, io.LimitReader(resp.Body, maxAnswer))
	v := r.End(err == nil)
	p.spend(v.Usage)
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
	case v.Class == classify.RateLimited || v.Class == classify.Capacity:
		return Unknown
	case v.Class == classify.Canceled || v.Class == classify.None:
		return Unknown
	}
	return Alive
}

// probePath is a path on which Envoy protects t's dialect, a chain's that t serves before any other, and the endpoint.
func probePath(cfg *config.Config, t *config.Target) (string, classify.API) {
	for _, path := range cfg.Protected() {
		api, standard := provider.Endpoint(path)
		for _, own := range t.Provider.API.Paths() {
			if standard == own {
				return path, api
			}
		}
	}
	return "", classify.APIUnknown
}

// shape is the cheapest request of a dialect: one token, no thinking, nothing stored.
func shape(api classify.API, p config.Probe) []byte {
	message := []map[string]string{{"role": "user", "content": "ping"}}
	body := map[string]any{"model": p.Model}
	switch api {
	case classify.AnthropicMessages:
		body["max_tokens"], body["messages"] = p.MaxTokens, message
		body["thinking"] = map[string]string{"type": "disabled"}
	case classify.OpenAIResponses:
		body["max_output_tokens"], body["input"], body["store"] = max(p.MaxTokens, 16), "ping", false
	default:
		body["max_completion_tokens"], body["messages"], body["store"] = p.MaxTokens, message, false
	}
	b, _ := json.Marshal(body) // maps of strings and numbers always marshal
	return b
}
