package processor

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/classify"
)

// lines makes the processor log to what is returned.
func (b *bench) lines() *bytes.Buffer {
	out := &bytes.Buffer{}
	b.p.log = slog.New(slog.NewJSONHandler(out, nil))
	return out
}

// lineOf is the one line about an exchange.
func lineOf(t *testing.T, out *bytes.Buffer) map[string]any {
	t.Helper()
	var found map[string]any
	for text := range strings.Lines(out.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] != "exchange" {
			continue
		}
		if found != nil {
			t.Fatalf("an exchange has two lines:\n%s", out)
		}
		found = m
	}
	if found == nil {
		t.Fatalf("an exchange has no line:\n%s", out)
	}
	return found
}

func TestTheLineOfAFailoverTellsWhatEachAnswerWas(t *testing.T) {
	in(t, "", func(b *bench) {
		out := b.lines()
		start := time.Now()
		c, rest := b.attempt("529", "x1", 1)
		time.Sleep(70 * time.Millisecond)
		c.tell(rest...)
		c.hangUp()
		messages := readRecorded(t, "stream")
		h := messages[0].GetRequestHeaders().Headers
		setHeader(h, "x-envoy-attempt-count", "2")
		setHeader(h, "x-llm-exchange", "x1")
		setHeader(h, "x-llm-start", milli(start))
		setHeader(h, "x-stainless-retry-count", "1")
		setHeader(h, "traceparent", sampledParent)
		c = b.open()
		c.tell(messages[:2]...)
		time.Sleep(200 * time.Millisecond)
		c.tell(messages[2:]...)
		c.hangUp()
		got := lineOf(t, out)
		for _, gone := range []string{"time", "request_id", "start", "replica", "config"} {
			if got[gone] == "" {
				t.Errorf("the line has no %s", gone)
			}
			delete(got, gone)
		}
		want := map[string]any{
			"level": "INFO", "msg": "exchange", "id": "x1", "key": "understudy-x1", "chain": "chat", "outcome": "fallback", "target": "b/sonnet",
			"rung": 1.0, "attempts": 2.0, "status": 200.0, "streamed": true, "class": "ok", "phase": "end", "detail": "", "reason": "overloaded",
			"ineligible": "", "mode": "", "job": false, "drill": "", "took_ms": 270.0, "cost_usd": 0.0, "sent_ms": 70.0, "first_content_ms": 270.0,
			"committed_ms": 270.0, "provider_status": 200.0, "client_retry": 1.0, "trace_id": sampledParent[3:35],
			"provider_request_id": "req_a", "input_tokens": 11.0, "output_tokens": 3.0, "model": "claude-sonnet-5", "served_tier": "standard",
			"past": []any{map[string]any{"attempt": 1.0, "class": "overloaded", "detail": "overloaded_error", "phase": "body",
				"provider_request_id": "req_a", "provider_status": 529.0, "rung": 0.0, "sent_ms": 0.0, "target": "a/sonnet", "took_ms": 70.0}},
		}
		if !maps.EqualFunc(got, want, func(a, b any) bool { return jsonOf(a) == jsonOf(b) }) {
			t.Errorf("the line says\n%s\nwant\n%s", jsonOf(got), jsonOf(want))
		}
	})
}

func jsonOf(v any) string {
	out, _ := json.Marshal(v)
	return string(out)
}

func milli(t time.Time) string { return jsonOf(t.UnixMilli()) }

// Whatever providers and clients say, the line stays one that a log takes.
func TestALineIsBounded(t *testing.T) {
	long := strings.Repeat("\x1b[31m\"é\n", 1<<12)
	past := slices.Repeat([]chain.Past{{Target: "a/sonnet", Verdict: classify.Verdict{Detail: long, RequestID: long}}}, 64)
	r := &Record{ID: long, RequestID: long, Key: long, Chain: "chat", Outcome: OutcomeServed, Ineligible: long, Label: long, Drill: long,
		Verdict: classify.Verdict{Detail: long, Model: long, RequestID: long, AskedTier: long, ServedTier: long}, Past: past}
	out := &bytes.Buffer{}
	r.log(t.Context(), slog.New(slog.NewJSONHandler(out, nil)))
	if n := out.Len(); n > 48<<10 || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("the line has %d bytes and %d line breaks, want at most 48 KiB on one line", n, strings.Count(out.String(), "\n"))
	}
	m := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &m); err != nil || len(m["past"].([]any)) != linePast || m["past_left_out"] != 48.0 {
		t.Errorf("the line has %v earlier attempts and left out %v, %v, want %d and 48", len(m["past"].([]any)), m["past_left_out"], err, linePast)
	}
}
