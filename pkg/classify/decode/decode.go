// Package decode undoes HTTP content codings while the bytes come: whatever a server has flushed is out at once.
// It starts no goroutine, and what it holds does not grow with the body.
package decode

import (
	"errors"
	"strings"
)

// Errors of a Decoder. They are final.
var (
	ErrCorrupt  = errors.New("the body is not in its content coding")
	ErrTooLarge = errors.New("the body decodes to more than the limit")
)

// Decoder undoes one coding of one body. It belongs to one goroutine.
type Decoder struct {
	c    coding
	out  func([]byte)
	room int64
	err  error
}

// coding is the state of one coding. It passes what it decodes to emit.
type coding interface {
	write(p []byte) error
	whole() bool // the body may end here
}

// Known reports whether name is a coding that New takes: gzip, x-gzip, deflate, br or zstd, in any case.
func Known(name string) bool {
	switch strings.ToLower(name) {
	case "gzip", "x-gzip", "deflate", "br", "zstd":
		return true
	}
	return false
}

// New returns a decoder for a Known coding, which passes what it decodes to out, at most limit bytes of it. out must
// not keep its argument. Any other name gives a decoder that finds every body corrupt.
func New(name string, limit int64, out func([]byte)) *Decoder {
	d := &Decoder{out: out, room: limit}
	switch strings.ToLower(name) {
	case "gzip", "x-gzip":
		d.c = newGzip(d.emit)
	case "deflate":
		d.c = newZlib(d.emit)
	case "br":
		d.c = newBrotli(d.emit)
	case "zstd":
		d.c = newZstd(d.emit)
	default:
		d.err = ErrCorrupt
	}
	return d
}

// Write takes the next bytes of the body; p is not kept.
func (d *Decoder) Write(p []byte) error {
	if d.err == nil && len(p) > 0 {
		d.err = d.c.write(p)
	}
	return d.err
}

// Whole reports whether the body is complete if it ends here; a body that is cut is not.
func (d *Decoder) Whole() bool { return d.err == nil && d.c.whole() }

// emit passes decoded bytes on, up to the limit.
func (d *Decoder) emit(b []byte) error {
	fit := b[:min(int64(len(b)), d.room)]
	d.room -= int64(len(fit))
	if len(fit) > 0 {
		d.out(fit)
	}
	if len(fit) < len(b) {
		return ErrTooLarge
	}
	return nil
}
