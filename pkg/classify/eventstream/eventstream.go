// Package eventstream cuts an application/vnd.amazon.eventstream body into frames as its bytes come. The framing is
// that of AWS's SDKs (wire-formats 2b), big-endian:
//
//	total u32 | headers u32 | CRC of these 8 bytes u32 | headers | payload | CRC of all before it u32
//
// Both checksums are CRC-32 (IEEE). A stream is broken for good at the first frame that is not as it should be: what
// follows could not be found.
package eventstream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// What breaks a stream.
var (
	ErrTooLong  = errors.New("frame is longer than the limit")
	ErrLength   = errors.New("frame lengths contradict each other")
	ErrChecksum = errors.New("frame checksum differs")
	ErrHeader   = errors.New("frame headers are not whole")
)

const (
	prelude  = 12          // bytes before the headers
	overhead = prelude + 4 // bytes of an empty frame
	maxSpare = 16 << 10    // how large a buffer may be that is kept for the next frame
)

// Frame is one message of the stream. Its slices are good until the next call of the framer.
type Frame struct {
	Headers Headers
	Payload []byte

	Start, End int64 // the frame's place in the stream, in bytes
}

// Framer finds the frames of one stream. It belongs to one goroutine. Feed gives it a chunk, then Next is called
// until it says false.
//
// A frame that lies within one chunk is not copied, and nothing is allocated per frame once the buffer has grown.
// Lengths are believed only after their checksum and only up to the limit; the buffer grows with the bytes that came,
// not with those that were announced.
type Framer struct {
	max  int
	p    []byte // what is left of the chunk
	held []byte // the start of a frame that chunks have cut
	used bool   // the frame in held was given out
	end  int64  // where the last whole frame ends
	err  error
}

// New returns a framer of frames of at most maxFrame bytes.
func New(maxFrame int) *Framer { return &Framer{max: maxFrame} }

// Feed gives the next chunk. The framer reads it until Next says false, and keeps no reference then.
func (f *Framer) Feed(p []byte) { f.p = p }

// Next returns the next whole frame, and false when the chunk is used up or Err is set.
func (f *Framer) Next() (Frame, bool) {
	if f.used {
		f.held, f.used = f.held[:0], false
		if cap(f.held) > maxSpare {
			f.held = nil
		}
	}
	if f.err != nil || len(f.held) > 0 && !f.fill(prelude) {
		f.p = nil
		return Frame{}, false
	}
	at := f.held
	if len(at) == 0 {
		at = f.p
	}
	if n := f.length(at); f.err == nil && n > 0 && f.have(n) {
		return f.take(n)
	}
	f.keep()
	return Frame{}, false
}

// fill brings what is held up to n bytes, and reports whether there were enough.
func (f *Framer) fill(n int) bool {
	more := min(max(0, n-len(f.held)), len(f.p))
	f.held = append(f.held, f.p[:more]...)
	f.p = f.p[more:]
	return len(f.held) >= n
}

// length is how long the frame is that starts at b, 0 if too little of it is there. It sets Err when the frame
// cannot be right.
func (f *Framer) length(b []byte) int {
	if len(b) < prelude {
		return 0
	}
	total, headers := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	switch {
	case crc32.ChecksumIEEE(b[:8]) != binary.BigEndian.Uint32(b[8:]):
		f.err = ErrChecksum
	case total < overhead || headers > total-overhead:
		f.err = ErrLength
	case uint64(total) > uint64(f.max):
		f.err = ErrTooLong
	default:
		return int(total)
	}
	return 0
}

// have reports whether n bytes of the frame are there, and puts those of a cut one together.
func (f *Framer) have(n int) bool {
	if len(f.held) > 0 {
		return f.fill(n)
	}
	return len(f.p) >= n
}

// keep holds what is left of the chunk for the next one.
func (f *Framer) keep() {
	if f.err == nil {
		f.held = append(f.held, f.p...)
	}
	f.p = nil
}

// take gives out the frame of n bytes, if it is as it should be.
func (f *Framer) take(n int) (Frame, bool) {
	b := f.held
	if f.used = len(b) > 0; !f.used {
		b, f.p = f.p[:n:n], f.p[n:]
	}
	body := prelude + int(binary.BigEndian.Uint32(b[4:]))
	headers := Headers(b[prelude:body:body])
	switch {
	case crc32.ChecksumIEEE(b[:n-4]) != binary.BigEndian.Uint32(b[n-4:]):
		f.err = ErrChecksum
	case !headers.whole():
		f.err = ErrHeader
	default:
		start := f.end
		f.end += int64(n)
		return Frame{Headers: headers, Payload: b[body : n-4 : n-4], Start: start, End: f.end}, true
	}
	f.p = nil
	return Frame{}, false
}

// Partial reports whether the bytes so far end inside a frame. Call it after the last Next.
func (f *Framer) Partial() bool { return f.err == nil && len(f.held) > 0 && !f.used }

// End is how many bytes of the stream lie before the end of the last whole frame.
func (f *Framer) End() int64 { return f.end }

// Err is what broke the stream, else nil. It is final.
func (f *Framer) Err() error { return f.err }
