package decode

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
)

// encoder is what all the encoders of the tests can do.
type encoder interface {
	io.WriteCloser
	Flush() error
}

// codings makes an encoder for each coding that can be read.
var codings = map[string]func(w io.Writer) encoder{
	"gzip":    gzipped,
	"x-gzip":  func(w io.Writer) encoder { z, _ := gzip.NewWriterLevel(w, 0); return z },
	"deflate": zlibbed,
	"Deflate": func(w io.Writer) encoder { z, _ := flate.NewWriter(w, 9); return z },
	"br":      brotlied,
	"zstd":    zstded,
	"ZSTD": func(w io.Writer) encoder {
		return newEncoder(w, zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	},
	"GZIP": func(w io.Writer) encoder { z, _ := gzip.NewWriterLevel(w, gzip.HuffmanOnly); return z },

	"gzip, br":      func(w io.Writer) encoder { return layered(w, brotlied, gzipped) },
	"zstd ,deflate": func(w io.Writer) encoder { return layered(w, zlibbed, zstded) },
	"deflate,gzip,x-gzip,\tdeflate": func(w io.Writer) encoder {
		return layered(w, zlibbed, gzipped, gzipped, zlibbed)
	},
}

func gzipped(w io.Writer) encoder  { return gzip.NewWriter(w) }
func zlibbed(w io.Writer) encoder  { return zlib.NewWriter(w) }
func brotlied(w io.Writer) encoder { return brotli.NewWriterLevel(w, 5) }
func zstded(w io.Writer) encoder   { return newEncoder(w, zstd.WithEncoderCRC(true)) }

// layers is an encoder inside another.
type layers struct{ inner, outer encoder }

// layered applies the last coding first, so that the first one's bytes go to w.
func layered(w io.Writer, outer func(io.Writer) encoder, inner ...func(io.Writer) encoder) encoder {
	e := outer(w)
	if len(inner) == 0 {
		return e
	}
	return layers{layered(e, inner[0], inner[1:]...), e}
}

func (l layers) Write(p []byte) (int, error) { return l.inner.Write(p) }
func (l layers) Flush() error                { return errors.Join(l.inner.Flush(), l.outer.Flush()) }
func (l layers) Close() error                { return errors.Join(l.inner.Close(), l.outer.Close()) }

func newEncoder(w io.Writer, o ...zstd.EOption) encoder {
	z, err := zstd.NewWriter(w, append(o, zstd.WithWindowSize(1<<20))...)
	if err != nil {
		panic(err)
	}
	return z
}

// encode encodes pieces, flushing behind each.
func encode(t testing.TB, coding string, pieces ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := codings[coding](&b)
	for _, p := range pieces {
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// decode decodes a body given n bytes at a time.
func decode(coding string, body []byte, n int) (string, bool, error) {
	var out strings.Builder
	d := New(coding, 64<<20, func(b []byte) { out.Write(b) })
	for len(body) > 0 {
		c := bytes.Clone(body[:min(n, len(body))])
		body = body[len(c):]
		if err := d.Write(c); err != nil {
			return out.String(), d.Whole(), err
		}
		clear(c)
	}
	return out.String(), d.Whole(), nil
}

// samples are texts that make every kind of block.
func samples() map[string][]string {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 70_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	var words strings.Builder
	for range 12_000 {
		fmt.Fprintf(&words, "word%d ", r.IntN(5000))
	}
	return map[string][]string{
		"nothing":          {""},
		"an event":         {"data: {\"a\":1}\n\n"},
		"flushed events":   strings.SplitAfter(strings.Repeat("event: x\ndata: {\"type\":\"x\",\"delta\":{\"text\":\"hello\"}}\n\n", 30), "\n\n"),
		"noise":            {string(noise)},
		"long repetitions": {strings.Repeat("a", 140_000), strings.Repeat("abc", 30_000)},
		"words":            {words.String()},
		"flushed twice":    {"a", "", "", "b"},
		"a short ending":   {strings.Repeat(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`, 16) + "\n\n"},
	}
}

func TestABodyDecodesTheSameHoweverItIsCut(t *testing.T) {
	for coding := range codings {
		for name, pieces := range samples() {
			body, want := encode(t, coding, pieces...), strings.Join(pieces, "")
			for _, n := range []int{1, 2, 3, 7, 1000, 1 << 20} {
				got, whole, err := decode(coding, body, n)
				if got != want || !whole || err != nil {
					t.Errorf("decode(%s, %s, %d) = %d bytes, %v, %v, want %d, true, nil", coding, name, n, len(got), whole, err, len(want))
				}
			}
		}
	}
}

func TestWhatIsFlushedIsOutAtOnce(t *testing.T) {
	for coding, make := range codings {
		var in bytes.Buffer
		var out strings.Builder
		w, d := make(&in), New(coding, 1000, func(b []byte) { out.Write(b) })
		for i := range 20 {
			event := fmt.Sprintf("data: %d\n\n", i*i*i)
			io.WriteString(w, event)
			w.Flush()
			out.Reset()
			if err := d.Write(in.Next(in.Len())); err != nil || out.String() != event {
				t.Errorf("%s: event %d = %q, %v, want %q", coding, i, out.String(), err, event)
			}
			if d.Whole() {
				t.Errorf("%s: Whole() = true before the end", coding)
			}
		}
	}
}

func TestACutBodyIsNotWhole(t *testing.T) {
	for coding := range codings {
		body := encode(t, coding, "data: 1\n\n", "data: 2\n\n")
		for n := range body {
			if _, whole, err := decode(coding, body[:n], 4); whole || err != nil {
				t.Errorf("decode(%s, %d of %d bytes) = %v, %v, want false, nil", coding, n, len(body), whole, err)
			}
		}
	}
}

func TestMembersAndFramesFollowEachOther(t *testing.T) {
	skippable := "\x50\x2A\x4D\x18\x03\x00\x00\x00abc"
	for coding, between := range map[string]string{"gzip": "", "zstd": skippable} {
		body := append(encode(t, coding, "one "), between...)
		body = append(body, encode(t, coding, "two")...)
		for _, n := range []int{1, 5, 1000} {
			if got, whole, err := decode(coding, body, n); got != "one two" || !whole || err != nil {
				t.Errorf("decode(%s twice, %d) = %q, %v, %v, want \"one two\", true, nil", coding, n, got, whole, err)
			}
		}
	}
}

func TestAGzipHeaderMayHaveEveryField(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
	io.WriteString(w, "hello")
	w.Close()
	body := b.Bytes()
	body[3] |= flagHeadSum
	body = append(body[:10+2+5+5+8:10+2+5+5+8], append([]byte{1, 2}, body[10+2+5+5+8:]...)...)
	if got, whole, err := decode("gzip", body, 1); got != "hello" || !whole || err != nil {
		t.Errorf("decode(gzip with all fields) = %q, %v, %v, want \"hello\", true, nil", got, whole, err)
	}
}

func TestACorruptBodyIsFound(t *testing.T) {
	sum := func(b []byte, at int) []byte { b = bytes.Clone(b); b[len(b)-at] ^= 1; return b }
	for _, tt := range []struct {
		name, coding string
		body         []byte
	}{
		{"plain text", "gzip", []byte("data: plain text")},
		{"plain text", "zstd", []byte("data: plain text")},
		{"plain text", "br", []byte("data: plain text")},
		{"plain text", "deflate", []byte("\xFFdata: plain text")},
		{"a wrong crc", "gzip", sum(encode(t, "gzip", "hello"), 8)},
		{"a wrong size", "gzip", sum(encode(t, "gzip", "hello"), 1)},
		{"a wrong adler32", "deflate", sum(encode(t, "deflate", "hello"), 1)},
		{"a wrong xxhash", "zstd", sum(encode(t, "zstd", "hello"), 1)},
		{"a preset dictionary", "deflate", []byte("\x78\xBBabcdefgh")},
		{"bytes behind the end", "deflate", append(encode(t, "deflate", "hello"), 'x')},
		{"bytes behind the end", "br", append(encode(t, "br", "hello"), 'x')},
		{"bytes behind the end", "gzip", append(encode(t, "gzip", "hello"), "not a second member"...)},
		{"a window of 16 MiB", "zstd", []byte("\x28\xB5\x2F\xFD\x00\x70\x01\x00\x00")},
		{"a reserved block", "zstd", []byte("\x28\xB5\x2F\xFD\x00\x58\x07\x00\x00")},
		{"a block over 128 KiB", "zstd", []byte("\x28\xB5\x2F\xFD\x00\x58\xFC\xFF\xFF")},
		{"an unknown coding", "compress", []byte("x")},
		{"an unknown coding inside", "compress, gzip", []byte("x")},
		{"a coding without a name", "gzip,", []byte("x")},
		{"more codings than anybody uses", "gzip,gzip,gzip,gzip,gzip", []byte("x")},
		{"a coding that was not applied", "gzip, br", encode(t, "br", "data: 1234567890\n\n")},
	} {
		for _, n := range []int{1, 1000} {
			if _, whole, err := decode(tt.coding, tt.body, n); whole || !errors.Is(err, ErrCorrupt) {
				t.Errorf("decode(%s of %s, %d) = %v, %v, want false, ErrCorrupt", tt.name, tt.coding, n, whole, err)
			}
		}
	}
}

func TestWhatComesOutIsBounded(t *testing.T) {
	for coding := range codings {
		n, body := 0, encode(t, coding, strings.Repeat("0", 1<<20))
		d := New(coding, 1000, func(b []byte) { n += len(b) })
		if err := d.Write(body); !errors.Is(err, ErrTooLarge) || n != 1000 {
			t.Errorf("%s: Write(1 MiB of zeros) = %v after %d bytes, want ErrTooLarge after 1000", coding, err, n)
		}
	}
}

func TestADecoderThatIsLeftAloneLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	for coding := range codings {
		body := encode(t, coding, "data: 1\n\n", "data: 2\n\n")
		New(coding, 1000, func([]byte) {}).Write(body[:len(body)/2])
	}
}

func TestOnlyTheNamedCodingsAreKnown(t *testing.T) {
	for name, want := range map[string]bool{"gzip": true, "X-GZIP": true, "deflate": true, "br": true, "zstd": true, "identity": false, "compress": false, "": false} {
		if got := Known(name); got != want {
			t.Errorf("Known(%q) = %v, want %v", name, got, want)
		}
	}
}

// FuzzInflate holds the inflater against the standard library's.
func FuzzInflate(f *testing.F) {
	for _, pieces := range samples() {
		if body := encode(f, "Deflate", pieces...); len(body) < 5000 {
			f.Add(body, 3)
		}
	}
	f.Add([]byte{0x05, 0xC0, 0x81, 0x00, 0x00, 0x00, 0x00, 0x00, 0x90, 0xFF, 0x6B, 0x04}, 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(body)), 1<<20))
		if len(want) == 1<<20 {
			t.Skip()
		}
		var got []byte
		z := inflater{emit: func(b []byte) error { got = append(got, b...); return nil }}
		z.reset()
		var done bool
		var err error
		for rest := body; len(rest) > 0 && err == nil && !done; {
			c := min(max(1, n%64), len(rest))
			z.in = rest[:c]
			rest = rest[c:]
			done, err = z.run()
		}
		if done != (wantErr == nil) || err != nil && wantErr == io.ErrUnexpectedEOF {
			t.Fatalf("run(%x) = %v, %v, want error %v", body, done, err, wantErr)
		}
		if done && !bytes.Equal(got, want) {
			t.Fatalf("run(%x) = %q, want %q", body, got, want)
		}
	})
}

// FuzzDecode checks that cuts change nothing, and that nothing panics.
func FuzzDecode(f *testing.F) {
	names := []string{"gzip", "deflate", "br", "zstd"}
	for i, coding := range names {
		for _, pieces := range samples() {
			if body := encode(f, coding, pieces...); len(body) < 5000 {
				f.Add(i, body, 3)
			}
		}
	}
	f.Fuzz(func(t *testing.T, coding int, body []byte, n int) {
		name := names[uint(coding)%uint(len(names))]
		want, whole, err := decode(name, body, len(body)+1)
		got, whole2, err2 := decode(name, body, max(1, n%64))
		if got != want || whole != whole2 || !errors.Is(err2, err) {
			t.Fatalf("decode(%s, %x, %d) = %q, %v, %v, want %q, %v, %v as when whole", name, body, n, got, whole2, err2, want, whole, err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	text := strings.Join(samples()["flushed events"], "")
	for _, coding := range []string{"gzip", "br", "zstd"} {
		b.Run(coding, func(b *testing.B) {
			body := encode(b, coding, strings.Repeat(text, 50))
			b.SetBytes(int64(50 * len(text)))
			for b.Loop() {
				decode(coding, body, 4096)
			}
			b.ReportMetric(float64(len(body)), "encoded")
		})
	}
}
