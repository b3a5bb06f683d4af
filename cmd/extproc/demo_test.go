package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"understudy/pkg/chain/breaker"
)

// lines is a body as the client keeps it.
func lines(body string) []string { return strings.Split(body, "|") }

func TestEndingTellsHowAnAnswerEnded(t *testing.T) {
	for name, row := range map[string]struct {
		got  seen
		want ending
	}{
		"a stream with message_stop is whole":            {seen{lines: lines(`event: message_start|data: {"type":"message_start"}|event: message_stop|data: {"type":"message_stop"}`)}, wholeEnd},
		"JSON with a stop reason is whole":               {seen{lines: lines(`{"type":"message","stop_reason":"end_turn"}`)}, wholeEnd},
		"a stream that ends in an error":                 {seen{lines: lines(`event: message_start|event: error|data: {"type":"error","error":{}}`)}, errorEnd},
		"an error as JSON":                               {seen{lines: lines(`{"type":"error","error":{}}`)}, errorEnd},
		"a stream that just stops":                       {seen{lines: lines(`event: content_block_delta|data: {"type":"content_block_delta"}`)}, otherEnd},
		"JSON that stops half-way":                       {seen{lines: lines(`{"type":"message","stop_re`)}, otherEnd},
		"an empty body":                                  {seen{}, otherEnd},
		"a cut transfer is one, even after message_stop": {seen{lines: lines(`data: {"type":"message_stop"}`), err: io.ErrUnexpectedEOF}, abortedEnd},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.got.ending(); got != row.want {
				t.Errorf("ending(%q, %v) = %q, want %q", row.got.lines, row.got.err, got, row.want)
			}
		})
	}
}

// rescued is what the second step must see.
func rescued() seen {
	h := http.Header{}
	for name, value := range map[string]string{
		"x-llm-target": "fallback/sonnet", "x-llm-rung": "1", "x-llm-attempts": "2", "x-llm-fallback-reason": "overloaded",
	} {
		h.Set(name, value)
	}
	return seen{status: 200, header: h, lines: lines(`event: message_start|data: {"text":"[fallback m 0]"}|event: message_stop|data: {"type":"message_stop"}`)}
}

func TestCheckFindsWhatIsNotTrue(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(got *seen, calls *[2]int)
		want  string // in the error; "" is none
	}{
		"all as told":                        {func(*seen, *[2]int) {}, ""},
		"the client saw the failure":         {func(g *seen, _ *[2]int) { g.status = 529 }, `the status is "529", want "200"`},
		"the wrong target":                   {func(g *seen, _ *[2]int) { g.header.Set("x-llm-target", "primary/sonnet") }, "x-llm-target"},
		"the wrong rung":                     {func(g *seen, _ *[2]int) { g.header.Set("x-llm-rung", "2") }, "x-llm-rung"},
		"one attempt too many":               {func(g *seen, _ *[2]int) { g.header.Set("x-llm-attempts", "3") }, "x-llm-attempts"},
		"no reason":                          {func(g *seen, _ *[2]int) { g.header.Del("x-llm-fallback-reason") }, "x-llm-fallback-reason"},
		"the primary was not called":         {func(_ *seen, c *[2]int) { c[0] = 0 }, `"[0 1]", want "[1 1]"`},
		"two beginnings of one stream":       {func(g *seen, _ *[2]int) { g.lines = append(lines("event: message_start"), g.lines...) }, `message_start events is "2"`},
		"text of the primary in the rescue":  {func(g *seen, _ *[2]int) { g.lines[1] = `data: {"text":"[primary m 0]"}` }, "text of the primary"},
		"a rescue that is cut":               {func(g *seen, _ *[2]int) { g.err = errors.New("cut") }, "an aborted transfer"},
		"a rescue that ends without its end": {func(g *seen, _ *[2]int) { g.lines = g.lines[:2] }, string(otherEnd)},
	} {
		t.Run(name, func(t *testing.T) {
			got, calls := rescued(), [2]int{1, 1}
			row.spoil(&got, &calls)
			err := fromFallback.check(got, calls)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("check(%+v, %v) = %v, want %q", got, calls, err, row.want)
			}
		})
	}
}

func TestMetricsPageIsRead(t *testing.T) {
	m := parseMetrics(`# HELP understudy_breaker_state State 2
understudy_attempts_total{chain="chat",class="ok",target="fallback/sonnet"} 9
understudy_attempts_total{chain="chat",class="ok",target="primary/sonnet"} 3
understudy_attempts_total{chain="chat",class="overloaded",target="primary/sonnet"} 7
understudy_breaker_state{target="fallback/sonnet"} 0
understudy_breaker_state{target="primary/sonnet"} 2
`)
	if got, want := m.state(), breaker.Open.String(); got != want {
		t.Errorf("state() = %q, want %q", got, want)
	}
	if got := m.verdicts(); len(got) != 2 || got["ok"] != 3 || got["overloaded"] != 7 {
		t.Errorf("verdicts() = %v, want the primary's: ok 3, overloaded 7", got)
	}
	if got, want := parseMetrics("").state(), "unknown"; got != want {
		t.Errorf("state() of an empty page = %q, want %q", got, want)
	}
}

// play runs the demo with a program in the place of Envoy, and checks that nothing is left of it.
func play(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	code, stderr = playTo(t, ctx, &out, args...)
	return code, out.String(), stderr
}

func playTo(t *testing.T, ctx context.Context, out io.Writer, args ...string) (code int, stderr string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var err bytes.Buffer
	code = run(ctx, append([]string{"demo"}, args...), std{strings.NewReader(""), out, &err})
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("after the demo %s still holds %v", dir, left)
	}
	return code, err.String()
}

// script writes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDemoWithoutEnvoySaysHowToGetOne(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("ENVOY", "")
	code, _, stderr := play(t, t.Context())
	if code != exitWrong || !strings.Contains(stderr, "make demo") {
		t.Errorf("demo = exit %d, %q, want exit %d and the words \"make demo\"", code, stderr, exitWrong)
	}
}

func TestDemoTakesNoFurtherArguments(t *testing.T) {
	if code, _, stderr := play(t, t.Context(), "now"); code != exitUsage {
		t.Errorf("demo now = exit %d, %q, want exit %d", code, stderr, exitUsage)
	}
}

func TestDemoTellsThatEnvoyDied(t *testing.T) {
	t.Setenv("ENVOY", script(t, "echo no memory left >&2; exit 3"))
	code, _, stderr := play(t, t.Context())
	if code != exitWrong || !strings.Contains(stderr, "envoy has ended by itself: exit status 3") || !strings.Contains(stderr, "no memory left") {
		t.Errorf("demo = exit %d, %q, want exit %d, the exit status and the end of Envoy's log", code, stderr, exitWrong)
	}
}

func TestDemoEndsWhenItIsInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancel(t.Context())
	program := script(t, "mkfifo "+pipe+"; echo >"+pipe+"; exec sleep 100")
	go func() { // the demo has come as far as starting its Envoy
		defer cancel()
		_ = poll(ctx, func(context.Context) error { _, err := os.ReadFile(pipe); return err })
	}()
	code, _, stderr := play(t, ctx, "--envoy", program)
	if code != exitWrong || !strings.Contains(stderr, "interrupted") {
		t.Errorf("interrupted demo = exit %d, %q, want exit %d and the word", code, stderr, exitWrong)
	}
}
