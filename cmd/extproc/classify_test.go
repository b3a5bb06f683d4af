package main

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"understudy/pkg/classify"
)

var update = flag.Bool("update", false, "write the golden files anew")

// classified runs the command.
func classified(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append([]string{"classify"}, args...), std{strings.NewReader(stdin), &out, &err})
	return code, out.String(), err.String()
}

// recordings are the files of testdata/classify, and the flags that go with each, --api first.
var recordings = map[string][]string{
	"anthropic-overloaded-first": {"--api", "anthropic"},
	"chat-downgraded":            {"--api", "openai", "--asked-tier", "priority"},
	"chat-flex-capacity":         {"--api", "openai", "--asked-tier", "flex"},
	"chat-cut":                   {"--api", "openai"},
	"responses-failed":           {"--api", "openai"},
	"gemini-rate-limited":        {"--api", "gemini"},
	"gemini-array-refused":       {"--api", "gemini"},
	"gemini-downgraded":          {"--api", "gemini", "--asked-tier", "priority"},
	"bedrock-throttled":          {"--api", "anthropic"},
	"converse-filtered":          {"--api", "anthropic"},
	"vertex-rate-limited":        {"--api", "anthropic"},
}

func recording(name string) string { return filepath.Join("testdata", "classify", name+".http") }

func TestClassifyPrintsTheVerdictHoweverTheBodyIsCut(t *testing.T) {
	for name, flags := range recordings {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", "classify", name+".json")
			for _, chunk := range []string{"0", "1", "7"} {
				args := slices.Concat(flags, []string{"--chunk", chunk, recording(name)})
				code, stdout, stderr := classified(t, "", args...)
				if *update && chunk == "0" {
					write(t, golden, stdout)
				}
				if want := read(t, golden); code != exitFine || stdout != want {
					t.Errorf("classify %s = exit %d, %s%s, want %s", args, code, stdout, stderr, want)
				}
			}
		})
	}
}

func TestClassifyTellsTheAPIByTheBody(t *testing.T) {
	for name := range recordings {
		flags := recordings[name]
		_, named, _ := classified(t, "", slices.Concat(flags, []string{recording(name)})...)
		_, told, _ := classified(t, "", slices.Concat(flags[2:], []string{recording(name)})...)
		if told != named || named == "" {
			t.Errorf("classify %s without --api = %s, want as with it: %s", name, told, named)
		}
	}
}

func TestOpenAIsAPIsAreToldApart(t *testing.T) {
	for name, row := range map[string]struct {
		body   string
		coding string
		want   classify.API
	}{
		"a Responses object":                                 {`{"id":"resp_1","object":"response","status":"completed"}`, "", classify.OpenAIResponses},
		"a Responses object with spaces":                     {`{"id": "resp_1", "object": "response"}`, "", classify.OpenAIResponses},
		"a gzip-encoded Responses object":                    {`{"id":"resp_1","object":"response"}`, "gzip", classify.OpenAIResponses},
		"a Responses stream":                                 {"event: response.created\ndata: {}\n\n", "", classify.OpenAIResponses},
		"a Responses stream without names":                   {"data: {\"type\":\"response.created\"}\n\n", "", classify.OpenAIResponses},
		"a Responses stream that is an error from its start": {"event: error\ndata: {\"type\":\"error\"}\n\n", "", classify.OpenAIResponses},
		"a chat completion":                                  {`{"object":"chat.completion","choices":[]}`, "", classify.OpenAIChat},
		"a chat completion that speaks about Responses":      {`{"object":"chat.completion","choices":[{"message":{"content":"\"object\":\"response\"\nevent: response.created"}}]}`, "", classify.OpenAIChat},
		"a chat stream":                                      {"data: {\"object\":\"chat.completion.chunk\"}\n\n", "", classify.OpenAIChat},
		"an error, alike on both":                            {`{"error":{"message":"no","code":"server_error"}}`, "", classify.OpenAIChat},
		"a Responses object in a coding written large":       {`{"object":"response"}`, "GZIP", classify.OpenAIResponses},
		"a brotli-encoded Responses object":                  {`{"object":"response"}`, "br", classify.OpenAIResponses},
		"a deflated Responses object":                        {`{"object":"response"}`, "deflate", classify.OpenAIResponses},
		"a Responses object in no coding":                    {`{"object":"response"}`, "identity", classify.OpenAIResponses},
		"a Responses stream with lone CRs":                   {": hold on\revent: response.created\rdata: {}\r\r", "", classify.OpenAIResponses},
		"a chat stream that ends in a named error":           {"data: {\"choices\":[]}\n\nevent: error\ndata: {}\n\n", "", classify.OpenAIChat},
		"nothing": {"", "", classify.OpenAIChat},
	} {
		t.Run(name, func(t *testing.T) {
			head := "HTTP/1.1 200 OK\ncontent-encoding: " + row.coding + "\n\n"
			rec, err := classify.ReadHTTP(strings.NewReader(head + coded(t, row.coding, row.body)))
			if err != nil {
				t.Fatal(err)
			}
			if got := (&judge{api: "openai"}).dialect(rec); got != row.want {
				t.Errorf("dialect(%q) = %d, want %d", row.body, got, row.want)
			}
		})
	}
}

