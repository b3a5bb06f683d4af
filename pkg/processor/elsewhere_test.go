package processor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/provider/credential"
)

const elsewhereYAML = `
providers:
  anthropic: {api: anthropic, endpoint: "http://127.0.0.1:1", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
  bedrock: {api: anthropic, platform: bedrock, region: us-east-1, auth: {bearer: "env:PROCESSOR_TEST_KEY"}}
  openai: {api: openai, endpoint: "http://127.0.0.1:2", auth: {bearer: "env:PROCESSOR_TEST_KEY"}}
  checked: {api: openai, endpoint: "http://127.0.0.1:4", tier_check: true, auth: {bearer: "env:PROCESSOR_TEST_KEY"}}
  azure: {api: openai, platform: azure, endpoint: "https://acme.example", auth: {header: x-acme-key, secret: "env:PROCESSOR_TEST_KEY"}}
  gemini: {api: gemini, endpoint: "http://127.0.0.1:3", auth: {header: x-goog-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
targets:
  anthropic/opus: {provider: anthropic, model: opus}
  bedrock/opus: {provider: bedrock, model: anthropic.opus, model_family: opus}
  openai/gpt: {provider: openai, model: gpt}
  fast/gpt: {provider: checked, model: gpt, service_tier: priority}
  azure/gpt: {provider: azure, model: deployment, model_family: gpt}
  gemini/pro: {provider: gemini, model: pro}
chains:
  bedrock: {match: [{path: /v1/messages}], targets: [bedrock/opus, anthropic/opus]}
  whole: {match: [{path: /whole/v1/messages}], commit: complete, targets: [bedrock/opus]}
  eager: {match: [{path: /eager/v1/messages}], commit: headers, targets: [bedrock/opus]}
  watched: {match: [{path: /watched/v1/messages}], mode: observe, targets: [anthropic/opus]}
  gpt: {match: [{path: /v1/responses}], targets: [openai/gpt]}
  azure: {match: [{path: /v1/responses, model: "azure-*"}], targets: [azure/gpt]}
  either:
    match: [{path: /team/v1/responses}]
    targets: [openai/gpt, azure/gpt]
    sticky: {for: 10m, header: x-turn-of}
  other: {match: [{path: /other/v1/messages}], targets: [anthropic/opus, bedrock/opus], sticky: {for: 10m, header: x-conversation-id}}
  pair:
    match: [{path: /pair/v1/chat/completions}]
    targets: [{any: [openai/gpt, azure/gpt]}]
    sticky: {for: 10m, header: x-turn-of}
  early: {match: [{path: /early/v1/responses}], commit: headers, targets: [azure/gpt, openai/gpt]}
  fast: {match: [{path: /watched/v1/responses}], mode: observe, "on": {tier_downgrade: next}, targets: [fast/gpt, openai/gpt]}
  gemini: {match: [{path: /v1beta/models}], targets: [gemini/pro]}
`

// memory is hints and homes in a map.
type memory map[string]string

func (m memory) Get(key string) string                    { return m[key] }
func (m memory) Put(key, value string, _ time.Duration)   { m[key] = value }
func (m memory) find(id string) string                    { return m[id] }
func (h houses) Find(_ context.Context, id string) string { return memory(h).find(id) }
func (h houses) Put(id, provider string)                  { h[id] = provider }

// houses are homes.
type houses map[string]string

// seen is an attempt of which everything that Envoy is told is kept.
type seen struct {
	*call
	told []*extproc.ProcessingResponse
}

