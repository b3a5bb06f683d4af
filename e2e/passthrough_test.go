//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"understudy/internal/scripted"
)

// plain makes a request on a path that no chain protects.
func (s *Stack) plain(ctx context.Context, t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.front()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(scripted.IDHeader, t.Name())
	req.Header.Set("authorization", "Bearer "+clientKey)
	return req
}

// credited checks that the one request of this test reached provider a with its own credential and host.
func (s *Stack) credited(t *testing.T) {
	t.Helper()
	requests := s.providers["a"].Requests(t.Name())
	if len(requests) != 1 {
		t.Fatalf("the provider saw %d requests, want 1", len(requests))
	}
	r := requests[0]
	if want := credential("openai", "a"); r.Header.Get(want[0]) != want[1] {
		t.Errorf("%s = %q, want %q", want[0], r.Header.Get(want[0]), want[1])
	}
	if "http://"+r.Host != s.endpoints["a"] {
		t.Errorf("host = %q, want that of %s", r.Host, s.endpoints["a"])
	}
}

const hundredMB = 100_000_000

func TestPassthroughPathsGoThroughWithACredential(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{})
	s.raw(within(t, patience), t, call{path: messages, script: "a=ok", id: "warm"})
	before := s.services[0].peakMemory(t)

	t.Run("a list of models", func(t *testing.T) {
		a := s.do(s.plain(within(t, patience), t, http.MethodGet, "/v1/models?after=x", nil))
		if a.status != 200 || !strings.Contains(a.body, model("a")) {
			t.Errorf("GET /v1/models = %d %s, want the provider's list", a.status, a.body)
		}
		s.credited(t)
		if got := s.providers["a"].Requests(t.Name())[0].Path; got != "/v1/models?after=x" {
			t.Errorf("the provider was asked for %q, want /v1/models?after=x", got)
		}
	})
	t.Run("an upload of 100 MB", func(t *testing.T) {
		hash := sha256.New()
		body := io.TeeReader(scripted.Noise(hundredMB), hash)
		a := s.do(s.plain(within(t, time.Minute), t, http.MethodPost, "/v1/files", body))
		if want := hex.EncodeToString(hash.Sum(nil)); a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("upload = %d %s, %v, want 200 and hash %s", a.status, a.body, a.err, want)
		}
		s.credited(t)
	})
	t.Run("a download of 100 MB", func(t *testing.T) {
		resp, err := s.http.Do(s.plain(within(t, time.Minute), t, http.MethodGet, fmt.Sprint("/v1/files/f/content?size=", hundredMB), nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, want := sha256.New(), sha256.New()
		n, err := io.Copy(got, resp.Body)
		io.Copy(want, scripted.Noise(hundredMB))
		if n != hundredMB || err != nil || string(got.Sum(nil)) != string(want.Sum(nil)) {
			t.Errorf("download = %d bytes, %v, same %v, want %d, all the same", n, err, string(got.Sum(nil)) == string(want.Sum(nil)), hundredMB)
		}
		s.credited(t)
	})
	t.Run("a WebSocket", func(t *testing.T) {
		ctx := within(t, patience)
		conn, _, err := websocket.Dial(ctx, s.front()+"/v1/realtime", &websocket.DialOptions{
			HTTPClient: s.http,
			HTTPHeader: http.Header{scripted.IDHeader: {t.Name()}, "Authorization": {"Bearer " + clientKey}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		for _, text := range []string{"one", strings.Repeat("two", 10000)} {
			if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
				t.Fatal(err)
			}
			conn.SetReadLimit(mib)
			if _, got, err := conn.Read(ctx); err != nil || string(got) != text {
				t.Errorf("echo of %d bytes = %d bytes, %v", len(text), len(got), err)
			}
		}
		if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		s.credited(t)
	})
	s.services[0].flat(t, before, 32*mib)
	s.survives(t)
}

func TestAPathOfNobodyIsA404InTheDialect(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	for path, dialect := range map[string]string{
		"/v1/embeddings":            chats,
		"/v1/modelsandmore":         chats,
		"/v1/messages/count_tokens": messages,
		"/":                         chats,
	} {
		t.Run(path, func(t *testing.T) {
			refused(t, s.do(s.plain(within(t, patience), t, http.MethodPost, path, strings.NewReader(`{}`))), dialect, http.StatusNotFound)
			s.calls(t, t.Name(), "a:0 b:0")
		})
	}
}

func TestAPassthroughPostWhoseUpstreamDiesIsSentOnce(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	req := s.plain(within(t, patience), t, http.MethodPost, "/v1/files", strings.NewReader("a file"))
	req.Header.Set(scripted.ScriptHeader, "a=reset")
	if a := s.do(req); a.err == nil && a.status < 500 {
		t.Errorf("the client got %d %s, want an error", a.status, a.body)
	}
	s.calls(t, t.Name(), "a:1")
}

// TestAPostThatNoChainTakesPassesThroughAChainsPathOnce: the chain of this path takes only who names it.
func TestAPostThatNoChainTakesPassesThroughAChainsPathOnce(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run(version, func(t *testing.T) {
			s := startStack(t, plan{envoy: version, chains: []chain{{name: "named", api: "anthropic", on: []string{"b"}}}, edit: func(f *file) {
				f.Chains.Content = f.Chains.Content[:2] // without the default chains
				f.Passthrough = append(f.Passthrough, filePassthrough{"/v1", account("a", "anthropic")})
			}})
			for script, status := range map[string]int{"ok": 200, "529": 529, "reset": 503} {
				c := call{path: messages, id: t.Name() + script, script: "a=" + script}
				if a := s.raw(within(t, patience), t, c); a.status != status {
					t.Errorf("%s = %d %s, want %d", script, a.status, a.body, status)
				}
				s.calls(t, c.id, "a:1 b:0")
			}
			named := call{path: messages, chain: "named", id: t.Name()}
			served{by: "b", target: "named/b", attempts: 1}.check(t, named, s.raw(within(t, patience), t, named))
		})
	}
}
