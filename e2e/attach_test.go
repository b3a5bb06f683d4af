//go:build e2e

package e2e

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// app is what somebody's Envoy was there for.
type app struct {
	address string
	failed  atomic.Int64 // requests to /fails
}

const appText = "this is the application, and it has much to say. "

func startApp(t *testing.T) *app {
	a := &app{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			a.failed.Add(1)
			http.Error(w, "the application is ill", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("content-type", "text/plain")
		_, _ = io.WriteString(w, strings.Repeat(appText, 100))
	}))
	t.Cleanup(server.Close)
	a.address = server.Listener.Addr().String()
	return a
}

// attachRow is an Envoy of somebody's, in a version.
type attachRow struct {
	theirs
	envoy string
}

func (r attachRow) name() string { return r.theirs.name + " on Envoy " + r.envoy }

var attachRows = []attachRow{
	{staticFile, envoyMain}, {staticFile, envoyMiddle}, {staticFile, envoyOldest},
	{servedFiles, envoyMain}, {servedFiles, envoyOldest},
	{filtered, envoyMain}, {filtered, envoyOldest},
	{reversed, envoyMain}, {reversed, envoyOldest},
}

// attach starts a stack behind somebody's Envoy.
func attach(t *testing.T, r attachRow, level string, p plan) (*Stack, *app) {
	t.Helper()
	own := startApp(t)
	p.envoy, p.another = r.envoy, r.theirs.attached(level, own.address)
	return startStack(t, p), own
}

// works checks that the application is served as before: its answers, and the virtual host's two retries.
func (a *app) works(t *testing.T, s *Stack) {
	t.Helper()
	got := s.do(s.plain(within(t, patience), t, http.MethodGet, "/hello", nil))
	if got.status != 200 || got.body != strings.Repeat(appText, 100) {
		t.Errorf("the application's answer = %d %.100q, %v, want its own", got.status, got.body, got.err)
	}
	before := a.failed.Load()
	got = s.do(s.plain(within(t, patience), t, http.MethodGet, "/fails", nil))
	if calls := a.failed.Load() - before; got.status != 503 || !strings.Contains(got.body, "ill") || calls != 3 {
		t.Errorf("the application's failure = %d %.100q after %d calls, want its own 503 after 3", got.status, got.body, calls)
	}
}

func TestAttachedForTheSameRequest(t *testing.T) {
	t.Parallel()
	for _, r := range attachRows {
		if r.first {
			continue // there is no filter of ours in their listener
		}
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			rows, chains := attachedRows()
			s, own := attach(t, r, "same-request", plan{chains: append(chains, chain{name: "steered", api: "anthropic", on: []string{"a", "b"}})})
			t.Run("rows", func(t *testing.T) {
				for _, row := range rows {
					t.Run(row.failure.name+" of "+row.call.kind(), func(t *testing.T) {
						row.want.check(t, row.call, s.sdk(within(t, time.Minute), t, row.call))
					})
				}
			})
			t.Run("the application", func(t *testing.T) { own.works(t, s) })
			t.Run("a hostile client", func(t *testing.T) { s.steeredNowhere(t, 1) })
			if r.files[0] == "filters.yaml" {
				theirFilters(t, s, r, "a=ok", "a=529; b=ok")
			}
			s.services[0].kill()
			t.Run("without the service", func(t *testing.T) {
				refused(t, s.raw(within(t, patience), t, call{path: messages, script: "a=ok", id: t.Name()}), messages, http.StatusServiceUnavailable)
				own.works(t, s)
			})
			s.back(t, "steered")
		})
	}
}

