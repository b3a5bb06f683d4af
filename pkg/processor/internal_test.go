package processor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/token"
)

const internalYAML = `
providers:
  a:
    api: anthropic
    endpoint: "http://127.0.0.1:1/base"
    auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}
    status_feed: {statuspage: "https://status.example.com/api/v2/summary.json"}
  b: {api: anthropic, endpoint: "http://127.0.0.1:2", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
targets:
  a/sonnet: {provider: a, model: claude-sonnet-5, breaker: {half_open: probe}, probe: {model: claude-haiku-4-5}}
  b/sonnet: {provider: b, model: claude-sonnet-5}
chains:
  chat: {match: [{path: /v1/messages}], targets: [a/sonnet, b/sonnet]}
`

var ourKey = []byte("our key")

// ours opens an attempt of a recording's request with a token, and returns the rest of the recording. What Envoy is
// told goes to told.
func (b *bench) ours(recording, internal string, n int, told *[]*extproc.ProcessingResponse) (*call, []*extproc.ProcessingRequest) {
	messages := readRecorded(b.t, recording)
	h := messages[0].GetRequestHeaders().Headers
	setHeader(h, "x-envoy-attempt-count", fmt.Sprint(n))
	setHeader(h, "x-llm-internal", internal)
	setHeader(h, "authorization", "Bearer of a client")
	c := b.open()
	if told != nil {
		c.s.each = func(m *extproc.ProcessingResponse) { *told = append(*told, m) }
	}
	c.tell(messages[:2]...)
	return c, messages[2:]
}

func probeToken(name string) string { return token.Sign(ourKey, token.Probe, name, time.Now()) }

func TestAProbeGoesToItsTarget(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		var told []*extproc.ProcessingResponse
		c, rest := b.ours("json", probeToken("a/sonnet"), 1, &told)
		contains(t, "request", c.heard(), "request headers\nrequest body x-llm-cluster=llm-a content-length=")
		r := told[1].GetRequestBody().GetResponse()
		set := map[string]string{}
		for _, v := range r.HeaderMutation.SetHeaders {
			set[v.Header.Key] = string(v.Header.RawValue)
		}
		if set["x-api-key"] != "k" || set[":path"] != "/base/v1/messages" || set[":authority"] != "127.0.0.1:1" {
			t.Errorf("headers set = %v, want the target's credential, path and host", set)
		}
		for _, name := range []string{"x-llm-internal", "authorization"} {
			if !slices.Contains(r.HeaderMutation.RemoveHeaders, name) {
				t.Errorf("headers removed = %v, want %s among them", r.HeaderMutation.RemoveHeaders, name)
			}
		}
		contains(t, "body", string(r.BodyMutation.GetBody()), `"model":"claude-haiku-4-5"`)
		c.tell(rest...)
		expect(t, "answer", c.heard(), strings.Replace(echoed(rest), "headers", "headers x-llm-probed=1", 1))
		c.hangUp()
	})
}

func TestAProbeCountsNowhere(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		for range 6 {
			c, rest := b.ours("529", probeToken("a/sonnet"), 1, nil)
			c.tell(rest...)
			contains(t, "answer", c.heard(), "headers x-llm-probed=1")
			c.hangUp()
		}
		c, rest := b.ours("stream", probeToken("a/sonnet"), 1, nil)
		c.tell(rest[:3]...)
		c.hangUp() // the prober leaves
		n := b.attempts("overloaded") + b.attempts("ok") + b.attempts("canceled") +
			b.exchanges(OutcomeFailed) + b.exchanges(OutcomeServed) + b.exchanges(OutcomeCanceled)
		if n != 0 || b.state() != breaker.Closed {
			t.Errorf("attempts and exchanges counted = %v, state %s; want 0 and closed: who probes counts", n, b.state())
		}
	})
}

func TestWhatIsNoTokenOfOursReachesNobody(t *testing.T) {
	rows := []struct {
		name, token string
		key         []byte
		status      string
	}{
		{"a forged one", "probe;9999999999;a/sonnet;AAAA", ourKey, "403"},
		{"one of another key", token.Sign([]byte("theirs"), token.Probe, "a/sonnet", time.Now()), ourKey, "403"},
		{"one whose time is over", "", ourKey, "403"},
		{"one that is no token at all", "1", ourKey, "403"},
		{"ours, before we have a key", token.Sign(nil, token.Probe, "a/sonnet", time.Now()), nil, "403"},
		{"one for a target that is not there", "probe for c/sonnet", ourKey, "404"},
		{"one for a purpose that is not there", "drill for a/sonnet", ourKey, "404"},
		{"one for a feed that is not there", "feed for b", ourKey, "404"},
		{"one for a feed, with a body", "feed for a", ourKey, "404"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inYAML(t, internalYAML, func(b *bench) {
				if r.key != nil {
					b.p.SetKey(r.key)
				}
				internal := r.token
				if internal == "" {
					internal = token.Sign(ourKey, token.Probe, "a/sonnet", time.Now().Add(-time.Hour))
				}
				if purpose, name, ok := strings.Cut(internal, " for "); ok {
					internal = token.Sign(ourKey, token.Purpose(purpose), name, time.Now())
				}
				c, _ := b.ours("json", internal, 1, nil)
				got := c.heard()
				contains(t, "answer", got, "immediate "+r.status, `"type":"error"`)
				if strings.Contains(got, "x-llm-cluster") || strings.Contains(got, "x-llm-probed") || strings.Contains(got, "x-llm-failover") {
					t.Errorf("answer = %s, want a final one without a mark", got)
				}
				c.hangUp()
			})
		})
	}
}

