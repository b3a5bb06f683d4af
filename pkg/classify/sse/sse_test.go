package sse

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// read returns the blocks of a stream fed n bytes at a time, the tail marked, and what ended it.
func read(stream string, n, limit int) ([]string, error) {
	f, got := New(limit), []string{}
	for p := []byte(stream); len(p) > 0; {
		c := append([]byte{}, p[:min(n, len(p))]...)
		p = p[len(c):]
		f.Feed(c)
		for ev, ok := f.Next(); ok; ev, ok = f.Next() {
			got = append(got, show(ev))
		}
		for i := range c {
			c[i] = '#' // the framer must not look at it any more
		}
	}
	if ev, ok := f.Tail(); ok {
		got = append(got, "tail "+show(ev))
	}
	return got, f.Err()
}

func show(ev Event) string {
	data := "-"
	if ev.Data != nil {
		data = fmt.Sprintf("%q", ev.Data)
	}
	if ev.Bare {
		data = "bare " + data
	}
	return fmt.Sprintf("%s %s %d-%d", ev.Name, data, ev.Start, ev.End)
}

var streams = []struct {
	name, in string
	want     []string
}{
	{"an event ends at a blank line", "data: a\n\ndata: b\n\n", []string{` "a" 0-9`, ` "b" 9-18`}},
	{"lines end in CRLF", "event: x\r\ndata: a\r\n\r\n", []string{`x "a" 0-20`}},
	{"lines end in CR", "event: x\rdata: a\r\rdata: b\r\r", []string{`x "a" 0-18`, ` "b" 18-27`}},
	{"line ends are mixed", "data: a\r\ndata: b\n\rdata: c\r\r\n", []string{` "a\nb" 0-18`, ` "c" 18-27`}},
	{"a LF behind CRCR ends the second line, not a third", "data: a\r\r\ndata: b\n\n", []string{` "a" 0-9`, ` "b" 10-19`}},
	{"a byte order mark is dropped once", "\xEF\xBB\xBFdata: a\n\n", []string{` "a" 0-12`}},
	{"a second byte order mark is content", "\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\ndata: b\n\n", []string{` "b" 15-24`}},
	{"half a byte order mark is content", "\xEF\xBBdata: a\n\ndata: b\n\n", []string{` "b" 11-20`}},
	{"data lines are joined by LF", "data: a\ndata:\ndata: c\n\n", []string{` "a\n\nc" 0-23`}},
	{"one space behind the colon is dropped, no more", "data:a\n\ndata:  a\n\n", []string{` "a" 0-8`, ` " a" 8-18`}},
	{"data without a colon is an empty line", "data\n\ndata\ndata\n\n", []string{` "" 0-6`, ` "\n" 6-17`}},
	{"a comment is not an event", ": ping\n\n: x\ndata: a\n: y\n\n", []string{` "a" 8-25`}},
	{"unknown fields are read over", "id: 1\nretry: 5\nfoo: bar\nfoo\n data: z\ndata: a\n\n", []string{` "a" 0-46`}},
	{"a block without data is shown as one", "event: error\n\n", []string{`error - 0-14`}},
	{"the last event name wins, and is forgotten after the block", "event: a\nevent: b\ndata: 1\n\ndata: 2\n\n", []string{`b "1" 0-27`, ` "2" 27-36`}},
	{"the last blank line is missing", "data: a\n\nevent: e\ndata: b\n", []string{` "a" 0-9`, `tail e "b" 9-26`}},
	{"the last line end is missing", "data: a\ndata: b", []string{`tail  "a\nb" 0-15`}},
	{"the stream ends in a comment", "data: a\n\n: bye", []string{` "a" 0-9`}},
	{"the stream ends in a field name", "data: a\n\nda", []string{` "a" 0-9`}},
	{"the stream is half a byte order mark", "\xEF\xBB", []string{}},
	{"JSON without a field name is shown as such", "data: a\n\n{\"error\":{}}\n\ndata: b\n\n", []string{` "a" 0-9`, ` bare "{\"error\":{}}" 9-23`, ` "b" 23-32`}},
	{"JSON on several lines without a field name", "{\r\n  \"error\": {\r\n  }\r\n}\r\n\r\n", []string{` bare "{\n  \"error\": {\n  }\n}" 0-26`}},
	{"JSON without a field name at the end", "data: a\n\n{\"error\":1}", []string{` "a" 0-9`, `tail  bare "{\"error\":1}" 9-20`}},
	{"what looks like JSON gives way to data", "{x\n}\ndata: a\n{y\n\ndata: b\n\n", []string{` "a" 0-17`, ` "b" 17-26`}},
	{"what looks like JSON has a name", "event: e\n{x\n\n", []string{`e bare "{x" 0-13`}},
	{"a colon in the data stays", "data: {\"a\":1}\n\n", []string{` "{\"a\":1}" 0-15`}},
	{"blank lines come first", "\n\r\n\rdata: a\n\n", []string{` "a" 4-13`}},
	{"the name comes behind the data", "data: a\nevent: n\n\n", []string{`n "a" 0-18`}},
}

