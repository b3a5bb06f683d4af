package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"
)

// explained runs the command on a log.
func explained(t testing.TB, log string, args ...string) (out, complaint string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append(append([]string{"explain"}, args...), "-"), std{strings.NewReader(log), &stdout, &stderr})
	return stdout.String(), stderr.String(), code
}

// The logs were written by a real service behind a real Envoy: see e2e's TestTheStoryOfAnExchangeIsToldFromTheLog.
func TestStoriesOfRecordedExchanges(t *testing.T) {
	logs, err := filepath.Glob("testdata/explain/*.log")
	if err != nil || len(logs) < 9 {
		t.Fatalf("there are %d logs, %v", len(logs), err)
	}
	for _, file := range logs {
		t.Run(filepath.Base(file), func(t *testing.T) {
			log, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, complaint, code := explained(t, string(log))
			if code != exitFine || complaint != "" {
				t.Fatalf("extproc explain = %d, %s", code, complaint)
			}
			golden := strings.TrimSuffix(file, "log") + "txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("the story of %s is\n%s\nwant, %v\n%s", file, got, err, want)
			}
		})
	}
}

// lineFor is the least that a line says of an exchange.
func lineFor(id string, more string) string {
	return fmt.Sprintf(`{"time":"2026-11-30T05:00:00Z","level":"INFO","msg":"exchange","id":%q,"key":"k-%s","chain":"chat","outcome":"served",`+
		`"target":"a/x","attempts":1,"status":200,"class":"ok","start":"2026-11-30T05:00:00Z","took_ms":5%s}`, id, id, more) + "\n"
}

func TestWhichExchangeIsTold(t *testing.T) {
	log := "Starting up\n" + lineFor("x1", `,"request_id":"r1","trace_id":"t1"`) + `{"msg":"breaker open","target":"a/x"}` + "\n" +
		"service-2  | " + lineFor("x2", `,"outcome":"degraded","mode":"queue","degraded":"queue; job=j7"`) +
		"2026-11-30T05:00:01Z stderr F " + lineFor("x3", `,"key":"k-x2","job":true`) + lineFor("x4", `,"status":"no number"`) + lineFor("x9", "")
	rows := []struct {
		name string
		args []string
		want []string
		not  string
		code int
	}{
		{"the last one is not told without an id", nil, []string{"Of 4 exchanges in the log, the last is told", "Exchange x9", "1 lines of the log could not be read"}, "x1", 0},
		{"an exchange is not found by its id", []string{"--id", "x1"}, []string{"Exchange x1"}, "x2", 0},
		{"an exchange is not found by its request", []string{"--id", "r1"}, []string{"Exchange x1"}, "x2", 0},
		{"an exchange is not found by its trace", []string{"--id", "t1"}, []string{"Exchange x1"}, "x2", 0},
		{"a job's run is not told with its request", []string{"--id", "j7"}, []string{"Exchange x2", "queued as job j7", "Later, the queued request was run: exchange x3"}, "x1", 0},
		{"a request is not told with its run", []string{"--id", "x3"}, []string{"Exchange x2", "exchange x3"}, "x1", 0},
		{"an unknown id is no fault", []string{"--id", "x5\x1b[31m"}, []string{`none of 4 exchanges in the log has the id x5\x1b[31m`}, "Exchange", 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			out, complaint, code := explained(t, log, row.args...)
			for _, want := range row.want {
				if !strings.Contains(out+complaint, want) {
					t.Errorf("explain %q =\n%s%s\nwant in it: %s", row.args, out, complaint, want)
				}
			}
			if code != row.code || strings.Contains(out, row.not) {
				t.Errorf("explain %q = %d\n%s\nwant %d, and no %s", row.args, code, out, row.code, row.not)
			}
		})
	}
}

func TestALogWithoutAnExchangeIsAFault(t *testing.T) {
	for _, log := range []string{"", "no json\n", `{"msg":"exchange"}`, "{}", `{"msg":"serving"}`} {
		if out, complaint, code := explained(t, log); code != exitWrong || out != "" || !strings.Contains(complaint, "no line of an exchange") {
			t.Errorf("explain of %q = %d %q %q, want a fault", log, code, out, complaint)
		}
	}
	if _, _, code := explained(t, "", "--id"); code != exitUsage {
		t.Errorf("explain --id without a value = %d, want wrong usage", code)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"explain"}, std{strings.NewReader(""), &stdout, &stderr}); code != exitUsage {
		t.Errorf("explain without a file = %d, want wrong usage", code)
	}
}

// endless is a line of n bytes without an end.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.n)
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.n -= n
	return n, nil
}

// A gigabyte without a line break is one line, of which little is kept.
func TestALineOfAGigabyteIsNotKept(t *testing.T) {
	in := io.MultiReader(strings.NewReader(`{"msg":"exchange","id":"`), &endless{1 << 30}, strings.NewReader("\n"+lineFor("x1", "")))
	l := &logs{}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := l.read(t.Context(), in)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || l.seen != 1 || l.unread != 1 || took > 32<<20 {
		t.Errorf("read = %v with %d exchanges, %d unread lines and %d bytes of memory, want 1, 1 and at most 32 MiB", err, l.seen, l.unread, took)
	}
}

// Whatever a log says, what comes to the terminal is text.
func FuzzExplain(f *testing.F) {
	f.Add(lineFor("x1", `,"detail":"\u001b]0;title\u0007\u202e","class":"\u009b31m","sent_ms":-9223372036854775808,"config":"`+"\xff\"}"), "")
	f.Add(lineFor("x1", `,"past":[{"attempt":1,"target":"\r\n","sent_ms":9223372036854775807,"took_ms":9223372036854775807,"cost_usd":1e308}],"attempts":2147483647`), "x1")
	f.Add(lineFor("x1", `,"degraded":"queue; job=\u0000","mode":"queue","outcome":"degraded","cost_usd":1e308`), "\x00")
	f.Fuzz(func(t *testing.T, log, id string) {
		l := &logs{id: id}
		if err := l.read(t.Context(), strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		lines, err := l.chosen()
		if err != nil {
			return
		}
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		tell(w, lines)
		if err := errors.Join(w.Flush(), ctrl(out.String())); err != nil {
			t.Errorf("explain of %q: %v", log, err)
		}
	})
}

// ctrl finds what a terminal would take for more than text.
func ctrl(s string) error {
	for i, r := range s {
		if r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return fmt.Errorf("byte %d is %q in %q", i, r, s)
		}
	}
	return nil
}
