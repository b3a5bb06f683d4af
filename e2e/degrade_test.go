//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
)

// ladderChains are a chain for each degraded mode and dialect.
func ladderChains() []chain {
	var chains []chain
	for _, api := range []string{"anthropic", "openai"} {
		add := func(mode string, more fileChain) {
			chains = append(chains, chain{name: mode + "-" + api, api: api, on: []string{"a", "b"}, more: more})
		}
		add("cache", fileChain{Degrade: []string{"cache", "off"}, Cache: map[string]any{"ttl": "1h"}})
		add("queue", fileChain{Degrade: []string{"queue", "off"}, Queue: map[string]any{"max_age": "1h", "message": "It will be answered later."}})
		add("off", fileChain{Degrade: []string{"off"}, Off: &fileOff{Status: 503, Message: "Closed for now."}})
		add("says", fileChain{Degrade: []string{"off"}, Off: &fileOff{As: "answer", Message: "Closed for now."}})
		add("all", fileChain{Degrade: []string{"cache", "queue", "downshift", "off"}, From: "all-" + api + "/b"})
	}
	return chains
}

func TestEveryDegradedModeIsReachedByTheOfficialSDKs(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: ladderChains()})
	for _, path := range []string{messages, chats, responsed} {
		for _, stream := range []bool{false, true} {
			c := call{path: path, stream: stream}
			name := fmt.Sprintf("%s stream %v", path, stream)
			t.Run(name+" cache", func(t *testing.T) {
				c := c
				c.chain = "cache-" + apiOf(path)
				c.script, c.id = "a=ok", t.Name()+" well"
				good := s.sdk(within(t, patience), t, c)
				if good.err != nil || good.text == "" {
					t.Fatalf("the client got %q, %v, want an answer to keep", good.text, good.err)
				}
				c.script, c.id = "*=529", t.Name()
				eventually(t, patience, func() error {
					a := s.sdk(within(t, patience), t, c)
					label := a.header.Get("x-llm-degraded")
					if a.err != nil || a.text != good.text || !strings.HasPrefix(label, "cache; age=") || !strings.HasSuffix(label, "; match=exact") {
						return fmt.Errorf("the client got %d %q, %v, %q, want the answer of before from the cache", a.status, a.text, a.err, label)
					}
					if got := a.header.Get("x-llm-fallback-reason"); got != "overloaded" {
						return fmt.Errorf("x-llm-fallback-reason = %q, want overloaded", got)
					}
					return nil
				})
			})
			t.Run(name+" queue", func(t *testing.T) {
				c := c
				c.chain, c.script = "queue-"+apiOf(path), "*=529"
				a := s.sdk(within(t, patience), t, c)
				id, ok := strings.CutPrefix(a.header.Get("x-llm-degraded"), "queue; job=")
				if a.err != nil || a.status != http.StatusAccepted || !ok || a.header.Get("location") != "/jobs/"+id || !strings.Contains(a.text, "It will be answered later.") {
					t.Errorf("the client got %d %q, %v, %v, want 202 and a job", a.status, a.text, a.err, a.header)
				}
				if got := s.job(t, id).Key; !strings.HasPrefix(got, "understudy-") {
					t.Errorf("the job has the key %q, want the exchange's", got)
				}
			})
			t.Run(name+" off", func(t *testing.T) {
				c := c
				c.chain, c.script = "off-"+apiOf(path), "*=529"
				a := s.sdk(within(t, patience), t, c)
				if a.err == nil || a.status != 503 || sentence(a.err) != "Closed for now." || a.header.Get("x-llm-degraded") != "off" {
					t.Errorf("the client got %d %q, %v, want the owner's sentence as an error", a.status, a.text, a.err)
				}
			})
			t.Run(name+" off as an answer", func(t *testing.T) {
				c := c
				c.chain, c.script = "says-"+apiOf(path), "*=529"
				a := s.sdk(within(t, patience), t, c)
				if a.err != nil || a.status != 200 || a.text != "Closed for now." || a.header.Get("x-llm-degraded") != "off" {
					t.Errorf("the client got %d %q, %v, want the owner's sentence as an answer", a.status, a.text, a.err)
				}
			})
			t.Run(name+" downshift", func(t *testing.T) {
				c := c
				c.chain, c.script, c.header = "all-"+apiOf(path), "a=529; b=ok", map[string]string{"x-llm-degrade": "downshift"}
				a := s.sdk(within(t, patience), t, c)
				if a.err != nil || a.header.Get("x-llm-degraded") != "downshift" || a.header.Get("x-llm-target") != "all-"+apiOf(path)+"/b" {
					t.Errorf("the client got %d %q, %v, %v, want the downshift", a.status, a.text, a.err, a.header)
				}
				s.calls(t, c.scriptID(t), "a:1 b:1")
			})
		}
	}
	for _, mode := range []string{"queue", "off"} {
		s.each(t, is(2), "understudy_degraded_total", "chain", mode+"-anthropic", "mode", mode)
		s.each(t, is(4), "understudy_degraded_total", "chain", mode+"-openai", "mode", mode)
	}
}

