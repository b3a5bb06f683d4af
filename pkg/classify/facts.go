package classify

import (
	"strconv"

	"understudy/pkg/classify/jsonscan"
)

// The facts that events and bodies are searched for. A dialect says at which paths they stand.
const (
	_ jsonscan.Field = iota

	// Counts of tokens, as the provider counts; the last one given holds.
	factInput
	factOutput
	factCacheRead
	factCacheWrite
	factReasoning
	factCacheLong // the part of factCacheWrite that is kept for longer, and costs more
	factInputAudio
	factOutputAudio
	factSearches  // web searches that the provider ran
	factThoughts  // output that factOutput leaves out
	factToolInput // input that factInput leaves out

	// Texts and numbers, kept as they stand. The first three hold for the response, the others for one event.
	factModel
	factTier
	factSpeed
	factType     // what the event or object is
	factObject   // the same in OpenAI's words
	factStatus   // a Responses object's status; in some errors the HTTP status
	factReason   // why a Responses object is incomplete
	factStop     // why the model stopped; of several choices the one that says most
	factCategory // of a refusal
	factErrorType
	factErrorCode
	factErrorText
	factFlatCode // code and message of an error without an error object
	factFlatText
	factErrorStatus
	factErrorInner // what is behind the code
	factErrorName  // Google's and AWS's own name of the error
	factOrigin     // the status behind a model's error
	factRetryDelay // the pause an error asks for, as "34s"
	factRequestID

	// Marks: the thing is there, and not empty.
	factText    // generated text, a string that is not empty
	factRepeat  // the same, where it was there before or is not to be counted
	factPart    // a generated part
	factRefusal // text of a refusal
	factError
	factShape // what only this dialect has
	factChoice
	factIndex
	factBlocked   // a filter kept something back
	factIteration // the provider's own calls, and each of them
	factElement   // an element of a streamed array
	factGemini    // what only Gemini has
	factConverse  // what only Converse has
	factMetrics   // what only Bedrock adds
)

const (
	firstText = factModel
	firstMark = factText
)

// facts is what one response has said so far. It implements jsonscan.Sink.
type facts struct {
	tokens tokens
	texts  []textFact // kept over events, so that a text said again costs nothing
	set    uint64     // a bit for each fact of the current event or body

	// Chat choices by index, those above 63 counted as 63: seen, and finished by a finish reason.
	seen, finished uint64
	index          uint
	stopped        bool // the current choice has a finish reason

	made       int64       // bytes of generated text since output was last counted
	said       int64       // bytes of generated text in the current event
	iterations []iteration // the provider's own calls, as last told
	iterating  bool        // what comes is of the last of them

	// Of a streamed array: an element has begun, and one has ended.
	inElement, element bool

	scan *jsonscan.Scanner // that tells the facts
}

// textFact is one of the few texts that an answer has, of all those that it could have.
type textFact struct {
	what jsonscan.Field
	text string
}

var _ jsonscan.Sink = (*facts)(nil)

// next forgets what belongs to one event.
func (f *facts) next() { f.made, f.said, f.set = f.uncounted(), 0, 0 }

func (f *facts) has(what jsonscan.Field) bool { return f.set&(1<<what) != 0 }

func (f *facts) mark(what jsonscan.Field) { f.set |= 1 << what }

// text is a fact of the current event, "" if it has none.
func (f *facts) text(what jsonscan.Field) string {
	if !f.has(what) {
		return ""
	}
	return f.last(what)
}

// last is a text as it was last said, in this event or before, "" if it never was.
func (f *facts) last(what jsonscan.Field) string {
	if t := f.find(what); t != nil {
		return t.text
	}
	return ""
}

func (f *facts) find(what jsonscan.Field) *textFact {
	for i := range f.texts {
		if f.texts[i].what == what {
			return &f.texts[i]
		}
	}
	return nil
}

