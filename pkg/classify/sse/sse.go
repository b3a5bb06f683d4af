// Package sse cuts a text/event-stream into events as its bytes come, by the rules of the WHATWG HTML standard,
// section 9.2.6 "Interpreting an event stream".
package sse

import (
	"bytes"
	"errors"
)

// ErrTooLong says that one event has more bytes than the framer may hold.
var ErrTooLong = errors.New("event is longer than the limit")

// Event is one block of the stream. Its slices are good until the next call of the framer.
type Event struct {
	Name []byte // the last event field, empty for the default "message"
	Data []byte // the data lines joined by LF; nil: the block had none, and the standard dispatches nothing
	Bare bool   // the standard drops this block, which has no field but lines from one with "{" on: they are Data

	// The block's place in the stream, in bytes: Start is where the one before ended, End is behind the blank line's
	// LF, or behind its CR (the LF of a CRLF may not be here yet).
	Start, End int64
}

// Framer finds the events of one stream. It belongs to one goroutine. Feed gives it a chunk, then Next is called
// until it says false; Tail shows what an ended stream left unfinished. Fields id and retry are read over: no LLM
// API resumes by them.
//
// An event that lies within one chunk is not copied. Nothing is allocated per event once the buffers have grown.
type Framer struct {
	max int

	// The chunk being read.
	p      []byte
	pos    int   // the next byte of p
	off    int64 // place of p[0] in the stream
	lf, cr int   // the first LF and CR of p at or behind pos, len(p) if none; stale when < pos

	// The unfinished line of earlier chunks.
	line    []byte
	comment bool // it is a comment, and its bytes are dropped
	afterCR bool // the last line ended in CR: a LF right behind it belongs to it
	bom     int  // bytes of a byte order mark matched at the start of the stream, len(bom) when past it

	// The unfinished block.
	name, data  []byte
	named, fed  bool // it has an event field, a data field
	bare        bool // data is of lines that are no fields
	nameB, held []byte
	size        int   // its bytes so far, without comments and line ends
	end         int64 // where the last finished block ends
	err         error
}

const bom = "\xEF\xBB\xBF"

// New returns a framer that holds at most maxEvent bytes of one event.
func New(maxEvent int) *Framer { return &Framer{max: maxEvent} }

// Feed gives the next chunk. The framer reads it until Next says false, and keeps no reference then.
func (f *Framer) Feed(p []byte) {
	f.p, f.pos, f.lf, f.cr = p, 0, -1, -1
	f.skipBOM()
}

// release lets go of the chunk, after copying what still lies in it, and of the buffers that a long event left.
func (f *Framer) release() {
	f.own()
	f.off += int64(f.pos)
	f.p, f.pos, f.lf, f.cr = nil, 0, -1, -1
	if cap(f.line) > maxSpare && len(f.line) == 0 {
		f.line = nil
	}
	if cap(f.held) > maxSpare && !f.fed {
		f.held = nil
	}
	if cap(f.nameB) > maxSpare && !f.named {
		f.nameB = nil
	}
}

// maxSpare is how large a buffer may be that is kept for the next event: streams are many, and long events few.
const maxSpare = 16 << 10

// skipBOM drops one leading byte order mark, which chunks may split ("strip one leading U+FEFF").
func (f *Framer) skipBOM() {
	for f.bom < len(bom) && f.pos < len(f.p) {
		if f.p[f.pos] != bom[f.bom] {
			f.notBOM()
			return
		}
		f.bom++
		f.pos++
	}
}

// notBOM gives back the bytes that only looked like the start of a mark.
func (f *Framer) notBOM() {
	f.line = append(f.line, bom[:f.bom]...)
	f.bom = len(bom)
}

// Next returns the next block that has a name or data, and false when the chunk is used up or Err is set.
func (f *Framer) Next() (Event, bool) {
	for f.err == nil {
		line, carried, ok := f.nextLine()
		if !ok {
			f.release()
			break
		}
		if len(line) > 0 {
			f.field(line, carried)
		} else if ev, ok := f.dispatch(); ok {
			return ev, true
		}
	}
	return Event{}, false
}

// nextLine returns the next whole line without its end, and whether it lies in f.line rather than in the chunk.
// A comment comes back as ":".
func (f *Framer) nextLine() (line []byte, carried, ok bool) {
	f.skipLF()
	end := f.lineEnd()
	part := f.p[f.pos:end]
	if !f.room(part) {
		return nil, false, false
	}
	if end == len(f.p) {
		f.carry(part)
		f.pos = end
		return nil, false, false
	}
	f.afterCR = f.p[end] == '\r'
	f.pos = end + 1
	line, carried = f.join(part)
	return line, carried, true
}

// skipLF finishes a CRLF, wherever chunks cut it.
func (f *Framer) skipLF() {
	if !f.afterCR || f.pos == len(f.p) {
		return
	}
	f.afterCR = false
	if f.p[f.pos] == '\n' {
		if f.end == f.off+int64(f.pos) {
			f.end++
		}
		f.pos++
	}
}

