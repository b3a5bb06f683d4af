//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asked is a raw request to a chain with a cache.
type asked struct {
	chain, path, body string
	tenant            string
	script            string
	header            map[string]string
}

// asks is a question in the fewest words.
func asks(chain, text string) asked {
	return asked{chain: chain, path: messages, tenant: "first",
		body: fmt.Sprintf(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":%q}]}`, text)}
}

// streamed is a question whose answer is to be a stream.
func (q asked) streamed() asked {
	q.body = strings.Replace(q.body, "{", `{"stream":true,`, 1)
	return q
}

func (q asked) with(header, value string) asked {
	q.header = map[string]string{header: value}
	return q
}

func (q asked) of(tenant string) asked {
	q.tenant = tenant
	return q
}

func (q asked) given(script string) asked {
	q.script = script
	return q
}

func (s *Stack) asks(t testing.TB, q asked) answer {
	t.Helper()
	c := call{path: q.path, chain: q.chain, script: q.script, header: map[string]string{}}
	if q.tenant != "" {
		c.header["x-tenant"] = q.tenant
	}
	for name, value := range q.header {
		c.header[name] = value
	}
	return s.do(s.request(within(t, patience), t, c, strings.NewReader(q.body)))
}

// answers asks while the providers are well, or do what the script says.
func (s *Stack) answers(t testing.TB, q asked) answer {
	t.Helper()
	if q.script == "" {
		q.script = "*=ok"
	}
	return s.asks(t, q)
}

// hits asks while nothing answers, until the cache does.
func (s *Stack) hits(t testing.TB, q asked) (a answer) {
	t.Helper()
	eventually(t, patience, func() error {
		a = s.asks(t, q.given("*=529"))
		if label := a.header.Get("x-llm-degraded"); a.status != http.StatusOK || !strings.HasPrefix(label, "cache; age=") {
			return fmt.Errorf("%s got %d, %q, want the cache's answer", q.body, a.status, label)
		}
		return nil
	})
	return a
}

// misses asks while nothing answers: the cache must not.
func (s *Stack) misses(t testing.TB, why string, q asked) {
	t.Helper()
	a := s.asks(t, q.given("*=529"))
	if label := a.header.Get("x-llm-degraded"); label != "off" {
		t.Errorf("%s: %s got %d %q from %q, want off", why, q.body, a.status, a.body, label)
	}
}

// settles waits until all answers so far of a chain with a cache have been kept, or not: they are one after the other.
func (s *Stack) settles(t testing.TB, chain string) {
	t.Helper()
	last := asks(chain, "the last one, at "+time.Now().String())
	s.answers(t, last)
	s.hits(t, last)
}

func TestTheCacheServesTheSameQuestionOnly(t *testing.T) {
	t.Parallel()
	keeps := func(name, api string, more fileChain) chain {
		more.Degrade = append([]string{"cache"}, append(more.Degrade, "off")...)
		if more.Cache == nil {
			more.Cache = map[string]any{"ttl": "1h"}
		}
		return chain{name: name, api: api, on: []string{"a", "b"}, breaker: sturdy, more: more}
	}
	cost := keeps("cost", "anthropic", fileChain{})
	cost.breaker = fileBreaker{Failures: 1, OpenFor: time.Hour}
	s := startStack(t, plan{
		chains: []chain{
			keeps("kept", "anthropic", fileChain{}),
			keeps("chat", "openai", fileChain{}),
			keeps("near", "anthropic", fileChain{Cache: map[string]any{"ttl": "1h", "near": 0.9}}),
			keeps("shift", "anthropic", fileChain{Degrade: []string{"downshift"}, From: "shift/b"}),
			keeps("says", "anthropic", fileChain{Off: &fileOff{As: "answer", Message: "Closed for now."}}),
			cost,
		},
		edit: func(f *file) { f.Tenant = map[string]any{"header": "x-tenant", "trusted_header": true} },
	})
	for _, part := range []struct {
		name string
		run  func(*testing.T, *Stack)
	}{
		{"the order of keys does not matter", cacheOfAnyOrder},
		{"nearly the same question hits, one changed digit never does", cacheOfNearQuestions},
		{"what is not a good answer is not kept", cacheOfBadAnswers},
		{"tenants share nothing", cacheOfTenants},
		{"no-store is respected", cacheOfNothing},
		{"a stream is replayed byte for byte", cacheOfStreams},
		{"the cost of a hit", cacheCost},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

func cacheOfAnyOrder(t *testing.T, s *Stack) {
	q := asks("kept", "in which order?")
	good := s.answers(t, q)
	for _, body := range []string{
		q.body,
		`{"messages":[{"content":"in which order?","role":"user"}],"max_tokens":100,"model":"m"}`,
		"{\n  \"max_tokens\": 1e2, \"messages\": [ {\"role\": \"user\", \"content\": \"in which \\u006frder?\"} ],\n  \"model\": \"m\" }\n",
		strings.Replace(q.body, "{", `{"metadata":{"user_id":"42"},`, 1),
	} {
		q.body = body
		a := s.hits(t, q)
		if a.body != good.body || !strings.HasSuffix(a.header.Get("x-llm-degraded"), "; match=exact") || a.header.Get("x-llm-target") != "kept/a" {
			t.Errorf("%s got %q, %v, want %q", body, a.body, a.header, good.body)
		}
	}
	q.body = `{"messages":[{"role":"user","content":"in which order?"}],"max_tokens":101,"model":"m"}`
	s.misses(t, "another max_tokens", q)
}

func cacheOfNearQuestions(t *testing.T, s *Stack) {
	const question = "what did the shop at 17 Mill Lane take in March 2025 before the sale of all of its winter stock began?"
	good := s.answers(t, asks("near", question))
	s.hits(t, asks("near", question))
	near := "Hello, please " + strings.TrimSuffix(question, "?") + "!"
	near = strings.Replace(near, "!", "?", 1)
	a := s.hits(t, asks("near", near))
	if label := a.header.Get("x-llm-degraded"); a.body != good.body || !strings.Contains(label, "; match=near; similarity=") {
		t.Errorf("%q got %q from %q, want the near answer", near, a.body, label)
	}
	t.Logf("%q is served as %s", near, a.header.Get("x-llm-degraded"))
	for _, change := range [][2]string{
		{"17", "18"}, {"17", "170"}, {"2025", "2026"}, {"2025", "2,025"}, {"Mill", "Mull"}, {"March", "May"},
		{"did the", "did not the"}, {"before", "after"}, {"all of", "none of"},
	} {
		other := strings.Replace(question, change[0], change[1], 1)
		s.misses(t, change[0]+" became "+change[1], asks("near", other))
		s.misses(t, change[0]+" became "+change[1]+", politely", asks("near", "please "+other))
	}
}

func cacheOfBadAnswers(t *testing.T, s *Stack) {
	chat := func(text string) asked {
		q := asks("chat", text)
		q.path = chats
		return q
	}
	bad := map[string]asked{
		"a refusal":            asks("kept", "bad 1").given("*=refusal n=0"),
		"a refusal after text": asks("kept", "bad 2").streamed().given("*=refusal n=3 delay=50ms"),
		"a cut stream":         asks("kept", "bad 3").streamed().given("*=cut n=3 how=end delay=50ms"),
		"a broken stream":      asks("kept", "bad 4").streamed().given("*=cut n=3 how=close delay=50ms"),
		"an error in a stream": asks("kept", "bad 5").streamed().given("*=error n=3 delay=50ms"),
		"a filtered answer":    chat("bad 6").given("*=filter n=3"),
		"a filtered stream":    chat("bad 7").streamed().given("*=filter n=3"),
		"a cut chat":           chat("bad 8").streamed().given("*=cut n=3 how=end delay=50ms"),
		"a downshift":          asks("shift", "bad 9").given("a=529; b=ok"),
		"an off answer":        asks("says", "bad 10").given("*=529"),
		"an invalid request":   asks("kept", "bad 11").given("*=400"),
	}
	for name, q := range bad {
		a := s.answers(t, q)
		if name != "an invalid request" && a.status != 200 || strings.HasPrefix(a.header.Get("x-llm-degraded"), "cache") {
			t.Errorf("%s: got %d %s, %q, %v, want it as it came", name, a.status, a.body, a.header.Get("x-llm-degraded"), a.err)
		}
	}
	for _, chain := range []string{"kept", "shift", "says"} {
		s.settles(t, chain)
	}
	for name, q := range bad {
		s.misses(t, name, q)
	}
	good := chat("good").given("*=ok n=3")
	s.answers(t, good)
	s.hits(t, good)
}

func cacheOfTenants(t *testing.T, s *Stack) {
	q := asks("kept", "whose is it?")
	s.answers(t, q)
	s.answers(t, asks("kept", "nobody's").of(""))
	s.settles(t, "kept")
	s.hits(t, q)
	s.misses(t, "another tenant", q.of("second"))
	s.misses(t, "another tenant that says it is this one", q.of("second").with("x-llm-tenant", "first"))
	s.misses(t, "nobody", q.of(""))
	s.misses(t, "nobody that says it is this one", q.of("").with("x-llm-tenant", "first"))
	s.misses(t, "what nobody asked", asks("kept", "nobody's").of(""))
	s.misses(t, "what nobody asked", asks("kept", "nobody's"))
	other := q
	other.chain = "near"
	s.misses(t, "another chain", other)
}

func cacheOfNothing(t *testing.T, s *Stack) {
	q := asks("kept", "not to be kept")
	s.answers(t, q.with("cache-control", "no-store"))
	unstored := q
	unstored.body = strings.Replace(q.body, "{", `{"store":false,`, 1)
	s.answers(t, unstored)
	s.settles(t, "kept")
	s.misses(t, "asked with no-store", q)
	s.misses(t, "asked with store: false", unstored)
	s.answers(t, q)
	s.hits(t, q)
	s.misses(t, "asks with no-store", q.with("cache-control", "private, No-Store"))
}

func cacheOfStreams(t *testing.T, s *Stack) {
	for path, q := range map[string]asked{messages: asks("kept", "at length").streamed(), chats: asks("chat", "at length").streamed()} {
		q.path = path
		good := s.answers(t, q.given("*=ok n=50 size=300 bytes"))
		a := s.hits(t, q)
		if a.body != good.body || a.header.Get("content-type") != good.header.Get("content-type") || !strings.Contains(a.body, " 49]") {
			t.Errorf("%s: the replay has %d bytes of %s, the answer had %d of %s", path, len(a.body), a.header.Get("content-type"),
				len(good.body), good.header.Get("content-type"))
		}
		q.body = strings.Replace(q.body, `"stream":true,`, "", 1)
		s.misses(t, "asked without stream", q)
	}
}

// cacheCost measures hits on a chain whose targets are open: the request's way through the service is all that there is.
func cacheCost(t *testing.T, s *Stack) {
	q, other := asks("cost", "how much?"), asks("cost", "how much more?")
	s.answers(t, q.given("*=ok n=20 size=100"))
	s.settles(t, "kept") // its cache is the same
	s.hits(t, q)
	s.breaker(t, "cost/a", open)
	s.breaker(t, "cost/b", open)
	const n = 300
	measure := func(q asked, want string) (service, client time.Duration) {
		t.Helper()
		read := func() (sum, count float64) {
			m, err := s.metrics(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return m.sum("understudy_overhead_seconds_sum", "phase", "request"), m.sum("understudy_overhead_seconds_count", "phase", "request")
		}
		sum, count := read()
		var took []time.Duration
		for range n {
			began := time.Now()
			if a := s.asks(t, q); !strings.HasPrefix(a.header.Get("x-llm-degraded"), want) {
				t.Fatalf("a client got %d, %q, want %s", a.status, a.header.Get("x-llm-degraded"), want)
			}
			took = append(took, time.Since(began))
		}
		sum2, count2 := read()
		return time.Duration((sum2 - sum) / (count2 - count) * float64(time.Second)), quantile(took, 0.5)
	}
	hit, client := measure(q, "cache; ")
	miss, clientMiss := measure(other, "off")
	t.Logf("a hit takes %s in the service, on the mean of %d, and %s for its client (p50); a miss %s and %s", hit, n, client, miss, clientMiss)
}