func (f *facts) say(what jsonscan.Field, b []byte) {
	t := f.find(what)
	switch {
	case t == nil:
		f.texts = append(f.texts, textFact{what, string(b)})
	case t.text != string(b):
		t.text = string(b)
	}
}

// size is how many bytes of content an event of n bytes brought. Of what is not text the whole event counts.
func (f *facts) size(n int) int64 {
	if f.said == 0 && f.has(factPart) {
		return int64(n)
	}
	return f.said
}

// content reports whether the event brought something that the model made.
func (f *facts) content() bool { return f.has(factText) || f.has(factRepeat) || f.has(factPart) }

// Value takes one fact. Null, false and the empty string are none.
func (f *facts) Value(what jsonscan.Field, k jsonscan.Kind, b []byte) {
	switch {
	case k == jsonscan.Null, k == jsonscan.False, k == jsonscan.String && len(b) == 0:
	case what == factChoice:
		f.choice(k)
	case what == factElement:
		f.elements(k)
	case what == factIteration:
		f.iterate(k)
	case k == jsonscan.End:
	case f.iterating:
		f.iterations[len(f.iterations)-1].take(what, k, b)
	case what == factIndex:
		f.index = uint(min(number(b), 63))
	case what == factError:
		f.error(k, b)
	case what == factText, what == factRefusal, what == factRepeat:
		f.words(what, k)
	case what >= firstMark:
		f.mark(what)
	case k == jsonscan.Number && what < firstText:
		f.tokens[what] = number(b)
		f.mark(what)
	case (k == jsonscan.String || k == jsonscan.Number) && what >= firstText:
		f.keep(what, b)
	}
}

// keep keeps a text. A stop reason that is a class of its own is not replaced by that of another choice.
func (f *facts) keep(what jsonscan.Field, b []byte) {
	if what == factStop {
		f.stopped = f.stopped || string(b) != unfinishedReason
		if f.has(what) && stops[string(b)].class == None {
			return
		}
	}
	f.say(what, b)
	f.mark(what)
}

// unfinishedReason is Gemini's way to say that there is no reason yet: "FINISH_REASON_UNSPECIFIED: default, unused".
const unfinishedReason = "FINISH_REASON_UNSPECIFIED"

// elements opens or closes an element of a streamed array, which is an event if it is an object.
func (f *facts) elements(k jsonscan.Kind) {
	switch k {
	case jsonscan.Object:
		f.next()
		f.inElement = true
	case jsonscan.End:
		f.element, f.inElement = f.inElement, false
	}
}

// words marks text, and counts it.
func (f *facts) words(what jsonscan.Field, k jsonscan.Kind) {
	if k != jsonscan.String {
		return
	}
	f.mark(what)
	if what != factRepeat {
		f.made += int64(f.scan.Size())
		f.said += int64(f.scan.Size())
	}
}

// error marks an error; one that is only a string is its text.
func (f *facts) error(k jsonscan.Kind, b []byte) {
	f.mark(factError)
	if k == jsonscan.String {
		f.keep(factErrorText, b)
	}
}

// choice opens or closes one of a chat answer's choices.
func (f *facts) choice(k jsonscan.Kind) {
	switch k {
	case jsonscan.Object:
		f.index, f.stopped = 0, false
	case jsonscan.End:
		f.seen |= 1 << f.index
		if f.stopped {
			f.finished |= 1 << f.index
		}
	}
}

// allFinished reports whether every choice that was seen has its finish reason.
func (f *facts) allFinished() bool { return f.seen != 0 && f.seen == f.finished }

// number reads a count. What is negative, or no number, is 0; what a float64 cannot count exactly is cut.
func number(b []byte) int64 {
	if n, ok := digits(b); ok {
		return n
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || v < 0 {
		return 0
	}
	return int64(min(v, 1<<53))
}

// digits reads a count that is written as counts are.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, len(b) > 0 && len(b) < 16 // 10^15 is below 2^53
}
