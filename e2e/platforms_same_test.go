//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
)

// sameChains are the chains whose rungs serve one model, and the calls that are made to them.
var sameChains = []struct {
	chain
	calls []call
	rich  string
}{
	{chain{name: "claude", api: "anthropic", on: []string{"anthropic", "invoke", "vertex", "runtime", "mantle", "web", "foundry"}},
		[]call{{path: messages}, {path: messages, stream: true}}, richMessages},
	{chain{name: "claude2", api: "anthropic", on: []string{"anthropic", "apikey", "fentra"}}, []call{{path: messages, stream: true}}, richMessages},
	{chain{name: "chats", api: "openai", on: []string{"openai", "azure", "entra"}}, []call{{path: chats}, {path: chats, stream: true}}, richChats},
	{chain{name: "responses", api: "openai", on: []string{"openai", "azure", "entra"}}, []call{{path: responsed}, {path: responsed, stream: true}}, richResponses},
	{chain{name: "gemini", api: "gemini", on: []string{"gemini", "vgemini"}}, []call{{path: geminiPath}, {path: geminiStreamPath, stream: true}, {path: geminiListPath, stream: true}}, richGemini},
}

// allPlaces are those of the chains.
func allPlaces() []string {
	set := map[string]bool{}
	for _, c := range sameChains {
		for _, name := range c.on {
			set[name] = true
		}
	}
	return names(set)
}

// patient is a breaker that stays closed, whatever a test's rows do to it.
var patient = fileBreaker{Failures: 1000, Ramp: atOnce}

// unbounded is the budget of a chain whose first rungs always fail.
var unbounded = fileRetry{Budget: 1}

func TestEachRungGivesTheFirstOnesAnswer(t *testing.T) {
	t.Parallel()
	for _, p := range []plan{{}, {tls: true}, {envoy: envoyOldest}} {
		name := "Envoy " + p.envoy
		if p.tls {
			name += "HTTP 2 providers"
		}
		t.Run(name, func(t *testing.T) {
			p.places = allPlaces()
			for _, c := range sameChains {
				c.chain.breaker, c.chain.more.Retry = patient, unbounded
				p.chains = append(p.chains, c.chain)
			}
			s := startStack(t, p)
			t.Run("rows", func(t *testing.T) { s.sameAnswers(t) })
			s.spoke(t, p.tls)
			s.refusals(t)
			s.survives(t)
		})
	}
}

// spoke checks the protocol that the places were called over.
func (s *Stack) spoke(t *testing.T, http2 bool) {
	t.Helper()
	want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[http2]
	for name := range s.places {
		for _, r := range s.providers[name].Requests("") {
			if r.Proto != want {
				t.Fatalf("%s was called over %s, want %s", name, r.Proto, want)
			}
		}
	}
}

func (s *Stack) sameAnswers(t *testing.T) {
	for _, chain := range sameChains {
		for _, c := range chain.calls {
			for _, with := range []string{"n=3", "n=3 think tool", "n=2 size=70000 tool"} {
				t.Run(c.path+" "+strconv.FormatBool(c.stream)+" "+with, func(t *testing.T) {
					t.Parallel()
					c := c // each row has its own
					c.chain, c.id = chain.name, t.Name()
					var first parsed
					for rung, name := range chain.on {
						c.script = failing(chain.on[:rung]) + name + "=ok " + with
						got := s.rich(within(t, patience), t, c)
						s.fromRung(t, chain.chain, rung, got)
						if rung == 0 {
							first = got
						}
						sameAs(t, name, got, first)
						s.sameRequest(t, name, c, chain.rich)
					}
				})
			}
		}
	}
}

// failing scripts a failure at each of some places.
func failing(at []string) string {
	var script strings.Builder
	for _, name := range at {
		script.WriteString(name + "=529; ")
	}
	return script.String()
}

