package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const (
	fType Field = iota + 1
	fCode
	fMessage
	fError
	fChoice
	fContent
	fTool
	fCount
)

var paths = NewPaths(map[string]Field{
	"type": fType, "error": fError, "error.code": fCode, "error.message": fMessage,
	"choices.*": fChoice, "choices.*.delta.content": fContent, "choices.*.delta.tools.*": fTool,
}, map[string]Field{"usage.count": fCount, "été": fType})

// log writes down what it is told.
type log []string

func (l *log) Value(f Field, k Kind, b []byte) {
	*l = append(*l, fmt.Sprintf("%d:%s:%s", f, kinds[k], b))
}

var kinds = [...]string{Null: "null", True: "true", False: "false", Number: "num", String: "str", Object: "obj", Array: "arr", End: "end"}

// scan reads a text n bytes at a time; good is how many bytes were good.
func scan(text string, n int) (told log, st State, good int) {
	s := New(paths, &told)
	for p := []byte(text); len(p) > 0 && s.State() != Broken; {
		c := append([]byte{}, p[:min(n, len(p))]...)
		p = p[len(c):]
		good += s.Feed(c)
		for i := range c {
			c[i] = '#'
		}
	}
	return told, s.State(), good
}

var texts = []struct {
	name, in string
	want     State
	told     []string
}{
	{"a wanted string is told", `{"type":"a"}`, Whole, []string{"1:str:a"}},
	{"white space goes anywhere", " { \"type\" :\r\n\t\"a\" } \n", Whole, []string{"1:str:a"}},
	{"a wanted object is told with its values", `{"error":{"code":"x","message":"m","type":"t"}}`, Whole,
		[]string{"4:obj:", "2:str:x", "3:str:m", "4:end:"}},
	{"the same key elsewhere is not told", `{"a":{"type":1,"error":{"code":2}},"error":{"error":{"code":3}}}`, Whole, []string{"4:obj:", "4:end:"}},
	{"a wanted object may be null, a string or a word", `[{"error":1}]`, Whole, nil},
	{"null is told as null", `{"error":null}`, Whole, []string{"4:null:"}},
	{"words are told", `{"error":true,"type":false}`, Whole, []string{"4:true:", "1:false:"}},
	{"every element is told", `{"choices":[{"delta":{"content":"a"}},{},{"delta":{"content":"b","tools":[1,"x",{}]}}]}`, Whole,
		[]string{"5:obj:", "6:str:a", "5:end:", "5:obj:", "5:end:", "5:obj:", "6:str:b", "7:num:1", "7:str:x", "7:obj:", "7:end:", "5:end:"}},
	{"numbers are told as they stand", `{"usage":{"count":-10.5e+3}}`, Whole, []string{"8:num:-10.5e+3"}},
	{"escapes are decoded", `{"t\u0079pe":"\"\\\/\b\n\u00e9\ud83d\ude00"}`, Whole, []string{"1:str:\"\\/\b\né😀"}},
	{"a lone surrogate is U+FFFD", `{"type":"\ud83d","error":"\ud83dx\ude00\ud83d\n\ud83d\ud83d\ude00"}`, Whole,
		[]string{"1:str:\uFFFD", "4:str:\uFFFDx\uFFFD\uFFFD\n\uFFFD😀"}},
	{"a key of two bytes a letter is found", `{"été":"a"}`, Whole, []string{"1:str:a"}},
	{"a key given twice is told twice", `{"type":"a","type":"b"}`, Whole, []string{"1:str:a", "1:str:b"}},
	{"an empty string is told", `{"type":""}`, Whole, []string{"1:str:"}},
	{"an empty key is not wanted", `{"":1}`, Whole, nil},
	{"bare values are texts", `12`, Whole, nil},
	{"a bare word is a text", ` null `, Whole, nil},
	{"an array may be empty", `[[],{},[{}]]`, Whole, nil},
	{"nothing is not a text yet", ``, Open, nil},
	{"half a word", `tru`, Open, nil},
	{"half a number", `-`, Open, nil},
	{"half a string", `"abc`, Open, nil},
	{"half an escape", `"\u12`, Open, nil},
	{"half an object", `{"type":"a"`, Open, []string{"1:str:a"}},
	{"a colon is missing", `{"type" "a"}`, Broken, nil},
	{"a comma is missing", `{"type":"a" "b":1}`, Broken, []string{"1:str:a"}},
	{"a comma is too many", `{"type":"a",}`, Broken, []string{"1:str:a"}},
	{"an element is missing", `[1,]`, Broken, nil},
	{"a bracket closes a brace", `{]`, Broken, nil},
	{"a brace closes a bracket", `[}`, Broken, nil},
	{"a bracket closes nothing", `]`, Broken, nil},
	{"a word is misspelled", `nul1`, Broken, nil},
	{"a number starts with zero", `01`, Broken, nil},
	{"a number ends in a point", `[1.]`, Broken, nil},
	{"a number has a plus", `+1`, Broken, nil},
	{"a number has two points", `[1.2.3]`, Broken, nil},
	{"a control character is not escaped", "\"a\nb\"", Broken, nil},
	{"an escape is unknown", `"\x"`, Broken, nil},
	{"a hex digit is none", `"\u12g4"`, Broken, nil},
	{"something follows", `{} {}`, Broken, nil},
	{"html", `<html>`, Broken, nil},
	{"a key is not a string", `{1:2}`, Broken, nil},
	{"a value starts inside a key's place", `{"a":1,[]`, Broken, nil},
}

