package provider

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// parsed is a JSON text's value.
func parsed(t *testing.T, text string) value {
	t.Helper()
	doc, err := scan([]byte(text))
	if err != nil {
		t.Fatalf("scan(%.80s) = %v, want nil", text, err)
	}
	return doc.root()
}

func TestWhatIsJSON(t *testing.T) {
	rows := []struct {
		name, text string
		want       error
	}{
		{"a word is none", `true`, nil},
		{"a part of a word is one", `tru`, errBroken},
		{"a word goes on", `nulls`, errBroken},
		{"a number is none", `-0.50e+07`, nil},
		{"a number may begin with zero", `01`, errBroken},
		{"a number may be a sign", `-`, errBroken},
		{"a number may end with its point", `1.`, errBroken},
		{"a number may begin with its point", `.5`, errBroken},
		{"an exponent may be empty", `1e+`, errBroken},
		{"a plus may come first", `+1`, errBroken},
		{"not a number is one", `NaN`, errBroken},
		{"a control character may stand in a string", "\"a\nb\"", errBroken},
		{"a zero may stand in a string", "\"aaaaaaaaaaaa\x00\"", errBroken},
		{"the last control character may stand in a string", "\"aaaaaaaa\x1f\"", errBroken},
		{"what is no ASCII looks like a control character", "\"\x7f\x80\x9f\xa2\xdc\xff\x82\x9c\"", nil},
		{"every escape is refused", `"\"\\\/\b\f\n\r\t\u00e9\uD800"`, nil},
		{"an escape is made up", `"\x41"`, errBroken},
		{"an escape is cut", `"\u00e"`, errBroken},
		{"an escape at the end hides it", `"\"`, errBroken},
		{"a string has no end", `"aaaaaaaaaaaaaaaaaaaaaaaa`, errBroken},
		{"a comma ends a list", `[1,]`, errBroken},
		{"a comma begins a list", `[,1]`, errBroken},
		{"a comma ends an object", `{"a":1,}`, errBroken},
		{"a key is a word", `{a:1}`, errBroken},
		{"a key has no value", `{"a"}`, errBroken},
		{"a key has a comma", `{"a",1}`, errBroken},
		{"brackets are mixed", `[{]}`, errBroken},
		{"a list is left open", `[1,[2]`, errBroken},
		{"space is no space", " \t\r\n[ \t\r\n1 , 2 ] \n", nil},
		{"another space is one", "[1,\v2]", errBroken},
		{"a byte order mark is space", "\ufeff{}", errBroken},
		{"two texts are one", `{}{}`, errBroken},
		{"nothing is one", ` `, errBroken},
		{"what is broken is deep first", `[x` + nested(maxDepth+1), errBroken},
		{"what is broken at its end has too many fields", `{"a":1` + strings.Repeat(`,"a":1`, maxMembers), errBroken},
		{"an inner object has too many fields", `[{"a":1` + strings.Repeat(`,"a":1`, maxMembers) + `}]`, nil},
	}
	for _, row := range rows {
		if _, err := scan([]byte(row.text)); err != row.want || json.Valid([]byte(row.text)) != (err == nil) {
			t.Errorf("%s: scan(%.80q) = %v, want %v", row.name, row.text, err, row.want)
		}
	}
}

func TestASpecialByteIsFoundWhereverItStands(t *testing.T) {
	for c := range 256 {
		want := c < ' ' || c == '"' || c == '\\'
		for at := range 40 {
			for _, fill := range []byte{'a', ' ', '!', '#', '[', ']', 0x7f, 0x80, 0xff} {
				text := []byte(strings.Repeat(string([]byte{fill}), 43))
				text[at], text[at+2] = byte(c), '"'
				if got := special(text, 0); (got == at) != want || !want && got != at+2 {
					t.Fatalf("special(%q, 0) = %d with %#x at %d, want it found: %v", text, got, c, at, want)
				}
			}
		}
	}
}

// FuzzScan holds that a text is what encoding/json takes for one, and has in it what gjson finds there.
func FuzzScan(f *testing.F) {
	long := strings.Repeat("x", longString)
	for _, text := range []string{
		`{"a":[1,-2.5e-3,true,false,null,"",{"b":{}}],"a":"\u0061\ud83d\ude00\ud800"}`, ` [ [ ] , { "a" : 0 } ] `, `"\\\""`, `-0`, `{"a":1`,
		`{"` + long + `":"` + long + `\"` + long + `","b":["` + long + `",{"c":"` + long + `\\"}]}`,
		`{"a":"` + strings.Repeat(`\n`, longString) + `","b":{"a":{"b":1},"a":{"c":2}}}`, "\"\x80\x7f\"", `[01]`, "\"\x1f\"",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := scan(text)
		if errors.Is(err, ErrMany) {
			if members, object := pairs(text); !object || len(members) <= maxMembers {
				t.Fatalf("scan(%q) = %v for %d members", text, err, len(members))
			}
			return
		}
		if valid := json.Valid(text); valid != (err == nil) {
			t.Fatalf("scan(%q) = %v, want an error: %v", text, err, !valid)
		}
		if err == nil {
			alike(t, doc.root(), gjson.Parse(strings.TrimRight(string(text), " \t\r\n")))
		}
	})
}

// alike holds that a value is what gjson has read.
func alike(t *testing.T, v value, want gjson.Result) {
	t.Helper()
	if v.raw() != want.Raw || v.str() != want.Str || v.num() != want.Num {
		t.Fatalf("value = %q, %q, %v, want %q, %q, %v", v.raw(), v.str(), v.num(), want.Raw, want.Str, want.Num)
	}
	kind := map[gjson.Type]bool{gjson.String: v.isString(), gjson.Number: v.isNumber(), gjson.True: v.isTrue(), gjson.JSON: v.isObject() || v.isArray()}
	if want.Type != gjson.Null && want.Type != gjson.False && !kind[want.Type] {
		t.Fatalf("value %q is no %v", v.raw(), want.Type)
	}
	var keys []string
	var inner []value
	for key, member := range v.members {
		keys, inner = append(keys, key.str()), append(inner, member)
	}
	for element := range v.elements {
		inner = append(inner, element)
	}
	if present(v) != (len(inner) > 0) && want.Type == gjson.JSON {
		t.Fatalf("present(%q) = %v with %d values in it", v.raw(), present(v), len(inner))
	}
	i := 0
	if want.Type == gjson.JSON {
		want.ForEach(func(key, value gjson.Result) bool {
			if i == len(inner) || v.isObject() && keys[i] != key.Str {
				t.Fatalf("%q has %d values with the keys %q, want %q, too", v.raw(), len(inner), keys, key.Str)
			}
			alike(t, inner[i], value)
			i++
			return true
		})
	}
	if i != len(inner) {
		t.Fatalf("%q has %d values, want %d", v.raw(), len(inner), i)
	}
}

func TestTheFirstOfEqualPathsIsGot(t *testing.T) {
	const text = `{"a":"x","a":{"c":1},"a":{"b":{}},"\u0061":{"b":2},"d":[{"b":3}]}`
	for path, want := range map[string]string{"a": `"x"`, "a b": `{}`, "a c": "1", "a d": "", "d": `[{"b":3}]`, "d b": "", "A": ""} {
		if got := parsed(t, text).get(strings.Fields(path)...); got.raw() != want || got.exists() != (want != "") {
			t.Errorf("get(%s) of %s = %s, want %s", path, text, got.raw(), want)
		}
	}
}
