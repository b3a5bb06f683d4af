package decode

import "cmp"

// inflater reads a DEFLATE stream (RFC 1951). The standard library's reader pulls its input and cannot go on after a
// short read; this one stops at any bit and goes on with the next bytes.
type inflater struct {
	emit func([]byte) error

	in  []byte // input not yet in acc
	acc uint64 // bits not yet used, the next one lowest
	n   uint   // how many

	st    step
	final bool // the block is the last one
	left  int  // bytes of a stored block still to come

	// A dynamic block's header.
	nLit, nDist, nCode, at int
	lens                   [maxLit + maxDist]uint8

	lit, dist           *huffman // of the block
	ownLit, ownDist     huffman
	fixedLit, fixedDist *huffman

	buf  []byte // the window, and behind it what is new
	w, e int    // where the next byte goes; what is before e has been passed on
}

type step uint8

const (
	blockHead step = iota
	storedHead
	storedBytes
	dynamicHead
	codeLengths
	lengths
	symbols
	finished
)

const (
	window   = 32 << 10
	maxMatch = 258
	maxLit   = 286
	maxDist  = 30
)

func (z *inflater) reset() {
	z.st, z.w, z.e, z.final = blockHead, 0, 0, false
	if z.buf == nil {
		z.buf = make([]byte, 2*window)
	}
}

// run decodes what z.in holds. It reports whether the stream is finished; bytes behind its end stay in acc and in.
// What comes before a fault is passed on, wherever the input was cut.
func (z *inflater) run() (bool, error) {
	for z.st != finished {
		if ok, err := z.step(); err != nil || !ok {
			return false, cmp.Or(z.flush(), err)
		}
	}
	return true, z.flush()
}

// step does one step; false means that it needs more input.
func (z *inflater) step() (bool, error) {
	switch z.st {
	case blockHead:
		return z.blockHead()
	case storedHead:
		return z.storedHead()
	case storedBytes:
		return z.storedBytes()
	case dynamicHead:
		return z.dynamicHead()
	case codeLengths:
		return z.codeLengths()
	case lengths:
		return z.lengths()
	}
	return z.symbols()
}

// need reports whether k bits are there, k ≤ 56.
func (z *inflater) need(k uint) bool {
	for z.n < k {
		if len(z.in) == 0 {
			return false
		}
		z.acc |= uint64(z.in[0]) << z.n
		z.n += 8
		z.in = z.in[1:]
	}
	return true
}

// take uses k bits, which must be there.
func (z *inflater) take(k uint) int {
	v := z.acc & (1<<k - 1)
	z.acc >>= k
	z.n -= k
	return int(v)
}

// align drops the bits up to the next byte.
func (z *inflater) align() { z.take(z.n & 7) }

// nextByte uses one byte, on a byte boundary.
func (z *inflater) nextByte() (byte, bool) {
	if !z.need(8) {
		return 0, false
	}
	return byte(z.take(8)), true
}

func (z *inflater) blockHead() (bool, error) {
	if !z.need(3) {
		return false, nil
	}
	z.final = z.take(1) == 1
	switch z.take(2) {
	case 0:
		z.align()
		z.st = storedHead
	case 1:
		z.fixed()
		z.st = symbols
	case 2:
		z.st = dynamicHead
	default:
		return false, ErrCorrupt
	}
	return true, nil
}

// endBlock goes on behind a block.
func (z *inflater) endBlock() {
	if z.st = blockHead; z.final {
		z.align()
		z.st = finished
	}
}

func (z *inflater) storedHead() (bool, error) {
	if !z.need(32) {
		return false, nil
	}
	n, inverse := z.take(16), z.take(16)
	if n != ^inverse&0xFFFF {
		return false, ErrCorrupt
	}
	z.left, z.st = n, storedBytes
	return true, nil
}

func (z *inflater) storedBytes() (bool, error) {
	for z.left > 0 {
		if err := z.makeRoom(1); err != nil {
			return false, err
		}
		n := z.copyStored(z.buf[z.w:min(len(z.buf), z.w+z.left)])
		if n == 0 {
			return false, nil
		}
		z.w += n
		z.left -= n
	}
	z.endBlock()
	return true, nil
}

