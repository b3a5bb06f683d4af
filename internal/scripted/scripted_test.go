package scripted_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"understudy/internal/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	messages  = "/v1/messages"
	chat      = "/v1/chat/completions"
	responses = "/v1/responses"
)

// serve runs a provider "a" and returns a client with a deadline of its own.
func serve(t *testing.T, cert *tls.Certificate) (*scripted.Provider, *scripted.Server) {
	t.Helper()
	p := scripted.New("a", scripted.Options{Models: []string{"m-1"}})
	s, err := scripted.Serve(p, "127.0.0.1:0", cert)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return p, s
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// plainClient keeps no connection, so that nothing outlives a test.
var plainClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

type got struct {
	status int
	header http.Header
	body   string
	err    error // of the request, or of reading the body
}

func ask(t *testing.T, base, path, script, id string, stream bool) got {
	t.Helper()
	body := `{"model":"m-1","stream":false}`
	if stream {
		body = `{"model":"m-1","stream":true,"stream_options":{"include_usage":true}}`
	}
	req, err := http.NewRequestWithContext(deadline(t), http.MethodPost, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(scripted.ScriptHeader, script)
	req.Header.Set(scripted.IDHeader, id)
	resp, err := plainClient.Do(req)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(read), err}
}

func TestEachBehaviourDoesOnTheWireWhatItSays(t *testing.T) {
	t.Parallel()
	_, s := serve(t, nil)
	rows := []struct {
		name   string
		path   string
		script string
		stream bool
		status int    // 0: no answer at all
		has    string // in the body
		hasNot string
		cut    bool // the body ends in an error
	}{
		{"an Anthropic stream ends with message_stop", messages, "a=ok", true, 200, `{"type":"message_stop"}`, "", false},
		{"a chat stream ends with [DONE]", chat, "a=ok", true, 200, "data: [DONE]\n\n", "event:", false},
		{"a chat stream tells its usage when asked", chat, "a=ok", true, 200, `"choices":[],"usage":{"prompt_tokens":11`, "", false},
		{"a Responses stream ends without a done marker", responses, "a=ok", true, 200, "event: response.completed", "[DONE]", false},
		{"a whole answer names its provider and model", messages, "a=ok n=1", false, 200, `[a m-1 `, "", false},
		{"another provider's script is not mine", messages, "b=529", false, 200, `"type":"message"`, "", false},
		{"a star is for every provider", messages, "*=529", false, 529, "overloaded_error", "", false},
		{"Anthropic overload is a 529", messages, "a=529", true, 529, `{"type":"error","error":{"type":"overloaded_error"`, "", false},
		{"a spend limit hides under 400", messages, "a=400 code=spend_limit", false, 400, "You have reached your specified API usage limits", "", false},
		{"a precise cause sits in the details", messages, "a=429 code=enforced_spend_limit_reached", false, 429, `"details":{"error_code":"enforced_spend_limit_reached"}`, "", false},
		{"money comes as an OpenAI 429", chat, "a=429 code=insufficient_quota", false, 429, `"code":"insufficient_quota"`, "", false},
		{"a proxy answers in HTML", chat, "a=html502", false, 502, "<title>502 Bad Gateway</title>", "", false},
		{"Cloudflare's 520 has no body", messages, "a=cf520", false, 520, "", "", false},
		{"a provider's own 507 is possible", messages, "a=507", false, 507, "api_error", "", false},
		{"a reset leaves no answer", messages, "a=reset", true, 0, "", "", false},
		{"an error is the first event of a 200", messages, "a=error-first", true, 200, "event: error\n", "message_start", false},
		{"an error is the whole of a 200", chat, "a=error-first", false, 200, `{"error":{"message":"Overloaded"`, "choices", false},
		{"a failed response comes under 200", responses, "a=error-first", false, 200, `"status":"failed","error":{"code":"server_error"`, "", false},
		{"an error follows message_start and ping", messages, "a=error-start", true, 200, "event: error\n", "content_block_delta", false},
		{"the same in single bytes is the same", messages, "a=error-start bytes", true, 200, "event: error\n", "content_block_delta", false},
		{"an error follows two events", messages, "a=error n=2", true, 200, "event: error\n", "message_stop", false},
		{"a failed response ends a stream", responses, "a=failed n=1", true, 200, "event: response.failed\n", "response.completed", false},
		{"[DONE] follows an error", chat, "a=error-done n=1", true, 200, "\"code\":\"server_is_overloaded\"}}\n\ndata: [DONE]\n\n", `"finish_reason":"stop"`, false},
		{"an empty stream is a 200 with nothing", messages, "a=empty", true, 200, "", "message", false},
		{"a connection is reset after two events", messages, "a=cut n=2", true, 200, "[a m-1 ", "message_stop", true},
		{"a connection closes without its last chunk", chat, "a=cut n=2 how=close", true, 200, "[a m-1 ", "[DONE]", true},
		{"a stream ends cleanly without its end marker", chat, "a=cut n=2 how=end", true, 200, "[a m-1 ", "[DONE]", false},
		{"a JSON answer is cut below HTTP", messages, "a=cut how=close", false, 200, `"type":"message"`, "stop_reason", true},
		{"a JSON answer stops half-way, cleanly", chat, "a=half", false, 200, `"object":"chat.completion"`, "finish_reason", false},
		{"a refusal before any output", messages, "a=refusal n=0", true, 200, `"stop_reason":"refusal"`, "content_block", false},
		{"a refusal after two events is a complete stream", messages, "a=refusal n=2", true, 200, `{"type":"message_stop"}`, "", false},
		{"a chat refusal", chat, "a=refusal n=0", false, 200, `"refusal":"I can't help with that."`, "", false},
		{"a content filter cuts a chat", chat, "a=filter n=1", true, 200, `"finish_reason":"content_filter"`, `"stop"`, false},
		{"a content filter leaves a response incomplete", responses, "a=filter n=1", false, 200, `"incomplete_details":{"reason":"content_filter"}`, "", false},
		{"the served tier is the scripted one", messages, "a=ok tier=priority", true, 200, `"service_tier":"priority"`, "", false},
		{"HTML under a streaming 200", chat, "a=malformed n=0", true, 200, "<html>", "", false},
		{"an event that is not JSON", messages, "a=malformed n=1", true, 200, "data: not JSON", "", false},
		{"five megabytes of answer", messages, "a=ok n=1 size=5000000", false, 200, strings.Repeat("~", 5000000), "", false},
		{"a misspelt script fails loudly", messages, "a=okay", false, 501, `no such kind: "okay"`, "", false},
		{"a misspelt parameter fails loudly", messages, "a=ok m=3", false, 501, `"m=3": no such parameter`, "", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := ask(t, s.URL("127.0.0.1"), row.path, row.script, t.Name(), row.stream)
			if g.status != row.status {
				t.Fatalf("%s on %s = status %d (%v), want %d", row.script, row.path, g.status, g.err, row.status)
			}
			if row.status == 0 {
				return
			}
			if (g.err != nil) != row.cut {
				t.Errorf("%s: reading the body = %v, want cut = %v", row.script, g.err, row.cut)
			}
			if !strings.Contains(g.body, row.has) || row.hasNot != "" && strings.Contains(g.body, row.hasNot) {
				t.Errorf("%s = %.600q, want %q in it and %q not", row.script, g.body, row.has, row.hasNot)
			}
		})
	}
}

