package classify

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

var update = flag.Bool("update", false, "write the verdicts next to the fixtures; read the difference before committing it")

// fixture is a recorded answer, and how it is to be read.
//
// testdata/<dialect>/<case>.http holds the answer, with headers that are not the provider's: x-fixture-source names
// the fact it rests on (a section of wire-formats), x-fixture-asked-tier the tier that was asked for,
// x-fixture-cut says that the body was cut below HTTP, x-fixture-untold that nothing in it tells the dialect.
// <case>.json beside it holds the verdict.
type fixture struct {
	name string
	rec  *Recording
	o    Options
	cut  bool
}

var fixtureAPIs = map[string]API{
	"anthropic": AnthropicMessages,
	"azure":     OpenAIChat,
	"chat":      OpenAIChat,
	"compat":    OpenAIChat,
	"responses": OpenAIResponses,
	"gemini":    Gemini,
	"bedrock":   BedrockInvoke,
	"converse":  BedrockConverse,
	"vertex":    AnthropicVertex,
}

// fixtures reads all recorded answers.
func fixtures(t testing.TB) []fixture {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.http")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	var out []fixture
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := ReadHTTP(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, fixture{
			name: strings.TrimSuffix(path, ".http"),
			rec:  rec,
			o:    Options{API: fixtureAPIs[filepath.Base(filepath.Dir(path))], AskedTier: rec.Get("x-fixture-asked-tier")},
			cut:  rec.Get("x-fixture-cut") != "",
		})
	}
	return out
}

// outcome is all that a response shows in the end.
type outcome struct {
	Verdict   Verdict
	Progress  Progress
	Safe      int64
	Failed    string
	Streaming bool
}

// same reports whether two outcomes, or verdicts, are alike.
func same[T outcome | Verdict](a, b T) bool { return reflect.DeepEqual(a, b) }

// feed reads the fixture, chunk bytes at a time, with body for its body and get for its headers.
func (f fixture) feed(o Options, body []byte, get func(string) string, chunk int) outcome {
	return f.feedCut(o, body, get, func() int { return chunk })
}

// feedCut is feed with pieces of the sizes that next gives.
func (f fixture) feedCut(o Options, body []byte, get func(string) string, next func() int) outcome {
	r := New(o)
	r.Header(f.rec.Status, get)
	p := Waiting
	for len(body) > 0 {
		c := bytes.Clone(body[:min(next(), len(body))])
		body = body[len(c):]
		p = r.Feed(c)
		for i := range c {
			c[i] = '#' // it must not be looked at any more
		}
	}
	v := r.End(!f.cut)
	return outcome{v, p, r.Safe(), string(r.FailedEvent()), r.Streaming()}
}

func (f fixture) plain(chunk int) outcome { return f.feed(f.o, f.rec.Body, f.rec.Get, chunk) }

