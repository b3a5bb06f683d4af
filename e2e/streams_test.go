//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

// unseen are the answers that look good by their status and are replaced before anything of them is seen.
var unseen = []struct {
	name   string
	script string
	class  string
	stream bool
}{
	{"an error as the first event", "error-first", "overloaded", true},
	{"an error after message_start and ping", "error-start", "overloaded", true},
	{"an error cut into single bytes", "error-start bytes", "overloaded", true},
	{"an error in a gzip stream", "error-start gzip", "overloaded", true},
	{"keep-alives only", "keepalive", "timeout", true},
	{"an empty stream", "empty", "truncated", true},
	{"a stream that ends before content", "cut n=0 how=end", "truncated", true},
	{"a stream that is reset before content", "cut n=0 how=reset", "transport", true},
	{"a stream that closes before content", "cut n=0 how=close", "transport", true},
	{"a stream that stalls before content", "stall n=0", "timeout", true},
	{"an HTML page as a stream", "malformed n=0", "malformed", true},
	{"an error as a whole answer", "error-first", "overloaded", false},
	{"half of a JSON answer", "half", "truncated", false},
	{"a JSON answer that is reset half-way", "cut how=reset", "transport", false},
	{"a JSON answer that closes half-way", "cut how=close", "transport", false},
	{"an answer that is no JSON", "malformed", "malformed", false},
}

// endMarker is in the stream of each dialect exactly once.
var endMarker = map[string]string{messages: `"type":"message_stop"`, chats: "data: [DONE]", responsed: "event: response.completed"}

// startMarker begins the stream of each dialect, exactly once.
var startMarker = map[string]string{messages: "event: message_start", chats: `"role":"assistant"`, responsed: "event: response.created"}

// unseenRow is one such answer for one dialect and commit policy.
type unseenRow struct {
	name string
	call call
	want served
}

func unseenRows() (rows []unseenRow, chains []chain) {
	for _, u := range unseen {
		for _, path := range []string{messages, chats, responsed} {
			for _, commit := range []string{"first_content", "complete"} {
				c := chainFor(&chains, apiOf(path), "a", "b")
				c.more.Commit = commit
				c.more.Deadlines = fileDeadlines{FirstContent: 3 * time.Second, Answer: 3 * time.Second, Idle: 3 * time.Second}
				rows = append(rows, unseenRow{
					name: u.name + " of " + path + " with " + commit,
					call: call{path: path, stream: u.stream, chain: c.name, script: "a=" + u.script + "; b=ok"},
					want: served{by: "b", target: c.target("b"), rung: 1, attempts: 2, reason: u.class},
				})
			}
		}
	}
	return rows, chains
}

// run makes the call twice, with the SDK and raw: the SDK must be happy, and the bytes must be those of one answer.
func (r unseenRow) run(t *testing.T, s *Stack) {
	t.Parallel()
	r.want.check(t, r.call, s.sdk(within(t, time.Minute), t, r.call))
	s.calls(t, t.Name(), "a:1 b:1")

	r.call.id = t.Name() + " raw"
	a := s.raw(within(t, time.Minute), t, r.call)
	r.want.check(t, r.call, a)
	if !r.call.stream {
		return
	}
	for _, marker := range []string{startMarker[r.call.path], endMarker[r.call.path]} {
		if got := strings.Count(a.body, marker); got != 1 {
			t.Errorf("%q comes %d times, want once:\n%s", marker, got, a.body)
		}
	}
	if strings.Contains(a.body, "verloaded") {
		t.Errorf("the failed attempt shows:\n%s", a.body)
	}
}

func TestAFailureBehindA200IsReplacedUnseen(t *testing.T) {
	t.Parallel()
	rows, chains := unseenRows()
	s := startStack(t, plan{chains: chains})
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) { row.run(t, s) })
		}
	})
	s.survives(t)
}

func TestAGoodStreamArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	chains := []chain{}
	for _, api := range []string{"anthropic", "openai"} {
		for _, commit := range []string{"headers", "first_content", "complete"} {
			c := chainFor(&chains, api, "a", "b")
			c.more.Commit = commit
		}
	}
	s := startStack(t, plan{chains: chains})
	for _, c := range chains {
		for _, path := range []string{messages, chats, responsed} {
			if apiOf(path) != c.api {
				continue
			}
			for _, script := range []string{"a=ok n=5", "a=ok n=5 bytes"} {
				t.Run(path+" with "+c.more.Commit+" "+script, func(t *testing.T) {
					t.Parallel()
					direct := *s
					direct.listen = strings.TrimPrefix(s.endpoints["a"], "http://")
					ask := call{path: path, stream: true, chain: c.name, script: script}
					got := s.raw(within(t, patience), t, ask)
					want := strings.ReplaceAll(direct.raw(within(t, patience), t, ask).body, `"m"`, `"`+model("a")+`"`)
					want = strings.ReplaceAll(want, "[a m ", "[a "+model("a")+" ")
					if got.body != want {
						t.Errorf("the stream through Envoy = %q, want that of the provider, %q", got.body, want)
					}
				})
			}
		}
	}
}

func TestAGzipAnswerArrivesReadable(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "zipped", api: "anthropic", on: []string{"a", "b"}}}})
	for _, stream := range []bool{true, false} {
		c := call{path: messages, stream: stream, chain: "zipped", script: "a=ok gzip", id: t.Name()}
		a := s.sdk(within(t, patience), t, c)
		served{by: "a", target: "zipped/a", rung: 0, attempts: 1}.check(t, c, a)
	}
}

func TestAHealthyAnswerMayTakeThreeTimesFirstContent(t *testing.T) {
	t.Parallel()
	patient := chain{name: "patient", api: "anthropic", on: []string{"a", "b"}}
	patient.more.Deadlines = fileDeadlines{FirstContent: time.Second, Answer: time.Minute}
	s := startStack(t, plan{chains: []chain{patient}})
	c := call{path: messages, chain: "patient", script: "a=ok after=3s"}
	served{by: "a", target: "patient/a", rung: 0, attempts: 1}.check(t, c, s.sdk(within(t, time.Minute), t, c))
	s.calls(t, t.Name(), "a:1 b:0")
}