func TestAProbeIsMadeOnce(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		c, _ := b.ours("json", probeToken("a/sonnet"), 2, nil)
		got := c.heard()
		contains(t, "second attempt", got, "immediate 503")
		if strings.Contains(got, "x-llm-cluster") || strings.Contains(got, "x-llm-failover") || strings.Contains(got, "x-llm-probed") {
			t.Errorf("second attempt = %s, want no call, no third attempt, and nothing said of the provider", got)
		}
		c.hangUp()
	})
}

func TestEnvoysOwnAnswerToAProbe(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		var told []*extproc.ProcessingResponse
		c, rest := b.ours("reset", probeToken("a/sonnet"), 1, &told)
		c.tell(rest...)
		contains(t, "of a provider that resets", c.heard(), "headers x-llm-probed=1\nbody")
		if got := told[2].GetResponseHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(); !slices.Contains(got, "x-llm-failover") {
			t.Errorf("headers removed = %v, want x-llm-failover: a probe is made once", got)
		}
		c.hangUp()

		messages := readRecorded(t, "reset")
		setHeader(messages[0].GetRequestHeaders().Headers, "x-llm-internal", probeToken("a/sonnet"))
		early := b.open()
		early.tell(messages[0])
		early.tell(messages[2:]...)
		contains(t, "before the request has gone", early.heard(), "headers\nbody")
		early.hangUp()
	})
}

func TestDrainLeavesAProbeAlone(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		c, rest := b.ours("json", probeToken("a/sonnet"), 1, nil)
		c.heard()
		b.p.Drain()
		expect(t, "at the drain", c.heard(), "")
		c.tell(rest...)
		contains(t, "answer", c.heard(), "headers x-llm-probed=1")
		c.hangUp()
	})
}

func TestAProbeWithoutItsSecretIsNotMade(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		b.withoutSecret("a")
		c, _ := b.ours("json", probeToken("a/sonnet"), 1, nil)
		got := c.heard()
		contains(t, "answer", got, "immediate 503")
		if strings.Contains(got, "x-llm-probed") {
			t.Errorf("answer = %s, want no mark: it says nothing of the provider", got)
		}
		c.hangUp()
	})
}

func TestAFeedIsPolledWithoutACredential(t *testing.T) {
	inYAML(t, internalYAML, func(b *bench) {
		b.p.SetKey(ourKey)
		open := func(n int) (*call, *extproc.HeadersResponse) {
			get := readRecorded(t, "json")[0]
			h := get.GetRequestHeaders()
			h.EndOfStream = true
			setHeader(h.Headers, ":method", "GET")
			setHeader(h.Headers, "x-api-key", "a client's")
			setHeader(h.Headers, "x-envoy-attempt-count", fmt.Sprint(n))
			setHeader(h.Headers, "x-llm-internal", token.Sign(ourKey, token.Feed, "a", time.Now()))
			c := b.open()
			var told *extproc.ProcessingResponse
			c.s.each = func(m *extproc.ProcessingResponse) { told = m }
			c.tell(get)
			return c, told.GetRequestHeaders()
		}
		c, told := open(1)
		expect(t, "request", c.heard(), "request headers x-llm-cluster=llm-a-status")
		m := told.GetResponse().GetHeaderMutation()
		var set []string
		for _, v := range m.GetSetHeaders() {
			set = append(set, v.Header.Key+"="+string(v.Header.RawValue))
		}
		expect(t, "headers set", strings.Join(set, " "), "x-llm-cluster=llm-a-status :authority=status.example.com :path=/api/v2/summary.json")
		for _, name := range []string{"x-api-key", "authorization", "cookie", "x-llm-internal"} {
			if !slices.Contains(m.GetRemoveHeaders(), name) {
				t.Errorf("headers removed = %v, want %s among them", m.GetRemoveHeaders(), name)
			}
		}
		c.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{
			Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte("200")}}}}}})
		expect(t, "answer", c.heard(), "headers")
		c.hangUp()

		again, _ := open(2)
		contains(t, "second attempt", again.heard(), "immediate 503")
		again.hangUp()
	})
}