func TestAStreamCarriesItsTextWhole(t *testing.T) {
	t.Parallel()
	_, s := serve(t, nil)
	for _, path := range []string{messages, chat, responses} {
		g := ask(t, s.URL("127.0.0.1"), path, "a=ok n=5", "whole", true)
		rest := g.body
		for i, piece := range strings.SplitAfter(scripted.Text("a", "m-1", "whole", 5, 0), "]") {
			_, after, found := strings.Cut(rest, piece)
			if !found {
				t.Fatalf("%s: piece %d, %q, is not in the rest %q", path, i, piece, rest)
			}
			rest = after
		}
	}
}

func TestStepsAreTakenByTheRequestsOfOneID(t *testing.T) {
	t.Parallel()
	p, s := serve(t, nil)
	script := "b=500; a=529, 429 retry-after=2, ok"
	for id, want := range map[string][]int{"one": {529, 429, 200, 200}, "two": {529}} {
		for i, status := range want {
			g := ask(t, s.URL("127.0.0.1"), messages, script, id, false)
			if g.status != status {
				t.Errorf("request %d of id %q = %d, want %d", i, id, g.status, status)
			}
			if status == 429 && g.header.Get("retry-after") != "2" {
				t.Errorf("retry-after = %q, want 2", g.header.Get("retry-after"))
			}
		}
	}
	if one, all := p.Count("one"), p.Count(""); one != 4 || all != 5 {
		t.Errorf("Count(one), Count() = %d, %d, want 4, 5", one, all)
	}
}

