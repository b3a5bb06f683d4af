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
	done bool // the stream has ended
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
		if b.done {
			return ErrCorrupt
		}
		b.src.p = p[i : i+1]
		if err := b.drain(); err != nil {
			return err
		}
	}
	return nil
}

// drain passes on all that is decoded.
func (b *brotliCoding) drain() error {
	for {
		n, err := b.r.Read(b.buf)
		if out := b.emit(b.buf[:n]); out != nil {
			return out
		}
		switch {
		case err == errMore:
			b.done = b.atEnd()
			return nil
		case err != nil && err.Error() == excessive:
			b.done = true
			return nil
		case err != nil:
			return ErrCorrupt
		}
	}
}

// excessive is what the reader says at the end of a stream whose last bytes went through its internal buffer, as
// they do one by one: it takes the buffer for bytes behind the end.
const excessive = "brotli: excessive input"

// atEnd asks the reader whether the stream may end here.
func (b *brotliCoding) atEnd() bool {
	b.src.ended = true
	_, err := b.r.Read(b.buf)
	b.src.ended = false
	return err == io.EOF
}

func (b *brotliCoding) whole() bool { return b.done }
