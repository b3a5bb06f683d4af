package classify

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// frame makes one frame of a line as in *.frames.
func frame(t testing.TB, line string) string {
	t.Helper()
	out := &bytes.Buffer{}
	word, rest, _ := strings.Cut(line, " ")
	if !frameLine(t, out, word, rest) {
		t.Fatalf("%q is not a frame", line)
	}
	return out.String()
}

// chunks makes frames of the data of Anthropic's events.
func chunks(t testing.TB, events ...string) string {
	t.Helper()
	var b strings.Builder
	for _, ev := range events {
		_, data, _ := strings.Cut(ev, "data: ")
		b.WriteString(frame(t, "chunk "+strings.TrimSpace(data)))
	}
	return b.String()
}

// Events of Gemini and Converse, by short names.
const (
	gText  = `{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"index":0}]}`
	gEmpty = `{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":4}}`
	gStop  = `{"candidates":[{"finishReason":"STOP","index":0}]}`
	gError = `{"error":{"code":503,"status":"UNAVAILABLE"}}`
	gBlock = `{"promptFeedback":{"blockReason":"SAFETY"}}`

	vStart = `event messageStart {"role":"assistant"}`
	vTool  = `event contentBlockStart {"start":{"toolUse":{"toolUseId":"t","name":"f"}}}`
	vBlock = `event contentBlockStart {"contentBlockIndex":0}`
	vText  = `event contentBlockDelta {"delta":{"text":"Hi"}}`
	vStop  = `event messageStop {"stopReason":"end_turn"}`
	vMeta  = `event metadata {"usage":{"inputTokens":3}}`
	vError = `exception throttlingException {"message":"x"}`
)

// data makes an SSE event, as Gemini ends its lines.
func data(json string) string { return "data: " + json + "\r\n\r\n" }