func headersOf(pairs ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

// elsewhere runs f with the providers' credentials and with a memory.
func elsewhere(t *testing.T, f func(b *bench, hints memory, homes houses)) {
	t.Helper()
	inYAML(t, elsewhereYAML, func(b *bench) {
		cfg := b.p.Book().Config
		b.p.Use(cfg, credential.New(cfg, nil, slog.New(slog.DiscardHandler)))
		hints, homes := memory{}, houses{}
		b.p.Remember(hints, homes)
		f(b, hints, homes)
	})
}

// ask opens attempt n of exchange x with a request; without a body it ends with its headers.
func (b *bench) ask(n int, method, path, body string, more ...string) *seen {
	s := &seen{call: b.open()}
	s.s.each = func(m *extproc.ProcessingResponse) {
		if r := m.GetResponseBody(); r != nil { // its memory is used again
			r := r.GetResponse().GetBodyMutation().GetStreamedResponse()
			m = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: &extproc.BodyResponse{
				Response: &extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
					StreamedResponse: &extproc.StreamedBodyResponse{Body: bytes.Clone(r.Body), EndOfStream: r.EndOfStream}}}}}}}
		}
		s.told = append(s.told, m)
	}
	h := headersOf(append([]string{":method", method, ":path", path, "x-envoy-attempt-count", fmt.Sprint(n), "x-llm-exchange", "x",
		"x-llm-start", fmt.Sprint(time.Now().UnixMilli())}, more...)...)
	s.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extproc.HttpHeaders{Headers: h, EndOfStream: body == ""}}})
	if body != "" {
		s.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
			RequestBody: &extproc.HttpBody{Body: []byte(body), EndOfStream: true}}})
	}
	return s
}

// sent is where the request goes, with its path, and the headers that are taken from it.
func (s *seen) sent() (where string, removed []string) {
	s.heard()
	if len(s.told) == 0 {
		return "", nil
	}
	last := s.told[len(s.told)-1]
	m := last.GetRequestBody().GetResponse().GetHeaderMutation()
	if m == nil {
		m = last.GetRequestHeaders().GetResponse().GetHeaderMutation()
	}
	set := valuesOf(m)
	return set["x-llm-cluster"] + " " + set[":path"], m.GetRemoveHeaders()
}

func valuesOf(m *extproc.HeaderMutation) map[string]string {
	set := map[string]string{}
	for _, h := range m.GetSetHeaders() {
		set[h.Header.Key] = string(h.Header.RawValue)
	}
	return set
}

// answers gives the answer in pieces, and ends it.
func (s *seen) answers(status int, header []string, pieces ...string) {
	s.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{
		Headers: headersOf(append([]string{":status", fmt.Sprint(status)}, header...)...), EndOfStream: len(pieces) == 0}}})
	for i, p := range pieces {
		s.body(p, i == len(pieces)-1)
	}
	s.heard()
}

// got is what the client has got: status (0: the provider's), headers that were set, the body, and whether it has ended.
func (s *seen) got() (status int, set map[string]string, body string, ended bool) {
	for _, m := range s.told {
		switch r := m.Response.(type) {
		case *extproc.ProcessingResponse_ResponseHeaders:
			set = valuesOf(r.ResponseHeaders.GetResponse().GetHeaderMutation())
		case *extproc.ProcessingResponse_ResponseBody:
			p := r.ResponseBody.Response.BodyMutation.GetStreamedResponse()
			body, ended = body+string(p.Body), p.EndOfStream
		case *extproc.ProcessingResponse_ImmediateResponse:
			return int(r.ImmediateResponse.Status.Code), valuesOf(r.ImmediateResponse.Headers), string(r.ImmediateResponse.Body), true
		}
	}
	return 0, set, body, ended
}

// frame is one of AWS's, with headers that are strings.
func frame(payload string, headers ...string) string {
	var h []byte
	for i := 0; i < len(headers); i += 2 {
		h = append(append(h, byte(len(headers[i]))), headers[i]...)
		h = append(h, 7)
		h = append(binary.BigEndian.AppendUint16(h, uint16(len(headers[i+1]))), headers[i+1]...)
	}
	f := binary.BigEndian.AppendUint32(nil, uint32(16+len(h)+len(payload)))
	f = binary.BigEndian.AppendUint32(f, uint32(len(h)))
	f = binary.BigEndian.AppendUint32(f, crc32.ChecksumIEEE(f))
	f = append(append(f, h...), payload...)
	return string(binary.BigEndian.AppendUint32(f, crc32.ChecksumIEEE(f)))
}

func chunkFrame(event string) string {
	return frame(`{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(event))+`","p":"abc"}`,
		":event-type", "chunk", ":content-type", "application/json", ":message-type", "event")
}

func exceptionFrame(name, message string) string {
	return frame(`{"message":"`+message+`"}`, ":exception-type", name, ":content-type", "application/json", ":message-type", "exception")
}

