package processor

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// alone opens an attempt of a recording's request in a listener without a front: nothing counts attempts there.
func (b *bench) alone(recording string) (*call, []*extproc.ProcessingRequest) {
	messages := withoutCount(readRecorded(b.t, recording))
	c := b.open()
	c.tell(messages[:2]...)
	return c, messages[2:]
}

func withoutCount(messages []*extproc.ProcessingRequest) []*extproc.ProcessingRequest {
	h := messages[0].GetRequestHeaders().Headers
	h.Headers = slices.DeleteFunc(h.Headers, func(v *corev3.HeaderValue) bool { return v.Key == "x-envoy-attempt-count" })
	return messages
}

func TestWithoutAFrontAnAnswerIsFinal(t *testing.T) {
	rows := []struct{ recording, want string }{
		{"json", "headers x-llm-target=a/sonnet x-llm-rung=0 x-llm-attempts=1"},
		{"529", "headers x-llm-target=a/sonnet x-llm-rung=0 x-llm-attempts=1"},
		{"error-start", "immediate 529"},
		{"reset", "immediate 503"},
	}
	for _, r := range rows {
		t.Run(r.recording, func(t *testing.T) {
			in(t, "", func(b *bench) {
				c, rest := b.alone(r.recording)
				c.tell(rest...)
				told := c.heard()
				contains(t, "the answer", told, r.want)
				if strings.Contains(told, "x-llm-failover") {
					t.Errorf("the answer asks for another attempt, which nobody makes: %s", told)
				}
				c.hangUp()
			})
		})
	}
}

func TestWithoutAFrontTheNextRequestGoesElsewhere(t *testing.T) {
	in(t, "", func(b *bench) {
		for range 5 {
			c, rest := b.alone("529")
			c.tell(rest...)
			c.heard()
			c.hangUp()
		}
		c, _ := b.alone("json")
		contains(t, "the sixth request", c.heard(), "request body x-llm-cluster=llm-b")
		c.hangUp()
	})
}

func TestWithoutAFrontADrainEndsTheRequest(t *testing.T) {
	in(t, "", func(b *bench) {
		c, _ := b.alone("json")
		c.heard()
		b.p.Drain()
		told := c.heard()
		contains(t, "the end", told, "immediate 503")
		if strings.Contains(told, "x-llm-failover") {
			t.Errorf("the end asks for another attempt, which nobody makes: %s", told)
		}
		c.hangUp()
	})
}

// Another filter of that listener, between this one and the provider, may answer instead.
func TestAnotherFiltersReplyIsNoFailureOfTheTarget(t *testing.T) {
	in(t, "", func(b *bench) {
		for _, details := range []string{"local_rate_limited", "rbac_access_denied_matched_policy[none]"} {
			for range 5 {
				c, rest := b.alone("429")
				attributes, err := structpb.NewStruct(map[string]any{"response.code_details": details})
				if err != nil {
					t.Fatal(err)
				}
				rest[0].Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": attributes}
				c.heard()
				c.tell(rest...)
				told, _, _ := strings.Cut(c.heard(), "\n")
				expect(t, "what Envoy hears after "+details, told, "headers")
				c.hangUp()
			}
		}
		if n := b.attempts("canceled"); n != 10 {
			t.Errorf("attempts counted as canceled = %v, want 10", n)
		}
		c, _ := b.alone("json")
		contains(t, "the next request", c.heard(), "x-llm-cluster=llm-a")
		c.hangUp()
	})
}

// unheard are a recording's messages as they come in Envoy's observability mode, the request's body in pieces.
func (b *bench) unheard(recording string) []*extproc.ProcessingRequest {
	var all []*extproc.ProcessingRequest
	for _, m := range readRecorded(b.t, recording) {
		if body := m.GetRequestBody(); body != nil {
			half := len(body.Body) / 2
			all = append(all, &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
				RequestBody: &extproc.HttpBody{Body: body.Body[:half]}}})
			body.Body, body.EndOfStream = body.Body[half:], true
		}
		all = append(all, m)
	}
	for _, m := range all {
		m.ObservabilityMode = true
	}
	return all
}

func TestAnUnheardServiceCountsAndSaysNothing(t *testing.T) {
	rows := []struct{ chain, recording, class, decisions string }{
		{"", "json", "ok", ""},
		{"", "stream", "ok", ""},
		{"", "error-start", "overloaded", "failover=1"},
		{"", "529", "overloaded", "failover=1"},
		{"degrade: [off]\n    off: {force: true}", "529", "overloaded", "failover=1"},
		{observed, "reset", "transport", "failover=1"},
	}
	for _, r := range rows {
		t.Run(r.recording+" "+r.chain, func(t *testing.T) {
			in(t, r.chain, func(b *bench) {
				c := b.open()
				c.tell(b.unheard(r.recording)...)
				expect(t, "what Envoy hears", c.heard(), "")
				c.hangUp()
				expect(t, "decisions", b.decisions(), r.decisions)
				if b.attempts(r.class) != 1 {
					t.Errorf("attempts of class %s = %v, want 1", r.class, b.attempts(r.class))
				}
			})
		})
	}
}

func TestAnUnheardServiceBoundsWhatItKeeps(t *testing.T) {
	in(t, "", func(b *bench) {
		messages := b.unheard("json")
		c := b.open()
		c.tell(messages[0])
		for range 40 { // max_body is 32 MiB
			c.tell(&extproc.ProcessingRequest{ObservabilityMode: true, Request: &extproc.ProcessingRequest_RequestBody{
				RequestBody: &extproc.HttpBody{Body: make([]byte, 1<<20)}}})
		}
		if kept := b.p.inflight.Load(); kept > b.p.Book().Config.Server.MaxBody {
			t.Errorf("bytes kept of a request = %d, want at most max_body", kept)
		}
		c.tell(messages[3:]...)
		expect(t, "what Envoy hears", c.heard(), "")
		c.hangUp()
	})
}