func TestBedrocksAnswersAreKnownByTheirHeadersOrFirstByte(t *testing.T) {
	for name, row := range map[string]struct {
		head, body string
		want       classify.API
	}{
		"Anthropic's own":             {"request-id: r\n", "event: ping\n", classify.AnthropicMessages},
		"a request id of AWS":         {"x-amzn-requestid: r\n", "{}", classify.APIUnknown},
		"the content type of frames":  {"content-type: application/vnd.amazon.eventstream\n", "", classify.APIUnknown},
		"frames with no content type": {"a: b\n", "\x00\x00", classify.APIUnknown},
		"gzip-encoded frames":         {"content-encoding: gzip\n", zipped(t, "\x00\x00"), classify.APIUnknown},
	} {
		rec, err := classify.ReadHTTP(strings.NewReader("HTTP/1.1 200 OK\n" + row.head + "\n" + row.body))
		if err != nil {
			t.Fatal(err)
		}
		if got := (&judge{api: "anthropic"}).dialect(rec); got != row.want {
			t.Errorf("%s: dialect = %d, want %d", name, got, row.want)
		}
	}
}

func zipped(t *testing.T, s string) string { return coded(t, "gzip", s) }

// coded is s in a content coding.
func coded(t *testing.T, coding, s string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch strings.ToLower(coding) {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	default:
		return s
	}
	fmt.Fprint(w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHelpSaysHowACommandIsUsed(t *testing.T) {
	for _, flag := range []string{"-h", "--help"} {
		if code, stdout, stderr := classified(t, "", flag); code != exitFine || !strings.HasPrefix(stdout, "usage: extproc classify ") || stderr != "" {
			t.Errorf("classify %s = exit %d, %q %q, want the usage", flag, code, stdout, stderr)
		}
	}
}

func TestClassifyReadsStandardInput(t *testing.T) {
	name := recording("chat-flex-capacity")
	_, want, _ := classified(t, "", name)
	code, got, stderr := classified(t, read(t, name), "-")
	if code != exitFine || got != want || want == "" {
		t.Errorf("classify - = exit %d, %q %q, want %q", code, got, stderr, want)
	}
}

func TestClassifyReadsTheOtherFilesWhenOneIsBad(t *testing.T) {
	noHTTP := filepath.Join(t.TempDir(), "notes.http")
	write(t, noHTTP, "not a recording\n")
	for bad, sentence := range map[string]string{
		"no-such-file.http": "no-such-file.http: no such file or directory",
		noHTTP:              noHTTP + ": status line: ",
		t.TempDir():         "is a directory",
	} {
		good := recording("chat-flex-capacity")
		code, stdout, stderr := classified(t, "", good, bad, good)
		if code != exitWrong || strings.Count(stdout, "\n") != 2 {
			t.Errorf("classify with %s = exit %d, %q, want exit %d and two verdicts", bad, code, stdout, exitWrong)
		}
		if !strings.Contains(stderr, sentence) || !strings.Contains(stderr, bad) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("classify with %s says %q, want one sentence with %q", bad, stderr, sentence)
		}
	}
}

func TestClassifyRefusesWrongUsage(t *testing.T) {
	file := recording("chat-cut")
	for _, row := range []struct {
		sentence string
		args     []string
	}{
		{"want anthropic, openai or gemini", []string{"--api", "bedrock", file}},
		{`--api "bard"`, []string{"--api", "bard", file}},
		{"--chunk -1", []string{"--chunk", "-1", file}},
		{`invalid value "many"`, []string{"--chunk", "many", file}},
		{"name at least one", nil},
		{"-nonsense", []string{"-nonsense", file}},
	} {
		code, stdout, stderr := classified(t, "", row.args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, row.sentence) {
			t.Errorf("classify %s = exit %d, %q %q, want exit %d and %q", row.args, code, stdout, stderr, exitUsage, row.sentence)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
