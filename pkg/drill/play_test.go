package drill_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/drill"
)

// dialects are a request of each, streamed or not.
var dialects = []struct {
	api        classify.API
	path, sse  string // of a stream, where it is another
	body, more string
}{
	{classify.AnthropicMessages, "/v1/messages", "", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]`, `,"stream":true`},
	{classify.OpenAIChat, "/v1/chat/completions", "", `{"model":"m","messages":[{"role":"user","content":"x"}]`, `,"stream":true`},
	{classify.OpenAIResponses, "/v1/responses", "", `{"model":"m","input":"x"`, `,"stream":true`},
	{classify.Gemini, "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"x"}]}]`, ""},
}

// Each fault must be read as what the table says; a slow one, and one that ends below HTTP, by who waits for it.
func TestEachFaultIsReadAsWhatItPlays(t *testing.T) {
	server := httptest.NewServer(drill.Handler())
	defer server.Close()
	for _, f := range drill.Faults() {
		for _, d := range dialects {
			for _, stream := range []bool{false, true} {
				if f.Slow || f.Class == classify.Transport || f.Streamed && !stream {
					continue
				}
				path, body := d.path, d.body+"}"
				if stream {
					path, body = d.path, d.body+d.more+"}"
					if d.sse != "" {
						path = d.sse
					}
				}
				t.Run(f.Name+" of "+path, func(t *testing.T) {
					status, v := play(t, server.URL, f.Name, path, body, d.api, stream)
					if status != f.Status || v.Class != f.Class {
						t.Errorf("%s is status %d read as %s, want %d and %s", f.Name, status, v.Class, f.Status, f.Class)
					}
				})
			}
		}
	}
}

func play(t *testing.T, url, fault, path, body string, api classify.API, stream bool) (int, classify.Verdict) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = fault + ".drill.invalid"
	req.Header.Set("content-type", "application/json")
	req.Header.Set("x-script", "*=ok") // what a client sends changes nothing
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := classify.New(classify.Options{API: api, Stream: stream})
	r.Header(resp.StatusCode, resp.Header.Get)
	text, err := io.ReadAll(resp.Body)
	r.Feed(text)
	return resp.StatusCode, r.End(err == nil)
}

func TestWhatIsNoFaultIsNotPlayed(t *testing.T) {
	for _, host := range []string{"api.anthropic.com", "flood.drill.invalid", ""} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/messages", strings.NewReader("{}"))
		r.Host = host
		w := httptest.NewRecorder()
		drill.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("a request to %q = %d, want 404", host, w.Code)
		}
	}
}
