package degrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/pkg/degrade/cache"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/store"
)

// later queues q and says so. The zero Answer without an error says that this request is none for the queue.
func (l *Ladder) later(ctx context.Context, q *Ask) (Answer, error) {
	if l.Jobs == nil || q.NoStore || q.Private || q.Broken {
		return Answer{}, nil
	}
	if gjson.GetBytes(q.Body, "background").Bool() { // its answer would be another promise
		return Answer{}, nil
	}
	if _, err := cache.KeyOf(q.request(), false); errors.Is(err, cache.ErrPrivate) || errors.Is(err, cache.ErrUnread) {
		return Answer{}, nil
	}
	job, err := l.Jobs.Accept(ctx, queue.Request{
		Chain: q.Chain.Name, Tenant: q.Tenant, Key: q.Key, Path: q.Path, Model: q.Model, Headers: q.Headers,
		Body: whole(q.Body), MaxAge: q.Chain.Queue.MaxAge,
	})
	switch {
	case errors.Is(err, queue.ErrKeyReused):
		return Error(q.API, http.StatusUnprocessableEntity, "idempotency_key_reused",
			"this Idempotency-Key was used for another request"), nil
	case errors.Is(err, store.ErrFull):
		return Answer{}, errors.New("the queue has no room for another request")
	case errors.Is(err, store.ErrTooLarge):
		return Answer{}, errors.New("the request is too large for the queue")
	case err != nil:
		l.Log.Warn("a request is not queued", "chain", q.Chain.Name, "exchange", q.Exchange, "error", err.Error())
		return Answer{}, errors.New("the queue cannot keep the request now")
	}
	return l.queued(ctx, q, job), nil
}

// queued is the answer to a request that became a job.
func (l *Ladder) queued(ctx context.Context, q *Ask, job queue.Job) Answer {
	s := q.saying(q.Chain.Queue.Message + " Job: " + job.ID)
	s.Status = http.StatusAccepted
	s.Job = &Job{ID: job.ID, Location: job.Location(), State: string(job.State), ExpectedSeconds: l.expected(ctx, q, job)}
	a := Say(q.API, s).labelled("queue; job=" + job.ID)
	a.Headers["location"] = job.Location()
	return a
}

// expected is how many seconds a job may wait, roughly: until the first target returns, and for those before it.
func (l *Ladder) expected(ctx context.Context, q *Ask, job queue.Job) int64 {
	if job.State.Final() {
		return 0
	}
	wait := max(0, time.Until(q.Returns).Seconds())
	if s, err := l.Jobs.Stats(ctx, q.Chain.Name); err == nil {
		wait += float64(s.Waiting+s.Running) / max(0.01, l.Jobs.Config().Recovery.Rate)
	}
	return int64(math.Ceil(min(wait, q.Chain.Queue.MaxAge.Seconds())))
}

// whole is a request's body that asks for the same answer in one piece.
func whole(body []byte) []byte {
	out := []byte{'{'}
	gjson.ParseBytes(body).ForEach(func(key, value gjson.Result) bool {
		if key.Str == "stream" || key.Str == "stream_options" {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key.Raw...), ':'), value.Raw...)
		return true
	})
	return append(out, '}')
}

// jobView is a job as its owner sees it.
type jobView struct {
	ID       string      `json:"id"`
	Chain    string      `json:"chain"`
	State    queue.State `json:"state"`
	Key      string      `json:"idempotency_key"`
	Created  time.Time   `json:"created"`
	Expires  time.Time   `json:"expires"`
	Finished *time.Time  `json:"finished,omitempty"`
	Result   *resultView `json:"result,omitempty"`
}

// resultView is the answer of a job that has one: Body where it is JSON, Text where it is not.
type resultView struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body,omitempty"`
	Text    string            `json:"text,omitempty"`
}

// Job is what is known of a queued request, for its tenant.
func (l *Ladder) Job(ctx context.Context, id, tenant string) Answer {
	return l.show(id, func() (queue.Job, *queue.Result, error) { return l.Jobs.Get(ctx, id, tenant) })
}

// AnyJob is Job for the operator, who sees those of every tenant.
func (l *Ladder) AnyJob(ctx context.Context, id string) Answer {
	return l.show(id, func() (queue.Job, *queue.Result, error) { return l.Jobs.Show(ctx, id) })
}

func (l *Ladder) show(id string, get func() (queue.Job, *queue.Result, error)) Answer {
	if l.Jobs == nil || id == "" || strings.Contains(id, "/") {
		return noJob()
	}
	job, result, err := get()
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return noJob()
	case err != nil:
		return Error(0, http.StatusServiceUnavailable, "unavailable", "the store does not answer; ask again")
	}
	view := jobView{ID: job.ID, Chain: job.Chain, State: job.State, Key: job.Key, Created: job.Created, Expires: job.Expires}
	if !job.Finished.IsZero() {
		view.Finished = &job.Finished
	}
	if result != nil {
		view.Result = viewOf(result)
	}
	return Answer{Status: http.StatusOK, Body: encode(view), Headers: map[string]string{"cache-control": "no-store"}}
}

func viewOf(r *queue.Result) *resultView {
	v := &resultView{Status: r.Status, Headers: map[string]string{"content-type": r.ContentType}}
	for name, value := range r.Headers {
		v.Headers[name] = value
	}
	if json.Valid(r.Body) && len(bytes.TrimSpace(r.Body)) > 0 {
		v.Body = r.Body
	} else {
		v.Text = string(r.Body)
	}
	return v
}

func noJob() Answer { return Error(0, http.StatusNotFound, "not_found", "there is no such job") }
