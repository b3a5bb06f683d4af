//go:build e2e

package e2e

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

func TestWithoutTheServiceFailClosedIsAJSON503(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "guarded", api: "anthropic", on: []string{"a", "b"}}}})
	s.services[0].kill()
	for _, path := range []string{messages, chats, responsed} {
		for _, stream := range []bool{true, false} {
			a := s.raw(within(t, patience), t, call{path: path, stream: stream, script: "a=ok", id: "down"})
			refused(t, a, path, http.StatusServiceUnavailable)
			leaksNothing(t, a.header)
		}
	}
	a := s.do(s.plain(within(t, patience), t, http.MethodGet, "/v1/models", nil))
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("a passthrough path got %d %s, want 503", a.status, a.body)
	}
	s.calls(t, "down", "a:0 b:0")
	s.calls(t, t.Name(), "a:0")

	s.back(t, "guarded")
}

// back restarts the service and waits until Envoy, untouched, protects again.
func (s *Stack) back(t *testing.T, chain string) {
	t.Helper()
	if err := s.startService(t, 0); err != nil {
		t.Fatal(err)
	}
	c := call{path: messages, chain: chain, script: "a=529; b=ok", id: "back"}
	var a answer
	eventually(t, patience, func() error {
		a = s.sdk(within(t, patience), t, c)
		return a.err
	})
	served{by: "b", target: chain + "/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, c, a)
	s.survives(t)
}

func TestWithoutTheServiceFailOpenReachesThePrimary(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{
		chains: []chain{{name: "guarded", api: "anthropic", on: []string{"a", "b"}}},
		edit:   func(f *file) { f.Envoy.WhenServiceDown = "open" },
	})
	c := call{path: messages, chain: "guarded", script: "a=529; b=ok", id: "up"}
	served{by: "b", target: "guarded/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, c, s.sdk(within(t, patience), t, c))

	s.services[0].kill()
	for _, path := range []string{messages, chats, responsed} {
		t.Run(path, func(t *testing.T) {
			a := s.sdk(within(t, patience), t, call{path: path, stream: true, script: "a=ok"})
			if a.err != nil || !strings.HasPrefix(a.text, "[a m ") {
				t.Errorf("the client got %d %q, %v, want the primary's answer", a.status, a.text, a.err)
			}
			s.reachedRight(t, path)
		})
	}
	t.Run("a passthrough path", func(t *testing.T) {
		if a := s.do(s.plain(within(t, patience), t, http.MethodGet, "/v1/models", nil)); a.status != 200 {
			t.Errorf("the client got %d %s, want 200", a.status, a.body)
		}
		s.reachedRight(t, "/v1/models")
	})
	t.Run("a client that steers", func(t *testing.T) {
		all := maps.Clone(steering)
		all["x-llm-internal"] = "steered"
		for name, value := range all {
			t.Run(name, func(t *testing.T) {
				steer := map[string]string{name: value, "authorization": "Bearer " + clientKey}
				a := s.raw(within(t, patience), t, call{path: messages, chain: "guarded", script: "*=ok", header: steer})
				if a.status != http.StatusOK {
					t.Errorf("the client got %d %.300s, %v, want 200", a.status, a.body, a.err)
				}
				s.calls(t, t.Name(), "a:1 b:0")
				s.reachedRight(t, messages)
			})
		}
		formsSteerNothing(t, s, "guarded")
	})
	s.back(t, "guarded")
}

// reachedRight checks host, path and credential of the one request of this test, and that nobody else's came along.
func (s *Stack) reachedRight(t *testing.T, path string) {
	t.Helper()
	requests := s.providers["a"].Requests(t.Name())
	if len(requests) != 1 {
		t.Fatalf("the primary saw %d requests, want 1", len(requests))
	}
	r := requests[0]
	if want := credential(apiOf(path), "a"); r.Header.Get(want[0]) != want[1] {
		t.Errorf("%s = %q, want %q", want[0], r.Header.Get(want[0]), want[1])
	}
	if "http://"+r.Host != s.endpoints["a"] || r.Path != path {
		t.Errorf("the primary was called as %s%s, want %s%s", r.Host, r.Path, s.endpoints["a"], path)
	}
	for name, values := range r.Header {
		if foreign(name) || strings.Contains(strings.Join(values, ","), clientKey) {
			t.Errorf("the primary was sent %s: %q", name, values)
		}
	}
}

// byo makes a provider take its credential from the client.
func byo(accounts ...string) func(*file) {
	return func(f *file) {
		for _, account := range accounts {
			p := f.Providers[account]
			p.Auth = map[string]any{"from": "client"}
			f.Providers[account] = p
		}
	}
}

func TestAClientsOwnCredentialGoesToItsProviderOnly(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"closed", "open"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, plan{
				chains: []chain{{name: "own", api: "anthropic", on: []string{"a", "b"}}},
				edit: func(f *file) {
					byo(account("a", "anthropic"))(f)
					f.Envoy.WhenServiceDown = mode
				},
			})
			s.sdk(within(t, patience), t, call{path: messages, chain: "own", script: "a=529; b=ok"})
			s.given(t, t.Name(), "a", "", "Bearer "+clientKey)
			s.given(t, t.Name(), "b", key(account("b", "anthropic")), "")
			s.calls(t, t.Name(), "a:1 b:1")

			s.services[0].kill()
			down := call{path: messages, script: "*=ok", id: t.Name() + " down"}
			a := s.sdk(within(t, patience), t, down)
			if mode == "closed" {
				s.calls(t, down.id, "a:0 b:0")
				return
			}
			if a.err != nil {
				t.Errorf("the client got %d, %v, want the primary's answer", a.status, a.err)
			}
			s.given(t, down.id, "a", "", "Bearer "+clientKey)
			s.calls(t, down.id, "a:1 b:0")
		})
	}
}

// given checks the credentials that a provider got; the SDK sends its key as a bearer.
func (s *Stack) given(t *testing.T, id, provider, apiKey, authorization string) {
	t.Helper()
	for _, r := range s.providers[provider].Requests(id) {
		if k, a := r.Header.Get("x-api-key"), r.Header.Get("authorization"); k != apiKey || a != authorization {
			t.Errorf("provider %s was given x-api-key %q and authorization %q, want %q and %q", provider, k, a, apiKey, authorization)
		}
	}
}
