package cache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	// depthMost and membersMost bound what a hostile text makes the reader hold: nesting, and the keys of the objects
	// that are open at once.
	depthMost   = 512
	membersMost = 1 << 16
	// literalMost is the longest string, in bytes, that stands in the canonical form itself; a longer one stands there
	// as its SHA-256, so that the form of a request with long texts and images stays small.
	literalMost = 64
	// noHole is the hole of a text without one.
	noHole = -1
)

var (
	errSyntax    = errors.New("it is not JSON")
	errUTF8      = errors.New("it is not UTF-8")
	errDuplicate = errors.New("an object has a key twice, which providers may read either way")
	errDeep      = fmt.Errorf("it is nested deeper than %d", depthMost)
	errWide      = fmt.Errorf("its objects have more than %d keys", membersMost)
)

// canon reads a JSON text (RFC 8259) once and writes its canonical form: texts that say the same have the same form,
// others have others (but for collisions of SHA-256). The order of keys, white space, the spelling of strings and
// numbers, and members without influence on the answer make no difference.
//
// A value is written as a tag and, where the tag does not say it all, a length or an end, so that no value's form is the
// beginning of another's: n, t, f; s, length, bytes, or S, SHA-256; d, number, ;; [ values ]; { keys and values,
// sorted by the form of the key }.
type canon struct {
	src []byte
	pos int
	dst []byte

	d       *dialect
	members []member // of the open objects
	scratch []byte   // the last string that had escapes
	moved   []byte   // the last object that was not sorted

	hole  int    // where in src the string stands that is left out, noHole for none
	held  []byte // what it said
	found found
}

// member is a key and a value in dst.
type member struct {
	start, value, end int
	drop              bool // it has no influence on the answer
}

// found is what forbids to keep the answer: a member's name for each reason, "" for none.
type found struct{ private, state string }

// canonical appends the form of src to dst. The text of the string literal at hole, if any, goes to held instead.
func canonical(dst, src []byte, d *dialect, hole int) (form, held []byte, f found, err error) {
	if !utf8.Valid(src) {
		return nil, nil, found{}, errUTF8
	}
	c := canon{src: src, dst: dst, d: d, hole: hole}
	c.space()
	if c.peek() != '{' {
		return nil, nil, found{}, errors.New("it is not a JSON object")
	}
	if err := c.value(root, 0); err != nil {
		return nil, nil, found{}, err
	}
	if c.space(); c.pos < len(c.src) {
		return nil, nil, found{}, errSyntax
	}
	return c.dst, c.held, c.found, nil
}

// peek is the next byte, 0 at the end (which is nowhere a good byte).
func (c *canon) peek() byte {
	if c.pos < len(c.src) {
		return c.src[c.pos]
	}
	return 0
}

func (c *canon) space() {
	for c.pos < len(c.src) {
		switch c.src[c.pos] {
		case ' ', '\n', '\r', '\t':
			c.pos++
		default:
			return
		}
	}
}

// take reads one byte, after white space, if it is b.
func (c *canon) take(b byte) bool {
	c.space()
	if c.peek() != b {
		return false
	}
	c.pos++
	return true
}

func (c *canon) value(p place, depth int) error {
	if depth > depthMost {
		return errDeep
	}
	c.space()
	switch b := c.peek(); b {
	case '{':
		return c.object(p, depth)
	case '[':
		return c.array(p, depth)
	case '"':
		return c.text()
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	default:
		return c.number()
	}
}

func (c *canon) word(w string) error {
	if !bytes.HasPrefix(c.src[c.pos:], []byte(w)) {
		return errSyntax
	}
	c.pos += len(w)
	c.dst = append(c.dst, w[0])
	return nil
}

func (c *canon) array(p place, depth int) error {
	c.pos++
	c.dst = append(c.dst, '[')
	for first := true; !c.take(']'); first = false {
		if !first && !c.take(',') {
			return errSyntax
		}
		if err := c.value(p, depth+1); err != nil {
			return err
		}
	}
	c.dst = append(c.dst, ']')
	return nil
}