// attachedRows are the failures, and one good answer, by which an attached Envoy is known to work.
func attachedRows() (rows []failoverRow, chains []chain) {
	for _, f := range []failure{
		{"529", "a", "529", "overloaded"},
		{"a connection refused", "dead", "", "transport"},
		{"an overload inside a stream", "a", "error-start", "overloaded"},
		{"a reset before headers", "a", "reset", "transport"},
	} {
		for _, kind := range []call{clientKinds[0], clientKinds[3]} {
			rows = append(rows, f.row(&chains, kind, 0))
		}
	}
	c := chainFor(&chains, "openai", "a", "b")
	return append(rows, failoverRow{failure{name: "a good answer"}, call{path: chats, chain: c.name, script: "a=ok"}, 0,
		served{by: "a", target: c.target("a"), attempts: 1}}), chains
}

// steeredNowhere makes one call of a client that tries everything.
func (s *Stack) steeredNowhere(t *testing.T, attempts int) {
	t.Helper()
	c := call{path: messages, stream: true, chain: "steered", script: "a=ok", header: steering}
	served{by: "a", target: "steered/a", rung: 0, attempts: attempts}.check(t, c, s.sdk(within(t, patience), t, c))
	s.calls(t, t.Name(), "a:1 b:0")
	for _, r := range s.providers["a"].Requests(t.Name()) {
		for name := range r.Header {
			if foreign(name) {
				t.Errorf("the provider was sent %s: %q", name, r.Header[name])
			}
		}
	}
}

// theirFilters checks that the filters of filters.yaml work on a path of ours, and that their answers are their own.
func theirFilters(t *testing.T, s *Stack, r attachRow, compressed ...string) {
	t.Run("RBAC denies", func(t *testing.T) {
		a := s.raw(within(t, patience), t, call{path: messages, script: "a=ok", header: map[string]string{"x-user": "mallory"}})
		if a.status != http.StatusForbidden || !strings.Contains(a.body, "RBAC") {
			t.Errorf("the client got %d %q, want RBAC's 403", a.status, a.body)
		}
		s.calls(t, t.Name(), "a:0 b:0")
	})
	t.Run("the rate limit's 429", func(t *testing.T) {
		c := call{path: messages, script: "*=ok", header: map[string]string{"x-plan": "free"}}
		if a := s.raw(within(t, patience), t, c); a.status != 200 {
			t.Fatalf("the first request got %d %q, want 200", a.status, a.body)
		}
		for range 6 { // one more than opens a breaker
			if a := s.raw(within(t, patience), t, c); a.status != http.StatusTooManyRequests || a.body != "local_rate_limited" {
				t.Fatalf("the next got %d %q, want the filter's own 429", a.status, a.body)
			}
		}
		s.calls(t, t.Name(), "a:1 b:0")
		s.breaker(t, "default-anthropic/a", closed)
		c.header = nil
		if a := s.raw(within(t, patience), t, c); a.status != 200 || strings.HasSuffix(a.header.Get("x-llm-target"), "/b") {
			t.Errorf("another client got %d of %q, want 200 of the primary", a.status, a.header.Get("x-llm-target"))
		}
	})
	t.Run("compressed answers", func(t *testing.T) {
		plain := s.raw(within(t, patience), t, call{path: chats, script: "a=ok", id: t.Name()})
		for _, script := range compressed {
			a := s.raw(within(t, patience), t, call{path: chats, script: script, id: t.Name(), header: map[string]string{"accept-encoding": "gzip"}})
			if !r.first && a.header.Get("content-encoding") != "gzip" {
				t.Errorf("%s: the answer's content-encoding is %q, want gzip", script, a.header.Get("content-encoding"))
			}
			if text := unzipped(t, a); a.status != 200 || len(text) != len(plain.body) {
				t.Errorf("%s: the client got %d %q, want an answer like %q", script, a.status, text, plain.body)
			}
		}
	})
	t.Run("CORS", func(t *testing.T) {
		if r.first {
			t.Skip("the service refuses a preflight, which only a filter before it can answer")
		}
		req := s.plain(within(t, patience), t, http.MethodOptions, messages, nil)
		req.Header.Set("origin", "https://app.example.com")
		req.Header.Set("access-control-request-method", "POST")
		if a := s.do(req); a.status != 200 || a.header.Get("access-control-allow-origin") != "https://app.example.com" {
			t.Errorf("the preflight got %d %v, want the origin allowed", a.status, a.header)
		}
	})
}

