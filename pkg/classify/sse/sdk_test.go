package sse

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"
	openai "github.com/openai/openai-go/v3/packages/ssestream"
)

// heard is one event as a reader delivers it.
type heard struct{ name, data string }

// sdks are the decoders of the two official Go SDKs.
var sdks = map[string]func(stream []byte) []heard{
	"anthropic": func(stream []byte) (out []heard) {
		for d := anthropic.NewDecoder(response(stream)); d.Next(); {
			out = append(out, heard{d.Event().Type, strings.TrimSuffix(string(d.Event().Data), "\n")})
		}
		return out
	},
	"openai": func(stream []byte) (out []heard) {
		for d := openai.NewDecoder(response(stream)); d.Next(); {
			out = append(out, heard{d.Event().Type, strings.TrimSuffix(string(d.Event().Data), "\n")})
		}
		return out
	},
}

func response(stream []byte) *http.Response {
	return &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(stream))}
}

// delivered is what the framer delivers, n bytes at a time: all events, and those that the standard dispatches.
func delivered(stream []byte, n int) (all, standard []heard) {
	f := New(1 << 20)
	for ; len(stream) > 0; stream = stream[min(n, len(stream)):] {
		f.Feed(stream[:min(n, len(stream))])
		for ev, ok := f.Next(); ok; ev, ok = f.Next() {
			h := heard{string(ev.Name), string(ev.Data)}
			all = append(all, h)
			if ev.Data != nil && !ev.Bare {
				standard = append(standard, h)
			}
		}
	}
	return all, standard
}

// gaps are where the SDKs' decoders leave the standard: an event that only one side delivers is of these, and no other.
var gaps = []struct {
	name, stream              string
	anthropic, openai, framer []heard
}{
	{"a line ends at LF and CRLF alone: a stream with CRs is one line", "data: a\r\rdata: b\r\r",
		nil, nil, []heard{{"", "a"}, {"", "b"}}},
	{"a byte order mark makes the first field unknown", "\xEF\xBB\xBFdata: a\n\ndata: b\n\n",
		[]heard{{"", "b"}}, []heard{{"", "b"}}, []heard{{"", "a"}, {"", "b"}}},
	{"an event without data is delivered by one, as the framer does; the standard has none", "event: error\n\ndata: a\n\n",
		[]heard{{"error", ""}, {"", "a"}}, []heard{{"", "a"}}, []heard{{"error", ""}, {"", "a"}}},
	{"a last event without its blank line is dropped, as by the standard: the end looks clean", "data: a\n\ndata: b\n",
		[]heard{{"", "a"}}, []heard{{"", "a"}}, []heard{{"", "a"}}},
	{"JSON without data: is dropped, as by the standard; the framer shows it", "{\"error\":{}}\n\ndata: a\n\n",
		[]heard{{"", "a"}}, []heard{{"", "a"}}, []heard{{"", "{\"error\":{}}"}, {"", "a"}}},
}

func TestTheGapsOfTheSDKsAreTheseStill(t *testing.T) {
	for _, tt := range gaps {
		all, _ := delivered([]byte(tt.stream), 3)
		for reader, row := range map[string]struct{ got, want []heard }{
			"anthropic": {sdks["anthropic"]([]byte(tt.stream)), tt.anthropic},
			"openai":    {sdks["openai"]([]byte(tt.stream)), tt.openai},
			"framer":    {all, tt.framer},
		} {
			if !slices.Equal(row.got, row.want) {
				t.Errorf("%s: %s delivers %q, want %q", tt.name, reader, row.got, row.want)
			}
		}
	}
}

// bridged writes a stream so that the SDKs see in it what the standard does: without the mark, a lone CR as LF.
func bridged(stream []byte) []byte {
	stream = bytes.Clone(bytes.TrimPrefix(stream, []byte(bom)))
	for i, c := range stream {
		if c == '\r' && !bytes.HasPrefix(stream[i+1:], []byte("\n")) {
			stream[i] = '\n'
		}
	}
	return stream
}

// differ tells where the framer and an SDK deliver different events, "" if they do not.
func differ(stream []byte) string {
	for _, n := range []int{1, 7, 1 << 20} {
		_, want := delivered(stream, n)
		for name, sdk := range sdks {
			got := slices.DeleteFunc(sdk(bridged(stream)), func(h heard) bool { return h.data == "" })
			ours := slices.DeleteFunc(slices.Clone(want), func(h heard) bool { return h.data == "" })
			if !slices.Equal(got, ours) {
				return fmt.Sprintf("%s delivers %q, the framer, %d bytes at a time, %q", name, got, n, ours)
			}
		}
	}
	return ""
}

// recorded are the bodies of all recorded answers, and the streams of the tests here.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../testdata/*/*.http")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded answers: %v", err)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := bytes.Cut(b, []byte("\n\n"))
		out[path] = body
	}
	for _, s := range streams {
		out[s.name] = []byte(s.in)
	}
	for _, gap := range gaps {
		out[gap.name] = []byte(gap.stream)
	}
	return out
}

func TestWhatTheSDKsDeliverTheFramerDelivers(t *testing.T) {
	events := 0
	for name, stream := range recorded(t) {
		if d := differ(stream); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		events += len(sdks["anthropic"](stream))
	}
	if events < 500 {
		t.Errorf("the SDKs deliver %d events of the recorded answers, want hundreds", events)
	}
}

// FuzzAgainstSDKs looks for streams on which an SDK and the framer part.
func FuzzAgainstSDKs(f *testing.F) {
	for _, stream := range recorded(f) {
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if d := differ(stream); d != "" {
			t.Fatalf("%q: %s", stream, d)
		}
	})
}