func TestContentStartsAStreamOfTheCloudsToo(t *testing.T) {
	for _, tt := range []struct {
		name   string
		api    API
		events []string
		want   []Progress
	}{
		{"gemini: empty text, then text", Gemini, []string{data(gEmpty), data(gText), data(gStop)}, []Progress{Waiting, Started, Started}},
		{"gemini: a blocked prompt is decided at once", Gemini, []string{data(gBlock)}, []Progress{Decided}},
		{"gemini: an error before content", Gemini, []string{data(gEmpty), data(gError)}, []Progress{Waiting, Decided}},
		{"gemini: a bare error after content", Gemini, []string{data(gText), gError + "\n", "\n"}, []Progress{Started, Started, Decided}},
		{"gemini: elements of an array", Gemini, []string{"[" + gEmpty, ",\n" + gText, ",\n" + gStop, "]"}, []Progress{Waiting, Started, Started, Started}},
		{"gemini: an error in an array", Gemini, []string{"[" + gEmpty, "," + gError}, []Progress{Waiting, Decided}},
		{"unknown: elements of an array", APIUnknown, []string{"[" + gEmpty, "," + gText}, []Progress{Waiting, Started}},
		{"unknown: an array of another kind", APIUnknown, []string{"[" + `{"choices":[{"delta":{"content":"Hi"}}]}`, "]"}, []Progress{Waiting, Waiting}},
		{"bedrock: lifecycle, then text", BedrockInvoke, []string{chunks(t, aStart, aPing, aBlock), chunks(t, aText), chunks(t, aEnd, aStop)}, []Progress{Waiting, Started, Started}},
		{"bedrock: a refusal before the end", BedrockInvoke, []string{chunks(t, aStart), chunks(t, aRefusal), chunks(t, aStop)}, []Progress{Waiting, Decided, Decided}},
		{"bedrock: an exception after content", BedrockInvoke, []string{chunks(t, aStart, aText), frame(t, vError)}, []Progress{Started, Decided}},
		{"converse: lifecycle, then text", BedrockConverse, []string{frame(t, vStart), frame(t, vBlock), frame(t, vText), frame(t, vStop)}, []Progress{Waiting, Waiting, Started, Started}},
		{"converse: a tool call is content", BedrockConverse, []string{frame(t, vStart), frame(t, vTool)}, []Progress{Waiting, Started}},
		{"unknown: converse by the names of its frames", APIUnknown, []string{frame(t, vStart), frame(t, vText)}, []Progress{Waiting, Started}},
	} {
		r := New(Options{API: tt.api})
		r.Header(200, headers())
		var got []Progress
		for _, ev := range tt.events {
			got = append(got, r.Feed([]byte(ev)))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: Feed = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestSafeIsTheEndOfTheLastAcceptedFrameOrElement(t *testing.T) {
	good, text := chunks(t, aStart), chunks(t, aText)
	broken := []byte(text)
	broken[len(broken)-9] ^= 1
	whole := chunks(t, aStart, aText, aEnd, aStop)
	refused := chunks(t, aStart, aRefusal, aStop)
	for _, tt := range []struct {
		name         string
		api          API
		body         string
		safe, failed string
	}{
		{"whole frames", BedrockInvoke, whole, whole, ""},
		{"half a frame", BedrockInvoke, good + text[:40], good, ""},
		{"half a prelude", BedrockInvoke, good + text[:5], good, ""},
		{"a frame with a bad checksum", BedrockInvoke, good + string(broken) + text, good, ""},
		{"an exception and what is behind it", BedrockInvoke, good + frame(t, vError) + text, good, `{"message":"x"}`},
		{"an error frame", BedrockInvoke, good + frame(t, "error InternalFailure x"), good, ""},
		{"a refusal goes on", BedrockInvoke, refused, refused, ""},
		{"a chunk that is not base64", BedrockInvoke, good + frame(t, `event chunk {"bytes":"*"}`), good, `{"bytes":"*"}`},
		{"a frame over the limit", BedrockInvoke, good + string(prelude(5000, 0)), good, ""},
		{"frames of converse", BedrockConverse, frame(t, vStart) + frame(t, vText) + frame(t, vError), frame(t, vStart) + frame(t, vText), `{"message":"x"}`},
		{"elements", Gemini, "[" + gText + ",\n" + gText, "[" + gText + ",\n" + gText, ""},
		{"half an element", Gemini, "[" + gText + ",\n" + gText[:20], "[" + gText, ""},
		{"an element that is an error", Gemini, "[" + gText + ",\n" + gError + "]", "[" + gText, gError},
		{"an element that is not JSON", Gemini, "[" + gText + `,{"a":}]`, "[" + gText, ""},
		{"an element over the limit", Gemini, "[" + gText + `,{"a":"` + strings.Repeat("x", 5000) + `"}]`, "[" + gText, ""},
		{"the end of an array", Gemini, "[" + gBlock + "]\n", "[" + gBlock + "]\n", ""},
		{"garbage behind an array", Gemini, "[" + gBlock + "] x", "[" + gBlock + "] ", ""},
		{"a comma behind the last element", Gemini, "[" + gText + ",]", "[" + gText, ""},
		{"white space over the limit between elements", Gemini, "[" + gText + strings.Repeat(" ", 5000) + "," + gText, "[" + gText + strings.Repeat(" ", 5000) + "," + gText, ""},
		{"white space over the limit behind an array", Gemini, "[" + gBlock + "]" + strings.Repeat("\n", 5000), "[" + gBlock + "]" + strings.Repeat("\n", 5000), ""},
		{"an array behind a byte order mark", Gemini, bom + "[" + gText, bom + "[" + gText, ""},
		{"a byte order mark inside an array", Gemini, "[" + gText + bom + "," + gText, "[" + gText, ""},
		{"an array inside an array is no element", Gemini, "[[{}]," + gText, "[[{}]," + gText, ""},
		{"an array inside an array, then a fault", Gemini, "[[{}],00", "", ""},
		{"a bare error", Gemini, data(gText) + gError + "\n\n", data(gText), gError},
	} {
		for _, n := range []int{1, 7, len(tt.body)} {
			r := New(Options{API: tt.api, MaxEvent: 1000})
			r.Header(200, headers())
			for p := []byte(tt.body); len(p) > 0; p = p[min(n, len(p)):] {
				r.Feed(p[:min(n, len(p))])
			}
			if got := r.Safe(); got != int64(len(tt.safe)) {
				t.Errorf("%s, %d bytes at a time: Safe() = %d, want %d", tt.name, n, got, len(tt.safe))
			}
			if got := string(r.FailedEvent()); got != tt.failed {
				t.Errorf("%s, %d bytes at a time: FailedEvent() = %q, want %q", tt.name, n, got, tt.failed)
			}
		}
	}
}

func TestAHangUpBehindTheEndOfTheCloudsIsOK(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		api        API
		want       Class
	}{
		{"behind message_stop", chunks(t, aStart, aText, aEnd, aStop), BedrockInvoke, OK},
		{"inside a frame behind message_stop", chunks(t, aStart, aText, aEnd, aStop) + "\x00", BedrockInvoke, Truncated},
		{"before message_stop", chunks(t, aStart, aText), BedrockInvoke, Canceled},
		{"behind the metadata", frame(t, vStart) + frame(t, vText) + frame(t, vStop) + frame(t, vMeta), BedrockConverse, OK},
		{"before the metadata", frame(t, vStart) + frame(t, vText) + frame(t, vStop), BedrockConverse, Canceled},
		{"behind the array", "[" + gText + "," + gStop + "]", Gemini, OK},
		{"before the end of the array", "[" + gText + "," + gStop, Gemini, Canceled},
	} {
		r := New(Options{API: tt.api})
		r.Header(200, headers())
		r.Feed([]byte(tt.body))
		if v := r.Abort(Canceled, "client went away"); v.Class != tt.want {
			t.Errorf("%s: Abort = %v, want %v", tt.name, v.Class, tt.want)
		}
	}
}

func TestStreamsOfTheCloudsAreToldByTheirFirstBytes(t *testing.T) {
	for _, tt := range []struct {
		contentType, body string
		before, after     bool
	}{
		{"application/vnd.amazon.eventstream", "", true, true},
		{"application/vnd.amazon.eventstream", frame(t, vStart), true, true},
		{"application/vnd.amazon.eventstream", "upstream error", true, true},
		{"application/vnd.amazon.eventstream", "data: {}\n\n", true, true},
		{"application/vnd.amazon.eventstream", "{", true, false},
		{"application/vnd.amazon.eventstream", "<html>", true, false},
		{"Application/Vnd.Amazon.EventStream; charset=x", "", true, true},
		{"application/json", "\x00", false, true},
		{"text/plain", "\x00\x00", false, true},
		{"application/json", "[" + gText, false, true},
		{"application/json", "[{}", false, false},
	} {
		r := New(Options{})
		r.Header(200, headers("content-type", tt.contentType))
		if got := r.Streaming(); got != tt.before {
			t.Errorf("Streaming() of %q = %v, want %v", tt.contentType, got, tt.before)
		}
		r.Feed([]byte(tt.body))
		if got := r.Streaming(); got != tt.after {
			t.Errorf("Streaming() of %q with %.20q = %v, want %v", tt.contentType, tt.body, got, tt.after)
		}
	}
}

func TestAnAnswerOfFewBytesEndsAsItsContentTypeSays(t *testing.T) {
	for kind, want := range map[string]string{
		"application/vnd.amazon.eventstream": "malformed frame checksum differs",
		"text/event-stream":                  "truncated no end marker",
		"application/json":                   "malformed not json",
	} {
		r := New(Options{})
		r.Header(200, headers("content-type", kind))
		r.Feed([]byte("event"))
		r.Feed([]byte("ually none"))
		if v := r.End(true); fmt.Sprint(v.Class, " ", v.Detail) != want {
			t.Errorf("%s: End = %v %s, want %s", kind, v.Class, v.Detail, want)
		}
		r = New(Options{})
		r.Header(200, headers("content-type", kind))
		r.Feed([]byte("  "))
		if v := r.End(true); v.Class != Truncated {
			t.Errorf("%s: End of spaces = %v, want %v", kind, v.Class, Truncated)
		}
	}
}

func TestEndlessArraysAndFramesAreBounded(t *testing.T) {
	piece := []byte(strings.Repeat("1,", 32<<10))
	r := New(Options{API: Gemini})
	r.Header(200, headers())
	r.Feed([]byte("["))
	for range 40 {
		r.Feed(piece)
	}
	if v := r.Verdict(); v.Class != Malformed || v.Detail != "event too long" {
		t.Errorf("an endless array = %v %q, want %v", v.Class, v.Detail, Malformed)
	}
	if got := cap(r.in.(*elements).held); got > 2*defaultMaxEvent {
		t.Errorf("held of an endless array = %d bytes, want at most %d", got, 2*defaultMaxEvent)
	}
	deep := New(Options{API: Gemini})
	deep.Header(200, headers())
	if got := deep.Feed([]byte(strings.Repeat("[", 5000))); got != Decided {
		t.Errorf("deep arrays = %v, want %v", got, Decided)
	}
}

func TestContentEventsOfTheCloudsAllocateNothing(t *testing.T) {
	words := strings.Repeat("some words of an answer ", 4)
	gWords, aWords := strings.Replace(gText, "Hi", words, 1), strings.Replace(aText, "Hi", words, 1)
	for _, tt := range []struct {
		name        string
		api         API
		head, event string
	}{
		{"gemini", Gemini, "", data(gWords)},
		{"gemini array", Gemini, "[" + gEmpty, ",\n" + gWords},
		{"bedrock", BedrockInvoke, chunks(t, aStart), chunks(t, aWords)},
		{"converse", BedrockConverse, frame(t, vStart), frame(t, strings.Replace(vText, "Hi", words, 1))},
		{"vertex", AnthropicVertex, aStart, aWords},
	} {
		r := New(Options{API: tt.api})
		r.Header(200, headers())
		r.Feed([]byte(tt.head))
		p := []byte(strings.Repeat(tt.event, 20))
		for _, n := range []int{len(p), 100} {
			feed := func() {
				for rest := p; len(rest) > 0; rest = rest[min(n, len(rest)):] {
					r.Feed(rest[:min(n, len(rest))])
				}
			}
			feed()
			if got := testing.AllocsPerRun(50, feed); got != 0 && !racing {
				t.Errorf("%s: allocations for 20 events, %d bytes at a time = %v, want 0", tt.name, n, got)
			}
		}
		if v := r.Verdict(); v.Class != None || r.progress() != Started {
			t.Errorf("%s: Verdict() = %+v, want none yet, started", tt.name, v)
		}
	}
}

func BenchmarkCloudFeed(b *testing.B) {
	words := strings.Repeat("some words of an answer ", 4)
	for name, tt := range map[string]struct {
		api         API
		head, event string
	}{
		"gemini":   {Gemini, "", data(strings.Replace(gText, "Hi", words, 1))},
		"array":    {Gemini, "[" + gEmpty, ",\n" + strings.Replace(gText, "Hi", words, 1)},
		"bedrock":  {BedrockInvoke, chunks(b, aStart), chunks(b, strings.Replace(aText, "Hi", words, 1))},
		"converse": {BedrockConverse, frame(b, vStart), frame(b, strings.Replace(vText, "Hi", words, 1))},
	} {
		b.Run(name, func(b *testing.B) {
			r, p := New(Options{API: tt.api}), []byte(strings.Repeat(tt.event, 16))
			r.Header(200, headers())
			r.Feed([]byte(tt.head))
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				r.Feed(p)
			}
		})
	}
}

func TestExceptionNamesAreMadePlain(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "ThrottlingException": "ThrottlingException", "throttlingException": "ThrottlingException",
		"ThrottlingException:http://internal.amazon.com/coral/": "ThrottlingException",
		"com.amazon.coral.service#ThrottlingException":          "ThrottlingException",
		"aws.x#FooError:http://x.y/z#w":                         "FooError",
		"InternalFailure":                                       "InternalFailure", "Exception": "Exception", ":": "", "#": "",
		"RESOURCE_EXHAUSTED": "RESOURCE_EXHAUSTED",
	} {
		if got := exceptionName(in); got != want {
			t.Errorf("exceptionName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTheBytesOfAChunkAreFoundWhereverTheyStand(t *testing.T) {
	for in, want := range map[string]string{
		`{"bytes":"e30="}`:                              "e30=",
		` { "bytes" : "e30=" } `:                        "e30=",
		`{"p":"bytes","bytes":"a"}`:                     "a",
		`{"p":"\"bytes\":\"x\"","bytes":"a"}`:           "a",
		`{"p":{"bytes":"x"},"q":["bytes"],"bytes":"a"}`: "a",
		`{"bytes":"a\/b"}`:                              `a\/b`,
		`{"bytes":1}`:                                   "",
		`{"bytes":null,"p":"x"}`:                        "",
		`["bytes","x"]`:                                 "",
		`"bytes"`:                                       "",
		`{}`:                                            "",
	} {
		if got := string(member([]byte(in), "bytes")); got != want {
			t.Errorf("member(%s) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{`a\/b`: "a/b", `\u002b\u003d`: "+=", `\x`: ""} {
		if got := string(unescape([]byte(in))); got != want {
			t.Errorf("unescape(%s) = %q, want %q", in, got, want)
		}
	}
}

// FuzzFrames checks the same of frames whose checksums are right, which other inputs seldom have.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{
		"chunk {\"type\":\"message_start\"}\nchunk {\"type\":\"message_stop\"}", vStart + "\n" + vText + "\n" + vStop + "\n" + vMeta,
		vStart + "\n" + vError, "error InternalFailure x", "event chunk {\"bytes\":\"\"}", "chunk-last {}\nchunk-escaped {\"type\":\"ping\"}", "exception - {}\nnone",
	} {
		f.Add(seed, 3, uint8(0), true)
	}
	f.Fuzz(func(t *testing.T, source string, n int, api uint8, clean bool) {
		var body bytes.Buffer
		for line := range strings.SplitSeq(source, "\n") {
			word, rest, _ := strings.Cut(line, " ")
			if len(rest) < 1000 && !frameLine(t, &body, word, rest) {
				body.WriteString(rest)
			}
		}
		fx := fixture{rec: &Recording{Status: 200}, cut: !clean}
		o := Options{API: []API{APIUnknown, BedrockInvoke, BedrockConverse, AnthropicMessages}[api%4], MaxEvent: 600}
		want := fx.feed(o, body.Bytes(), headers(), body.Len()+1)
		if got := fx.feed(o, body.Bytes(), headers(), max(1, n%100)); !same(got, want) {
			t.Fatalf("%q, %d bytes at a time = %+v, want %+v as when whole", body.Bytes(), n, got, want)
		}
	})
}
