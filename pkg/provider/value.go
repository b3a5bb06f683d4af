package provider

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// value is a value of a document; its zero value is none, which has nothing in it. Whatever reads one passes over the
// short strings in it alone.
type value struct {
	doc *document
	span
}

// root is the value that the document is.
func (d *document) root() value { return value{d, d.top} }

// first is the value's first byte, which says what it is; 0 if there is none.
func (v value) first() byte {
	if v.doc == nil {
		return 0
	}
	return v.doc.text[v.from]
}

func (v value) exists() bool   { return v.doc != nil }
func (v value) isObject() bool { return v.first() == '{' }
func (v value) isArray() bool  { return v.first() == '[' }
func (v value) isString() bool { return v.first() == '"' }
func (v value) isTrue() bool   { return v.first() == 't' }
func (v value) isNumber() bool { return v.first() == '-' || digit(v.first()) }

// raw is the value's JSON. It shares the body's memory.
func (v value) raw() string {
	if v.doc == nil {
		return ""
	}
	return text(v.doc.text[v.from:v.to])
}

// str is a string, decoded; "" for what is none. It may share the body's memory.
func (v value) str() string {
	if !v.isString() {
		return ""
	}
	raw := v.raw()
	if strings.IndexByte(raw, '\\') >= 0 {
		return gjson.Parse(raw).Str
	}
	return raw[1 : len(raw)-1]
}

// num is a number, 0 for what is none.
func (v value) num() float64 {
	if !v.isNumber() {
		return 0
	}
	n, _ := strconv.ParseFloat(v.raw(), 64) // beyond the range it is infinite
	return n
}

// members yields the members of an object in their order, of equal keys each; what is no object has none.
func (v value) members(yield func(key, member value) bool) {
	switch d := v.doc; {
	case !v.isObject():
	case v.span == d.top:
		for _, m := range d.members {
			if !yield(value{d, m.key}, value{d, m.value}) {
				return
			}
		}
	default:
		for at := d.item(v.from + 1); d.text[at] != '}'; {
			key := d.value(at)
			member := d.value(d.item(key.to))
			if !yield(key, member) {
				return
			}
			at = d.item(member.to)
		}
	}
}

// elements yields the elements of an array; what is no array has none.
func (v value) elements(yield func(element value) bool) {
	if !v.isArray() {
		return
	}
	d := v.doc
	for at := d.item(v.from + 1); d.text[at] != ']'; {
		element := d.value(at)
		if !yield(element) {
			return
		}
		at = d.item(element.to)
	}
}

// get is the first value at a path of keys; none if there is none.
func (v value) get(path ...string) value {
	if len(path) == 0 {
		return v
	}
	for key, member := range v.members {
		if key.str() != path[0] {
			continue
		}
		if found := member.get(path[1:]...); found.exists() {
			return found
		}
	}
	return value{}
}

// item is where the next item begins from at on, or where what holds it ends.
func (d *document) item(at int) int {
	for blank(d.text[at]) || d.text[at] == ',' || d.text[at] == ':' {
		at++
	}
	return at
}

// value is the value that begins at at.
func (d *document) value(at int) value { return value{d, span{at, d.end(at)}} }

// end is where the value ends that begins at at.
func (d *document) end(at int) int {
	switch d.text[at] {
	case '"':
		return d.quotedEnd(at)
	case '{', '[':
		return d.nestEnd(at)
	}
	for at < len(d.text) && !blank(d.text[at]) && d.text[at] != ',' && d.text[at] != '}' && d.text[at] != ']' {
		at++
	}
	return at
}

func (d *document) nestEnd(at int) int {
	for depth := 0; ; {
		switch d.text[at] {
		case '"':
			at = d.quotedEnd(at)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if at++; depth == 0 {
			return at
		}
	}
}

// nearby is how far, in bytes, the end of a string is looked for before it is looked up.
const nearby = 128

func (d *document) quotedEnd(at int) int {
	if end := closing(d.text[:min(at+nearby, len(d.text))], at+1); end > 0 {
		return end
	}
	i, known := slices.BinarySearchFunc(d.long, at, func(s span, at int) int { return cmp.Compare(s.from, at) })
	if known {
		return d.long[i].to
	}
	return closing(d.text, at+1)
}

// closing is where the string ends that goes on at at; 0 if it does not within text.
func closing(text []byte, at int) int {
	for at < len(text) {
		at = special(text, at)
		if at < len(text) && text[at] == '"' {
			return at + 1
		}
		at += 2 // an escape, whose second byte may be a quote
	}
	return 0
}

// text is b as a string that shares its memory: a body is never written to, and may be of 32 MiB.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