func (c *canon) object(p place, depth int) error {
	c.pos++
	c.dst = append(c.dst, '{')
	open := len(c.members)
	for first := true; !c.take('}'); first = false {
		if !first && !c.take(',') {
			return errSyntax
		}
		if len(c.members) == membersMost {
			return errWide
		}
		if err := c.member(p, depth); err != nil {
			return err
		}
	}
	err := c.sort(c.members[open:])
	c.members = c.members[:open]
	c.dst = append(c.dst, '}')
	return err
}

func (c *canon) member(p place, depth int) error {
	m := member{start: len(c.dst)}
	if c.space(); c.peek() != '"' {
		return errSyntax
	}
	key, err := c.str()
	if err != nil {
		return err
	}
	c.emit(key)
	m.value = len(c.dst)
	rule, inside := c.d.rule(p, key), p.inside(key)
	if !c.take(':') {
		return errSyntax
	}
	if err := c.value(inside, depth+1); err != nil {
		return err
	}
	m.end = len(c.dst)
	m.drop = rule == volatile || rule == storing
	c.judge(rule, c.dst[m.start:m.value], c.dst[m.value:])
	c.members = append(c.members, m)
	return nil
}

// judge notes a member that forbids to keep the answer.
func (c *canon) judge(r rule, key, value []byte) {
	name := key[min(2, len(key)):] // names with a rule are short
	switch {
	case r == storing && value[0] == 'f', r == secret && !blank(value):
		c.found.private = string(name)
	case r == state && !blank(value):
		c.found.state = string(name)
	case r == kind && bytes.Equal(value[min(2, len(value)):], []byte("item_reference")):
		c.found.state = "item_reference"
	}
}

// blank says that a value's form is of null, false, or something empty.
func blank(form []byte) bool {
	return form[0] == 'n' || form[0] == 'f' || len(form) == 2
}

// sort puts the members of an object, which are the end of dst, in order, and leaves out those that count for nothing.
func (c *canon) sort(ms []member) error {
	if len(ms) == 0 {
		return nil
	}
	key := func(m member) []byte { return c.dst[m.start:m.value] }
	byKey := func(a, b member) int { return bytes.Compare(key(a), key(b)) }
	drops := func(m member) bool { return m.drop }
	start, tidy := ms[0].start, slices.IsSortedFunc(ms, byKey)
	if !tidy {
		slices.SortFunc(ms, byKey)
	}
	for i := range ms[1:] {
		if byKey(ms[i], ms[i+1]) == 0 {
			return errDuplicate
		}
	}
	if tidy && !slices.ContainsFunc(ms, drops) {
		return nil
	}
	c.moved = c.moved[:0]
	for _, m := range ms {
		if !m.drop {
			c.moved = append(c.moved, c.dst[m.start:m.end]...)
		}
	}
	c.dst = append(c.dst[:start], c.moved...)
	return nil
}

// text writes a string that is a value.
func (c *canon) text() error {
	isHole := c.pos == c.hole
	s, err := c.str()
	if err != nil {
		return err
	}
	if isHole {
		c.held, c.dst = bytes.Clone(s), append(c.dst, 'H')
		return nil
	}
	c.emit(s)
	return nil
}

func (c *canon) emit(s []byte) {
	if len(s) > literalMost {
		sum := sha256.Sum256(s)
		c.dst = append(append(c.dst, 'S'), sum[:]...)
		return
	}
	c.dst = append(append(c.dst, 's', byte(len(s))), s...)
}

// str reads a string. What it returns is good until the next call.
func (c *canon) str() ([]byte, error) {
	c.pos++
	start := c.pos
	c.plain()
	if c.peek() == '"' {
		c.pos++
		return c.src[start : c.pos-1], nil
	}
	c.scratch = append(c.scratch[:0], c.src[start:c.pos]...)
	for c.peek() == '\\' {
		if !c.escape() {
			return nil, errSyntax
		}
		start = c.pos
		c.plain()
		c.scratch = append(c.scratch, c.src[start:c.pos]...)
	}
	if c.peek() != '"' {
		return nil, errSyntax // "control characters (U+0000 through U+001F)" must be escaped
	}
	c.pos++
	return c.scratch, nil
}

