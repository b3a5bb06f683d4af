package decode

import (
	"encoding/binary"

	"github.com/klauspost/compress/zstd"
)

// zstdCoding reads Zstandard (RFC 8878). The package's decoder does not go on after a short read, but decodes one
// block a Read: so it is given one whole block at a time, the first of a frame with the frame's header.
type zstdCoding struct {
	emit func([]byte) error
	src  source
	r    *zstd.Decoder
	buf  []byte

	held  []byte // what the decoder gets next
	want  int    // how long held must be for the next look
	st    zstdState
	sum   bool  // the frame ends in a checksum
	first bool  // held starts with the frame's header
	body  int   // bytes of the block, its header included
	empty bool  // the block decodes to nothing
	last  bool  // the block is the frame's last
	skip  int64 // bytes of a skippable frame still to come
	seen  bool  // a frame is complete
}

type zstdState uint8

const (
	zstdMagic zstdState = iota
	zstdSkippable
	zstdDescriptor
	zstdBlockHead
	zstdBlock
)

// Limits: a block (RFC 8878, 3.1.1.2.4) and the window that HTTP allows (RFC 9659, 3).
const (
	maxBlock  = 128 << 10
	maxWindow = 8 << 20
)

func newZstd(emit func([]byte) error) *zstdCoding {
	return &zstdCoding{emit: emit, want: 4}
}

func (z *zstdCoding) whole() bool {
	return z.seen && z.st == zstdMagic && len(z.held) == 0 && z.skip == 0
}

// write collects bytes until the next look.
func (z *zstdCoding) write(p []byte) error {
	for len(p) > 0 {
		if z.skip > 0 {
			n := min(z.skip, int64(len(p)))
			z.skip -= n
			p = p[n:]
			continue
		}
		n := min(len(p), z.want-len(z.held))
		z.held = append(z.held, p[:n]...)
		p = p[n:]
		for len(z.held) == z.want {
			if err := z.look(); err != nil {
				return err
			}
		}
	}
	return nil
}

// look reads what has been collected, and says how much more must be.
func (z *zstdCoding) look() error {
	switch z.st {
	case zstdMagic:
		return z.magic()
	case zstdSkippable:
		z.skip = int64(binary.LittleEndian.Uint32(z.held[4:]))
		z.next(zstdMagic, 4)
	case zstdDescriptor:
		z.descriptor(z.held[4])
	case zstdBlockHead:
		return z.blockHead()
	case zstdBlock:
		return z.block()
	}
	return nil
}

// next forgets what has been collected.
func (z *zstdCoding) next(st zstdState, want int) { z.held, z.st, z.want = z.held[:0], st, want }

func (z *zstdCoding) magic() error {
	switch magic := binary.LittleEndian.Uint32(z.held); {
	case magic == 0xFD2FB528:
		z.st, z.want = zstdDescriptor, 5
	case magic&^0xF == 0x184D2A50:
		z.st, z.want = zstdSkippable, 8
	default:
		return ErrCorrupt
	}
	return nil
}

// descriptor knows the length of a frame header by its descriptor byte (RFC 8878, 3.1.1.1.1).
func (z *zstdCoding) descriptor(d byte) {
	single := d >> 5 & 1
	size := int(1-single) + []int{0, 1, 2, 4}[d&3] + []int{int(single), 2, 4, 8}[d>>6]
	z.sum, z.first = d&4 != 0, true
	z.st, z.want = zstdBlockHead, 5+size+3
}

// blockHead reads the three bytes before a block (RFC 8878, 3.1.1.2).
func (z *zstdCoding) blockHead() error {
	h := z.held[len(z.held)-3:]
	head := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
	kind, size := head>>1&3, head>>3
	if kind == 3 || size > maxBlock {
		return ErrCorrupt
	}
	z.last, z.empty = head&1 == 1, kind != 2 && size == 0
	if kind == 1 {
		size = 1
	}
	z.body = 3 + size
	z.want += size
	if z.last && z.sum {
		z.want += 4
	}
	z.st = zstdBlock
	return nil
}

// block decodes what has been collected. An empty block is taken out: the decoder would look for the next one.
func (z *zstdCoding) block() error {
	if z.empty && !z.last {
		z.held = z.held[:len(z.held)-z.body]
		z.st, z.want = zstdBlockHead, len(z.held)+3
		return nil
	}
	if err := z.decode(); err != nil {
		return err
	}
	if z.next(zstdBlockHead, 3); z.last {
		z.seen = true
		z.next(zstdMagic, 4)
	}
	return nil
}

func (z *zstdCoding) decode() error {
	z.src.p = z.held
	if z.first {
		if err := z.restart(); err != nil {
			return err
		}
	}
	n, err := z.r.Read(z.buf)
	if out := z.emit(z.buf[:n]); out != nil {
		return out
	}
	// Behind an empty last block the decoder looks for another frame.
	if err == errMore && z.last && n == 0 {
		err = nil
	}
	if err != nil || len(z.src.p) > 0 {
		return ErrCorrupt
	}
	return nil
}

// restart makes the decoder ready for a frame.
func (z *zstdCoding) restart() error {
	z.first = false
	if z.r == nil {
		// With a concurrency of one the decoder works within Read, and starts no goroutine.
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		z.r, z.buf = r, make([]byte, maxBlock)
	}
	return z.r.Reset(&z.src)
}