func (s *Stack) fromRung(t *testing.T, c chain, rung int, got parsed) {
	t.Helper()
	if got.err != nil || got.status != http.StatusOK {
		t.Fatalf("rung %d, %s = %d, %v, want 200 and no error: %.2000s", rung, c.on[rung], got.status, got.err, got.body)
	}
	if at := got.header.Get("x-llm-target"); at != c.target(c.on[rung]) {
		t.Fatalf("rung %d was served by %q for %q, want %s", rung, at, got.header.Get("x-llm-fallback-reason"), c.target(c.on[rung]))
	}
}

// sameAs compares what clients got of two rungs.
func sameAs(t *testing.T, name string, got, want parsed) {
	t.Helper()
	if want.whole == "" || got.whole != want.whole {
		t.Errorf("%s answers %s", name, unlike(got.whole, want.whole))
	}
	if !reflect.DeepEqual(got.events, want.events) {
		t.Errorf("%s streams %s", name, unlike(strings.Join(got.events, "\n"), strings.Join(want.events, "\n")))
	}
}

// unlike shows where got begins to differ from want.
func unlike(got, want string) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from := max(0, at-40)
	return fmt.Sprintf("%d bytes, want %d; at %d …%.300s\nwant …%.300s", len(got), len(want), at, got[from:], want[from:])
}

// sameRequest checks that a place was asked what the client asked, but for what its platform wants otherwise.
func (s *Stack) sameRequest(t *testing.T, name string, c call, rich string) {
	t.Helper()
	requests := s.providers[name].Requests(c.id)
	if len(requests) == 0 {
		t.Errorf("%s was not asked", name)
		return
	}
	r := requests[len(requests)-1]
	ours := []string{"model", "stream", "anthropic_version", "anthropic_beta"}
	if got, want := without(t, string(r.Body), ours...), without(t, rich, ours...); got != want {
		t.Errorf("%s was asked %s", name, unlike(got, want))
	}
	if got := r.Header.Get("x-api-key") + r.Header.Get("authorization"); strings.Contains(got, clientKey) {
		t.Errorf("%s was sent the client's credential", name)
	}
}