// plain goes to the next byte that does not stand for itself in a string.
func (c *canon) plain() {
	s := c.src[c.pos:]
	i := 0
	for i < len(s) && s[i] != '"' && s[i] != '\\' && s[i] >= ' ' {
		i++
	}
	c.pos += i
}

// escape reads an escape into scratch.
func (c *canon) escape() bool {
	c.pos++
	b := c.peek()
	c.pos++
	if b == 'u' {
		return c.unicode()
	}
	i := bytes.IndexByte([]byte(`"\/bfnrt`), b)
	if i >= 0 {
		c.scratch = append(c.scratch, "\"\\/\b\f\n\r\t"[i])
	}
	return i >= 0
}

// unicode reads the digits of a \u escape, and its partner if it is half of a pair. Half a pair alone becomes the three
// bytes that UTF-8 would have for it, which no valid text has.
func (c *canon) unicode() bool {
	u, ok := c.hex()
	if !ok {
		return false
	}
	if 0xD800 <= u && u < 0xDC00 && bytes.HasPrefix(c.src[c.pos:], []byte(`\u`)) {
		at := c.pos
		c.pos += 2
		low, ok := c.hex()
		if !ok {
			return false
		}
		if 0xDC00 <= low && low < 0xE000 {
			u = (u-0xD800)<<10 + (low - 0xDC00) + 0x10000
		} else {
			c.pos = at
		}
	}
	if 0xD800 <= u && u < 0xE000 {
		c.scratch = append(c.scratch, 0xED, byte(0x80|u>>6&0x3F), byte(0x80|u&0x3F))
		return true
	}
	c.scratch = utf8.AppendRune(c.scratch, u)
	return true
}

func (c *canon) hex() (rune, bool) {
	if c.pos+4 > len(c.src) {
		return 0, false
	}
	u, err := strconv.ParseUint(string(c.src[c.pos:c.pos+4]), 16, 16)
	c.pos += 4
	return rune(u), err == nil
}

// digits goes over digits and returns them.
func (c *canon) digits() []byte {
	start := c.pos
	for '0' <= c.peek() && c.peek() <= '9' {
		c.pos++
	}
	return c.src[start:c.pos]
}

// number writes a number as its digits without zeros around them, and the power of ten they are to be multiplied by:
// exact, unlike a float.
func (c *canon) number() error {
	start, sign := c.pos, ""
	if c.peek() == '-' {
		c.pos++
		sign = "-"
	}
	whole := c.digits()
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return errSyntax
	}
	fraction, err := c.fraction()
	if err != nil {
		return err
	}
	power, err := c.power()
	if err != nil {
		return err
	}
	digits := append(append(c.scratch[:0], whole...), fraction...)
	c.scratch = digits
	digits = bytes.TrimLeft(digits, "0")
	zeros := len(digits) - len(bytes.TrimRight(digits, "0"))
	digits = digits[:len(digits)-zeros]
	exp, err := strconv.ParseInt(power, 10, 32)
	switch {
	case len(digits) == 0:
		c.numeral("0", nil, 0)
	case err != nil: // an absurd power: only the same spelling is the same
		c.numeral("=", c.src[start:c.pos], 0)
	default:
		c.numeral(sign, digits, exp+int64(zeros-len(fraction)))
	}
	return nil
}

func (c *canon) numeral(sign string, digits []byte, exp int64) {
	c.dst = append(append(append(c.dst, 'd'), sign...), digits...)
	if exp != 0 {
		c.dst = strconv.AppendInt(append(c.dst, ' '), exp, 10)
	}
	c.dst = append(c.dst, ';')
}

func (c *canon) fraction() ([]byte, error) {
	if c.peek() != '.' {
		return nil, nil
	}
	c.pos++
	if d := c.digits(); len(d) > 0 {
		return d, nil
	}
	return nil, errSyntax
}

// power reads an exponent with its sign.
func (c *canon) power() (string, error) {
	if c.peek()|0x20 != 'e' {
		return "0", nil
	}
	c.pos++
	start := c.pos
	if c.peek() == '+' || c.peek() == '-' {
		c.pos++
	}
	if len(c.digits()) == 0 {
		return "", errSyntax
	}
	return string(c.src[start:c.pos]), nil
}