func TestTextsReadTheSameHoweverTheyAreCut(t *testing.T) {
	for _, tt := range texts {
		_, _, good := scan(tt.in, len(tt.in)+1)
		for _, n := range []int{1, 2, 3, 5, 7, 16, 1000} {
			told, st, at := scan(tt.in, n)
			if st != tt.want || !reflect.DeepEqual([]string(told), tt.told) || at != good {
				t.Errorf("%s: scan(%q, %d) = %q, %d, %d, want %q, %d, %d", tt.name, tt.in, n, told, st, at, tt.told, tt.want, good)
			}
		}
	}
}

func TestTheFirstBadByteIsFound(t *testing.T) {
	for in, want := range map[string]int{`{"a":1,}`: 7, `[1.]`: 3, `"\x"`: 2, "\"a\n": 2, `nulx`: 3, `"\u00g`: 5, `{} x`: 3, `x`: 0} {
		if _, _, got := scan(in, 100); got != want {
			t.Errorf("good bytes of %q = %d, want %d", in, got, want)
		}
	}
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	long := strings.Repeat("long\\n", 1000)
	in := `{"type":"` + long + `","` + long + `":1,"usage":{"count":` + strings.Repeat("1", 2000) + `}}`
	for _, n := range []int{1, 100, len(in)} {
		told, st, _ := scan(in, n)
		if st != Whole || len(told) != 2 || len(told[0]) != MaxValue+len("1:str:") || len(told[1]) != MaxValue+len("1:str:") {
			t.Errorf("scan(long, %d) = %d values, %d, want 2 of %d bytes, %d", n, len(told), st, MaxValue, Whole)
		}
	}
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if _, st, _ := scan(deep, 9); st != Whole {
		t.Errorf("scan of %d brackets = %d, want %d", MaxDepth, st, Whole)
	}
	if _, st, _ := scan("["+deep+"]", 9); st != Broken {
		t.Errorf("scan of %d brackets = %d, want %d", MaxDepth+1, st, Broken)
	}
}

func TestAScannerReadsOneTextAfterAnother(t *testing.T) {
	var told log
	s := New(paths, &told)
	for _, in := range []string{`{"error":{"co`, `{"type":"a"}`, `x`, `{"type":"b"}`} {
		s.Reset(paths, &told)
		s.Feed([]byte(in))
	}
	if want := (log{"4:obj:", "1:str:a", "1:str:b"}); !reflect.DeepEqual(told, want) {
		t.Errorf("told = %q, want %q", told, want)
	}
}

// deep reports a text that nests beyond the limit, where this package and encoding/json differ.
func deep(in string) bool { return strings.Count(in, "[")+strings.Count(in, "{") > MaxDepth }

func FuzzScan(f *testing.F) {
	for _, tt := range texts {
		f.Add(tt.in, 3)
	}
	f.Fuzz(func(t *testing.T, in string, n int) {
		if deep(in) {
			t.Skip()
		}
		told, st, good := scan(in, len(in)+1)
		if want := json.Valid([]byte(in)); (st == Whole) != want {
			t.Fatalf("scan(%q) = %d, want valid %v", in, st, want)
		}
		n = max(1, n%64)
		if cut, st2, good2 := scan(in, n); !reflect.DeepEqual(cut, told) || st2 != st || good2 != good {
			t.Fatalf("scan(%q, %d) = %q, %d, %d, want %q, %d, %d as when whole", in, n, cut, st2, good2, told, st, good)
		}
		var doc struct {
			Type json.RawMessage `json:"type"`
		}
		var s string
		if json.Unmarshal([]byte(in), &doc) == nil && json.Unmarshal(doc.Type, &s) == nil && plainKeys(in) && len(s) < MaxValue {
			if want := "1:str:" + s; !bytes.Contains([]byte(strings.ToValidUTF8(strings.Join(told, "\n"), "\uFFFD")), []byte(want)) {
				t.Fatalf("scan(%q) told %q, want %q among it", in, told, want)
			}
		}
	})
}

// plainKeys reports a text whose decoding by encoding/json can be compared: it also takes TYPE for type, and bad
// UTF-8 is replaced.
func plainKeys(in string) bool {
	return strings.Count(strings.ToLower(in), "type") == strings.Count(in, "type") && strings.ToValidUTF8(in, "") == in &&
		!strings.Contains(in, "null") && !strings.Contains(in, "\\u")
}

func BenchmarkFeed(b *testing.B) {
	text := []byte(`{"id":"chatcmpl-9x8f7e6d5c4b3a2918","object":"chat.completion.chunk","created":1764000000,"model":"gpt-5.5","choices":[{"index":0,"delta":{"content":" hello there"},"logprobs":null,"finish_reason":null}]}`)
	s, sink := New(paths, nil), new(nothing)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s.Reset(paths, sink)
		s.Feed(text)
	}
}

type nothing struct{}

func (*nothing) Value(Field, Kind, []byte) {}