// lineEnd is the place of the next CR or LF, len(p) if there is none. Each byte is searched once for each.
func (f *Framer) lineEnd() int {
	if f.lf < f.pos {
		f.lf = index(f.p, f.pos, '\n')
	}
	if f.cr < f.pos {
		f.cr = index(f.p, f.pos, '\r')
	}
	return min(f.lf, f.cr)
}

func index(p []byte, from int, c byte) int {
	if i := bytes.IndexByte(p[from:], c); i >= 0 {
		return from + i
	}
	return len(p)
}

// room reports whether the block may grow by part, and sets ErrTooLong if not. Comments take no room.
func (f *Framer) room(part []byte) bool {
	if f.comment || len(f.line) == 0 && len(part) > 0 && part[0] == ':' {
		return true
	}
	if f.size+len(f.line)+len(part) > f.max {
		f.err = ErrTooLong
		return false
	}
	return true
}

// carry keeps the start of a line whose end is not here yet.
func (f *Framer) carry(part []byte) {
	if len(part) == 0 || f.comment {
		return
	}
	if len(f.line) == 0 && part[0] == ':' {
		f.comment, part = true, part[:1]
	}
	f.line = append(f.line, part...)
}

// join puts the kept start of a line before its rest.
func (f *Framer) join(rest []byte) (line []byte, carried bool) {
	if len(f.line) == 0 {
		return rest, false
	}
	if f.comment {
		f.comment, rest = false, nil
	}
	line = append(f.line, rest...)
	f.line = line[:0]
	return line, true
}

// field reads one line that is not blank: "Collect the characters on the line before the first U+003A COLON […]
// If value starts with a U+0020 SPACE character, remove it". A line with no colon is a field with no value.
func (f *Framer) field(line []byte, carried bool) {
	colon := bytes.IndexByte(line, ':')
	if colon == 0 {
		return
	}
	f.size += len(line)
	name, value := line, line[len(line):]
	if colon > 0 {
		name, value = line[:colon], line[colon+1:]
	}
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if f.bare {
			f.data, f.held, f.fed, f.bare = nil, f.held[:0], false, false
		}
		f.addData(value, carried)
	case "event":
		f.setName(value, carried)
	default:
		f.addBare(line, carried)
	}
}

// addBare keeps a line that is no field where it may be JSON without a "data:" before it: from a line with "{" on, in
// a block without data.
func (f *Framer) addBare(line []byte, carried bool) {
	if f.bare || !f.fed && line[0] == '{' {
		f.bare = true
		f.addData(line, carried)
	}
}

func (f *Framer) addData(value []byte, carried bool) {
	switch {
	case f.fed:
		f.ownData()
		f.held = append(append(f.held, '\n'), value...)
		f.data = f.held
	case carried:
		f.held = append(f.held[:0], value...)
		f.data = f.held
	default:
		f.held, f.data = f.held[:0], value
	}
	f.fed = true
}

func (f *Framer) setName(value []byte, carried bool) {
	f.name, f.named = value, true
	if carried {
		f.ownName()
	}
}

// own copies the unfinished block out of the chunk.
func (f *Framer) own() {
	if f.fed {
		f.ownData()
	}
	if f.named {
		f.ownName()
	}
}

func (f *Framer) ownData() {
	if len(f.held) == 0 {
		f.held = append(f.held, f.data...)
		f.data = f.held
	}
}

// ownName copies once: many chunks may come behind a long name.
func (f *Framer) ownName() {
	if len(f.name) == 0 || len(f.nameB) > 0 && &f.name[0] == &f.nameB[0] {
		return
	}
	f.nameB = append(f.nameB[:0], f.name...)
	f.name = f.nameB
}

// dispatch ends the block at a blank line. It reports whether the block had a name or data.
func (f *Framer) dispatch() (Event, bool) {
	ev := Event{Start: f.end, End: f.off + int64(f.pos)}
	f.end = ev.End
	ok := f.take(&ev)
	return ev, ok
}

// take moves the block into ev.
func (f *Framer) take(ev *Event) bool {
	ok := f.fed || f.named
	if f.named {
		ev.Name = f.name
	}
	ev.Bare = f.bare
	if f.fed {
		ev.Data = f.data[:len(f.data):len(f.data)]
		if ev.Data == nil {
			ev.Data = []byte{}
		}
	}
	f.name, f.data, f.named, f.fed, f.bare, f.size = nil, nil, false, false, false, 0
	return ok
}

// Tail returns the block that the end of the stream left without its blank line. The standard discards it
// ("If the file ends in the middle of an event, before the final empty line, the incomplete event is not
// dispatched"); many servers leave the last blank line out. Call it once, after the last Next.
func (f *Framer) Tail() (Event, bool) {
	if f.err != nil {
		return Event{}, false
	}
	if f.bom < len(bom) {
		f.notBOM()
	}
	if len(f.line) > 0 {
		line := f.line
		f.line = nil
		f.field(line, true)
	}
	ev := Event{Start: f.end, End: f.off}
	ok := f.take(&ev)
	return ev, ok
}

// End is how many bytes of the stream lie before the end of the last finished block, a LF behind its CR included
// once it has been read.
func (f *Framer) End() int64 { return f.end }

// Err is ErrTooLong once an event went over the limit, else nil. It is final.
func (f *Framer) Err() error { return f.err }