const (
	startEvent = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"opus","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`
	blockEvent = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	deltaEvent = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`
	endEvent   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`
	stopEvent  = `{"type":"message_stop"}`

	streamed   = `{"model":"opus","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	unstreamed = `{"model":"opus","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
)

var framed = []string{"content-type", "application/vnd.amazon.eventstream", "content-length", "9999"}

// eventsOf are events as Anthropic's own API sends them.
func eventsOf(events ...string) string {
	var out strings.Builder
	for _, e := range events {
		name, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
		out.WriteString("event: " + name + "\ndata: " + e + "\n\n")
	}
	return out.String()
}

func TestFramesReachTheClientAsEventsWheneverTheyAreCommitted(t *testing.T) {
	events := []string{startEvent, blockEvent, deltaEvent, endEvent, stopEvent}
	var all string
	for _, e := range events {
		all += chunkFrame(e)
	}
	for _, path := range []string{"/v1/messages", "/whole/v1/messages", "/eager/v1/messages"} {
		for _, size := range []int{1, 7, 100, len(all)} {
			elsewhere(t, func(b *bench, _ memory, _ houses) {
				c := b.ask(1, "POST", path, streamed)
				var pieces []string
				for p := range slices.Chunk([]byte(all), size) {
					pieces = append(pieces, string(p))
				}
				c.s.out = make(chan string, 4096)
				c.answers(200, framed, pieces...)
				_, set, body, ended := c.got()
				if body != eventsOf(events...) || !ended || set["content-type"] != "text/event-stream" {
					t.Errorf("%s in pieces of %d: the client gets %q of %v, ended %v, want the five events", path, size, body, set, ended)
				}
				c.hangUp()
			})
		}
	}
}

func TestAnExceptionAmongFrames(t *testing.T) {
	rows := []struct {
		name, path string
		before     []string
		exception  string
		status     int // 0: it was committed
		want       string
	}{
		{"before content it is no failover", "/v1/messages", []string{startEvent}, exceptionFrame("throttlingException", "slow"), 429, "rate_limit_error"},
		{"first of all it is no failover", "/v1/messages", nil, exceptionFrame("modelTimeoutException", "late"), 0, ""},
		{"after content it is no honest end", "/v1/messages", []string{startEvent, blockEvent, deltaEvent}, exceptionFrame("internalServerException", "died"), 0, "event: error"},
		{"a whole hold lets it pass", "/whole/v1/messages", []string{startEvent, blockEvent, deltaEvent}, exceptionFrame("throttlingException", "slow"), 429, "rate_limit_error"},
		{"after the headers alone it is no honest end", "/eager/v1/messages", nil, exceptionFrame("throttlingException", "slow"), 0, "event: error"},
		{"a frame of rubbish is an end", "/v1/messages", []string{startEvent, blockEvent, deltaEvent}, "rubbish that is longer than a prelude of a frame", 0, "event: error"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			elsewhere(t, func(b *bench, _ memory, _ houses) {
				c := b.ask(1, "POST", row.path, streamed)
				var pieces []string
				for _, e := range row.before {
					pieces = append(pieces, chunkFrame(e))
				}
				c.answers(200, framed, append(pieces, row.exception)...)
				status, set, body, ended := c.got()
				if row.status != 0 && status != row.status || !strings.Contains(body, row.want) || !ended || strings.Contains(body, "rubbish") {
					t.Errorf("the client gets %d %v %q, ended %v, want %d with %s", status, set, body, ended, row.status, row.want)
				}
				c.hangUp()
			})
		})
	}
}

func TestAPlatformsErrorReachesTheClientInItsDialect(t *testing.T) {
	const validation = `{"message":"max_tokens: too large"}`
	header := []string{"content-type", "application/json", "x-amzn-errortype", "ValidationException:http://internal/", "x-amzn-requestid", "req-7",
		"retry-after", "7"}
	for _, path := range []string{"/v1/messages", "/whole/v1/messages", "/eager/v1/messages"} {
		elsewhere(t, func(b *bench, _ memory, _ houses) {
			c := b.ask(1, "POST", path, streamed)
			c.answers(400, header, validation[:9], validation[9:])
			status, set, body, _ := c.got()
			want := `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too large","details":{"original":` + validation + `}},"request_id":"req-7"}`
			if status != 400 || body != want {
				t.Errorf("%s: the client gets %d %s, want 400 %s", path, status, body, want)
			}
			if set["retry-after"] != "7" || set["x-amzn-requestid"] != "req-7" || set["x-llm-target"] != "bedrock/opus" {
				t.Errorf("%s: the client gets %v, want retry-after and the request's id", path, set)
			}
			c.hangUp()
		})
	}
}

