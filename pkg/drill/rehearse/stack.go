package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// stack is the running stack: the gateway, where clients call, and a replica's admin listener.
//
// Concurrency: safe for any number of goroutines.
type stack struct {
	gateway, admin string // URLs without a trailing slash
	token          string // of admin; "" is none
	header         http.Header
	calls, asks    *http.Client
}

const (
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 4 << 20
	// patience bounds what is asked of the admin listener.
	patience = 10 * time.Second
	// apart is the time between two looks at something that is to change.
	apart = 200 * time.Millisecond
)

// errLate is why an answer has not begun.
var errLate = errors.New("the drill has stopped waiting")

// ask makes a call; with a mark it is no client's. An answer that has not begun within begins is not waited for.
func (s *stack) ask(ctx context.Context, c call, mark, accept string, begins, ends time.Duration) *answer {
	ctx, cancel := context.WithTimeout(ctx, begins+ends)
	defer cancel()
	ctx, late := context.WithCancelCause(ctx)
	timer := time.AfterFunc(begins, func() { late(errLate) })
	defer timer.Stop()
	a, from := &answer{header: http.Header{}}, time.Now()
	defer func() { a.ends = time.Since(from) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.gateway+c.path, bytes.NewReader(c.body()))
	if err != nil {
		a.err = err
		return a
	}
	for name, values := range s.header {
		req.Header[name] = values
	}
	for name, value := range map[string]string{
		"content-type": "application/json", "anthropic-version": "2023-06-01", "x-llm-internal": mark, "x-llm-degrade": accept,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	req.Host = s.header.Get("Host") // "" is the URL's
	if c.pick {
		req.Header.Set("x-llm-chain", c.chain)
	}
	resp, err := s.calls.Do(req)
	if err != nil {
		a.err = orError(context.Cause(ctx), err)
		return a
	}
	defer resp.Body.Close()
	timer.Stop()
	a.begins, a.status, a.header = time.Since(from), resp.StatusCode, resp.Header
	a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	a.read(c)
	return a
}

// orError is why a call was given up, or how it failed.
func orError(cause, err error) error {
	if cause != nil {
		return cause
	}
	return err
}

// told asks the admin listener; a status other than 2xx is an error that says what it said.
func (s *stack) told(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var js []byte
	if body != nil {
		var err error
		if js, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.admin+path, bytes.NewReader(js))
	if err != nil {
		return err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.asks.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return refusal{resp.StatusCode, strings.TrimSpace(string(text))}
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

// refusal is what the admin listener says to what it does not do.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return fmt.Sprintf("%d %.500s", r.status, r.text) }

// wish is a plan as the admin listener takes it.
type wish struct {
	Chain  string            `json:"chain"`
	Faults map[string]string `json:"faults"`
	Share  float64           `json:"share,omitempty"`
	For    string            `json:"for"`
}

// mark is a token for requests that are to meet faults, and the drill's id, under which the service logs them.
func (s *stack) mark(ctx context.Context, chain string, faults map[string]string, lasts time.Duration) (token, id string, err error) {
	var t struct{ ID, Token string }
	err = s.told(ctx, http.MethodPost, "/drills/tokens", wish{Chain: chain, Faults: faults, For: lasts.Round(time.Second).String()}, &t)
	return t.Token, t.ID, err
}

// metrics are samples of the admin listener's /metrics page, by series as it is written there.
type metrics map[string]float64

func (s *stack) metrics(ctx context.Context) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.asks.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = refusal{resp.StatusCode, "GET /metrics"}
	}
	return parseMetrics(string(page)), err
}

func parseMetrics(page string) metrics {
	m := metrics{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		if n, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			m[line[:i]] = n
		}
	}
	return m
}

// of is a series with one label.
func (m metrics) of(name, label, value string) (float64, bool) {
	v, ok := m[fmt.Sprintf("understudy_%s{%s=%q}", name, label, value)]
	return v, ok
}

// hash is that of the configuration in use, "" if it is not told.
func (m metrics) hash() string {
	for series := range m {
		if rest, ok := strings.CutPrefix(series, `understudy_config_info{hash="`); ok {
			return strings.TrimSuffix(rest, `"}`)
		}
	}
	return ""
}

// depth is how many requests of a chain are queued.
func (m metrics) depth(chain string) float64 {
	return m[fmt.Sprintf(`understudy_queue_jobs{chain=%q,state="queued"}`, chain)] +
		m[fmt.Sprintf(`understudy_queue_jobs{chain=%q,state="running"}`, chain)]
}

// until looks again and again whether ok has nothing to complain of, and says what it complained of last.
func until(ctx context.Context, bound time.Duration, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	tick := time.NewTicker(apart)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
