//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var recordLines = flag.Bool("record", false, "write the lines of exchanges to cmd/extproc/testdata/explain")

// Each row is one exchange, whose story `extproc explain` tells from the log of a real run.
func TestTheStoryOfAnExchangeIsToldFromTheLog(t *testing.T) {
	t.Parallel()
	usual := map[string]filePrice{"a": {Input: 3, Output: 15}, "b": {Input: 6, Output: 30}}
	breaker := fileBreaker{Failures: 1000}
	s := startStack(t, plan{chains: []chain{
		{name: "usual", api: "anthropic", on: []string{"a", "b"}, breaker: breaker, prices: usual},
		{name: "cached", api: "anthropic", on: []string{"a", "b"}, breaker: breaker, more: fileChain{Degrade: []string{"cache"}}},
		{name: "queued", api: "anthropic", on: []string{"a"}, breaker: fileBreaker{Failures: 1, OpenFor: 2 * time.Second, HalfOpen: "probe", Ramp: atOnce},
			more: fileChain{Degrade: []string{"queue"}}},
		{name: "off", api: "anthropic", on: []string{"a", "b"}, breaker: breaker, more: fileChain{Degrade: []string{"off"}}},
		{name: "opened", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}},
	}})
	rows := []struct {
		name, chain, script string
		before              string // script of a call that comes first
		stream              bool
		told                []string
	}{
		{"served", "usual", "a=ok", "", true, []string{"Attempt 1 asked usual/a, the primary.", "gave a good answer", "got the answer of usual/a, the primary, with status 200.", "USD."}},
		{"failover", "usual", "a=error-start; b=ok n=3 delay=50ms", "", true, []string{"usual/a was overloaded (overloaded_error; its stream said so before any content", "Attempt 2 asked usual/b, rung 1.",
			"The headers left for the client, with status 200", "got the answer of usual/b, a fallback, with status 200; what failed last before it was overloaded."}},
		{"failed", "usual", "a=500; b=529", "", false, []string{"usual/a had an error of its own", "usual/b was overloaded", "The client got an error, with status"}},
		{"cut", "usual", "a=error n=2 delay=100ms", "", true, []string{"its stream said so after content", "got the beginning of an answer with status 200, and then an honest end"}},
		{"refused", "usual", "a=400", "", false, []string{"usual/a found the request wrong", "with status 400"}},
		{"skipped", "opened", "a=529; b=ok", "a=529; b=ok", false, []string{"Of attempt 1 no call is known here", "Attempt 2 asked opened/b", "a fallback"}},
		{"cache", "cached", "*=529", "a=ok", false, []string{"got an earlier answer from the cache (age="}},
		{"off", "off", "*=529", "", false, []string{"got the chain's off answer, with status 503"}},
		{"queue", "queued", "a=529", "", false, []string{"was told that the request is queued as job", "Later, the queued request was run: exchange", "The job got the answer of queued/a, the primary, with status 200."}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			id := fmt.Sprintf("4bf92f3577b34da6a3ce9292%08x", len(row.name)+int(row.name[0])<<8)
			if row.before != "" {
				s.raw(within(t, patience), t, call{path: messages, chain: row.chain, script: row.before, stream: row.stream})
			}
			s.raw(within(t, patience), t, call{path: messages, chain: row.chain, script: row.script, stream: row.stream,
				header: map[string]string{"traceparent": "00-" + id + "-" + clientSpan + "-00"}})
			eventually(t, patience, func() error {
				out, err := exec.CommandContext(t.Context(), binary, "explain", "--id", id, s.services[0].log).CombinedOutput()
				if err != nil {
					return fmt.Errorf("extproc explain: %w\n%s", err, out)
				}
				for _, want := range row.told {
					if !strings.Contains(string(out), want) {
						return fmt.Errorf("the story of %s is\n%s\nwant in it: %s", row.name, out, want)
					}
				}
				return nil
			})
			if *recordLines {
				keepLines(t, s.services[0].log, row.name, id)
			}
		})
	}
}

// keepLines writes what the log says around a trace to the command's test data.
func keepLines(t *testing.T, log, name, id string) {
	t.Helper()
	all, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var kept [][]byte
	for line := range bytes.Lines(all) {
		if bytes.Contains(line, []byte(id)) || name == "queue" && bytes.Contains(line, []byte(`"job":true`)) || bytes.Contains(line, []byte(`"breaker `)) {
			kept = append(kept, line)
		}
	}
	write(t, filepath.Join("..", "cmd", "extproc", "testdata", "explain", name+".log"), bytes.Join(kept, nil))
}
