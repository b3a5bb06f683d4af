package degrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"understudy/pkg/degrade/cache"
)

const (
	// keepBacklog is how many answers wait to be kept; more are dropped, as the cache must not slow anybody down.
	keepBacklog = 32
	// keepBytes bounds those that wait together with their requests, which may be large, in bytes.
	keepBytes = 64 << 20
	// keepBound ends the keeping of one.
	keepBound = 5 * time.Second
	// findBound ends the search for one, as other modes may come after it.
	findBound = 2 * time.Second
)

// Good is a complete answer as a client got it.
type Good struct {
	ContentType string
	Pieces      [][]byte // of the body
	Target      string
}

// good is an answer that waits to be kept.
type good struct {
	q *Ask
	Good
	at time.Time
}

// request is q as the cache knows it. A query may ask for another version of an API, as a beta does.
func (q *Ask) request() cache.Request {
	_, query, _ := strings.Cut(q.Path, "?")
	return cache.Request{
		Chain: q.Chain.Name, Tenant: q.Tenant, API: q.API, Path: q.Endpoint + "?" + query,
		Version: q.Headers["anthropic-version"], Beta: q.Headers["anthropic-beta"] + "," + q.Headers["openai-beta"], Body: q.Body,
	}
}

// cached is the answer that is kept for q, or for what is nearly the same; the zero Answer when there is none.
func (l *Ladder) cached(ctx context.Context, q *Ask) Answer {
	if l.Cache == nil || q.NoStore || q.Private || q.Broken {
		return Answer{}
	}
	o := q.Chain.Cache
	key, err := cache.KeyOf(q.request(), o.Near > 0)
	if err != nil {
		return Answer{}
	}
	ctx, cancel := context.WithTimeout(ctx, findBound)
	defer cancel()
	e, ok, err := l.Cache.Find(ctx, key, o)
	if err != nil {
		l.Log.Warn("the cache is not asked", "chain", q.Chain.Name, "exchange", q.Exchange, "error", err.Error())
	}
	if !ok {
		return Answer{}
	}
	a := Answer{Status: http.StatusOK, Body: e.Body, Headers: map[string]string{"content-type": e.ContentType, "x-llm-target": e.Target}}
	return a.labelled(cacheLabel(e))
}

func cacheLabel(e cache.Entry) string {
	label := "cache; age=" + strconv.Itoa(max(0, int(time.Since(e.At).Seconds())))
	if !e.Near {
		return label + "; match=exact"
	}
	return label + fmt.Sprintf("; match=near; similarity=%.2f", e.Similarity)
}

// Keep keeps a good answer to q in the background, or drops it when too much waits already.
func (l *Ladder) Keep(q *Ask, g Good) {
	w := good{q, g, time.Now()}
	if l.waiting.Add(w.size()) > keepBytes {
		l.waiting.Add(-w.size())
		return
	}
	select {
	case l.good <- w:
	default:
		l.waiting.Add(-w.size())
	}
}

// size is what g holds in memory, about, in bytes.
func (g good) size() int64 {
	n := len(g.q.Body)
	for _, p := range g.Pieces {
		n += len(p)
	}
	return int64(n)
}

// Run keeps what it is given until ctx is done.
func (l *Ladder) Run(ctx context.Context) {
	for {
		select {
		case g := <-l.good:
			l.keep(ctx, g)
			l.waiting.Add(-g.size())
		case <-ctx.Done():
			return
		}
	}
}

func (l *Ladder) keep(ctx context.Context, g good) {
	o := g.q.Chain.Cache
	key, err := cache.KeyOf(g.q.request(), o.Near > 0)
	if err != nil {
		return // not to be kept, which is the client's choice
	}
	ctx, cancel := context.WithTimeout(ctx, keepBound)
	defer cancel()
	err = l.Cache.Keep(ctx, key, g.q.API, cache.Entry{
		Status: http.StatusOK, ContentType: g.ContentType, Body: bytes.Join(g.Pieces, nil),
		Target: g.Target, Model: g.q.Model, At: g.at,
	}, o)
	if err != nil && !errors.Is(err, cache.ErrAnswer) {
		l.Log.Debug("an answer is not kept", "chain", g.q.Chain.Name, "exchange", g.q.Exchange, "error", err.Error())
	}
}
