package provider

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// maxDepth is the nesting that encoding/json reads, too.
const maxDepth = 10_000

// maxMembers bounds the top-level members: the APIs know less than 50.
const maxMembers = 256

// longString is from which size on, in bytes, the end of a string is noted. A body has few of those, and they are most
// of a large one.
const longString = 1024

// Errors of scan. But for errBroken their text may be shown to the client.
var (
	ErrMany = fmt.Errorf("the request body has more than %d top-level fields", maxMembers)
	ErrDeep = fmt.Errorf("the request body nests deeper than %d levels", maxDepth)

	errBroken = errors.New("no JSON text")
)

// span is a piece of text: from its first byte to the one behind its last.
type span struct{ from, to int }

// member is one of an object; its key is in quotes.
type member struct{ key, value span }

// document is JSON text that is known to be well-formed, with what makes it cheap to read again: where its top-level
// members stand, and where long strings end.
type document struct {
	text    []byte
	top     span     // the value that the text is
	members []member // of that, if it is an object
	long    []span   // strings with their quotes, in their order
}

// scan reads JSON text (RFC 8259), once. Like encoding/json it asks nothing of strings but that they hold no control
// character and no escape that JSON does not have.
func scan(text []byte) (*document, error) {
	s := scanner{text: text}
	s.space()
	top := s.value()
	s.space()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.at < len(text):
		return nil, errBroken
	case s.count > maxMembers:
		return nil, ErrMany
	}
	return &document{text, top, s.members, s.long}, nil
}

// scanner is on its way through text. After an error where it stands means nothing.
type scanner struct {
	text    []byte
	at      int
	depth   int
	err     error // the first
	count   int   // of top-level members
	members []member
	long    []span
}

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// peek is the next byte; 0, which no JSON text has, at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.text) && blank(s.text[s.at]) {
		s.at++
	}
}

func blank(c byte) bool { return c <= ' ' && (c == ' ' || c == '\n' || c == '\t' || c == '\r') }

// value passes over a value. It calls itself at most maxDepth deep.
func (s *scanner) value() span {
	from := s.at
	if s.err != nil {
		return span{from, from}
	}
	switch s.peek() {
	case '"':
		return s.quoted()
	case '{':
		s.object()
	case '[':
		s.array()
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.number()
	}
	return span{from, s.at}
}

func (s *scanner) object() {
	top := s.depth == 0
	for more := s.open('}'); more; more = s.more('}') {
		key := s.quoted()
		s.space()
		s.take(':')
		s.space()
		v := s.value()
		if top {
			s.note(member{key, v})
		}
	}
}

func (s *scanner) array() {
	for more := s.open(']'); more; more = s.more(']') {
		s.value()
	}
}

// open enters an object or array, and says that it has something in it.
func (s *scanner) open(end byte) bool {
	s.at++
	if s.depth++; s.depth > maxDepth {
		s.fail(ErrDeep)
		return false
	}
	s.space()
	return s.peek() != end || s.close()
}

// more says that another item follows, or leaves the object or array.
func (s *scanner) more(end byte) bool {
	s.space()
	if s.err == nil && s.peek() == end {
		return s.close()
	}
	s.take(',')
	s.space()
	return s.err == nil
}

func (s *scanner) close() bool {
	s.at++
	s.depth--
	return false
}

func (s *scanner) note(m member) {
	if s.members == nil {
		s.members = make([]member, 0, 4)
	}
	if s.count++; s.count <= maxMembers {
		s.members = append(s.members, m)
	}
}

func (s *scanner) take(c byte) {
	if s.peek() != c {
		s.fail(errBroken)
		return
	}
	s.at++
}

func (s *scanner) word(word string) {
	for i := range len(word) {
		s.take(word[i])
	}
}

// quoted passes over a string.
func (s *scanner) quoted() span {
	from := s.at
	s.take('"')
	for s.err == nil {
		s.at = special(s.text, s.at)
		switch s.peek() {
		case '"':
			s.at++
			whole := span{from, s.at}
			if s.at-from >= longString {
				s.long = append(s.long, whole)
			}
			return whole
		case '\\':
			s.escape()
		default: // a control character, or the end
			s.fail(errBroken)
		}
	}
	return span{from, s.at}
}

// escape passes over a backslash and what belongs to it.
func (s *scanner) escape() {
	s.at++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
	case 'u':
		s.at++
		for range 4 {
			if !hex(s.peek()) {
				s.fail(errBroken)
				return
			}
			s.at++
		}
	default:
		s.fail(errBroken)
	}
}

func hex(c byte) bool {
	return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number passes over a number: int, frac and exp of RFC 8259, 6.
func (s *scanner) number() {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.at++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c = s.peek(); c == '+' || c == '-' {
			s.at++
		}
		s.digits()
	}
}

func (s *scanner) digits() {
	if !digit(s.peek()) {
		s.fail(errBroken)
	}
	for digit(s.peek()) {
		s.at++
	}
}

// special is where the first byte of text[at:] stands that is a quote, a backslash or a control character; the end of
// text if none is. Strings pass by in words of eight bytes, two of them at a time.
func special(text []byte, at int) int {
	for ; at+16 <= len(text); at += 16 {
		words := text[at : at+16 : at+16]
		if marks := specials(binary.LittleEndian.Uint64(words)); marks != 0 {
			return at + bits.TrailingZeros64(marks)/8
		}
		if marks := specials(binary.LittleEndian.Uint64(words[8:])); marks != 0 {
			return at + 8 + bits.TrailingZeros64(marks)/8
		}
	}
	for ; at < len(text); at++ {
		if c := text[at]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return at
}

// specials has the highest bit set of the first byte of a word that is a quote, a backslash or a control character, and
// of none before it. To subtract n from a byte below n sets its highest bit; what borrows from the byte behind it comes
// later. A quote with one bit changed is a space, and control characters stay what they are: one test finds both.
func specials(word uint64) uint64 {
	const each = 0x0101010101010101
	quotes := (word ^ each*('"'^' ')) - each*(' '+1)
	backslashes := (word ^ each*'\\') - each
	return (quotes | backslashes) &^ word & (each * 0x80)
}