func TestAnErrorThatIsInTheDialectAlreadyPassesAsItCame(t *testing.T) {
	const body = `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`
	elsewhere(t, func(b *bench, _ memory, _ houses) {
		c := b.ask(1, "POST", "/v1/messages", unstreamed)
		c.answers(400, []string{"content-type", "application/json"}, body)
		if status, _, got, ended := c.got(); status != 0 || got != body || !ended {
			t.Errorf("the client gets %d %s, want the provider's own answer", status, got)
		}
		c.hangUp()
	})
}

func TestCustomCredentialHeadersReachNobodyElse(t *testing.T) {
	for _, path := range []string{"/v1/messages", "/watched/v1/messages", "/v1/responses"} {
		elsewhere(t, func(b *bench, _ memory, _ houses) {
			c := b.ask(1, "POST", path, unstreamed)
			if where, removed := c.sent(); where == "" || !slices.Contains(removed, "x-acme-key") || !slices.Contains(removed, "authorization") {
				t.Errorf("%s goes to %q without %v, want x-acme-key to be taken away, too", path, where, removed)
			}
			c.hangUp()
		})
	}
}

func TestAResponseIsFoundWhereItWasMade(t *testing.T) {
	made := `{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":1,"output_tokens":1}}`
	rows := []struct{ name, path, model, get, want string }{
		{"the first chain's is remembered in vain", "/v1/responses", "gpt", "/v1/responses/resp_1", "llm-openai /v1/responses/resp_1"},
		{"a chain of one target forgets its own", "/v1/responses", "azure-gpt", "/v1/responses/resp_1/input_items", "llm-azure /openai/v1/responses/resp_1/input_items"},
		{"a prefix is the provider's", "/team/v1/responses", "gpt", "/team/v1/responses/resp_1", "llm-openai /v1/responses/resp_1"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			elsewhere(t, func(b *bench, _ memory, _ houses) {
				c := b.ask(1, "POST", row.path, `{"model":"`+row.model+`","input":"hi"}`)
				c.answers(200, []string{"content-type", "application/json"}, made)
				c.hangUp()
				c = b.ask(1, "GET", row.get, "")
				if where, _ := c.sent(); where != row.want {
					t.Errorf("GET %s goes to %q, want %q", row.get, where, row.want)
				}
				c.hangUp()
			})
		})
	}
}

func TestWhatALargeRequestIsBoundToIsKnownWhenItIsGone(t *testing.T) {
	for _, size := range []int{1 << 10, keptWhole + 1, 1 << 20} {
		elsewhere(t, func(b *bench, _ memory, _ houses) {
			c := b.ask(1, "POST", "/team/v1/responses", `{"model":"gpt","previous_response_id":"resp_9","input":"`+strings.Repeat("x", size)+`"}`)
			c.answers(503, []string{"content-type", "application/json"}, `{"error":{"message":"busy","type":"server_error","code":null,"param":null}}`)
			if status, set, body, _ := c.got(); set["x-llm-failover"] != "" || status != 0 && status != 503 {
				t.Errorf("with %d bytes Envoy hears %d %v %s, want the last word: the response lives at openai", size, status, set, body)
			}
			c.hangUp()
		})
	}
}

func TestAStreamedResponsesHomeIsKnownHoweverItComes(t *testing.T) {
	const stream = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_42\",\"object\":\"response\",\"status\":\"in_progress\"}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hi\"}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"id\":\"resp_42\",\"status\":\"completed\"}}\n\n"
	for _, path := range []string{"/early/v1/responses", "/team/v1/responses"} {
		for _, size := range []int{1, 50, len(stream)} {
			elsewhere(t, func(b *bench, _ memory, homes houses) {
				c := b.ask(1, "POST", path, `{"model":"gpt","input":"hi","stream":true}`)
				c.s.out = make(chan string, 4096)
				var pieces []string
				for p := range slices.Chunk([]byte(stream), size) {
					pieces = append(pieces, string(p))
				}
				c.answers(200, []string{"content-type", "text/event-stream"}, pieces...)
				if want := map[string]string{"/early/v1/responses": "azure", "/team/v1/responses": "openai"}[path]; homes["resp_42"] != want {
					t.Errorf("%s in pieces of %d: homes = %v, want resp_42 at %s", path, size, homes, want)
				}
				c.hangUp()
			})
		}
	}
}

