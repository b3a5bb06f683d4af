package decode

import (
	"encoding/binary"
	"hash"
	"hash/adler32"
	"hash/crc32"
)

// deflated is a DEFLATE stream in a wrapper, gzip (RFC 1952) or zlib (RFC 1950). It goes through the parts of the
// wrapper, each of which takes what it can and says whether it is done.
type deflated struct {
	z     inflater
	sum   hash.Hash32
	size  uint32 // decoded bytes, modulo 2^32
	parts []func(*deflated) (bool, error)
	part  int
	many  bool // another member may follow the last part

	flags byte
	head  [10]byte // a part's bytes so far
	have  int
	skip  int
}

func newGzip(emit func([]byte) error) *deflated {
	return newDeflated(emit, crc32.NewIEEE(), true,
		(*deflated).gzipHead, (*deflated).extraSize, (*deflated).extra, (*deflated).name, (*deflated).comment,
		(*deflated).headSum, (*deflated).inflate, (*deflated).gzipTrailer)
}

// newZlib reads the coding "deflate", which is a zlib stream ("deflate" coding, RFC 9110, 8.4.1.2); some servers send
// it without the zlib wrapper.
func newZlib(emit func([]byte) error) *deflated {
	return newDeflated(emit, adler32.New(), false, (*deflated).zlibHead, (*deflated).inflate, (*deflated).zlibTrailer)
}

func newDeflated(emit func([]byte) error, sum hash.Hash32, many bool, parts ...func(*deflated) (bool, error)) *deflated {
	d := &deflated{sum: sum, parts: parts, many: many}
	d.z.emit = func(b []byte) error {
		d.sum.Write(b)
		d.size += uint32(len(b))
		return emit(b)
	}
	d.z.reset()
	return d
}

// write goes through the parts as far as p brings it.
func (d *deflated) write(p []byte) error {
	d.z.in = p
	for {
		if d.part == len(d.parts) {
			if !d.z.need(8) {
				return nil
			}
			if !d.many {
				return ErrCorrupt
			}
			d.restart()
		}
		done, err := d.parts[d.part](d)
		if err != nil || !done {
			return err
		}
		d.part++
	}
}

// restart makes ready for another member.
func (d *deflated) restart() {
	d.part, d.size = 0, 0
	d.sum.Reset()
	d.z.reset()
}

func (d *deflated) whole() bool { return d.part == len(d.parts) }

// bytes collects the next n bytes in d.head.
func (d *deflated) bytes(n int) bool {
	for d.have < n {
		c, ok := d.z.nextByte()
		if !ok {
			return false
		}
		d.head[d.have] = c
		d.have++
	}
	d.have = 0
	return true
}

// The flags of a gzip header.
const (
	flagHeadSum = 1 << 1
	flagExtra   = 1 << 2
	flagName    = 1 << 3
	flagComment = 1 << 4
)

func (d *deflated) gzipHead() (bool, error) {
	if !d.bytes(10) {
		return false, nil
	}
	if d.head[0] != 0x1F || d.head[1] != 0x8B || d.head[2] != 8 {
		return false, ErrCorrupt
	}
	d.flags, d.skip = d.head[3], 0
	return true, nil
}

func (d *deflated) extraSize() (bool, error) {
	if d.flags&flagExtra == 0 {
		return true, nil
	}
	if !d.bytes(2) {
		return false, nil
	}
	d.skip = int(binary.LittleEndian.Uint16(d.head[:]))
	return true, nil
}

func (d *deflated) extra() (bool, error) {
	for ; d.skip > 0; d.skip-- {
		if _, ok := d.z.nextByte(); !ok {
			return false, nil
		}
	}
	return true, nil
}

func (d *deflated) name() (bool, error)    { return d.text(flagName) }
func (d *deflated) comment() (bool, error) { return d.text(flagComment) }

// text reads over a text that ends in a zero byte, if its flag is set.
func (d *deflated) text(flag byte) (bool, error) {
	for d.flags&flag != 0 {
		c, ok := d.z.nextByte()
		if !ok {
			return false, nil
		}
		if c == 0 {
			break
		}
	}
	return true, nil
}

func (d *deflated) headSum() (bool, error) { return d.flags&flagHeadSum == 0 || d.bytes(2), nil }

func (d *deflated) inflate() (bool, error) { return d.z.run() }

func (d *deflated) gzipTrailer() (bool, error) {
	if !d.bytes(8) {
		return false, nil
	}
	if binary.LittleEndian.Uint32(d.head[:]) != d.sum.Sum32() || binary.LittleEndian.Uint32(d.head[4:]) != d.size {
		return false, ErrCorrupt
	}
	return true, nil
}

// zlibHead reads the two bytes of a zlib header. Where they are none, the stream is a bare one.
func (d *deflated) zlibHead() (bool, error) {
	if !d.z.need(16) {
		return false, nil
	}
	head := d.z.acc & 0xFFFF
	if cmf, flg := head&0xFF, head>>8; cmf&0x0F != 8 || cmf>>4 > 7 || (cmf<<8|flg)%31 != 0 {
		d.parts = d.parts[:2]
		return true, nil
	}
	if d.z.take(16)>>8&0x20 != 0 {
		return false, ErrCorrupt // a preset dictionary, which HTTP does not have
	}
	return true, nil
}

func (d *deflated) zlibTrailer() (bool, error) {
	if !d.bytes(4) {
		return false, nil
	}
	if binary.BigEndian.Uint32(d.head[:]) != d.sum.Sum32() {
		return false, ErrCorrupt
	}
	return true, nil
}