// copyStored fills dst from acc first, then from in.
func (z *inflater) copyStored(dst []byte) int {
	n := 0
	for ; n < len(dst) && z.n >= 8; n++ {
		dst[n] = byte(z.take(8))
	}
	k := copy(dst[n:], z.in)
	z.in = z.in[k:]
	return n + k
}

func (z *inflater) dynamicHead() (bool, error) {
	if !z.need(14) {
		return false, nil
	}
	z.nLit, z.nDist, z.nCode = z.take(5)+257, z.take(5)+1, z.take(4)+4
	if z.nLit > maxLit || z.nDist > maxDist {
		return false, ErrCorrupt
	}
	z.lens, z.at, z.st = [maxLit + maxDist]uint8{}, 0, codeLengths
	return true, nil
}

// codeOrder is the order of the code length codes (RFC 1951, 3.2.7).
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

func (z *inflater) codeLengths() (bool, error) {
	for ; z.at < z.nCode; z.at++ {
		if !z.need(3) {
			return false, nil
		}
		z.lens[codeOrder[z.at]] = uint8(z.take(3))
	}
	if !z.ownLit.build(z.lens[:19]) {
		return false, ErrCorrupt
	}
	z.lens, z.at, z.st = [maxLit + maxDist]uint8{}, 0, lengths
	return true, nil
}

func (z *inflater) lengths() (bool, error) {
	total := z.nLit + z.nDist
	for z.at < total {
		z.need(14) // a code of 7 bits and 7 more; fewer may do
		sym, bits := z.ownLit.decode(z.acc, z.n)
		if sym < 0 {
			return false, ErrCorrupt
		}
		count, extra, length := repeat(sym)
		if bits == 0 || z.n < bits+extra {
			return false, nil
		}
		z.take(bits)
		count += z.take(extra)
		if sym == 16 {
			if z.at == 0 {
				return false, ErrCorrupt
			}
			length = z.lens[z.at-1]
		}
		if z.at+count > total {
			return false, ErrCorrupt
		}
		for range count {
			z.lens[z.at] = length
			z.at++
		}
	}
	return z.dynamic()
}

// repeat is what a code length symbol stands for: how many, how many more bits say, and which length.
func repeat(sym int) (count int, extra uint, length uint8) {
	switch sym {
	case 16:
		return 3, 2, 0
	case 17:
		return 3, 3, 0
	case 18:
		return 11, 7, 0
	}
	return 1, 0, uint8(sym)
}

// dynamic makes the block's own codes.
func (z *inflater) dynamic() (bool, error) {
	z.lit, z.dist = &z.ownLit, &z.ownDist
	if !z.ownDist.build(z.lens[z.nLit:z.nLit+z.nDist]) || !z.ownLit.build(z.lens[:z.nLit]) {
		return false, ErrCorrupt
	}
	z.st = symbols
	return true, nil
}

// fixed takes the fixed codes (RFC 1951, 3.2.6).
func (z *inflater) fixed() {
	if z.fixedLit == nil {
		var lens [288]uint8
		for i := range lens {
			switch {
			case i < 144, i > 279:
				lens[i] = 8
			case i < 256:
				lens[i] = 9
			default:
				lens[i] = 7
			}
		}
		z.fixedLit, z.fixedDist = new(huffman), new(huffman)
		z.fixedLit.build(lens[:])
		for i := range 32 {
			lens[i] = 5
		}
		z.fixedDist.build(lens[:32])
	}
	z.lit, z.dist = z.fixedLit, z.fixedDist
}

// symbols reads literals and matches to the end of the block. A symbol is used only when all its bits are there: a
// match has at most 48.
func (z *inflater) symbols() (bool, error) {
	for {
		z.need(48)
		sym, bits := z.lit.decode(z.acc, z.n)
		switch {
		case sym < 0:
			return false, ErrCorrupt
		case bits == 0:
			return false, nil
		case sym == 256:
			z.take(bits)
			z.endBlock()
			return true, nil
		}
		if err := z.makeRoom(maxMatch); err != nil {
			return false, err
		}
		if sym < 256 {
			z.take(bits)
			z.buf[z.w] = byte(sym)
			z.w++
			continue
		}
		if ok, err := z.match(sym-257, bits); !ok {
			return false, err
		}
	}
}

// lengthBase and distBase are the tables of RFC 1951, 3.2.5: the least value of each symbol, and its extra bits.
var (
	lengthBase = [29]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthBits = [29]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase   = [30]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distBits   = [30]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
)