func TestWhoOnlyWatchesComparesNoTierThatItDidNotAskFor(t *testing.T) {
	elsewhere(t, func(b *bench, _ memory, _ houses) {
		c := b.ask(1, "POST", "/watched/v1/responses", `{"model":"gpt","input":"hi"}`)
		c.answers(200, []string{"content-type", "application/json"}, `{"id":"resp_1","object":"response","status":"completed","service_tier":"default","model":"m","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":1,"output_tokens":1}}`)
		if n := testutil.ToFloat64(b.p.metrics.unenforced.WithLabelValues("fast", "fast/gpt", wouldFailOver)); n != 0 {
			t.Errorf("decisions to fail over = %v, want none: nobody asked for priority", n)
		}
		c.hangUp()
	})
}

func TestABoundRequestGoesWhereTheConfigStillHasAHome(t *testing.T) {
	for home, want := range map[string]string{"azure": "llm-azure", "gone": "llm-openai", "": "llm-openai"} {
		elsewhere(t, func(b *bench, _ memory, homes houses) {
			homes["resp_1"] = home
			var went []string
			for n := 1; n <= 2; n++ {
				c := b.ask(n, "POST", "/team/v1/responses", `{"model":"gpt","input":"hi","previous_response_id":"resp_1"}`)
				where, _ := c.sent()
				c.hangUp()
				if where, _, _ = strings.Cut(where, " "); where != "" {
					went = append(went, where)
				}
			}
			if !slices.Equal(went, []string{want}) {
				t.Errorf("a response of %q is followed up at %q, want %q", home, went, want)
			}
		})
	}
}

func TestAConversationIsKnownByItsOwnChainsHeader(t *testing.T) {
	const made = `{"id":"m","type":"message","role":"assistant","model":"opus","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
	elsewhere(t, func(b *bench, hints memory, _ houses) {
		turn := func(n int, other string) *seen {
			return b.ask(n, "POST", "/other/v1/messages", unstreamed, "x-conversation-id", "c", "x-turn-of", other)
		}
		c := turn(2, "1")
		c.answers(200, []string{"content-type", "application/json"}, made)
		c.hangUp()
		c = turn(1, "2")
		if where, _ := c.sent(); !strings.HasPrefix(where, "llm-bedrock ") {
			t.Errorf("the next turn goes to %q (hints %v), want bedrock, which served the last one", where, hints)
		}
		c.hangUp()
	})
}

func TestAConversationStaysWithTheMemberThatServedIt(t *testing.T) {
	const made = `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	elsewhere(t, func(b *bench, hints memory, _ houses) {
		c := b.ask(2, "POST", "/pair/v1/chat/completions", `{"model":"gpt","messages":[]}`, "x-turn-of", "c")
		where, _ := c.sent()
		c.answers(200, []string{"content-type", "application/json"}, made)
		c.hangUp()
		for _, target := range slices.Collect(maps.Values(hints)) {
			if provider, _, _ := strings.Cut(target, "/"); strings.HasPrefix(where, "llm-"+provider+" ") {
				return
			}
		}
		t.Errorf("after a failover to the member at %q the hints are %v, want it there", where, hints)
	})
}

func TestACutArrayOfGeminiEndsAsAnArray(t *testing.T) {
	const element = `{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"}}],"modelVersion":"pro"}`
	elsewhere(t, func(b *bench, _ memory, _ houses) {
		c := b.ask(1, "POST", "/v1beta/models/pro:streamGenerateContent", `{"contents":[]}`)
		c.answers(200, []string{"content-type", "application/json"}, "["+element+"\n,", element[:20])
		_, _, body, ended := c.got()
		if !strings.HasPrefix(body, "["+element+`,{"error":{"code":`) || !strings.HasSuffix(body, "}]") || !ended {
			t.Errorf("the client gets %q, ended %v, want an array that ends in an error", body, ended)
		}
		c.hangUp()
	})
}