func TestBetasAndVersionsGoWhereThePlatformWantsThem(t *testing.T) {
	t.Parallel()
	claude := sameChains[0].chain
	claude.breaker, claude.more.Retry = patient, unbounded
	s := startStack(t, plan{places: claude.on, chains: []chain{claude}})
	const betas = "interleaved-thinking-2025-05-14,context-1m-2025-08-07"
	for rung, name := range claude.on {
		c := call{path: messages, chain: "claude", id: name, script: failing(claude.on[:rung]) + name + "=ok", header: map[string]string{"anthropic-beta": betas}}
		s.fromRung(t, claude, rung, s.rich(within(t, patience), t, c))
		beta := c // the SDKs' beta calls say so in the query
		beta.path, beta.id, beta.header = messages+"?beta=true", name+" beta", map[string]string{"anthropic-version": "2023-06-01"}
		s.ask(t, beta, requestBody(messages, false)).target(t, claude.target(name))
		r := s.providers[name].Requests(name)[0]
		var body struct {
			Betas []string `json:"anthropic_beta"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(append(body.Betas, r.Header.Values("anthropic-beta")...), ","); got != betas {
			t.Errorf("%s was sent betas %q, want %q once", name, got, betas)
		}
	}
	s.refusals(t)
}

// exception is what Bedrock says inside a stream, and what it means.
type exception struct {
	code, class string
	at          []string // where it is said
}

var anywhere = []string{"first", "start", "after-1", "after-5"}

var exceptions = []exception{
	{"throttlingException", "rate_limited", anywhere},
	{"serviceUnavailableException", "overloaded", anywhere},
	{"internalServerException", "server_error", anywhere},
	{"modelStreamErrorException", "overloaded", anywhere}, // it says that the model answered 529
	{"modelTimeoutException", "timeout", anywhere},
	{"validationException", "", anywhere[2:]},
	{"overloaded_error", "overloaded", anywhere},                      // of Anthropic's, in an ordinary frame
	{"internalFailure", "server_error", []string{"start", "after-5"}}, // in an error frame
}

// script is the behaviour that says it.
func (e exception) script(where string) string {
	kind, n, after := strings.Cut(where, "-")
	switch {
	case e.code == "internalFailure" && after:
		return "failed gate n=" + n + " code=" + e.code
	case e.code == "internalFailure":
		return "failed n=0 code=" + e.code
	case after:
		return "error gate n=" + n + " code=" + e.code
	}
	return "error-" + kind + " code=" + e.code
}

func TestAnExceptionFrameAnywhereIsTheRightClassAndAnHonestEnd(t *testing.T) {
	t.Parallel()
	var chains []chain
	on := []string{"invoke", "anthropic"}
	for _, e := range exceptions {
		for _, where := range e.at { // each has targets of its own, as one that is rate limited cools down
			chains = append(chains, chain{name: e.code + "-" + where, api: "anthropic", on: on, breaker: patient, more: fileChain{Retry: unbounded}},
				chain{name: e.code + "-" + where + "-raw", api: "anthropic", on: on, breaker: patient, more: fileChain{Retry: unbounded}})
		}
	}
	s := startStack(t, plan{places: on, chains: chains, edit: func(f *file) {
		invoke := f.Providers["invoke"]
		invoke.RateLimits = "model"
		f.Providers["invoke"] = invoke
	}})
	for i, e := range exceptions {
		for _, where := range e.at {
			t.Run(e.code+" "+where, func(t *testing.T) {
				c := call{path: messages, stream: true, chain: e.code + "-" + where, script: "invoke=" + exceptions[i].script(where) + "; anthropic=ok n=4"}
				c.onText = func(string) { s.providers["invoke"].Open(t.Name()) }
				got := s.rich(within(t, patience), t, c)
				if !strings.HasPrefix(where, "after") { // before content the next rung answers
					s.fromRung(t, chain{name: c.chain, on: on}, 1, got)
					if reason := got.header.Get("x-llm-fallback-reason"); reason != e.class {
						t.Errorf("x-llm-fallback-reason = %q, want %s", reason, e.class)
					}
					return
				}
				s.brokenHonestly(t, c, got)
			})
		}
	}
	s.refusals(t)
}

func TestFramesThatBreakEndHonestly(t *testing.T) {
	t.Parallel()
	on := []string{"invoke", "anthropic"}
	var chains []chain
	ways := []string{"cut gate n=2 how=end", "cut gate n=2 how=reset", "cut gate n=2 how=close", "malformed gate n=2"}
	for i := range ways {
		for _, suffix := range []string{"", "-raw"} {
			chains = append(chains, chain{name: fmt.Sprint("broken-", i, suffix), api: "anthropic", on: on, breaker: patient, more: fileChain{Retry: unbounded}})
		}
	}
	s := startStack(t, plan{places: on, chains: chains})
	for i, way := range ways {
		t.Run(way, func(t *testing.T) {
			c := call{path: messages, stream: true, chain: fmt.Sprint("broken-", i), script: "invoke=" + way + "; anthropic=ok n=4"}
			c.onText = func(string) { s.providers["invoke"].Open(t.Name()) }
			got := s.rich(within(t, patience), t, c)
			if strings.HasSuffix(way, "reset") || strings.HasSuffix(way, "close") { // the connection breaks for the client, too
				s.raises(t, got)
				return
			}
			s.brokenHonestly(t, c, got)
		})
	}
	for _, way := range []string{"malformed n=0", "empty", "cut n=0 how=end", "cut n=0 how=reset", "html502", "reset"} {
		t.Run("before content: "+way, func(t *testing.T) {
			c := call{path: messages, stream: true, chain: "broken-0", script: "invoke=" + way + "; anthropic=ok n=4"}
			s.fromRung(t, chains[0], 1, s.rich(within(t, patience), t, c))
		})
	}
	s.refusals(t)
	s.survives(t)
}

// brokenHonestly checks that a stream that broke after content ends in an error, and is Anthropic's own to the end.
func (s *Stack) brokenHonestly(t *testing.T, c call, got parsed) {
	t.Helper()
	s.raises(t, got)
	c.chain, c.id, c.header = c.chain+"-raw", t.Name()+"-raw", map[string]string{"anthropic-version": "2023-06-01"}
	raw := s.afterContent(t, c)
	if raw.err != nil || raw.header.Get("content-type") != "text/event-stream" || !strings.HasPrefix(raw.body, "event: message_start\ndata: {") {
		t.Errorf("the client got %s, %v: %.500q, want server-sent events to a clean end", raw.header.Get("content-type"), raw.err, raw.body)
	}
	if n := strings.Count(raw.body, "event: error\ndata: {\"type\":\"error\""); n != 1 || strings.Contains(raw.body, "message_stop") {
		t.Errorf("the stream ends %.500q, want one error and no message_stop", raw.body[max(0, len(raw.body)-500):])
	}
}

// raises checks that the SDK tells of the broken stream, and that nobody else was asked after content.
func (s *Stack) raises(t *testing.T, got parsed) {
	t.Helper()
	if got.err == nil {
		t.Errorf("the SDK raised no error: %v", got.events)
	}
	s.calls(t, t.Name(), "invoke:1 anthropic:0")
}

// afterContent makes a raw call and opens the gate of its first place when content has come.
func (s *Stack) afterContent(t *testing.T, c call) answer {
	t.Helper()
	resp, err := s.http.Do(s.request(within(t, patience), t, c, strings.NewReader(requestBody(c.path, true))))
	if err != nil {
		return answer{err: err, header: http.Header{}}
	}
	defer resp.Body.Close()
	var body strings.Builder
	buf := make([]byte, 4096)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		if body.Write(buf[:n]); strings.Contains(body.String(), "content_block_delta") {
			s.providers["invoke"].Open(c.id)
		}
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: body.String(), err: ended(err)}
}

func TestAPlatformsErrorComesInTheClientsDialect(t *testing.T) {
	t.Parallel()
	rows := []struct {
		place, script, path string
		status              int
		has                 []string
	}{
		{"invoke", "400", messages, 400, []string{`"type":"error"`, `"invalid_request_error"`, `The provided request is not valid`, `"original"`}},
		{"invoke", "403", messages, 403, []string{`"type":"error"`, `"permission_error"`, `You don't have access`}},
		{"vertex", "400", messages, 400, []string{`"type":"error"`, `"invalid_request_error"`, `INVALID_ARGUMENT`}},
		{"foundry", "400", messages, 400, []string{`"type":"error"`, `"invalid_request_error"`}},
		{"azure", "400 code=content_filter", chats, 400, []string{`"code":"content_filter"`, `ResponsibleAIPolicyViolation`}},
		{"azure", "401", chats, 401, []string{`"message":"Access denied`}},
		{"vgemini", "400", geminiPath, 400, []string{`"status":"INVALID_ARGUMENT"`, `"code":400`}},
	}
	var chains []chain
	var places []string
	for i, row := range rows {
		api := map[string]string{messages: "anthropic", chats: "openai", geminiPath: "gemini"}[row.path]
		chains = append(chains, chain{name: fmt.Sprint("errors-", i), api: api, on: []string{row.place}, breaker: patient})
		places = append(places, row.place)
	}
	s := startStack(t, plan{places: places, chains: chains})
	for i, row := range rows {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(row.place, " ", row.script, " ", stream), func(t *testing.T) {
				c := call{path: row.path, stream: stream, chain: fmt.Sprint("errors-", i), script: row.place + "=" + row.script}
				if stream && row.path == geminiPath {
					c.path = geminiStreamPath
				}
				got := s.rich(within(t, patience), t, c)
				body := got.body
				if raw := (*anthropic.Error)(nil); errors.As(got.err, &raw) {
					body = raw.RawJSON()
				}
				if raw := (*openai.Error)(nil); errors.As(got.err, &raw) {
					body = raw.RawJSON()
				}
				for _, want := range row.has {
					if got.status != row.status || !strings.Contains(body, want) {
						t.Errorf("the client got %d %s (%v), want %d with %s", got.status, body, got.err, row.status, want)
					}
				}
			})
		}
	}
	s.refusals(t)
}
