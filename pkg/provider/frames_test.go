package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/tidwall/gjson"

	"understudy/pkg/classify/eventstream"
)

// frameOf is one frame with headers of strings: name, value, name, value.
func frameOf(t testing.TB, payload string, headers ...string) string {
	t.Helper()
	m := aws.Message{Payload: []byte(payload)}
	for i := 0; i < len(headers); i += 2 {
		m.Headers.Set(headers[i], aws.StringValue(headers[i+1]))
	}
	var out bytes.Buffer
	if err := aws.NewEncoder().Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// chunkOf is the frame of an event, with padding as Bedrock has it.
func chunkOf(t testing.TB, event string) string {
	return frameOf(t, `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(event))+`","p":"abcdefghijk"}`,
		":event-type", "chunk", ":content-type", "application/json", ":message-type", "event")
}

func exceptionOf(t testing.TB, name, message string) string {
	return frameOf(t, `{"message":"`+message+`"}`, ":exception-type", name, ":content-type", "application/json", ":message-type", "exception")
}

// events are those of an answer, the last with Bedrock's own metrics.
var events = []string{
	`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":3}}}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é\u00e9 \\n 𝄞"}}`,
	`{"index":0,"type":"content_block_stop"}`,
	`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}`,
	`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":3,"outputTokenCount":7,"invocationLatency":9,"firstByteLatency":4}}`,
}

func answerOf(t testing.TB) string {
	var out strings.Builder
	for _, e := range events {
		out.WriteString(chunkOf(t, e))
	}
	return out.String()
}

// converted is a stream converted n bytes at a time, and the error that ended it.
func converted(stream string, n int) (string, error) {
	f := NewFrames(1 << 20)
	var out []byte
	for p := []byte(stream); len(p) > 0; {
		c := bytes.Clone(p[:min(n, len(p))])
		p = p[len(c):]
		var err error
		if out, err = f.Convert(out, c); err != nil {
			return string(out), err
		}
		clear(c) // it must not be looked at any more
	}
	return string(out), nil
}

// bySDK is what Anthropic's own client of Bedrock makes of a stream, and the error that ended it.
func bySDK(t testing.TB, stream string) (string, error) {
	t.Helper()
	tap := newTap(200, "application/vnd.amazon.eventstream", stream)
	var text []byte
	var fault error
	look := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(r)
		if err != nil {
			return res, err
		}
		text, fault = io.ReadAll(res.Body)
		res.Body = io.NopCloser(bytes.NewReader(nil))
		return res, nil
	})
	client := anthropic.NewClient(append([]option.RequestOption{look}, bedrockOption(tap)...)...)
	s := client.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{MaxTokens: 1, Model: "m"})
	for s.Next() {
		continue
	}
	return string(text), fault
}

func TestFramesBecomeTheEventsThatTheSDKMakesOfThem(t *testing.T) {
	stream := answerOf(t)
	want, err := bySDK(t, stream)
	if err != nil || strings.Count(want, "\n\n") != len(events) {
		t.Fatalf("the SDK reads %q, %v, want %d events", want, err, len(events))
	}
	for _, n := range []int{1, 2, 3, 7, 12, 16, 100, 1 << 20} {
		if got, err := converted(stream, n); err != nil || got != want {
			t.Errorf("Convert() %d bytes at a time = %q, %v, want %q", n, got, err, want)
		}
	}
	for _, e := range events {
		if !strings.Contains(want, "data: "+e+"\n\n") {
			t.Errorf("the bytes of %s changed", e)
		}
	}
}

