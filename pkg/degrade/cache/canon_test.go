package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"understudy/pkg/classify"
)

var none = &dialect{}

func form(t testing.TB, text string) string {
	t.Helper()
	form, _, _, err := canonical(nil, []byte(text), none, noHole)
	if err != nil {
		t.Fatalf("canonical(%s) = %v, want a form", text, err)
	}
	return string(form)
}

func TestTextsThatSayTheSame(t *testing.T) {
	rows := []struct{ name, a, b string }{
		{"the order of keys counts", `{"a":1,"b":[true,null]}`, `{"b":[true,null],"a":1}`},
		{"the order of keys counts inside", `{"x":[{"a":1,"b":2}]}`, `{"x":[{"b":2,"a":1}]}`},
		{"white space counts", `{"a":[1,2]}`, " {\n\t\"a\" : [ 1 ,\r\n2 ] } \n"},
		{"an escaped letter is another", `{"a":"A"}`, `{"a":"\u0041"}`},
		{"an escaped key is another", `{"a":1}`, `{"\u0061":1}`},
		{"an escaped solidus is another", `{"a":"/"}`, `{"a":"\/"}`},
		{"a pair of surrogates is no letter", `{"a":"😀"}`, `{"a":"\ud83d\uDE00"}`},
		{"short escapes are not read", `{"a":"\b\f\n\r\t\"\\"}`, `{"a":"\u0008\u000c\u000a\u000D\u0009\u0022\u005c"}`},
		{"a long text is compared as it is spelled", `{"a":"` + strings.Repeat("x", 200) + `"}`, `{"a":"\u0078` + strings.Repeat("x", 199) + `"}`},
		{"a fraction of zero is another number", `{"a":1}`, `{"a":1.0}`},
		{"a power of one is another number", `{"a":1}`, `{"a":1e0}`},
		{"a power is another number", `{"a":1200}`, `{"a":1.2E+3}`},
		{"a negative power is another number", `{"a":0.7}`, `{"a":7e-1}`},
		{"zeros behind a fraction count", `{"a":0.7}`, `{"a":0.7000}`},
		{"zeros before a power count", `{"a":0.7}`, `{"a":7e-0001}`},
		{"zero has a sign", `{"a":0}`, `{"a":-0.0e9}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if a, b := form(t, row.a), form(t, row.b); a != b {
				t.Errorf("canonical(%s) = %q, want %q as of %s", row.b, b, a, row.a)
			}
		})
	}
}

func TestTextsThatSayAnother(t *testing.T) {
	rows := []struct{ name, a, b string }{
		{"the order of an array is lost", `{"a":[1,2]}`, `{"a":[2,1]}`},
		{"an array is its elements", `{"a":[[1],2]}`, `{"a":[[1,2]]}`},
		{"a number is a text", `{"a":1}`, `{"a":"1"}`},
		{"a word is a text", `{"a":null}`, `{"a":"null"}`},
		{"null is nothing", `{"a":null}`, `{}`},
		{"a sign is lost", `{"a":1}`, `{"a":-1}`},
		{"numbers are floats", `{"a":9007199254740992}`, `{"a":9007199254740993}`},
		{"a power is lost", `{"a":1}`, `{"a":10}`},
		{"an absurd power is any", `{"a":1e99999999999}`, `{"a":1e99999999998}`},
		{"digits and power run together", `{"a":1e1}`, `{"a":11}`},
		{"half a pair is the replacement character", `{"a":"\ud800"}`, `{"a":"\ufffd"}`},
		{"half a pair is another half", `{"a":"\ud800"}`, `{"a":"\ud801"}`},
		{"half a pair eats what follows", `{"a":"\ud800\u0041"}`, `{"a":"\ud800"}`},
		{"a key is a value", `{"a":{"b":1}}`, `{"a":"b"}`},
		{"keys and values run together", `{"ab":"c"}`, `{"a":"bc"}`},
		{"the end of a long text is lost", `{"a":"` + strings.Repeat("x", 200) + `"}`, `{"a":"` + strings.Repeat("x", 199) + `y"}`},
		{"composed letters are others", `{"a":"é"}`, `{"a":"e\u0301"}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if a, b := form(t, row.a), form(t, row.b); a == b {
				t.Errorf("canonical(%s) = canonical(%s) = %q, want another", row.b, row.a, b)
			}
		})
	}
}