func TestACallerNarrowsTheLadder(t *testing.T) {
	t.Parallel()
	rows := []struct{ name, accepts, script, label, calls string }{
		{"a caller who takes all is not queued before the downshift", "", "*=529", "queue; job=", "a:1 b:0"},
		{"a caller who takes no downshift gets one", "off", "a=529; b=ok", "off", "a:1 b:0"},
		{"a caller who takes the downshift is refused it", "downshift,off", "a=529; b=ok", "downshift", "a:1 b:1"},
		{"a failed downshift is the end of the ladder", "downshift, off", "*=529", "off", "a:1 b:1"},
		{"a caller who takes nothing gets a degraded answer", "none", "*=529", "", "a:1 b:0"},
	}
	var chains []chain
	for i := range rows {
		chains = append(chains, chain{name: fmt.Sprint("narrow", i), api: "anthropic", on: []string{"a", "b"}, more: fileChain{
			Degrade: []string{"cache", "queue", "downshift", "off"}, From: fmt.Sprintf("narrow%d/b", i)}})
	}
	s := startStack(t, plan{chains: chains})
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := call{path: messages, chain: fmt.Sprint("narrow", i), script: row.script}
			if row.accepts != "" {
				c.header = map[string]string{"x-llm-degrade": row.accepts}
			}
			a := s.raw(within(t, patience), t, c)
			if got := a.header.Get("x-llm-degraded"); !strings.HasPrefix(got, row.label) || (row.label == "") != (got == "") {
				t.Errorf("the client got %d, x-llm-degraded %q, want %q", a.status, got, row.label)
			}
			s.calls(t, t.Name(), row.calls)
		})
	}
}

func TestARateLimitEntersTheLadderAtTheQueue(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "limits", api: "anthropic", on: []string{"a", "b"}, more: fileChain{
		Degrade: []string{"off", "queue"}, On: map[string]string{"rate_limited": "queue"}}}}})
	a := s.raw(within(t, patience), t, call{path: messages, chain: "limits", script: "a=429 retry-after=1; b=ok"})
	if a.status != http.StatusAccepted || !strings.HasPrefix(a.header.Get("x-llm-degraded"), "queue") {
		t.Errorf("the client got %d %v, want the queue", a.status, a.header)
	}
	s.calls(t, t.Name(), "a:1 b:0")
}

