// Package jsonscan checks that a JSON text (RFC 8259) is well formed while its bytes come, and tells the values of
// the few places its reader asked for. What it holds does not grow with the text.
package jsonscan

// Kind is the kind of a value.
type Kind uint8

// The kinds. End is told when an object or array ends.
const (
	Null Kind = iota
	True
	False
	Number
	String
	Object
	Array
	End
)

// Sink is told the wanted values in the order of the text. A string comes decoded, a number as it stands, both cut at
// MaxValue bytes; b is nil for the other kinds. b must not be kept nor changed.
type Sink interface {
	Value(f Field, k Kind, b []byte)
}

// Limits of what a scanner holds.
const (
	MaxValue = 512  // bytes of one key, string or number
	MaxDepth = 1024 // nesting; a deeper text counts as not well formed
)

// maxLive bounds the length of a path.
const maxLive = 12

// State is how far a text has come.
type State uint8

// The states of a text.
const (
	Open   State = iota // it needs more bytes
	Whole               // it is complete; white space may follow
	Broken              // it is not JSON
)

// what the scanner expects next
type expect uint8

const (
	value        expect = iota
	firstElement        // a value or ]
	firstKey            // a key or }
	key                 // a key, after a comma
	colon
	next // a comma or the end of the container
	done
	inString
	inEscape
	inHex
	inNumber
	inWord
	broken
)

// Scanner reads one text at a time. It belongs to one goroutine.
type Scanner struct {
	paths *Paths
	sink  Sink

	st    expect
	depth int
	live  int                     // how deep the places are wanted; nodes[live] is one iff live == depth
	nodes [maxLive + 1]uint16     // the place of each open container, up to live
	objs  [MaxDepth/64 + 1]uint64 // a bit for each open container: it is an object

	at    uint16 // the place of the value to come
	isKey bool   // the string is a key
	want  bool   // the string or number is to be told
	held  bool   // part of it lies in buf
	buf   []byte
	size  int   // bytes of it so far, also those that buf has no room for
	hex   uint8 // digits of \u read so far
	code  rune  // their value
	high  rune  // a high surrogate that waits for its low one
	num   numState
	word  string // the rest of true, false or null
	kind  Kind   // what the word is
}

// New returns a scanner that tells sink the values at paths.
func New(paths *Paths, sink Sink) *Scanner {
	s := &Scanner{}
	s.Reset(paths, sink)
	return s
}

// Reset makes ready for another text, whose values at paths sink is told.
func (s *Scanner) Reset(paths *Paths, sink Sink) {
	s.paths, s.sink, s.st, s.depth, s.live, s.at = paths, sink, value, 0, 0, root
	s.held, s.high = false, 0
}

// State is how far the text has come, if it ended here.
func (s *Scanner) State() State {
	switch {
	case s.st == done, s.st == inNumber && s.depth == 0 && s.num.final():
		return Whole
	case s.st == broken:
		return Broken
	}
	return Open
}

// Size is how many bytes the string that is being told has, also those beyond MaxValue. A Sink may ask for it.
func (s *Scanner) Size() int { return s.size }

// Feed reads the next bytes and returns how many of them are good: fewer than len(p) when the text is broken.
func (s *Scanner) Feed(p []byte) int {
	i := 0
	for i < len(p) {
		at := i
		switch {
		case s.st >= inString:
			i = s.scalar(p, i)
		case s.st == key || s.st == firstKey:
			if i = s.members(p, i); i == at {
				i = s.structure(p, i)
			}
		default:
			i = s.structure(p, i)
		}
		if s.st == broken {
			return max(at, i-1)
		}
	}
	return i
}

// scalar reads on in a string, number or word.
func (s *Scanner) scalar(p []byte, i int) int {
	switch s.st {
	case inString:
		return s.str(p, i)
	case inEscape:
		return s.escape(p, i)
	case inHex:
		return s.hexDigit(p, i)
	case inNumber:
		return s.number(p, i)
	case inWord:
		return s.rest(p, i)
	}
	return i
}

// structure reads one byte between scalars.
func (s *Scanner) structure(p []byte, i int) int {
	if !space(p[i]) {
		s.token(p[i])
	}
	return i + 1
}

func space(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// token reads the first byte of what comes next.
func (s *Scanner) token(c byte) {
	switch c {
	case '"':
		s.open()
	case ',':
		s.comma()
	case ':':
		s.move(s.st == colon, value)
	case '{':
		s.push(Object, firstKey)
	case '}':
		s.pop(s.inObject() && (s.st == next || s.st == firstKey))
	case '[':
		s.push(Array, firstElement)
	case ']':
		s.pop(!s.inObject() && s.depth > 0 && (s.st == next || s.st == firstElement))
	case 't':
		s.begin("rue", True)
	case 'f':
		s.begin("alse", False)
	case 'n':
		s.begin("ull", Null)
	default:
		s.digit(c)
	}
}

// move goes on to st where ok, else the text is broken.
func (s *Scanner) move(ok bool, st expect) {
	if !ok {
		st = broken
	}
	s.st = st
}

func (s *Scanner) atValue() bool { return s.st == value || s.st == firstElement }

func (s *Scanner) inObject() bool { return s.objs[s.depth>>6]&(1<<(s.depth&63)) != 0 && s.depth > 0 }

// comma goes on to the next key or element.
func (s *Scanner) comma() {
	switch {
	case s.st != next:
		s.st = broken
	case s.inObject():
		s.st = key
	default:
		s.st, s.at = value, s.elements()
	}
}

// elements is the place of the elements of the open array.
func (s *Scanner) elements() uint16 {
	if s.live != s.depth {
		return dead
	}
	return s.paths.nodes[s.nodes[s.live]].elements
}

// push opens an object or array.
func (s *Scanner) push(k Kind, st expect) {
	if !s.atValue() || s.depth == MaxDepth {
		s.st = broken
		return
	}
	s.tell(k, nil)
	if s.at != dead && s.live == s.depth && s.live < maxLive {
		s.live++
		s.nodes[s.live] = s.at
	}
	s.depth++
	bit := uint64(1) << (s.depth & 63)
	s.objs[s.depth>>6] &^= bit
	if k == Object {
		s.objs[s.depth>>6] |= bit
	} else {
		s.at = s.elements()
	}
	s.st = st
}

// pop closes the open object or array.
func (s *Scanner) pop(ok bool) {
	if !ok {
		s.st = broken
		return
	}
	if s.live == s.depth {
		s.at = s.nodes[s.live]
		s.tell(End, nil)
		s.live--
	}
	s.depth--
	s.after()
}

// after goes on behind a value.
func (s *Scanner) after() {
	if s.st = next; s.depth == 0 {
		s.st = done
	}
}

// tell passes a value on if its place is wanted.
func (s *Scanner) tell(k Kind, b []byte) {
	if f := s.paths.nodes[s.at].field; f != 0 {
		s.sink.Value(f, k, b)
	}
}

func (s *Scanner) wanted() bool { return s.paths.nodes[s.at].field != 0 }

// begin starts a word.
func (s *Scanner) begin(rest string, k Kind) {
	s.move(s.atValue(), inWord)
	s.word, s.kind = rest, k
}

// rest reads on in a word.
func (s *Scanner) rest(p []byte, i int) int {
	n := min(len(s.word), len(p)-i)
	for k := range n {
		if p[i+k] != s.word[k] {
			s.st = broken
			return i + k + 1
		}
	}
	if s.word = s.word[n:]; s.word == "" {
		s.tell(s.kind, nil)
		s.after()
	}
	return i + n
}