func TestTextsThatAreNotRead(t *testing.T) {
	wide := strings.Builder{}
	for i := range membersMost + 1 {
		fmt.Fprintf(&wide, `"%d":0,`, i)
	}
	rows := []struct {
		name, text string
		want       error
	}{
		{"a key twice", `{"a":1,"a":1}`, errDuplicate},
		{"a key twice, not side by side", `{"a":1,"b":2,"a":3}`, errDuplicate},
		{"a key twice, spelled two ways", `{"a":1,"\u0061":2}`, errDuplicate},
		{"a key twice, inside", `{"x":[{"a":1,"a":2}]}`, errDuplicate},
		{"a long key twice", `{"` + strings.Repeat("k", 99) + `":1,"` + strings.Repeat("k", 99) + `":2}`, errDuplicate},
		{"bytes that are no UTF-8", "{\"a\":\"\xff\"}", errUTF8},
		{"too deep", `{"a":` + strings.Repeat("[", depthMost+1) + strings.Repeat("]", depthMost+1) + `}`, errDeep},
		{"too wide", `{` + wide.String() + `"a":0}`, errWide},
		{"a comma at the end", `{"a":1,}`, errSyntax},
		{"a comma at the end of an array", `{"a":[1,]}`, errSyntax},
		{"a byte too many", `{"a":1}}`, errSyntax},
		{"a byte too few", `{"a":1`, errSyntax},
		{"a line's end in a text", "{\"a\":\"\n\"}", errSyntax},
		{"an escape that is none", `{"a":"\x"}`, errSyntax},
		{"a zero before a number", `{"a":01}`, errSyntax},
		{"a point without digits", `{"a":1.}`, errSyntax},
		{"a power without digits", `{"a":1e+}`, errSyntax},
		{"a word that is none", `{"a":nul}`, errSyntax},
		{"a NUL", "{\"a\":\x00}", errSyntax},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if _, _, _, err := canonical(nil, []byte(row.text), none, noHole); !errors.Is(err, row.want) {
				t.Errorf("canonical(%.80s) = %v, want %v", row.text, err, row.want)
			}
		})
	}
	for _, text := range []string{``, ` `, `[]`, `"a"`, `1`, `null`} {
		if _, _, _, err := canonical(nil, []byte(text), none, noHole); err == nil {
			t.Errorf("canonical(%s) = nil, want an error: it is no object", text)
		}
	}
}

// tree is a random JSON value that can be written in many ways.
type tree struct {
	leaf string // JSON; "" for the others
	list []*tree
	keys []string // of an object: list has the values
}