func TestEveryRecordedAnswerHasItsVerdict(t *testing.T) {
	for _, f := range fixtures(t) {
		if f.rec.Get("x-fixture-source") == "" {
			t.Errorf("%s.http: no x-fixture-source", f.name)
		}
		got, err := json.MarshalIndent(f.plain(1<<20).Verdict, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		if *update {
			if err := os.WriteFile(f.name+".json", got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(f.name + ".json")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("verdict of %s.http = %s want %s%v", f.name, got, want, err)
		}
	}
}

func TestCutsOfTheBodyChangeNothing(t *testing.T) {
	for _, f := range fixtures(t) {
		want := f.plain(1 << 20)
		for _, n := range []int{1, 2, 3, 7, 16, 1000} {
			if got := f.plain(n); !same(got, want) {
				t.Errorf("%s.http, %d bytes at a time = %+v, want %+v", f.name, n, got, want)
			}
		}
	}
}

func TestRandomCutsOfTheBodyChangeNothing(t *testing.T) {
	for i, f := range fixtures(t) {
		want := f.plain(1 << 20)
		for seed := range uint64(8) {
			rnd := rand.New(rand.NewPCG(uint64(i), seed))
			next := func() int { return 1 + rnd.IntN(1<<(1+seed)) }
			if got := f.feedCut(f.o, f.rec.Body, f.rec.Get, next); !same(got, want) {
				t.Errorf("%s.http, cut at random by seeds %d, %d = %+v, want %+v", f.name, i, seed, got, want)
			}
		}
	}
}

// encoders are the content codings, as servers send them.
var encoders = map[string]func(w io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
}

// encoded applies the codings in their order.
func encoded(t testing.TB, codings string, body []byte) []byte {
	t.Helper()
	for coding := range strings.SplitSeq(codings, ", ") {
		var b bytes.Buffer
		w := encoders[coding](&b)
		w.Write(body)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		body = b.Bytes()
	}
	return body
}

func TestAContentCodingChangesNoVerdict(t *testing.T) {
	for _, f := range fixtures(t) {
		if f.rec.Get("content-encoding") != "" {
			continue
		}
		want := f.plain(1 << 20)
		for coding := range encoders {
			get := func(name string) string {
				if name == "content-encoding" {
					return coding
				}
				return f.rec.Get(name)
			}
			body := encoded(t, coding, f.rec.Body)
			for _, n := range []int{1, 2, 3, 7, 16, 1000} {
				got := f.feed(f.o, body, get, n)
				if !same(got.Verdict, want.Verdict) || got.Failed != want.Failed {
					t.Errorf("%s.http as %s, %d bytes at a time = %+v, want %+v", f.name, coding, n, got, want)
				}
			}
		}
	}
}

func TestTheDialectIsToldApartByTheAnswer(t *testing.T) {
	for _, f := range fixtures(t) {
		want, o := f.plain(1<<20).Verdict, f.o
		o.API = APIUnknown
		for _, n := range []int{1, 1 << 20} {
			if got := f.feed(o, f.rec.Body, f.rec.Get, n).Verdict; !same(got, want) && f.rec.Get("x-fixture-untold") == "" {
				t.Errorf("%s.http read as APIUnknown = %+v, want %+v", f.name, got, want)
			}
		}
	}
}

// TestWhatMayBePassedOnOnlyGrows feeds every answer in pieces, as it is and encoded: what may be passed on is never
// taken back, nor more than what came, and progress never goes back.
func TestWhatMayBePassedOnOnlyGrows(t *testing.T) {
	for _, f := range fixtures(t) {
		f.grows(t, f.rec.Body, f.rec.Get)
		if f.rec.Get("content-encoding") == "" {
			f.grows(t, encoded(t, "gzip", f.rec.Body), headers("content-type", f.rec.Get("content-type"), "content-encoding", "gzip"))
		}
	}
}

func (f fixture) grows(t *testing.T, body []byte, get func(string) string) {
	t.Helper()
	for _, n := range []int{1, 7, len(body) + 1} {
		r := New(f.o)
		r.Header(f.rec.Status, get)
		var fed, safe int64
		var progress Progress
		for rest := body; len(rest) > 0; rest = rest[min(n, len(rest)):] {
			piece := rest[:min(n, len(rest))]
			fed += int64(len(piece))
			p, s := r.Feed(piece), r.Safe()
			if s < safe || s > fed || p < progress {
				t.Errorf("%s.http, %d bytes at a time: Safe() = %d and progress %d behind %d bytes, were %d and %d", f.name, n, s, p, fed, safe, progress)
				break
			}
			safe, progress = s, p
		}
		v := r.End(!f.cut)
		if s := r.Safe(); s < safe || s > fed || v.Complete && s != fed {
			t.Errorf("%s.http, %d bytes at a time: Safe() at the end of %d bytes = %d, was %d; complete %v", f.name, n, fed, s, safe, v.Complete)
		}
	}
}