func TestStreamsReadTheSameHoweverTheyAreCut(t *testing.T) {
	for _, tt := range streams {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 1000} {
			if got, err := read(tt.in, n, 1000); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s: read(%q, %d) = %q, %v, want %q", tt.name, tt.in, n, got, err, tt.want)
			}
		}
	}
}

func TestTheLimitCountsOneEventWithoutItsComments(t *testing.T) {
	fits := "data: 56789\n\ndata: 56789\n\n:" + strings.Repeat("comment", 9) + "\nid: 1\ndata: 1\n\n"
	for _, n := range []int{1, 3, 1000} {
		if got, err := read(fits, n, 12); err != nil || len(got) != 3 {
			t.Errorf("read(%q, %d) = %q, %v, want three events", fits, n, got, err)
		}
		for _, long := range []string{"data: 5678901\n\n", "data: 5\ndata: 9\n\n", "data: 567890123"} {
			if got, err := read("data: a\n\n"+long, n, 12); !errors.Is(err, ErrTooLong) || len(got) != 1 {
				t.Errorf("read(%q, %d) = %q, %v, want one event and ErrTooLong", long, n, got, err)
			}
		}
	}
}

func TestAFramerAllocatesNothingPerEvent(t *testing.T) {
	chunk := []byte(strings.Repeat("event: delta\ndata: {\"type\":\"delta\",\"text\":\"hello\"}\n\n", 50))
	f := New(1 << 20)
	for _, n := range []int{len(chunk), 7} {
		run := func() {
			for p := chunk; len(p) > 0; p = p[min(n, len(p)):] {
				f.Feed(p[:min(n, len(p))])
				for _, ok := f.Next(); ok; _, ok = f.Next() {
				}
			}
		}
		run()
		if got := testing.AllocsPerRun(20, run); got != 0 {
			t.Errorf("allocations for 50 events, %d bytes a chunk = %v, want 0", n, got)
		}
	}
}

// plain reads a whole stream as the standard words it, to check the framer against.
func plain(s string) []string {
	s = strings.TrimPrefix(s, bom)
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(s, "\n")
	var out []string
	data, name := "", ""
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && data != "":
			out = append(out, fmt.Sprintf("%q %q", name, data[:len(data)-1]))
			data, name = "", ""
		case line == "":
			name = ""
		case field == "data":
			data += value + "\n"
		case field == "event":
			name = value
		}
	}
	return out
}

func FuzzFramer(f *testing.F) {
	for _, tt := range streams {
		f.Add(tt.in, 3)
	}
	f.Fuzz(func(t *testing.T, in string, n int) {
		n = max(1, n%64)
		whole, _ := read(in, len(in)+1, 100)
		if cut, _ := read(in, n, 100); !reflect.DeepEqual(cut, whole) {
			t.Fatalf("read(%q, %d) = %q, want %q as when whole", in, n, cut, whole)
		}
		var got []string
		fr := New(len(in))
		fr.Feed([]byte(in))
		for ev, ok := fr.Next(); ok; ev, ok = fr.Next() {
			if ev.Data != nil && !ev.Bare {
				got = append(got, fmt.Sprintf("%q %q", ev.Name, ev.Data))
			}
		}
		if want := plain(in); !reflect.DeepEqual(got, want) {
			t.Fatalf("events of %q = %q, want %q", in, got, want)
		}
	})
}

func ExampleFramer() {
	f := New(1 << 20)
	for _, chunk := range []string{"event: ping\r", "\ndata: {}\r\n\r\nda", "ta: [DONE]\n\n"} {
		f.Feed([]byte(chunk))
		for ev, ok := f.Next(); ok; ev, ok = f.Next() {
			fmt.Printf("%q %s\n", ev.Name, ev.Data)
		}
	}
	// Output:
	// "ping" {}
	// "" [DONE]
}