func drawTree(t *rapid.T, depth int) *tree {
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	switch {
	case depth > 0 && kind == 0:
		keys := rapid.SliceOfNDistinct(rapid.String().Filter(utf8.ValidString), 0, 5, rapid.ID).Draw(t, "keys")
		return &tree{keys: keys, list: drawTrees(t, len(keys), depth)}
	case depth > 0 && kind == 1:
		return &tree{list: drawTrees(t, rapid.IntRange(0, 4).Draw(t, "n"), depth)}
	case kind == 2:
		return &tree{leaf: rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")}
	case kind == 3:
		return &tree{leaf: strconv.FormatInt(rapid.Int64().Draw(t, "number"), 10)}
	}
	return &tree{leaf: `"` + rapid.StringMatching(`[a-z0-9 ]{0,80}`).Draw(t, "text") + `"`}
}

func drawTrees(t *rapid.T, n, depth int) []*tree {
	list := make([]*tree, n)
	for i := range list {
		list[i] = drawTree(t, depth-1)
	}
	return list
}

// write writes the tree in one of its ways.
func (v *tree) write(t *rapid.T, b *strings.Builder) {
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")) }
	space()
	defer space()
	switch {
	case v.leaf != "":
		b.WriteString(respell(t, v.leaf))
	case v.keys != nil:
		order := rapid.Permutation(slices.Collect(indices(len(v.keys)))).Draw(t, "order")
		b.WriteByte('{')
		for n, i := range order {
			if n > 0 {
				b.WriteByte(',')
			}
			key, _ := json.Marshal(v.keys[i])
			space()
			b.Write(key)
			space()
			b.WriteByte(':')
			v.list[i].write(t, b)
		}
		b.WriteByte('}')
	default:
		b.WriteByte('[')
		for i, e := range v.list {
			if i > 0 {
				b.WriteByte(',')
			}
			e.write(t, b)
		}
		b.WriteByte(']')
	}
}

func indices(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// respell spells a leaf in another way.
func respell(t *rapid.T, leaf string) string {
	other := rapid.Bool().Draw(t, "respell")
	switch {
	case !other || strings.ContainsAny(leaf[:1], "tfn"):
		return leaf
	case leaf[0] == '"' && len(leaf) > 2:
		i := rapid.IntRange(1, len(leaf)-2).Draw(t, "at")
		return fmt.Sprintf(`%s\u%04x%s`, leaf[:i], leaf[i], leaf[i+1:])
	case leaf[0] == '"':
		return leaf
	}
	ways := []string{".0", "e0", "E+00", ".000e-0"}
	if leaf != "0" {
		ways = append(ways, "0e-1", "00e-2")
	}
	return leaf + rapid.SampledFrom(ways).Draw(t, "number")
}

// leaves are the tree's leaves.
func (v *tree) leaves() []*tree {
	if v.leaf != "" {
		return []*tree{v}
	}
	var all []*tree
	for _, e := range v.list {
		all = append(all, e.leaves()...)
	}
	return all
}

func drawObject(t *rapid.T) *tree {
	return &tree{keys: []string{"model", "messages", "x"}, list: drawTrees(t, 3, 4)}
}

func (v *tree) form(t *rapid.T) []byte {
	var b strings.Builder
	v.write(t, &b)
	f, _, _, err := canonical(nil, []byte(b.String()), none, noHole)
	if err != nil {
		t.Fatalf("canonical(%s) = %v, want a form", b.String(), err)
	}
	return f
}

func TestTheFormIsOfWhatATextSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawObject(t)
		was := v.form(t)
		if is := v.form(t); !bytes.Equal(was, is) {
			t.Fatalf("the form is %q when spelled anew, want %q", is, was)
		}
		all := v.leaves()
		if len(all) == 0 {
			return
		}
		leaf := rapid.SampledFrom(all).Draw(t, "leaf")
		old := leaf.leaf
		if leaf.leaf = drawTree(t, 0).leaf; leaf.leaf == old {
			return
		}
		if is := v.form(t); bytes.Equal(was, is) {
			t.Fatalf("the form stays %q after %s became %s, want another", is, old, leaf.leaf)
		}
	})
}

// FuzzCanonical holds the reader against encoding/json: what that writes anew has the same form, and what is refused as
// no JSON is none for it either.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,-0e3,"\ud83d\ude00",{"b":null}],"c":""}`, `{"a":1,"a":2}`, `{"a":"\ud800x"}`, `{"a":1e-9}`, `[1`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		was, _, _, err := canonical(nil, text, none, noHole)
		if valid := json.Valid(text); valid && errors.Is(err, errSyntax) || err == nil && !valid {
			t.Fatalf("canonical(%q) = %v, and json.Valid says %v", text, err, valid)
		}
		if err != nil || bytes.Contains(bytes.ToLower(text), []byte(`\ud`)) { // encoding/json replaces half a pair
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		again, err := json.MarshalIndent(v, " ", " ")
		if err != nil {
			t.Fatal(err)
		}
		if is, _, _, err := canonical(nil, again, none, noHole); !bytes.Equal(was, is) {
			t.Fatalf("canonical(%q) = %q, %v, want %q as of %q", again, is, err, was, text)
		}
	})
}

// FuzzKeyOf: whatever comes, there is a key or an error, and white space makes no difference.
func FuzzKeyOf(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Please, what is 3?"}]}]}`))
	f.Add([]byte(`{"input":"hi","store":false,"tools":[{"headers":{"a":1}}]}`))
	f.Add([]byte(`{"contents":[{"parts":[{"text":"hi"}]}],"x":"\ud800"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for api := classify.APIUnknown; api <= classify.AnthropicVertex; api++ {
			k, err := KeyOf(Request{API: api, Body: body}, true)
			other, otherErr := KeyOf(Request{API: api, Body: append([]byte(" \n"), append(body, '\t')...)}, true)
			if k.exact != other.exact || (k.near == nil) != (other.near == nil) || (err == nil) != (otherErr == nil) {
				t.Fatalf("KeyOf(%q) = %v, %v, and with space around it %v, %v", body, k, err, other, otherErr)
			}
			if k.near != nil && k.near.id != other.near.id {
				t.Fatalf("KeyOf(%q).near = %v, and with space around it %v", body, k.near.id, other.near.id)
			}
		}
	})
}