func TestFramesThatAreNoEvents(t *testing.T) {
	begin := chunkOf(t, events[0])
	first := "event: message_start\ndata: " + events[0] + "\n\n"
	broken := []byte(chunkOf(t, events[2]))
	broken[len(broken)-8] ^= 1
	event := func(payload string) string {
		return frameOf(t, payload, ":event-type", "chunk", ":message-type", "event")
	}
	coded := base64.StdEncoding.EncodeToString([]byte(`{"type":"ping"}`))
	rows := []struct {
		name, stream, want string
		err                error
	}{
		{"an exception becomes an event", begin + exceptionOf(t, "throttlingException", "slow"), first, nil},
		{"events after an exception pass", begin + exceptionOf(t, "modelStreamErrorException", "x") + begin, first, nil},
		{"an error becomes an event", begin + frameOf(t, "", ":message-type", "error", ":error-code", "x", ":error-message", "y") + begin, first, nil},
		{"a broken checksum passes", begin + string(broken) + begin, first, eventstream.ErrChecksum},
		{"text passes", begin + "data: {}\n\n     ", first, eventstream.ErrChecksum},
		{"a frame without a type passes", begin + frameOf(t, "{}"), first, ErrFrame},
		{"an event without a name passes", begin + frameOf(t, "{}", ":message-type", "event"), first, ErrFrame},
		{"another event is a fault", begin + frameOf(t, "{}", ":message-type", "event", ":event-type", "metadata") + begin, first + first, nil},
		{"a chunk that is no JSON passes", begin + event("{"), first, ErrChunk},
		{"a chunk without an event passes", begin + event("{}"), first, ErrChunk},
		{"bad base64 passes", begin + event(`{"bytes":"e30"}`), first, ErrChunk},
		{"an escape hides base64", event(`{"bytes":"` + strings.ReplaceAll(coded, "e", `\u0065`) + `"}`), "event: ping\ndata: {\"type\":\"ping\"}\n\n", nil},
		{"the order of a chunk's members counts", event(`{"p":"a", "bytes" : "` + coded + `"}`), "event: ping\ndata: {\"type\":\"ping\"}\n\n", nil},
		{"a line break ends an event", chunkOf(t, "{\"type\":\"ping\",\n\"a\":\r\n1,\r\"b\":2}"), "event: ping\ndata: {\"type\":\"ping\",\ndata: \"a\":\ndata: 1,\ndata: \"b\":2}\n\n", nil},
		{"a type with a line break makes an event", chunkOf(t, `{"type":"a\n\ndata: b"}`) + begin, first, nil},
		{"an event without a type is a fault", chunkOf(t, `{}`) + begin, first, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, n := range []int{1, 13, 1 << 20} {
				if got, err := converted(row.stream, n); got != row.want || !errors.Is(err, row.err) || row.err == nil && err != nil {
					t.Errorf("Convert() %d bytes at a time = %q, %v, want %q, %v", n, got, err, row.want, row.err)
				}
			}
		})
	}
}

func TestAnExceptionAtAnyPointLeavesWholeEvents(t *testing.T) {
	for i := range events {
		var stream, want strings.Builder
		for _, e := range events[:i] {
			stream.WriteString(chunkOf(t, e))
			var typed struct{ Type string }
			if err := json.Unmarshal([]byte(e), &typed); err != nil {
				t.Fatal(err)
			}
			want.WriteString("event: " + typed.Type + "\ndata: " + e + "\n\n")
		}
		if got, err := converted(stream.String()+exceptionOf(t, "internalServerException", "x"), 5); err != nil || got != want.String() {
			t.Errorf("Convert() with an exception after %d events = %q, %v, want %q", i, got, err, want.String())
		}
	}
}

func TestAFrameBeyondTheLimitEndsTheStream(t *testing.T) {
	f := NewFrames(100)
	if _, err := f.Convert(nil, []byte(chunkOf(t, events[0]))); !errors.Is(err, eventstream.ErrTooLong) {
		t.Errorf("Convert() of a long frame = %v, want %v", err, eventstream.ErrTooLong)
	}
	if f.Partial() {
		t.Errorf("Partial() after a fault = true, want false")
	}
}

