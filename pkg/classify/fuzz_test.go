package classify

import (
	"bytes"
	"testing"
)

// fuzzDialect checks on any body that cuts change nothing, that the verdict is one, and that nothing panics.
func fuzzDialect(f *testing.F, api API) {
	for _, fx := range fixtures(f) {
		if fx.o.API == api || api == APIUnknown {
			f.Add(fx.rec.Status, fx.rec.Get("content-type"), fx.rec.Body, 7, !fx.cut)
		}
	}
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte, n int, clean bool) {
		fx := fixture{rec: &Recording{Status: status}, cut: !clean}
		o, get := Options{API: api, MaxEvent: 4096}, headers("content-type", kind)
		want := fx.feed(o, body, get, len(body)+1)
		if got := fx.feed(o, body, get, max(1, n%100)); !same(got, want) {
			t.Fatalf("%d %q %q, %d bytes at a time = %+v, want %+v as when whole", status, kind, body, n, got, want)
		}
		v := want.Verdict
		if v.Class == None || v.Phase == "" || v.Status < 200 || v.Complete && v.Class.Trips() {
			t.Fatalf("%d %q %q = %+v, want a whole verdict", status, kind, body, v)
		}
		if want.Safe < 0 || want.Safe > int64(len(body)) {
			t.Fatalf("%d %q %q: Safe() = %d of %d bytes", status, kind, body, want.Safe, len(body))
		}
	})
}

func FuzzAnthropic(f *testing.F) { fuzzDialect(f, AnthropicMessages) }
func FuzzChat(f *testing.F)      { fuzzDialect(f, OpenAIChat) }
func FuzzResponses(f *testing.F) { fuzzDialect(f, OpenAIResponses) }
func FuzzGemini(f *testing.F)    { fuzzDialect(f, Gemini) }
func FuzzBedrock(f *testing.F)   { fuzzDialect(f, BedrockInvoke) }
func FuzzConverse(f *testing.F)  { fuzzDialect(f, BedrockConverse) }
func FuzzVertex(f *testing.F)    { fuzzDialect(f, AnthropicVertex) }
func FuzzUnknown(f *testing.F)   { fuzzDialect(f, APIUnknown) }

// FuzzEncoded checks the same of encoded bodies: what they show does not depend on cuts either.
func FuzzEncoded(f *testing.F) {
	codings := []string{"gzip", "br", "zstd", "gzip, br"}
	for i, fx := range fixtures(f) {
		if i%20 == 0 {
			k := i / 20 % len(codings)
			f.Add(k, encoded(f, codings[k], fx.rec.Body), 7)
		}
	}
	f.Fuzz(func(t *testing.T, k int, body []byte, n int) {
		fx := fixture{rec: &Recording{Status: 200}}
		get := headers("content-encoding", codings[uint(k)%uint(len(codings))])
		want := fx.feed(Options{}, body, get, len(body)+1)
		got := fx.feed(Options{}, body, get, max(1, n%100))
		if !same(got.Verdict, want.Verdict) || got.Failed != want.Failed {
			t.Fatalf("%q, %d bytes at a time = %+v, want %+v as when whole", body, n, got, want)
		}
	})
}

func FuzzReadHTTP(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody"))
	f.Fuzz(func(t *testing.T, in []byte) {
		rec, err := ReadHTTP(bytes.NewReader(in))
		if err == nil && !bytes.HasSuffix(in, rec.Body) {
			t.Fatalf("ReadHTTP(%q): body %q is not its end", in, rec.Body)
		}
	})
}