func TestSetChangesWhatUnscriptedRequestsGet(t *testing.T) {
	t.Parallel()
	p, s := serve(t, nil)
	if err := p.Set("503"); err != nil {
		t.Fatal(err)
	}
	if g := ask(t, s.URL("127.0.0.1"), messages, "", "", false); g.status != 503 {
		t.Errorf("after Set(503): status %d, want 503", g.status)
	}
	if err := p.Set("503, what"); !errors.Is(err, scripted.ErrScript) {
		t.Errorf("Set(what) = %v, want ErrScript", err)
	}
}

func TestARequestIsOnRecordAsItCame(t *testing.T) {
	t.Parallel()
	p, s := serve(t, nil)
	ask(t, s.URL("127.0.0.1"), messages, "a=ok", "record", false)
	requests := p.Requests("record")
	if len(requests) != 1 {
		t.Fatalf("len(Requests) = %d, want 1", len(requests))
	}
	r := requests[0]
	body := `{"model":"m-1","stream":false}`
	sum := sha256.Sum256([]byte(body))
	if r.SHA256 != hex.EncodeToString(sum[:]) || r.Size != int64(len(body)) || string(r.Body) != body {
		t.Errorf("body on record = %d bytes, %s, %q, want those of %q", r.Size, r.SHA256, r.Body, body)
	}
	if r.Model != "m-1" || r.Path != messages || r.Header.Get(scripted.ScriptHeader) != "a=ok" || r.Stream || r.Gone || !r.Done {
		t.Errorf("record = %+v, want model, path and headers as sent, done and not gone", r)
	}
}

func TestAHangUpIsOnRecord(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hang", "stall n=1", "keepalive", "ok after=1h", "ok n=2 delay=1h"} {
		p, s := serve(t, nil)
		ctx, cancel := context.WithCancel(deadline(t))
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL("127.0.0.1")+messages, strings.NewReader(`{"stream":true}`))
		req.Header.Set(scripted.ScriptHeader, "a="+kind)
		req.Header.Set(scripted.IDHeader, "leaver")
		left := make(chan error, 1)
		go func() {
			resp, err := plainClient.Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			left <- err
		}()
		if err := p.AwaitRequests(deadline(t), "leaver", 1); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the client got %v, want a cancelled context", kind, err)
		}
		if err := p.AwaitGone(deadline(t), "leaver", 1); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAGateHoldsWhatComesAfterTheContent(t *testing.T) {
	t.Parallel()
	p, s := serve(t, nil)
	req, _ := http.NewRequestWithContext(deadline(t), http.MethodPost, s.URL("127.0.0.1")+messages, strings.NewReader(`{"stream":true}`))
	req.Header.Set(scripted.ScriptHeader, "a=cut n=1 how=close gate")
	req.Header.Set(scripted.IDHeader, "gated")
	resp, err := plainClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "content_block_delta") {
	}
	p.Open("gated") // only now: the first content has been read
	for lines.Scan() {
	}
	if lines.Err() == nil {
		t.Error("the stream ended cleanly, want a cut")
	}
}

func TestAGzipStreamIsReadableEventByEvent(t *testing.T) {
	t.Parallel()
	_, s := serve(t, nil)
	g := ask(t, s.URL("127.0.0.1"), messages, "a=ok n=2 gzip", "zip", true)
	if g.header.Get("content-encoding") != "gzip" {
		t.Fatalf("content-encoding = %q, want gzip", g.header.Get("content-encoding"))
	}
	zip, err := gzip.NewReader(strings.NewReader(g.body))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zip)
	if err != nil || !strings.Contains(string(plain), "message_stop") {
		t.Errorf("gunzip = %q, %v, want a whole stream", plain, err)
	}
}

func TestEvilHeadersAreSent(t *testing.T) {
	t.Parallel()
	_, s := serve(t, nil)
	g := ask(t, s.URL("127.0.0.1"), messages, "a=ok evil", "evil", false)
	for name, want := range map[string]string{"x-llm-failover": "next", "x-llm-target": "evil/model", "x-envoy-ratelimited": "true"} {
		if got := g.header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}