func TestAQueuedRequestRunsWhenItsTargetIsBack(t *testing.T) {
	t.Parallel()
	c := chain{name: "later", api: "anthropic", on: []string{"a"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Second},
		more: fileChain{Degrade: []string{"queue"}}}
	s := startStack(t, plan{chains: []chain{c}, edit: func(f *file) { f.Jobs = map[string]any{"expose": true} }})
	s.set(t, "a", "529")
	key := map[string]string{"idempotency-key": "order-66"}
	first := s.raw(within(t, patience), t, call{path: messages, chain: "later", stream: true, header: key})
	again := s.raw(within(t, patience), t, call{path: messages, chain: "later", stream: true, header: key})
	id := strings.TrimPrefix(first.header.Get("location"), "/jobs/")
	if first.status != http.StatusAccepted || id == "" || again.header.Get("location") != first.header.Get("location") {
		t.Fatalf("the client got %d %q and %d %q, want the same job twice", first.status, first.body, again.status, again.header.Get("location"))
	}
	s.set(t, "a", "ok")
	eventually(t, 3*patience, func() error {
		if j := s.job(t, id); j.State != "done" || j.Result.Status != 200 || !strings.Contains(string(j.Result.Body), `"assistant"`) {
			return fmt.Errorf("the job is %+v, want it done with an answer", j)
		}
		return nil
	})
	through := s.do(s.get(t, s.front()+"/jobs/"+id))
	if through.status != 200 || !strings.Contains(through.body, `"state":"done"`) {
		t.Errorf("GET /jobs/ID through Envoy = %d %s, want the job", through.status, through.body)
	}
	if got := s.do(s.get(t, s.front()+"/jobs/nosuch")); got.status != 404 {
		t.Errorf("GET /jobs/nosuch through Envoy = %d %s, want 404", got.status, got.body)
	}
	for _, r := range s.providers["a"].Requests("") {
		if got := r.Header.Get("idempotency-key"); got != "order-66" {
			t.Errorf("the provider saw idempotency-key %q, want the client's", got)
		}
	}
}

func TestAnOperatorSwitchesAFeatureOff(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "flag", api: "anthropic", on: []string{"a", "b"},
		more: fileChain{Degrade: []string{"off"}, Off: &fileOff{Status: 503, Message: "Switched off."}}}}})
	admin := "http://" + s.services[0].admin
	flip := func(to string, want int, path string) {
		t.Helper()
		req := s.get(t, admin+path+to)
		req.Method = http.MethodPost
		if a := s.do(req); a.status != want {
			t.Errorf("POST %s%s = %d %s, want %d", path, to, a.status, a.body, want)
		}
	}
	ask := func(want int, body string) {
		t.Helper()
		eventually(t, patience, func() error {
			a := s.raw(within(t, patience), t, call{path: messages, chain: "flag", script: "*=ok", header: map[string]string{"x-llm-degrade": "cache"}})
			if a.status != want || !strings.Contains(a.body, body) {
				return fmt.Errorf("the client got %d %s, want %d %s", a.status, a.body, want, body)
			}
			return nil
		})
	}
	ask(200, "assistant")
	flip("off", 200, "/chains/flag/")
	ask(503, "Switched off.")
	flip("off", 404, "/chains/nosuch/")
	s.services[0].kill()
	if err := s.startService(t, 0); err != nil {
		t.Fatal(err)
	}
	ask(503, "Switched off.") // also after a restart
	flip("on", 200, "/chains/flag/")
	ask(200, "assistant")
}

// sentence is the message of an error that an official SDK raised.
func sentence(err error) string {
	if e := (*openai.Error)(nil); errors.As(err, &e) {
		return e.Message
	}
	if e := (*anthropic.Error)(nil); errors.As(err, &e) {
		return e.Message
	}
	return fmt.Sprint(err)
}

// job is a queued request as the admin listener shows it.
type job struct {
	State  string
	Key    string `json:"idempotency_key"`
	Result struct {
		Status int
		Body   json.RawMessage
	}
}

func (s *Stack) job(t testing.TB, id string) (j job) {
	t.Helper()
	a := s.do(s.get(t, "http://"+s.services[0].admin+"/jobs/"+id))
	if err := json.Unmarshal([]byte(a.body), &j); a.status != 200 || err != nil {
		t.Fatalf("GET /jobs/%s = %d %s, %v", id, a.status, a.body, err)
	}
	return j
}

func (s *Stack) get(t testing.TB, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, patience), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