// match copies from the window, if all bits of the match are there.
func (z *inflater) match(l int, bits uint) (bool, error) {
	if l >= len(lengthBase) {
		return false, ErrCorrupt
	}
	lx := uint(lengthBits[l])
	if z.n < bits+lx {
		return false, nil
	}
	d, dbits := z.dist.decode(z.acc>>(bits+lx), z.n-bits-lx)
	if d < 0 || d >= len(distBase) {
		return false, ErrCorrupt
	}
	dx := uint(distBits[d])
	if dbits == 0 || z.n < bits+lx+dbits+dx {
		return false, nil
	}
	z.take(bits)
	length := int(lengthBase[l]) + z.take(lx)
	z.take(dbits)
	return z.copyMatch(length, int(distBase[d])+z.take(dx))
}

func (z *inflater) copyMatch(length, dist int) (bool, error) {
	if dist > z.w {
		return false, ErrCorrupt
	}
	from := z.w - dist
	for range length {
		z.buf[z.w] = z.buf[from]
		z.w++
		from++
	}
	return true, nil
}

// makeRoom makes room for n bytes behind the window, passing on what is new.
func (z *inflater) makeRoom(n int) error {
	if z.w+n <= len(z.buf) {
		return nil
	}
	err := z.flush()
	z.w = copy(z.buf, z.buf[z.w-window:z.w])
	z.e = z.w
	return err
}

// flush passes on what is new.
func (z *inflater) flush() error {
	b := z.buf[z.e:z.w]
	z.e = z.w
	if len(b) == 0 {
		return nil
	}
	return z.emit(b)
}

const (
	fastBits = 10
	maxBits  = 15
)

// huffman is a canonical Huffman code: a table for the codes of at most fastBits bits, and counts for the others.
type huffman struct {
	fast  [1 << fastBits]uint16 // symbol<<4 | bits, by the next bits of the stream; 0 for none
	count [maxBits + 1]uint16   // codes of each length
	syms  [288]uint16           // symbols in the order of their codes
}

// build makes the code of the given lengths. It reports false for lengths that give no code: too many, or too few
// unless there is only one code of one bit, or none at all.
func (h *huffman) build(lens []uint8) bool {
	h.count, h.fast = [maxBits + 1]uint16{}, [1 << fastBits]uint16{}
	for _, l := range lens {
		h.count[l]++
	}
	h.count[0] = 0
	var next, place [maxBits + 2]int
	for l := 1; l <= maxBits; l++ {
		next[l+1] = (next[l] + int(h.count[l])) << 1
		place[l+1] = place[l] + int(h.count[l])
	}
	single := place[maxBits+1] == 1 && h.count[1] == 1
	if end := next[maxBits+1]; end != 1<<(maxBits+1) && place[maxBits+1] != 0 && !single {
		return false
	}
	for sym, l := range lens {
		if l == 0 {
			continue
		}
		h.syms[place[l]] = uint16(sym)
		h.enter(sym, next[l], uint(l))
		place[l]++
		next[l]++
	}
	return true
}

// enter puts a short code into the table, under every value of the bits behind it.
func (h *huffman) enter(sym, code int, bits uint) {
	if bits > fastBits {
		return
	}
	reversed := 0
	for i := range bits {
		reversed |= code >> i & 1 << (bits - 1 - i)
	}
	for ; reversed < len(h.fast); reversed += 1 << bits {
		h.fast[reversed] = uint16(sym<<4) | uint16(bits)
	}
}

// decode finds the symbol at the n bits of acc. No bits used means that n are not enough, a symbol of -1 that there
// is none.
func (h *huffman) decode(acc uint64, n uint) (sym int, bits uint) {
	if e := h.fast[acc&(1<<fastBits-1)]; e != 0 {
		if bits = uint(e & 15); bits > n {
			return 0, 0
		}
		return int(e >> 4), bits
	}
	code, first, place := 0, 0, 0
	for l := uint(1); l <= maxBits; l++ {
		if l > n {
			return 0, 0
		}
		code |= int(acc & 1)
		acc >>= 1
		count := int(h.count[l])
		if code-first < count {
			return int(h.syms[place+code-first]), l
		}
		place += count
		first = (first + count) << 1
		code <<= 1
	}
	return -1, 0
}
