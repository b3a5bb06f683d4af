// Package decode undoes HTTP content codings while the bytes come: whatever a server has flushed is out at once.
// It starts no goroutine, and what it holds does not grow with the body.
package decode

import (
	"errors"
	"slices"
	"strings"
)

// Errors of a Decoder. They are final.
var (
	ErrCorrupt  = errors.New("the body is not in its content coding")
	ErrTooLarge = errors.New("the body decodes to more than the limit")
)

// maxCodings is how many codings may lie in each other. Servers apply one; a body of more than a few is a trap.
const maxCodings = 4

// Decoder undoes the codings of one body. It belongs to one goroutine.
type Decoder struct {
	layers []coding // in the order they were applied, so that the body goes to the last
	err    error
}

// coding is the state of one coding. It passes what it decodes on.
type coding interface {
	write(p []byte) error
	whole() bool // the body may end here
}

// Known reports whether name is a coding that New takes: gzip, x-gzip, deflate, br or zstd, in any case.
func Known(name string) bool {
	_, known := codecs[strings.ToLower(name)]
	return known
}

// codecs make the state of each coding that is known.
var codecs = map[string]func(emit func([]byte) error) coding{
	"gzip":    func(emit func([]byte) error) coding { return newGzip(emit) },
	"x-gzip":  func(emit func([]byte) error) coding { return newGzip(emit) },
	"deflate": func(emit func([]byte) error) coding { return newZlib(emit) },
	"br":      func(emit func([]byte) error) coding { return newBrotli(emit) },
	"zstd":    func(emit func([]byte) error) coding { return newZstd(emit) },
}

// New returns a decoder for a body with this Content-Encoding: one Known coding, or up to four with commas between,
// "listed in the order in which they were applied" (RFC 9110, 8.4), so that the last is undone first. It passes what it
// decodes to out, at most limit bytes of it; no coding may decode to more on the way. out must not keep its argument.
// Any other name gives a decoder that finds every body corrupt.
func New(names string, limit int64, out func([]byte)) *Decoder {
	d := &Decoder{}
	emit := bound(limit, func(p []byte) error { out(p); return nil })
	for name := range strings.SplitSeq(strings.ToLower(names), ",") {
		layer, known := codecs[strings.TrimSpace(name)]
		if !known || len(d.layers) == maxCodings {
			return &Decoder{err: ErrCorrupt}
		}
		c := layer(emit)
		d.layers = append(d.layers, c)
		emit = bound(limit, c.write)
	}
	return d
}

// bound passes up to limit bytes on to next.
func bound(limit int64, next func([]byte) error) func([]byte) error {
	return func(b []byte) error {
		fit := b[:min(int64(len(b)), limit)]
		limit -= int64(len(fit))
		if len(fit) > 0 {
			if err := next(fit); err != nil {
				return err
			}
		}
		if len(fit) < len(b) {
			return ErrTooLarge
		}
		return nil
	}
}

// Write takes the next bytes of the body; p is not kept.
func (d *Decoder) Write(p []byte) error {
	if d.err == nil && len(p) > 0 {
		d.err = d.layers[len(d.layers)-1].write(p)
	}
	return d.err
}

// Whole reports whether the body is complete if it ends here; a body that is cut is not.
func (d *Decoder) Whole() bool {
	return d.err == nil && !slices.ContainsFunc(d.layers, func(c coding) bool { return !c.whole() })
}
