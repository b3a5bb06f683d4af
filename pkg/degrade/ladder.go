package degrade

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Ladder is the degraded modes of all chains. The zero Ladder has only `off`.
//
// Concurrency: safe for all.
type Ladder struct{}

// Ask is a request for which nothing answers.
type Ask struct {
	Chain    *config.Chain
	API      classify.API
	Path     string            // with the query, without credentials
	Headers  map[string]string // that say how the body is to be read; never a credential
	Body     []byte            // the client's JSON object; anything with Broken
	Broken   bool
	Model    string
	Stream   bool
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
	return slices.ContainsFunc(modes, func(m string) bool { return strings.TrimSpace(m) == mode })
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
		Model: q.Model, ID: q.Exchange, Text: text, Stream: q.Stream,
		Usage: gjson.GetBytes(q.Body, "stream_options.include_usage").Bool(), Created: q.Start,
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

// Answer is the answer of the first of the modes that has one, and its name; the zero Answer when none has.
// `downshift` is the chain's own matter. The error says why a queue did not take the request.
func (l *Ladder) Answer(ctx context.Context, q *Ask, modes []string) (a Answer, mode string, err error) {
	for _, mode := range modes {
		if !Accepts(q.Accepts, mode) {
			continue
		}
		switch mode {
		case "off":
			return Off(q), mode, err
		}
	}
	return Answer{}, "", err
}

// Good is an answer that may be kept.
type Good struct {
	ContentType string
	Pieces      [][]byte
	Target      string
}

// Keep keeps an answer of q in the background, or drops it where that has too much to do.
func (l *Ladder) Keep(q *Ask, g Good) {}

// Job is what is known of a queued request, for its tenant.
func (l *Ladder) Job(ctx context.Context, id, tenant string) Answer { return Answer{} }
