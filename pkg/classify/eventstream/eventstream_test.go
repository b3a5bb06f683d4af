package eventstream

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// frame makes a frame with the lengths and checksums it should have.
func frame(headers, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(overhead+len(headers)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// lengths makes the start of a frame that announces these lengths, with the right checksum.
func lengths(total, headers uint32) string {
	b := binary.BigEndian.AppendUint32(nil, total)
	b = binary.BigEndian.AppendUint32(b, headers)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// str makes a string header.
func str(name, value string) string {
	return string(rune(len(name))) + name + "\x07" + string([]byte{byte(len(value) >> 8), byte(len(value))}) + value
}

// result is what a stream comes to.
type result struct {
	frames  []string
	partial bool
	end     int64
	err     error
}

// read reads a stream n bytes at a time.
func read(stream string, n, limit int) result {
	f, got := New(limit), result{}
	for p := []byte(stream); len(p) > 0; {
		c := append([]byte{}, p[:min(n, len(p))]...)
		p = p[len(c):]
		f.Feed(c)
		for fr, ok := f.Next(); ok; fr, ok = f.Next() {
			got.frames = append(got.frames, show(fr))
		}
		for i := range c {
			c[i] = '#' // the framer must not look at it any more
		}
	}
	got.partial, got.end, got.err = f.Partial(), f.End(), f.Err()
	return got
}

func show(fr Frame) string {
	var b strings.Builder
	for name, v := range fr.Headers.All {
		fmt.Fprintf(&b, "%s=%d:%q ", name, v.Type, v.Raw)
	}
	return fmt.Sprintf("%s%q %d-%d", &b, fr.Payload, fr.Start, fr.End)
}

var (
	empty  = frame("", "")
	event  = frame(str(MessageType, "event")+str(EventType, "chunk"), `{"bytes":"e30="}`)
	broken = func(at int) string { b := []byte(event); b[at] ^= 1; return string(b) }
)

var streams = []struct {
	name, in string
	want     result
}{
	{"nothing", "", result{}},
	{"an empty frame", empty, result{frames: []string{`"" 0-16`}, end: 16}},
	{"a payload and no headers", frame("", "abc"), result{frames: []string{`"abc" 0-19`}, end: 19}},
	{"headers and a payload", event, result{frames: []string{`:message-type=7:"event" :event-type=7:"chunk" "{\"bytes\":\"e30=\"}" 0-74`}, end: 74}},
	{"two frames", empty + frame("", "a"), result{frames: []string{`"" 0-16`, `"a" 16-33`}, end: 33}},
	{"a frame and a half", empty + event[:40], result{frames: []string{`"" 0-16`}, partial: true, end: 16}},
	{"half a length", empty + event[:2], result{frames: []string{`"" 0-16`}, partial: true, end: 16}},
	{"all but the last byte", empty + event[:len(event)-1], result{frames: []string{`"" 0-16`}, partial: true, end: 16}},
	{"a bad length", empty + broken(3), result{frames: []string{`"" 0-16`}, end: 16, err: ErrChecksum}},
	{"a bad first checksum", empty + broken(9), result{frames: []string{`"" 0-16`}, end: 16, err: ErrChecksum}},
	{"a bad header byte", empty + broken(20), result{frames: []string{`"" 0-16`}, end: 16, err: ErrChecksum}},
	{"a bad payload byte", empty + broken(len(event)-8), result{frames: []string{`"" 0-16`}, end: 16, err: ErrChecksum}},
	{"a bad last checksum", empty + broken(len(event)-1) + empty, result{frames: []string{`"" 0-16`}, end: 16, err: ErrChecksum}},
	{"text where a frame should be", empty + "data: {}\n\n  ", result{frames: []string{`"" 0-16`}, end: 16, err: ErrChecksum}},
	{"a frame of no bytes", lengths(0, 0), result{err: ErrLength}},
	{"a frame shorter than its own overhead", lengths(15, 0), result{err: ErrLength}},
	{"headers longer than the frame", lengths(20, 5), result{err: ErrLength}},
	{"headers so long that the payload's length wraps around", lengths(20, 1<<32-1), result{err: ErrLength}},
	{"a frame over the limit", empty + lengths(1001, 0), result{frames: []string{`"" 0-16`}, end: 16, err: ErrTooLong}},
	{"a frame of four gigabytes", lengths(1<<32-1, 0), result{err: ErrTooLong}},
	{"a header's name is cut", frame("\x05abc", ""), result{err: ErrHeader}},
	{"a header has no type", frame("\x03abc", ""), result{err: ErrHeader}},
	{"a header's type is unknown", frame("\x03abc\x0a", ""), result{err: ErrHeader}},
	{"a header's number is cut", frame("\x03abc\x04\x00\x00", ""), result{err: ErrHeader}},
	{"a header's length is cut", frame("\x03abc\x07\x00", ""), result{err: ErrHeader}},
	{"a header's string is cut", frame("\x03abc\x07\x00\x05ab", ""), result{err: ErrHeader}},
	{"a header's length is negative", frame("\x03abc\x07\x80\x00"+strings.Repeat("x", 200), ""), result{err: ErrHeader}},
	{"a header without a name", frame("\x00\x00", ""), result{frames: []string{`=0:"" "" 0-18`}, end: 18}},
}

func TestStreamsReadTheSameHoweverTheyAreCut(t *testing.T) {
	for _, tt := range streams {
		for _, n := range []int{1, 2, 3, 7, 12, 16, 1000} {
			if got := read(tt.in, n, 1000); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s: read(%q, %d) = %+v, want %+v", tt.name, tt.in, n, got, tt.want)
			}
		}
	}
}

func TestTheLimitIsTheLastLengthThatPasses(t *testing.T) {
	in := frame("", strings.Repeat("x", 84))
	if got := read(in, 9, 100); len(got.frames) != 1 || got.err != nil {
		t.Errorf("a frame of 100 bytes under a limit of 100 = %+v, want it", got)
	}
	if got := read(in, 9, 99); len(got.frames) != 0 || !errors.Is(got.err, ErrTooLong) {
		t.Errorf("a frame of 100 bytes under a limit of 99 = %+v, want %v", got, ErrTooLong)
	}
}

func TestAnnouncedBytesTakeNoRoom(t *testing.T) {
	f := New(16 << 20)
	f.Feed([]byte(lengths(16<<20, 0)))
	if _, ok := f.Next(); ok || cap(f.held) > 64 {
		t.Errorf("room for an announced frame = %d bytes, want none", cap(f.held))
	}
}

func TestEveryTypeOfHeaderIsRead(t *testing.T) {
	h := Headers("\x01a\x00" + "\x01b\x01" + "\x01c\x02\xcf" + "\x01d\x03\xff\xd6" + "\x01e\x04\x00\x00\xa0\x0c" +
		"\x01f\x05\x00\x00\x00\x00\x02\x87\x57\xb2" + "\x01g\x06\x00\x02\x00\xff" + "\x01h\x07\x00\x02hi" +
		"\x01i\x08\x00\x00\x00\x00\x00\x84\x5f\xed" + "\x01j\x09" + strings.Repeat("u", 16))
	for i, want := range []int64{0, 0, -49, -42, 40972, 42424242, 0, 0, 8675309, 0} {
		v, ok := h.Get(string(rune('a' + i)))
		if !ok || int(v.Type) != i || v.Int() != want {
			t.Errorf("Get(%c) = %+v, %v, Int() %d, want type %d, %d", 'a'+i, v, ok, v.Int(), i, want)
		}
	}
	if got := h.Text("h"); string(got) != "hi" {
		t.Errorf("Text(h) = %q, want hi", got)
	}
	if got := h.Text("g"); got != nil {
		t.Errorf("Text of bytes = %q, want none", got)
	}
	if _, ok := h.Get("z"); ok {
		t.Error("Get(z) = true, want false")
	}
	twice := Headers(str("a", "1") + str("a", "2"))
	if got := twice.Text("a"); string(got) != "2" {
		t.Errorf("a header given twice = %q, want the last", got)
	}
	if _, ok := Headers("\x05a").Get("a"); ok {
		t.Error("a header that is cut = true, want false")
	}
	n := 0
	for range h.All {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("headers before the break = %d, want 2", n)
	}
}

func TestAFramerAllocatesNothingPerFrame(t *testing.T) {
	chunk, f := []byte(strings.Repeat(event, 50)), New(1<<20)
	for _, n := range []int{len(chunk), 7} {
		run := func() {
			for p := chunk; len(p) > 0; p = p[min(n, len(p)):] {
				f.Feed(p[:min(n, len(p))])
				for fr, ok := f.Next(); ok; fr, ok = f.Next() {
					if fr.Headers.Text(EventType) == nil {
						t.Fatal("no event type")
					}
				}
			}
		}
		run()
		if got := testing.AllocsPerRun(20, run); got != 0 {
			t.Errorf("allocations for 50 frames, %d bytes a chunk = %v, want 0", n, got)
		}
	}
}

func TestAFrameWithinAChunkIsNotCopied(t *testing.T) {
	chunk, f := []byte(empty+event), New(1<<20)
	f.Feed(chunk)
	f.Next()
	fr, ok := f.Next()
	if !ok || &fr.Payload[0] != &chunk[len(chunk)-4-len(fr.Payload)] {
		t.Errorf("payload of %v does not lie in the chunk", fr)
	}
}

// vectors is the testdata of AWS's own module, as it lies in the module cache.
func vectors(t testing.TB) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream").Output()
	if err != nil {
		t.Fatalf("go list -m: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "testdata")
}

func vector(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// names lists the vectors of one kind.
func names(t testing.TB, dir, kind string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "encoded", kind))
	if err != nil || len(entries) == 0 {
		t.Fatalf("no vectors in %s: %v", dir, err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// decoded is how the vectors write a message down.
type decoded struct {
	Headers []struct {
		Name  string
		Type  Type
		Value json.RawMessage
	}
	Payload []byte
}

func TestAWSsOwnVectorsAreReadAsTheySay(t *testing.T) {
	dir := vectors(t)
	for _, name := range names(t, dir, "positive") {
		in := vector(t, dir, "encoded", "positive", name)
		var want decoded
		if err := json.Unmarshal(vector(t, dir, "decoded", "positive", name), &want); err != nil {
			t.Fatal(err)
		}
		f := New(1 << 20)
		f.Feed(in)
		fr, ok := f.Next()
		if !ok || !bytes.Equal(fr.Payload, want.Payload) || int(fr.End) != len(in) {
			t.Errorf("%s: payload = %q, %v, want %q", name, fr.Payload, f.Err(), want.Payload)
		}
		n := 0
		for got, v := range fr.Headers.All {
			if w := want.Headers[n]; string(got) != w.Name || v.Type != w.Type || value(v) != compact(w.Value) {
				t.Errorf("%s: header %d = %s %d %s, want %s %d %s", name, n, got, v.Type, value(v), w.Name, w.Type, w.Value)
			}
			n++
		}
		if n != len(want.Headers) {
			t.Errorf("%s: %d headers, want %d", name, n, len(want.Headers))
		}
	}
	for _, name := range names(t, dir, "negative") {
		got := read(string(vector(t, dir, "encoded", "negative", name)), 1000, 1<<20)
		if want := string(vector(t, dir, "decoded", "negative", name)); !errors.Is(got.err, ErrChecksum) || !strings.HasSuffix(want, "checksum mismatch") {
			t.Errorf("%s: read = %+v, want %q", name, got, want)
		}
	}
}

// value writes a value as the vectors do.
func value(v Value) string {
	switch v.Type {
	case True, False:
		return fmt.Sprint(v.Type == True)
	case Bytes, String, UUID:
		return `"` + base64.StdEncoding.EncodeToString(v.Raw) + `"`
	}
	return fmt.Sprint(v.Int())
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	json.Compact(&b, raw)
	return b.String()
}

// theirs reads a stream with AWS's decoder, in the words of ours.
func theirs(in []byte) (out []string, err error) {
	r, d := bytes.NewReader(in), aws.NewDecoder()
	for r.Len() > 0 {
		at := len(in) - r.Len()
		m, err := d.Decode(r, nil)
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%s %q %d-%d", headers(m.Headers), m.Payload, at, len(in)-r.Len()))
	}
	return out, nil
}

// headers writes down the headers as the decoder holds them: the last of each name, at the place of the first.
func headers(hs aws.Headers) string {
	var b strings.Builder
	for _, h := range hs {
		v := h.Value.Get()
		if at, ok := v.(time.Time); ok {
			v = at.UnixMilli()
		}
		fmt.Fprintf(&b, "%q=%v ", h.Name, v)
	}
	return b.String()
}

// ours writes down a frame of ours the same way.
func ours(fr Frame) string {
	var hs aws.Headers
	for name, v := range fr.Headers.All {
		hs.Set(string(name), asTheirs(v))
	}
	return fmt.Sprintf("%s %q %d-%d", headers(hs), fr.Payload, fr.Start, fr.End)
}

func asTheirs(v Value) aws.Value {
	switch v.Type {
	case Int8:
		return aws.Int8Value(v.Int())
	case Int16:
		return aws.Int16Value(v.Int())
	case Int32:
		return aws.Int32Value(v.Int())
	case Int64:
		return aws.Int64Value(v.Int())
	case Bytes:
		return aws.BytesValue(v.Raw)
	case String:
		return aws.StringValue(v.Raw)
	case Timestamp:
		return aws.TimestampValue(time.UnixMilli(v.Int()))
	case UUID:
		return aws.UUIDValue(v.Raw)
	}
	return aws.BoolValue(v.Type == True)
}

// compare checks a stream against AWS's decoder. Its known gaps, where ours is stricter: headers that end behind the
// length of a name, strings beyond the limit of its own encoder, and lengths that contradict each other.
func compare(t *testing.T, in []byte) {
	t.Helper()
	want, wantErr := theirs(in)
	f, got := New(max(len(in), 1)), []string{}
	f.Feed(in)
	for fr, ok := f.Next(); ok; fr, ok = f.Next() {
		got = append(got, ours(fr))
	}
	stricter := errors.Is(f.Err(), ErrHeader) || errors.Is(f.Err(), ErrLength)
	if len(got) > len(want) || len(got) < len(want) && !stricter || !reflect.DeepEqual(got, append([]string{}, want[:len(got)]...)) {
		t.Fatalf("%q: frames %q, %v, want %q, %v", in, got, f.Err(), want, wantErr)
	}
	if wantErr == nil && (f.Err() != nil && !stricter || f.Partial()) {
		t.Fatalf("%q: %v, partial %v, want neither", in, f.Err(), f.Partial())
	}
	if wantErr != nil && f.Err() == nil && !f.Partial() {
		t.Fatalf("%q: no fault, want %v", in, wantErr)
	}
}

func TestAWSsDecoderFindsTheSameFrames(t *testing.T) {
	for _, tt := range streams {
		compare(t, []byte(tt.in))
	}
	dir := vectors(t)
	for _, kind := range []string{"positive", "negative"} {
		for _, name := range names(t, dir, kind) {
			compare(t, append(vector(t, dir, "encoded", kind, name), event...))
		}
	}
	var b bytes.Buffer
	enc := aws.NewEncoder()
	for i := range 50 {
		m := aws.Message{Payload: []byte(strings.Repeat("x", i*i))}
		m.Headers.Set(strings.Repeat("n", i*5+1), aws.StringValue(strings.Repeat("v", i*600)))
		m.Headers.Set("i", aws.Int16Value(-i))
		m.Headers.Set("at", aws.TimestampValue(time.UnixMilli(int64(i))))
		if err := enc.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, b.Bytes())
}

func FuzzFramer(f *testing.F) {
	for _, tt := range streams {
		f.Add([]byte(tt.in), 3)
	}
	dir := vectors(f)
	for _, name := range names(f, dir, "positive") {
		f.Add(vector(f, dir, "encoded", "positive", name), 5)
	}
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		n = max(1, n%64)
		whole := read(string(in), len(in)+1, 300)
		if cut := read(string(in), n, 300); !reflect.DeepEqual(cut, whole) {
			t.Fatalf("read(%q, %d) = %+v, want %+v as when whole", in, n, cut, whole)
		}
		if whole.end > int64(len(in)) {
			t.Fatalf("read(%q) ends at %d of %d", in, whole.end, len(in))
		}
		compare(t, in)
		// Few inputs have the right checksums: as the inside of a frame they all have.
		h := len(in) * (n % 3) / 2
		compare(t, []byte(frame(string(in[:h]), string(in[h:]))))
	})
}

func ExampleFramer() {
	f := New(1 << 20)
	for _, chunk := range []string{event[:30], event[30:] + empty[:5]} {
		f.Feed([]byte(chunk))
		for fr, ok := f.Next(); ok; fr, ok = f.Next() {
			fmt.Printf("%s %s\n", fr.Headers.Text(EventType), fr.Payload)
		}
	}
	fmt.Println(f.End(), f.Partial(), f.Err())
	// Output:
	// chunk {"bytes":"e30="}
	// 74 true <nil>
}

func BenchmarkFramer(b *testing.B) {
	chunk := []byte(strings.Repeat(frame(str(MessageType, "event")+str(EventType, "chunk")+str(ContentType, "application/json"), strings.Repeat("x", 200)), 16))
	f := New(1 << 20)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		f.Feed(chunk)
		for _, ok := f.Next(); ok; _, ok = f.Next() {
		}
	}
}
