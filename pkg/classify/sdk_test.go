package classify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// module is where the go command keeps a module that go.mod names.
func module(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Fatalf("go list -m %s = %q, %v", path, dir, err)
	}
	return dir
}

// matches are the files of a module that a pattern finds; there must be some.
func matches(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return files
}

const (
	anthropicModule = "github.com/anthropics/anthropic-sdk-go/v2"
	openaiModule    = "github.com/openai/openai-go/v3"
)

// settled is the verdict of a body, which must not depend on how it is cut, nor on whether the API is named.
func settled(t *testing.T, name string, rec *Recording, api API) Verdict {
	t.Helper()
	want := rec.Classify(Options{API: api}, 0)
	for _, o := range []Options{{API: api}, {API: APIUnknown}} {
		for _, n := range []int{1, 7, 1000} {
			if got := rec.Classify(o, n); !same(got, want) {
				t.Errorf("%s, %d bytes at a time, API %d = %+v, want %+v", name, n, o.API, got, want)
			}
		}
	}
	return want
}

// sseOf is a recording of an event stream.
func sseOf(body []byte) *Recording {
	return &Recording{Status: 200, Header: map[string][]string{"Content-Type": {"text/event-stream"}}, Body: body}
}

func TestAnthropicsOwnStreamsAreWhatTheirNamesSay(t *testing.T) {
	dir := module(t, anthropicModule)
	for _, file := range matches(t, dir, "lib/betafallback/testdata/fallbackstream/*.sse") {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, want := filepath.Base(file), OK
		if strings.HasPrefix(name, "refusal") {
			want = Refusal
		}
		v := settled(t, name, sseOf(body), AnthropicMessages)
		if v.Class != want || !v.Complete || v.Model == "" || v.Usage.Output == 0 || len(v.Iterations) != 1 || v.Iterations[0].Output != v.Usage.Output {
			t.Errorf("%s = %+v, want %v with model, usage and one iteration", name, v, want)
		}
	}
}

// cassette is a recorded exchange with the real API, as go-vcr keeps it.
type cassette struct {
	Interactions []struct {
		Response struct {
			Body    string
			Headers map[string][]string
			Code    int
		}
	}
}

func TestAnthropicsRecordedExchangesAreAnswers(t *testing.T) {
	dir, streams := module(t, anthropicModule), 0
	for _, file := range matches(t, dir, "toolrunner/testdata/cassettes/*.yaml") {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c cassette
		if err := yaml.Unmarshal(b, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i, x := range c.Interactions {
			rec := &Recording{Status: x.Response.Code, Header: map[string][]string{}, Body: []byte(x.Response.Body)}
			for name, values := range x.Response.Headers {
				if name != "Content-Encoding" { // the recorder keeps the decoded body
					rec.Header[name] = values
				}
			}
			name := fmt.Sprintf("%s, answer %d", filepath.Base(file), i+1)
			v := settled(t, name, rec, AnthropicMessages)
			if v.Class != OK || !v.Complete || v.Model == "" || v.RequestID == "" || v.Usage.Input == 0 || v.Usage.Output == 0 || v.Usage.Estimated {
				t.Errorf("%s = %+v, want ok with model, request id and usage", name, v)
			}
			if strings.HasPrefix(x.Response.Body, "event: ") {
				streams++
			}
		}
	}
	if streams < 3 {
		t.Errorf("streams among the recorded answers = %d, want 3 or more", streams)
	}
}

// scenarios are OpenAI's tests of a Responses session: turns of frames, each of which is what an SSE event has as data.
type scenarios struct {
	Scenarios []struct {
		ID        string
		CloseCode int `json:"close_code"`
		Turns     []struct{ Frames []json.RawMessage }
	}
}

// scenarioClasses say what the words of a scenario's name mean.
var scenarioClasses = map[string]Class{
	"completed":                OK,
	"failed":                   ServerError, // its code is server_error
	"incomplete":               OK,          // by max_output_tokens
	"nested_error":             Invalid,
	"unknown_event_and_fields": OK,
	"premature_close_1000":     Truncated, // a clean close
	"premature_close_1011":     Transport, // an abnormal one
	"malformed_json":           Malformed,
}

func TestOpenAIsOwnScenariosAreWhatTheirNamesSay(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(module(t, openaiModule), "internal/websockettest/testdata/scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all scenarios
	if err := json.Unmarshal(b, &all); err != nil || len(all.Scenarios) == 0 {
		t.Fatalf("scenarios: %v", err)
	}
	for _, s := range all.Scenarios {
		for i, word := range strings.Split(s.ID, "_then_") {
			want, known := scenarioClasses[word]
			if !known {
				t.Errorf("scenario %s: %q is not in the table", s.ID, word)
				continue
			}
			r := New(Options{API: OpenAIResponses, Stream: true})
			r.Header(200, eventStream)
			r.Feed(asEvents(s.Turns[i].Frames))
			if v := r.End(s.CloseCode != 1011); v.Class != want {
				t.Errorf("scenario %s, turn %d = %+v, want %v", s.ID, i+1, v, want)
			}
		}
	}
}

// asEvents writes frames as SSE; one that is a string is a text that is not JSON.
func asEvents(frames []json.RawMessage) []byte {
	var out bytes.Buffer
	for _, frame := range frames {
		var text string
		if json.Unmarshal(frame, &text) != nil {
			var compact bytes.Buffer
			json.Compact(&compact, frame) // an event's data is one line here
			text = compact.String()
		}
		fmt.Fprintf(&out, "data: %s\n\n", text)
	}
	return out.Bytes()
}

// reconstructions are OpenAI's tests of what finished items add up to.
type reconstructions struct {
	Cases []struct {
		Name   string
		Events []json.RawMessage
	}
}

func TestOpenAIsReconstructionsAreWhatTheirNamesSay(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(module(t, openaiModule), "internal/websockettest/testdata/responses_reconstruction.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all reconstructions
	if err := json.Unmarshal(b, &all); err != nil || len(all.Cases) == 0 {
		t.Fatalf("reconstructions: %v", err)
	}
	for _, c := range all.Cases {
		body := asEvents(c.Events)
		want := OK
		switch {
		case strings.Contains(c.Name, "failed"):
			want = ServerError
		case bytes.Contains(body, []byte(`"type":"refusal"`)):
			want = Refusal
		}
		if v := settled(t, c.Name, sseOf(body), OpenAIResponses); v.Class != want {
			t.Errorf("%s = %+v, want %v", c.Name, v, want)
		}
	}
}
