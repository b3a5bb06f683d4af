package provider

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// value is a value of a document; its zero value is none, which has nothing in it. Where it ends is looked for when that
// is asked, as who looks into a value need not pass over it before.
type value struct {
	doc  *document
	from int // where in the document's text it begins
	end  int // behind its last byte; 0 where that is to be looked for
}

// root is the value that the document is.
func (d *document) root() value { return value{d, d.top.from, d.top.to} }

// to is behind the value's last byte.
func (v value) to() int {
	if v.end > 0 {
		return v.end
	}
	return v.doc.end(v.from)
}

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
	return text(v.doc.text[v.from:v.to()])
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

// is says that the value is the string s, in which nothing has to be escaped.
func (v value) is(s string) bool {
	if !v.isString() {
		return false
	}
	inner := v.doc.text[v.from+1:]
	for i := range len(s) {
		switch inner[i] {
		case s[i]:
		case '\\':
			return v.str() == s
		default:
			return false
		}
	}
	return inner[len(s)] == '"'
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
	case v.from == d.top.from:
		for _, m := range d.members {
			if !yield(value{d, m.key.from, m.key.to}, value{d, m.value.from, m.value.to}) {
				return
			}
		}
	default:
		for at := d.item(v.from + 1); d.text[at] != '}'; {
			key := value{d, at, d.quotedEnd(at)}
			member := value{doc: d, from: d.item(key.end)}
			if !yield(key, member) {
				return
			}
			at = d.item(member.to())
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
		element := value{doc: d, from: at}
		if !yield(element) {
			return
		}
		at = d.item(element.to())
	}
}

// get is the first value at a path of keys; none if there is none.
func (v value) get(path ...string) value {
	if len(path) == 0 {
		return v
	}
	for key, member := range v.members {
		if !key.is(path[0]) {
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
	text := d.text
	for depth := 0; ; {
		switch text[at] {
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

// quotedEnd is where a string ends: not far, or where scan has noted.
func (d *document) quotedEnd(from int) int {
	near := d.text[:min(from+longString, len(d.text))]
	for at := from + 1; at < len(near); at += 2 { // an escape's second byte may be a quote
		if at = special(near, at); at < len(near) && near[at] == '"' {
			return at + 1
		}
	}
	i, _ := slices.BinarySearchFunc(d.long, from, func(s span, from int) int { return cmp.Compare(s.from, from) })
	return d.long[i].to
}

// text is b as a string that shares its memory: a body is never written to, and may be of 32 MiB.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
