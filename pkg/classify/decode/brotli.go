package decode

import (
	"errors"
	"io"

	"github.com/andybalholm/brotli"
)

// errMore says that a decoder has used up the bytes that are here.
var errMore = errors.New("more bytes to come")

// source gives a decoder that pulls its input the bytes that are here, then errMore, or io.EOF once ended.
type source struct {
	p     []byte
	ended bool
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	switch {
	case len(s.p) > 0:
		n := copy(p, s.p)
		s.p = s.p[n:]
		return n, nil
	case s.ended:
		return 0, io.EOF
	}
	return 0, errMore
}

// brotliCoding reads brotli (RFC 7932). The package's reader keeps its state over an error of its source, and pushes
// out all that its input so far decodes to.
type brotliCoding struct {
	emit func([]byte) error
	src  source
	r    *brotli.Reader
	buf  []byte
}

func newBrotli(emit func([]byte) error) *brotliCoding {
	b := &brotliCoding{emit: emit, buf: make([]byte, 16<<10)}
	b.r = brotli.NewReader(&b.src)
	return b
}

// write gives the reader one byte at a time: on a fault it throws away what came before in the same piece, and the
// verdict would depend on how the body was cut.
func (b *brotliCoding) write(p []byte) error {
	for i := range p {
		b.src.p = p[i : i+1]
		if err := b.drain(); err != errMore {
			return err
		}
	}
	return nil
}

// drain passes on all that is decoded; errMore is the good end.
func (b *brotliCoding) drain() error {
	for {
		n, err := b.r.Read(b.buf)
		if out := b.emit(b.buf[:n]); out != nil {
			return out
		}
		switch {
		case err == errMore:
			return err
		case err != nil:
			return ErrCorrupt
		}
	}
}

func (b *brotliCoding) whole() bool {
	b.src.ended = true
	defer func() { b.src.ended = false }()
	_, err := b.r.Read(b.buf)
	return err == io.EOF
}