func unzipped(t *testing.T, a answer) string {
	t.Helper()
	if a.header.Get("content-encoding") != "gzip" {
		return a.body
	}
	r, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAttachedForTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, r := range attachRows {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			rows, chains := nextRows()
			s, own := attach(t, r, "next-request", plan{chains: append(chains, chain{name: "steered", api: "anthropic", on: []string{"a", "b"}})})
			for _, row := range rows {
				t.Run(row.failure.name+" of "+row.call.kind(), func(t *testing.T) { row.thenNext(t, s) })
			}
			t.Run("the application", func(t *testing.T) { own.works(t, s) })
			t.Run("a hostile client", func(t *testing.T) { s.steeredNowhere(t, 1) })
			t.Run("a path that is passed through", func(t *testing.T) {
				if a := s.do(s.plain(within(t, patience), t, http.MethodGet, "/v1/models", nil)); a.status != 200 {
					t.Errorf("the client got %d %q, want 200", a.status, a.body)
				}
				s.credited(t)
			})
			t.Run("a large request", func(t *testing.T) {
				a := s.do(s.request(within(t, patience), t, call{path: messages, script: "a=ok"}, strings.NewReader(string(sized(messages, 5<<20)))))
				if a.status != 200 {
					t.Errorf("the client got %d %.300q, want 200", a.status, a.body)
				}
			})
			if r.files[0] == "filters.yaml" {
				theirFilters(t, s, r, "a=ok")
			}
			s.services[0].kill()
			t.Run("without the service", func(t *testing.T) {
				refused(t, s.raw(within(t, patience), t, call{path: messages, script: "a=ok", id: t.Name()}), messages, http.StatusServiceUnavailable)
				own.works(t, s)
			})
		})
	}
}

// nextRows are failures that open the primary's breaker: each of them is final.
func nextRows() (rows []failoverRow, chains []chain) {
	for _, f := range []failure{
		{"529", "a", "529", "overloaded"},
		{"a connection refused", "dead", "", "transport"},
		{"an overload inside a stream", "a", "error-start", "overloaded"},
	} {
		c := chainFor(&chains, "anthropic", f.provider, "c")
		c.breaker = fileBreaker{Failures: 1, OpenFor: time.Hour}
		kind := call{path: messages, stream: true, chain: c.name, script: "a=" + f.script + "; c=ok"}
		rows = append(rows, failoverRow{f, kind, 0, served{by: "c", target: c.target("c"), rung: 1, attempts: 1, reason: f.class}})
	}
	c := chainFor(&chains, "openai", "a", "c")
	return append(rows, failoverRow{failure{name: "a good answer"}, call{path: chats, chain: c.name, script: "*=ok"}, 0,
		served{by: "a", target: c.target("a"), attempts: 1}}), chains
}

// thenNext makes the call twice: the failure reaches the client, once and readably, and the next request the next target.
func (r failoverRow) thenNext(t *testing.T, s *Stack) {
	t.Helper()
	if r.class != "" {
		a := s.raw(within(t, time.Minute), t, r.call)
		if a.status < 500 || a.status == 507 || !strings.Contains(a.body, `"type":"error"`) || a.header.Get("x-llm-failover") != "" {
			t.Errorf("the failure reaches the client as %d %q %v, want an error in the dialect", a.status, a.body, a.header)
		}
		s.calls(t, t.Name(), "c:0")
		s.breaker(t, strings.TrimSuffix(r.want.target, "c")+r.provider, open) // on 1.36 by the access log, a moment later
	}
	r.want.check(t, r.call, s.sdk(within(t, time.Minute), t, r.call))
	if r.provider == "a" {
		s.calls(t, t.Name(), "a:1 c:1")
	}
}

