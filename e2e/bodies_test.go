//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"understudy/internal/scripted"
)

const mib = 1 << 20

// sized is a request of exactly n bytes.
func sized(path string, n int) []byte {
	head, tail := `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"`, `"}]}`
	if path == responsed {
		head, tail = `{"model":"m","input":"`, `"}`
	}
	body := make([]byte, n)
	io.ReadFull(scripted.Noise(int64(n)), body)                                        // it has as many
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_" // prompts do not compress without bound
	for i := range body {
		body[i] = letters[body[i]&63]
	}
	copy(body, head)
	copy(body[n-len(tail):], tail)
	return body
}

// forModel is the body as the target of a provider should get it: another model, every other byte the same.
func forModel(body []byte, provider string) []byte {
	return bytes.Replace(body, []byte(`"model":"m"`), []byte(`"model":"`+model(provider)+`"`), 1)
}

func sum(body []byte) string {
	hash := sha256.Sum256(body)
	return hex.EncodeToString(hash[:])
}

func TestALongRequestArrivesIntactAtEveryTarget(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{})
	for _, path := range []string{messages, responsed} {
		for name, n := range map[string]int{"20 MB": 20_000_000, "32 MiB": 32 * mib} {
			t.Run(path+" "+name, func(t *testing.T) {
				body := sized(path, n)
				c := call{path: path, script: "a=529; b=ok"}
				a := s.do(s.request(within(t, time.Minute), t, c, bytes.NewReader(body)))
				if a.status != 200 || a.err != nil {
					t.Fatalf("the client got %d %.300s, %v, want 200", a.status, a.body, a.err)
				}
				for _, name := range []string{"a", "b"} {
					s.gotIntact(t, name, forModel(body, name))
				}
			})
		}
	}
	s.survives(t)
}

func (s *Stack) gotIntact(t *testing.T, provider string, want []byte) {
	t.Helper()
	requests := s.providers[provider].Requests(t.Name())
	if len(requests) != 1 {
		t.Fatalf("provider %s saw %d requests, want 1", provider, len(requests))
	}
	if r := requests[0]; r.SHA256 != sum(want) || r.Size != int64(len(want)) {
		t.Errorf("provider %s got %d bytes %s (begins %.80s), want %d bytes %s", provider, r.Size, r.SHA256, r.Body, len(want), sum(want))
	}
}

// unsized hides the length of a body, so that it goes out in chunks.
type unsized struct{ io.Reader }

func TestATooLongRequestIsRefusedInTheDialect(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	for _, path := range []string{messages, chats} {
		for name, n := range map[string]int{"32 MiB and a byte": 32*mib + 1, "40 MiB": 40 * mib} {
			for _, how := range []string{"with its length", "in chunks", "expecting 100-continue"} {
				t.Run(path+" "+name+" "+how, func(t *testing.T) {
					var body io.Reader = bytes.NewReader(sized(path, n))
					if how == "in chunks" {
						body = unsized{body}
					}
					req := s.request(within(t, time.Minute), t, call{path: path, script: "a=ok"}, body)
					if how == "expecting 100-continue" {
						req.Header.Set("expect", "100-continue")
					}
					refused(t, s.do(req), path, http.StatusRequestEntityTooLarge)
					s.calls(t, t.Name(), "a:0 b:0")
				})
			}
		}
	}
	s.survives(t)
}

// refused checks an error of ours in the dialect of a path.
func refused(t *testing.T, a answer, path string, status int) {
	t.Helper()
	if err := inDialect(path, a.body); a.err != nil || a.status != status || err != nil {
		t.Errorf("the client got %d %.300s, %v, want %d and an error of its dialect: %v", a.status, a.body, a.err, status, err)
	}
	if got := a.header.Get("content-type"); !strings.HasPrefix(got, "application/json") {
		t.Errorf("content-type = %q, want application/json", got)
	}
}

