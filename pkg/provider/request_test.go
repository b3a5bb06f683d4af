package provider

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"understudy/pkg/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsReadOfARequest(t *testing.T) {
	rows := []struct {
		name, body string
		want       Request
	}{
		{"the model is not found", `{"model":"m","stream":true,"service_tier":"flex"}`, Request{Model: "m", Stream: true, tier: "flex"}},
		{"space hides the model", " {\n\t\"model\" : \"m\" }\r\n", Request{Model: "m"}},
		{"an escaped key hides the model", `{"mod\u0065l":"m"}`, Request{Model: "m"}},
		{"an escaped model is not decoded", `{"model":"\u006d\"\\"}`, Request{Model: `m"\`}},
		{"the first of two models counts", `{"model":"a","model":"b"}`, Request{Model: "b"}},
		{"a model inside another object counts", `{"metadata":{"model":"x"},"tools":[{"model":"x"}],"input":"\"model\":\"x\""}`, Request{}},
		{"a number is a model", `{"model":5}`, Request{}},
		{"a text says that it streams", `{"model":"m","stream":"true"}`, Request{Model: "m"}},
		{"a number says that it streams", `{"model":"m","stream":1}`, Request{Model: "m"}},
		{"stream: null streams", `{"model":"m","stream":null}`, Request{Model: "m"}},
		{"half a text is an object", `{"model":"m"`, Request{Broken: true}},
		{"a trailing comma is fine", `{"model":"m",}`, Request{Broken: true}},
		{"two texts are one", `{"model":"m"}{"model":"n"}`, Request{Broken: true}},
		{"a list is an object", `[{"model":"m"}]`, Request{Broken: true}},
		{"a word is an object", `"model"`, Request{Broken: true}},
		{"nothing is an object", ``, Request{Broken: true}},
		{"a form is an object", `model=m`, Request{Broken: true}},
		{"brackets inside a text count as nesting", `{"model":"m","input":"` + strings.Repeat(`[\"{\\`, maxDepth) + `"}`, Request{Model: "m"}},
		{"many brackets beside each other count as nesting", `{"model":"m","input":[` + strings.Repeat(`[{}],`, maxDepth) + `0]}`, Request{Model: "m"}},
		{"a text just deep enough is refused", `{"a":` + nested(maxDepth-1) + `,"model":"m"}`, Request{Model: "m"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := read(t, row.body)
			if got.Model != row.want.Model || got.Stream != row.want.Stream || got.tier != row.want.tier || got.Broken != row.want.Broken {
				got.body = nil
				t.Errorf("Read(%.80s) = %+v, want %+v", row.body, got, row.want)
			}
		})
	}
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestABodyOfBracketsDoesNotExhaustTheStack(t *testing.T) {
	for _, body := range []string{strings.Repeat("[", 4<<20), `{"a":` + strings.Repeat(`{"a":`, 1<<20), `{"a":` + nested(maxDepth) + `}`} {
		if _, err := packed([]byte(body), "", 64<<20); err != ErrDeep {
			t.Errorf("Read(%.20s… of %d bytes) = %v, want %v", body, len(body), err, ErrDeep)
		}
	}
}

func TestTheModelIsReplacedAndNothingElse(t *testing.T) {
	rows := []struct{ name, body, want string }{
		{"the order of keys changes", `{"a":1,"model":"old","b":2}`, `{"a":1,"model":"new","b":2}`},
		{"space, numbers or escapes change", "{ \"n\" : 1.0e+02,\n\"s\":\"\\u00e9\\/<\xc3\xa9\", \"model\"\t:\r\"old\" , \"big\":12345678901234567890 }\n",
			"{ \"n\" : 1.0e+02,\n\"s\":\"\\u00e9\\/<\xc3\xa9\", \"model\"\t:\r\"new\" , \"big\":12345678901234567890 }\n"},
		{"a second model key gets through", `{"model":"a","x":{},"model":"b"}`, `{"model":"new","x":{},"model":"new"}`},
		{"a second model key gets through as its value is right", `{"model":"old","model":"new"}`, `{"model":"new","model":"new"}`},
		{"an escaped model key gets through", `{"mod\u0065l":"old"}`, `{"mod\u0065l":"new"}`},
		{"a model inside another object is replaced", `{"model":"old","m":{"model":"x"},"l":[{"model":"y"}]}`, `{"model":"new","m":{"model":"x"},"l":[{"model":"y"}]}`},
		{"a model that is an object leaves its inside", `{"model":{"model":"x"},"z":1}`, `{"model":"new","z":1}`},
		{"a model that is null or a number gets through", `{"model":null,"model":5}`, `{"model":"new","model":"new"}`},
		{"a key that differs by case is replaced", `{"Model":"x","model":"old"}`, `{"Model":"x","model":"new"}`},
		{"the right model costs a new body", `{"model":"new"}`, ""},
		{"the right model in escapes costs a new body", `{"model":"n\u0065w"}`, ""},
		{"a model is made up where there is none", `{"input":"model"}`, ""},
		{"broken text is touched", `{"model":"old",`, ""},
		{"a list is touched", `[{"model":"old"}]`, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			target := &config.Target{Provider: account(t, "https://api.example", bearer), Model: "new"}
			rw, err := ForTarget(target, nil, read(t, row.body))
			if err != nil || string(rw.Body) != row.want {
				t.Errorf("ForTarget(%s).Body = %s, %v, want %s", row.body, rw.Body, err, row.want)
			}
			if slices.Contains(rw.Remove, "content-encoding") != (rw.Body != nil) {
				t.Errorf("ForTarget(%s) removes %v, want content-encoding to go with the body", row.body, rw.Remove)
			}
		})
	}
}

func TestAModelNameIsAlwaysJSON(t *testing.T) {
	for _, model := range []string{`a"b`, `a\`, "a\nb", "é", "a/b:c"} {
		target := &config.Target{Provider: account(t, "https://api.example", bearer), Model: model}
		rw, err := ForTarget(target, nil, read(t, `{"model":"old"}`))
		if got := read(t, string(rw.Body)); err != nil || got.Broken || got.Model != model {
			t.Errorf("ForTarget(%q).Body = %s, %v, which reads as %q", model, rw.Body, err, got.Model)
		}
	}
}

func TestADroppedBodyIsGone(t *testing.T) {
	q := read(t, `{"model":"m"}`)
	if q.Drop(); q.body != nil || q.Model != "m" {
		t.Errorf("Drop() leaves %d bytes and model %q, want none and m", len(q.body), q.Model)
	}
}

// pack compresses by one of the encodings that requests may have.
func pack(t testing.TB, encoding string, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&out)
	case "br":
		w = brotli.NewWriter(&out)
	case "zstd":
		enc, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w = enc
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func letters(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return b
}

func TestCompressedRequests(t *testing.T) {
	body := `{"model":"old","input":"` + string(letters(1000)) + `"}`
	prompt := `{"model":"old","input":"` + strings.Repeat(string(letters(2000)), 100) + `"}`
	target := &config.Target{Provider: account(t, "https://api.example", bearer), Model: "new"}
	same := &config.Target{Provider: target.Provider, Model: "old"}
	for _, encoding := range []string{"gzip", "x-gzip", "br", "zstd"} {
		t.Run(encoding, func(t *testing.T) {
			zipped := pack(t, encoding, []byte(body))
			q, err := packed(zipped, encoding, 1<<20)
			if err != nil || q.Model != "old" {
				t.Fatalf("Read() = model %q, %v, want old", q.Model, err)
			}
			for target, want := range map[*config.Target]string{target: strings.Replace(body, "old", "new", 1), same: body} {
				rw, err := ForTarget(target, nil, q)
				if err != nil || string(rw.Body) != want || !slices.Contains(rw.Remove, "content-encoding") {
					t.Errorf("ForTarget(%s) = %.40s…, %v, removes %v, want %.40s… and no encoding", target.Model, rw.Body, err, rw.Remove, want)
				}
			}
			if q, err := packed(pack(t, encoding, []byte(prompt)), encoding, 1<<20); err != nil || q.Model != "old" {
				t.Errorf("Read() of a prompt that repeats = %v, want nil", err)
			}
			q, err = packed(pack(t, encoding, []byte(`{"model":`)), encoding, 1<<20)
			if rw, _ := ForTarget(target, nil, q); err != nil || !q.Broken || rw.Body != nil || slices.Contains(rw.Remove, "content-encoding") {
				t.Errorf("a compressed request that is not JSON is not let through as it came: %v, %+v", err, rw)
			}
		})
	}
}

func TestBodiesThatDoNotUnfoldAsTheyShould(t *testing.T) {
	zeros := make([]byte, 8<<20)
	small := []byte(`{"model":"m"}`)
	window := func(log byte) []byte { // RFC 8878, 3.1.1: a frame of one empty block, of a window of 1<<log
		return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 1, 0, 0}
	}
	rows := []struct {
		name, encoding string
		body           []byte
		limit          int64
		want           error
	}{
		{"a gzip bomb unfolds", "gzip", pack(t, "gzip", zeros), 64 << 20, ErrTooLarge},
		{"a brotli bomb unfolds", "br", pack(t, "br", zeros), 64 << 20, ErrTooLarge},
		{"a zstd bomb unfolds", "zstd", pack(t, "zstd", zeros), 64 << 20, ErrTooLarge},
		{"a bomb of many gzip members unfolds", "gzip", bytes.Repeat(pack(t, "gzip", zeros[:1<<20]), 40), 64 << 20, ErrTooLarge},
		{"a body beyond max_body passes once packed", "gzip", pack(t, "gzip", letters(2000)), 1999, ErrTooLarge},
		{"a zstd frame is given the memory it claims", "zstd", window(30), 1 << 20, ErrEncoding},
		{"a zstd window as large as decoders should have is refused", "zstd", append(window(23), pack(t, "zstd", small)...), 1 << 20, nil},
		{"a cut gzip body passes", "gzip", pack(t, "gzip", small)[:20], 1 << 20, ErrEncoding},
		{"a cut brotli body passes", "br", pack(t, "br", small)[:10], 1 << 20, ErrEncoding},
		{"a cut zstd body passes", "zstd", pack(t, "zstd", small)[:12], 1 << 20, ErrEncoding},
		{"plain text passes as gzip", "gzip", small, 1 << 20, ErrEncoding},
		{"plain text passes as zstd", "zstd", small, 1 << 20, ErrEncoding},
		{"plain text passes as brotli", "br", small, 1 << 20, ErrEncoding},
		{"nothing passes as gzip", "gzip", nil, 1 << 20, ErrEncoding},
		{"an encoding nobody reads passes", "deflate", small, 1 << 20, ErrEncoding},
		{"two encodings pass", "gzip, br", small, 1 << 20, ErrEncoding},
		{"identity is refused", "identity", small, 1 << 20, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if _, err := packed(row.body, row.encoding, row.limit); !errors.Is(err, row.want) {
				t.Errorf("Read(%d bytes, %s) = %v, want %v", len(row.body), row.encoding, err, row.want)
			}
		})
	}
}