func TestAStreamCutInsideAFrameIsPartial(t *testing.T) {
	stream := answerOf(t)
	f := NewFrames(1 << 20)
	if _, err := f.Convert(nil, []byte(stream[:len(stream)-1])); err != nil || !f.Partial() {
		t.Errorf("Convert() of a cut stream = %v, Partial() = %v, want nil and true", err, f.Partial())
	}
	if _, err := f.Convert(nil, []byte(stream[len(stream)-1:])); err != nil || f.Partial() {
		t.Errorf("Convert() of its end = %v, Partial() = %v, want nil and false", err, f.Partial())
	}
}

// byAWS is what AWS's own decoder and encoding/json make of a stream, up to the first exception or fault.
func byAWS(stream []byte) string {
	var out strings.Builder
	for in, dec := bytes.NewReader(stream), aws.NewDecoder(); ; {
		m, err := dec.Decode(in, nil)
		if err != nil || m.Headers.Get(":message-type") == nil {
			return out.String()
		}
		switch m.Headers.Get(":message-type").String() {
		case "exception", "error":
			return out.String()
		case "event":
			name := m.Headers.Get(":event-type")
			var chunk struct{ Bytes []byte }
			switch {
			case name == nil:
				return out.String()
			case name.String() != "chunk":
				continue
			case json.Unmarshal(m.Payload, &chunk) != nil || len(chunk.Bytes) == 0:
				return out.String()
			}
			kind := gjson.GetBytes(chunk.Bytes, "type").String()
			if kind == "" || strings.ContainsAny(kind, "\r\n") {
				continue
			}
			lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(chunk.Bytes))
			out.WriteString("event: " + kind + "\ndata: " + strings.ReplaceAll(lines, "\n", "\ndata: ") + "\n\n")
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte(answerOf(f)), uint64(1), false)
	f.Add([]byte(chunkOf(f, events[0])+exceptionOf(f, "throttlingException", "slow")), uint64(2), false)
	f.Add([]byte(`{"type":"ping"}`), uint64(3), true)
	f.Add([]byte("{\"type\":\"a\",\n\"b\":1}"), uint64(4), true)
	f.Add([]byte(`{"b":1,"type":"\u0061"}`), uint64(4), true)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, event bool) {
		stream := data
		if event {
			stream = []byte(chunkOf(t, string(data)))
		}
		want := byAWS(stream)
		cuts := rand.New(rand.NewPCG(seed, 0))
		conv := NewFrames(1 << 20)
		var out []byte
		var err error
		for p := stream; len(p) > 0 && err == nil; {
			n := min(len(p), 1+cuts.IntN(40))
			out, err = conv.Convert(out, p[:n])
			p = p[n:]
		}
		if string(out) != want {
			t.Fatalf("Convert() of %q = %q, %v, want %q", stream, out, err, want)
		}
	})
}

// TestRandomFramesBecomeWhatTheSDKMakesOfThem cuts random answers anywhere, with a fault or none.
func TestRandomFramesBecomeWhatTheSDKMakesOfThem(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var stream strings.Builder
		for range r.IntN(6) {
			stream.WriteString(chunkOf(t, events[r.IntN(len(events))]))
		}
		text := stream.String()
		if len(text) > 0 && r.IntN(2) == 0 {
			broken := []byte(text)
			broken[r.IntN(len(broken))] ^= 1 << r.IntN(8)
			text = string(broken[:r.IntN(len(broken)+1)])
		}
		want, _ := bySDK(t, text)
		if got, err := converted(text, 1+r.IntN(100)); got != want {
			t.Fatalf("Convert() of %q = %q, %v, want %q", text, got, err, want)
		}
	}
}

func BenchmarkFrames(b *testing.B) {
	one := []byte(chunkOf(b, events[3]))
	f := NewFrames(1 << 20)
	var out []byte
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if out, err = f.Convert(out[:0], one); err != nil {
			b.Fatal(err)
		}
	}
}