func TestAttachedFailOpenReachesThePrimaryOnly(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"same-request", "next-request"} {
		for _, r := range []attachRow{{staticFile, envoyMain}, {staticFile, envoyMiddle}, {filtered, envoyOldest}} {
			t.Run(level+" of "+r.name(), func(t *testing.T) {
				t.Parallel()
				s, own := attach(t, r, level, plan{edit: func(f *file) { f.Envoy.WhenServiceDown = "open" }})
				t.Run("with the service", s.choosesNothing)
				s.services[0].kill()
				t.Run("without the service", s.choosesNothing)
				own.works(t, s)
			})
		}
	}
}

// choosesNothing makes calls of a client that tries everything, the second to a provider's own host.
func (s *Stack) choosesNothing(t *testing.T) {
	headers := map[string]string{"authorization": "Bearer " + clientKey}
	for name, value := range steering {
		headers[name] = value
	}
	for name, host := range map[string]string{"the listener's host": "", "a provider's host": strings.TrimPrefix(s.endpoints["b"], "http://")} {
		t.Run(name, func(t *testing.T) {
			req := s.request(within(t, patience), t, call{path: messages, script: "*=ok", header: headers}, strings.NewReader(requestBody(messages, false)))
			req.Host = host
			s.do(req)
			s.calls(t, t.Name(), "b:0")
			if host == "" {
				s.reachedRight(t, messages)
			}
		})
	}
}

func TestAttachedToObserve(t *testing.T) {
	t.Parallel()
	for _, r := range attachRows {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			s, own := attach(t, r, "observe", plan{})
			rows := []struct {
				call   call
				class  string
				status int
			}{
				{call{path: messages, script: "a=ok"}, "ok", 200},
				{call{path: messages, stream: true, script: "a=ok"}, "ok", 200},
				{call{path: chats, script: "a=ok", header: map[string]string{"accept-encoding": "gzip"}}, "ok", 200},
				{call{path: messages, script: "a=529"}, "overloaded", 529},
				{call{path: messages, stream: true, script: "a=error-start"}, "overloaded", 200},
			}
			for i, row := range rows {
				row.call.id = fmt.Sprint("observed ", i)
				a, chain := s.raw(within(t, patience), t, row.call), "default-"+apiOf(row.call.path)
				if a.status != row.status || a.err != nil || a.header.Get("x-llm-target") != "" {
					t.Errorf("%s = %d %v, %v, want the provider's own %d", row.call.script, a.status, a.header, a.err, row.status)
				}
				s.calls(t, row.call.id, "a:1 b:0")
				s.reads(t, atLeast(1), "understudy_attempts_total", "chain", chain, "target", chain+"/a", "class", row.class)
			}
			cut := s.raw(within(t, patience), t, call{path: messages, stream: true, script: "a=cut n=1 how=reset"})
			if cut.err == nil {
				t.Errorf("an answer that its provider broke off ended cleanly:\n%s", cut.body)
			}
			s.reads(t, is(1), "understudy_attempts_total", "chain", "default-anthropic", "class", "canceled")
			s.reads(t, is(2), "understudy_unenforced_total", "chain", "default-anthropic", "decision", "failover")
			s.services[0].freeze()
			s.passesAll(t, "frozen")
			s.services[0].kill()
			s.passesAll(t, "dead")
			own.works(t, s)
		})
	}
}

// passesAll checks that calls go to their provider as if there were no service.
func (s *Stack) passesAll(t *testing.T, service string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, stream := range []bool{true, false} {
		c := call{path: messages, stream: stream, script: "a=ok", id: fmt.Sprint(service, stream)}
		if a := s.raw(ctx, t, c); a.status != 200 || a.err != nil {
			t.Errorf("with the service %s: the client got %d %.200q, %v, want 200", service, a.status, a.body, a.err)
		}
		s.calls(t, c.id, "a:1")
	}
}
