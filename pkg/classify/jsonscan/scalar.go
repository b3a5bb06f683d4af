package jsonscan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// open starts a string.
func (s *Scanner) open() {
	switch s.st {
	case value, firstElement:
		s.isKey, s.want = false, s.wanted()
	case key, firstKey:
		s.isKey, s.want = true, s.live == s.depth
	default:
		s.st = broken
		return
	}
	s.st, s.held, s.high = inString, false, 0
}

// str reads on in a string: plain bytes, then what stops them.
func (s *Scanner) str(p []byte, i int) int {
	j := i + plain(p[i:])
	if j == len(p) {
		s.keep(p[i:j])
		return j
	}
	switch p[j] {
	case '"':
		s.close(p[i:j])
	case '\\':
		s.keep(p[i:j])
		s.st = inEscape
	default:
		s.st = broken // "control characters (U+0000 through U+001F)" must be escaped
	}
	return j + 1
}

// close ends a string whose last bytes are b.
func (s *Scanner) close(b []byte) {
	if s.held {
		s.keep(b)
		s.loneHigh()
		b = s.buf
	} else {
		s.size = len(b)
	}
	if s.isKey {
		s.at, s.st = dead, colon
		if s.want {
			s.at = s.paths.nodes[s.nodes[s.live]].find(b)
		}
		return
	}
	if s.want {
		s.tell(String, b[:min(len(b), MaxValue)])
	}
	s.after()
}

// keep adds bytes to the part of a wanted string or number that will not be there any more when it ends.
func (s *Scanner) keep(b []byte) {
	if !s.want {
		return
	}
	if !s.held {
		s.buf, s.held, s.size = s.buf[:0], true, 0
	}
	if len(b) > 0 {
		s.loneHigh()
		s.size += len(b)
		s.buf = append(s.buf, b[:min(len(b), max(0, MaxValue-len(s.buf)))]...)
	}
}

// plain is how many bytes at the start of p belong to a string as they stand, eight at a time.
func plain(p []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(p); i += 8 {
		x := binary.LittleEndian.Uint64(p[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		hit := (quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x
		if hit &= tops; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(p) && p[i] != '"' && p[i] != '\\' && p[i] >= ' ' {
		i++
	}
	return i
}

// escape reads the byte behind a backslash.
func (s *Scanner) escape(p []byte, i int) int {
	s.st = inString
	switch c := p[i]; c {
	case '"', '\\', '/':
		s.keep(p[i : i+1])
	case 'u':
		s.st, s.hex, s.code = inHex, 0, 0
	default:
		b, ok := escapes[c]
		s.move(ok, inString)
		s.keep(b)
	}
	return i + 1
}

// escapes are the short escapes of RFC 8259, section 7.
var escapes = map[byte][]byte{'b': {'\b'}, 'f': {'\f'}, 'n': {'\n'}, 'r': {'\r'}, 't': {'\t'}}

// hexDigit reads one of the four digits of a \u escape.
func (s *Scanner) hexDigit(p []byte, i int) int {
	v, ok := unhex(p[i])
	if !ok {
		s.st = broken
		return i + 1
	}
	s.code = s.code<<4 | v
	if s.hex++; s.hex == 4 {
		s.st = inString
		s.unit(s.code)
	}
	return i + 1
}

func unhex(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	}
	return 0, false
}

// unit keeps one UTF-16 code unit; a surrogate without its partner becomes U+FFFD.
func (s *Scanner) unit(u rune) {
	switch {
	case utf16.IsSurrogate(u) && u < 0xDC00:
		s.loneHigh()
		s.high = u
	case utf16.IsSurrogate(u):
		u = utf16.DecodeRune(s.high, u)
		s.high = 0
		s.rune(u)
	default:
		s.loneHigh()
		s.rune(u)
	}
}

// loneHigh keeps U+FFFD for a high surrogate that found no partner.
func (s *Scanner) loneHigh() {
	if s.high != 0 {
		s.high = 0
		s.rune(utf8.RuneError)
	}
}

func (s *Scanner) rune(r rune) {
	if !s.want {
		return
	}
	s.size += utf8.RuneLen(r)
	if len(s.buf) < MaxValue {
		s.buf = utf8.AppendRune(s.buf, r)
	}
}

// numState is how far a number has come.
type numState uint8

const (
	minus numState = iota
	zero
	integer
	point
	fraction
	exponent
	sign
	power
	notNumber
)

// final reports whether the number may end here.
func (n numState) final() bool { return n == zero || n == integer || n == fraction || n == power }

// step is the state behind c: "number = [ minus ] int [ frac ] [ exp ]".
func (n numState) step(c byte) numState {
	switch {
	case '0' <= c && c <= '9':
		return n.digit(c)
	case c == '.' && (n == zero || n == integer):
		return point
	case c|0x20 == 'e' && (n == zero || n == integer || n == fraction):
		return exponent
	case (c == '+' || c == '-') && n == exponent:
		return sign
	}
	return notNumber
}

func (n numState) digit(c byte) numState {
	switch n {
	case minus:
		if c == '0' {
			return zero
		}
		return integer
	case integer:
		return integer
	case point, fraction:
		return fraction
	case exponent, sign, power:
		return power
	}
	return notNumber
}

// digit starts a number.
func (s *Scanner) digit(c byte) {
	if s.num = minus; c != '-' {
		s.num = minus.step(c)
	}
	if !s.atValue() || s.num > integer {
		s.st = broken
		return
	}
	s.st, s.want, s.high = inNumber, s.wanted(), 0
	if s.want {
		s.buf, s.held = append(s.buf[:0], c), true
	}
}

// number reads on in a number, and leaves what follows it.
func (s *Scanner) number(p []byte, i int) int {
	j := i
	for ; j < len(p); j++ {
		if s.num == integer && p[j]-'0' <= 9 {
			continue
		}
		n := s.num.step(p[j])
		if n == notNumber {
			break
		}
		s.num = n
	}
	s.keep(p[i:j])
	if j == len(p) {
		return j
	}
	if !s.num.final() {
		s.st = broken
		return j + 1
	}
	if s.want {
		s.tell(Number, s.buf)
	}
	s.after()
	return j
}