// inDialect says what keeps a body from being an error in the dialect of a path.
func inDialect(path, body string) error {
	var e struct {
		Type  string `json:"type"`
		Error *struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return err
	}
	if e.Error == nil || e.Error.Type == "" || e.Error.Message == "" {
		return errors.New("no error with a type and a message")
	}
	if path == messages && e.Type != "error" {
		return fmt.Errorf("type is %q, want error", e.Type)
	}
	return nil
}

// encodings are those of requests that are read.
var encodings = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 4) },
	"zstd": func(w io.Writer) io.WriteCloser {
		enc, err := zstd.NewWriter(w)
		if err != nil {
			panic(err) // no option is given that could be wrong
		}
		return enc
	},
}

func encoded(t *testing.T, encoding string, body io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	w := encodings[encoding](&out)
	if _, err := io.Copy(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCompressedRequestsAreRead(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "packed", api: "anthropic", on: []string{"a", "b"}}}})
	for encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			body := sized(messages, 3*mib)
			req := s.request(within(t, patience), t, call{path: messages, chain: "packed", script: "a=529; b=ok"}, bytes.NewReader(encoded(t, encoding, bytes.NewReader(body))))
			req.Header.Set("content-encoding", encoding)
			if a := s.do(req); a.status != 200 || a.header.Get("x-llm-target") != "packed/b" {
				t.Fatalf("the client got %d %.300s from %q, want 200 from packed/b", a.status, a.body, a.header.Get("x-llm-target"))
			}
			for _, name := range []string{"a", "b"} {
				for _, r := range s.providers[name].Requests(t.Name()) {
					if r.Model != model(name) {
						t.Errorf("provider %s was asked for model %q (encoding %q), want %q", name, r.Model, r.Header.Get("content-encoding"), model(name))
					}
				}
			}
			s.calls(t, t.Name(), "a:1 b:1")
		})
	}
}

// bomb is a request that says little at great length.
func bomb(n int64) io.Reader {
	zeros := io.LimitReader(repeat('0'), n)
	return io.MultiReader(strings.NewReader(`{"model":"m","messages":"`), zeros, strings.NewReader(`"}`))
}

type repeat byte

func (r repeat) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r)
	}
	return len(b), nil
}

func TestADecompressionBombIsRefused(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{})
	s.raw(within(t, patience), t, call{path: messages, script: "a=ok", id: "warm"})
	before := s.services[0].peakMemory(t)
	for encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			body := encoded(t, encoding, bomb(1000*mib))
			req := s.request(within(t, time.Minute), t, call{path: messages, script: "a=ok"}, bytes.NewReader(body))
			req.Header.Set("content-encoding", encoding)
			a := s.do(req)
			if err := inDialect(messages, a.body); a.status != 400 && a.status != 413 || err != nil {
				t.Errorf("the client got %d %.300s, %v, want a 400 or 413 in the dialect: %v", a.status, a.body, a.err, err)
			}
			s.calls(t, t.Name(), "a:0 b:0")
		})
	}
	s.services[0].flat(t, before, 200*mib)
}

func TestABrokenEncodingIsTheProvidersToJudge(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	req := s.request(within(t, patience), t, call{path: messages, script: "a=400"}, strings.NewReader("this is not gzip"))
	req.Header.Set("content-encoding", "gzip")
	if a := s.do(req); a.status != http.StatusBadRequest {
		t.Errorf("the client got %d %.300s, want a 400", a.status, a.body)
	}
	s.calls(t, t.Name(), "b:0")
}

func TestTheHoldOnBodiesIsBoundedAndGivenBack(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{edit: func(f *file) { f.Server.MaxBody = "1MiB" }})
	for i, n := range []int{mib, mib + 1} {
		c := call{path: messages, script: "a=ok", id: fmt.Sprint(n)}
		a := s.do(s.request(within(t, patience), t, c, bytes.NewReader(sized(messages, n))))
		if want := []int{200, 413}[i]; a.status != want {
			t.Errorf("a body of %d bytes got %d %.200s, want %d", n, a.status, a.body, want)
		}
	}
	s.reads(t, is(0), "understudy_held_bytes")
}
