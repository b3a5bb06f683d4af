package scripted

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// exchange is one request to an LLM path and the answer under way. Its methods return an error when the client is
// gone, or when there is nothing left to say.
type exchange struct {
	Behaviour
	p       *Provider
	dialect dialect
	ask     ask
	req     *Request
	body    []byte // decoded
	r       *http.Request
	w       http.ResponseWriter
	rc      *http.ResponseController
	zip     *gzip.Writer // nil: plain
}

// ask is what is read of a request body.
type ask struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (p *Provider) llm(d dialect) http.HandlerFunc {
	return p.answer(func(x *exchange) *refusal {
		x.dialect = d
		return nil
	})
}

// answer handles model calls. What reads of an exchange how it is to be answered, or why it is not.
func (p *Provider) answer(what func(*exchange) *refusal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{p: p, r: r, w: w, rc: http.NewResponseController(w)}
		before, err := x.read()
		defer p.finish(x.req, r)
		if err != nil {
			return
		}
		refused := what(x)
		p.log.update(func() { x.req.Model, x.req.Stream = x.ask.Model, x.ask.Stream })
		if refused != nil {
			refused.send(x)
			return
		}
		b, err := p.behaviour(r.Header.Get(ScriptHeader), before)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		}
		x.Behaviour = b
		p.log.update(func() { x.req.Step = b })
		_ = x.act() // who left is on record, by finish
	}
}

// read takes the request in and records it; before is how many of its script id came earlier.
func (x *exchange) read() (before int, err error) {
	came, hash, body := time.Now(), sha256.New(), &bytes.Buffer{}
	size, err := io.Copy(io.MultiWriter(hash, body), x.r.Body)
	x.body = decoded(x.r.Header.Get("content-encoding"), body.Bytes())
	_ = json.Unmarshal(x.body, &x.ask) // not JSON: no model, not streamed
	x.req = newRequest(x.r)
	x.req.At, x.req.Size, x.req.SHA256 = came, size, hex.EncodeToString(hash.Sum(nil))
	x.req.Body = bytes.Clone(x.body[:min(len(x.body), keptBody)])
	x.req.Model, x.req.Stream = x.ask.Model, x.ask.Stream
	return x.p.log.add(x.req), err
}

func newRequest(r *http.Request) *Request {
	return &Request{ID: r.Header.Get(IDHeader), Method: r.Method, Host: r.Host, Path: r.URL.RequestURI(), Proto: r.Proto, Header: r.Header.Clone()}
}

// finish closes the record of a request. A context that ended before its handler is a client that left.
func (p *Provider) finish(req *Request, r *http.Request) {
	p.log.update(func() { req.Done, req.Ended, req.Gone = true, time.Now(), r.Context().Err() != nil })
}

func (x *exchange) act() error {
	if err := x.pause(x.After); err != nil {
		return err
	}
	h := x.w.Header()
	h.Set("request-id", "req_"+x.p.name)
	h.Set("x-request-id", "req_"+x.p.name)
	if x.RetryAfter != "" {
		h.Set("retry-after", x.RetryAfter)
	}
	if x.Limits != "" {
		tellLimits(h, x.Limits)
	}
	if x.Evil {
		evil(h)
	}
	return kinds[x.Kind](x)
}

// evil sets what a hostile or careless provider could use to steer Envoy, the service or the client's SDK.
func evil(h http.Header) {
	for name, value := range map[string]string{
		"x-llm-failover":                      "next",
		"x-llm-target":                        "evil/model",
		"x-llm-rung":                          "7",
		"x-llm-attempts":                      "99",
		"x-llm-fallback-reason":               "evil",
		"x-llm-degraded":                      "cache; age=1; match=exact",
		"x-llm-cluster":                       "evil",
		"x-should-retry":                      "true",
		"x-envoy-ratelimited":                 "true",
		"x-envoy-overloaded":                  "true",
		"x-envoy-immediate-health-check-fail": "true",
		"x-envoy-attempt-count":               "5",
	} {
		h.Set(name, value)
	}
}

// message is a good answer to this request.
func (x *exchange) message() message {
	id := x.r.Header.Get(IDHeader)
	name, model := orElse(x.p.as.Name, x.p.name), orElse(x.p.as.Model, x.ask.Model)
	return message{
		id:    orElse(id, "scripted"),
		model: model,
		tier:  x.Tier,
		texts: texts(name, model, id, x.N, x.Size),
		think: x.Think,
		tool:  x.Tool,
		usage: x.ask.StreamOptions.IncludeUsage,

		tokens: x.Usage,
		calls:  x.Calls,
	}
}

// head sends the status line and headers.
func (x *exchange) head(status int, contentType string) error {
	h := x.w.Header()
	h.Set("content-type", contentType)
	if x.Gzip {
		h.Set("content-encoding", "gzip")
		x.zip = gzip.NewWriter(x.w)
	}
	x.w.WriteHeader(status)
	return x.rc.Flush()
}

func (x *exchange) headStream() error {
	x.w.Header().Set("cache-control", "no-cache")
	return x.head(http.StatusOK, x.dialect.mime())
}

// whole sends a body of known length.
func (x *exchange) whole(status int, contentType, body string) error {
	if !x.Gzip && !x.Bytes {
		x.w.Header().Set("content-length", strconv.Itoa(len(body)))
	}
	if err := x.head(status, contentType); err != nil {
		return err
	}
	if err := x.send(body); err != nil {
		return err
	}
	return x.close()
}

func (x *exchange) json(status int, body string) error {
	return x.whole(status, "application/json", body)
}

// send writes pieces of body, each flushed, or each byte of them.
func (x *exchange) send(pieces ...string) error {
	for _, piece := range pieces {
		for _, part := range x.parts(piece) {
			if err := x.write(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *exchange) parts(piece string) []string {
	if !x.Bytes {
		return []string{piece}
	}
	parts := make([]string, len(piece))
	for i := range len(piece) {
		parts[i] = piece[i : i+1]
	}
	return parts
}

func (x *exchange) write(part string) error {
	var out io.Writer = x.w
	if x.zip != nil {
		out = x.zip
	}
	if _, err := io.WriteString(out, part); err != nil {
		return err
	}
	if x.zip != nil {
		if err := x.zip.Flush(); err != nil {
			return err
		}
	}
	return x.rc.Flush()
}

// close ends the encoding; the HTTP end follows when the handler returns.
func (x *exchange) close() error {
	if x.zip == nil {
		return nil
	}
	return x.zip.Close()
}

// pause waits, unless the client leaves.
func (x *exchange) pause(d time.Duration) error {
	if d == 0 {
		return x.r.Context().Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-x.r.Context().Done():
		return x.r.Context().Err()
	}
}

// untilGone waits for the client to leave.
func (x *exchange) untilGone() error {
	<-x.r.Context().Done()
	return x.r.Context().Err()
}

// pass waits at the gate, where there is one.
func (x *exchange) pass() error {
	if !x.Gate {
		return nil
	}
	select {
	case <-x.p.gate(x.req.ID):
		return nil
	case <-x.r.Context().Done():
		return fmt.Errorf("at the gate: %w", x.r.Context().Err())
	}
}
