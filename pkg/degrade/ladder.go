package degrade

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/degrade/cache"
	"understudy/pkg/degrade/queue"
)

// Ladder is the degraded modes of all chains. The zero Ladder has only `off`.
//
// Ownership: whoever makes it fills the fields before the first call, and calls Run. Concurrency: safe for all.
type Ladder struct {
	Cache *cache.Cache // nil: nothing is kept
	Jobs  *queue.Queue // nil: nothing is queued
	Log   *slog.Logger

	good    chan good    // what Run is to keep
	waiting atomic.Int64 // bytes in it
}

// New makes a Ladder of a cache and a queue.
func New(c *cache.Cache, jobs *queue.Queue, log *slog.Logger) *Ladder {
	return &Ladder{Cache: c, Jobs: jobs, Log: log, good: make(chan good, keepBacklog)}
}

// Ask is a request for which nothing answers.
type Ask struct {
	Chain    *config.Chain
	API      classify.API
	Path     string            // with the query, without credentials, asking for one piece
	Endpoint string            // standard path of what is asked for
	Headers  map[string]string // that say how the body is to be read; never a credential
	Body     []byte            // the client's JSON object; anything with Broken
	Broken   bool
	Model    string
	Stream   bool
	Usage    bool   // of a stream of Chat: it was asked for
	Array    bool   // the stream is one JSON array
	Accepts  string // x-llm-degrade
	Tenant   string // "" where all callers are one
	Private  bool   // whose it is is not known: it shares nothing
	NoStore  bool   // cache-control: no-store
	Key      string // idempotency key
	Exchange string
	Start    time.Time
	Returns  time.Time // when the first target may be tried again; zero: not known
}

// Accepts says whether a caller's x-llm-degrade names mode, or leaves the choice to the chain.
func Accepts(header, mode string) bool {
	if strings.TrimSpace(header) == "" {
		return true
	}
	modes := strings.Split(header, ",")
	return slices.ContainsFunc(modes, func(m string) bool { return strings.EqualFold(strings.TrimSpace(m), mode) })
}

// Off is the chain's `off` answer.
func Off(q *Ask) Answer {
	off := q.Chain.Off
	a := Error(q.API, off.Status, "unavailable", off.Message)
	if off.Answer {
		a = Say(q.API, q.saying(off.Message))
	}
	return a.labelled("off")
}

// saying is text as an answer to q.
func (q *Ask) saying(text string) Saying {
	return Saying{
		Model: q.Model, ID: q.Exchange, Text: text, Stream: q.Stream, Array: q.Array, Usage: q.Usage, Created: q.Start,
	}
}

// labelled is a with the header that says which mode it is of.
func (a Answer) labelled(label string) Answer {
	headers := map[string]string{"x-llm-degraded": label}
	for name, value := range a.Headers {
		headers[name] = value
	}
	a.Headers = headers
	return a
}

// Answer is the answer of the first of the modes that has one, and its name; without a name it says why the request may
// not be queued. The zero Answer: none of them has one. `downshift` is the chain's own matter. The error is a sentence
// for the client about a queue that did not take the request.
func (l *Ladder) Answer(ctx context.Context, q *Ask, modes []string) (a Answer, mode string, err error) {
	for _, mode := range modes {
		if !Accepts(q.Accepts, mode) {
			continue
		}
		switch mode {
		case "cache":
			a = l.cached(ctx, q)
		case "queue":
			if a, err = l.later(ctx, q); a.Status >= 400 {
				return a, "", nil
			}
		case "off":
			a = Off(q)
		}
		if a.Status != 0 {
			return a, mode, nil
		}
	}
	return Answer{}, "", err
}
