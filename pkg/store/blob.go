package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// blobMost is the largest blob.
	blobMost = 64 << 20
	// chunkMost is how much of a blob one message holds: half of what NATS takes by default.
	chunkMost = 512 << 10
	// blobBound ends a call for a blob whose context has no earlier deadline. Chunks live that much longer than their
	// head, which is written after them.
	blobBound = time.Minute
	// packLeast is the least size that is worth compressing.
	packLeast = 256
	// chunksToken is the first token of a chunk's subject, before its blob's nonce and its number. No key is like it.
	chunksToken = "="
)

var errNoBlob = fmt.Errorf("%w: the value was not written as a blob, or not whole", ErrNotFound)

// head is what stands under a blob's key as a line of JSON, before the value of a small blob.
type head struct {
	// Zstd says that the value is compressed.
	Zstd bool `json:"zstd,omitempty"`
	// Chunks is the nonce in the subjects of the chunks, Size their bytes together. A small blob has neither.
	Chunks string `json:"chunks,omitempty"`
	Size   int    `json:"size,omitempty"`
}

// packer compresses values. It has no goroutines, and both halves may be used by many at once.
type packer struct {
	*zstd.Encoder
	*zstd.Decoder
}

func newPacker() (packer, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return packer{}, err
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(blobMost), zstd.WithDecoderLowmem(true))
	return packer{e, d}, err
}

// pack returns value compressed if that saves an eighth of it.
func (p packer) pack(value []byte) (packed []byte, ok bool) {
	if len(value) < packLeast {
		return value, false
	}
	packed = p.EncodeAll(value, nil)
	if len(packed) > len(value)/8*7 {
		return value, false
	}
	return packed, true
}

// PutBlob sets the value under key, of at most 64 MiB; a reader sees it whole or not at all. For ttl see Put, but a blob
// must have an end, of its own or its bucket's: what a writer that died left behind goes with it. A key is written as a
// blob or as a value, not as both: the other's reads do not understand it.
func (b *Bucket) PutBlob(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	switch {
	case len(value) > blobMost:
		return fmt.Errorf("store: put blob %q in %s: %w: %d bytes, want at most %d", key, b.name, ErrTooLarge, len(value), blobMost)
	case ttl <= 0 && b.opt.TTL <= 0:
		return fmt.Errorf("store: put blob %q in %s: it has no end: give it or its bucket a ttl", key, b.name)
	}
	return b.doFor(ctx, blobBound, "put blob", key, func(ctx context.Context, h *handle, token string) error {
		return b.putBlob(ctx, h, token, value, ttl)
	})
}

func (b *Bucket) putBlob(ctx context.Context, h *handle, token string, value []byte, ttl time.Duration) error {
	var hd head
	value, hd.Zstd = b.store.packer.pack(value)
	if len(value) > chunkMost {
		hd.Chunks, hd.Size = rand.Text(), len(value)
		if err := b.putChunks(ctx, h, hd, value, ttl); err != nil {
			return err
		}
		value = nil
	}
	line, err := json.Marshal(hd)
	if err != nil {
		return err
	}
	old, err := b.putHead(ctx, h, token, append(append(line, '\n'), value...), lifetime(ttl))
	switch {
	case err == nil:
		b.dropChunks(ctx, h, old)
	case isFull(err): // After any other failure the head may be there: its chunks stay.
		b.dropChunks(ctx, h, hd)
	}
	return err
}

// putChunks writes a blob's chunks. Those of a write that was refused go at once, as they may be what fills the bucket;
// those of one that failed otherwise, at their end.
func (b *Bucket) putChunks(ctx context.Context, h *handle, hd head, value []byte, ttl time.Duration) error {
	if ttl > 0 {
		ttl += blobBound
	}
	for n := 0; len(value) > 0; n++ {
		size := min(len(value), chunkMost)
		if _, err := b.publish(ctx, h, hd.chunk(n), value[:size], lifetime(ttl)); err != nil {
			if isFull(err) {
				b.dropChunks(ctx, h, hd)
			}
			return err
		}
		value = value[size:]
	}
	return nil
}

func (hd head) chunk(n int) string { return chunksToken + "." + hd.Chunks + "." + strconv.Itoa(n) }

// putHead sets a key's value and returns the head that was there: of several writers at once each replaces another's.
func (b *Bucket) putHead(ctx context.Context, h *handle, token string, value []byte, o []jetstream.PublishOpt) (old head, err error) {
	for {
		old, rev, err := b.head(ctx, h, token)
		if err != nil {
			return head{}, err
		}
		expect := jetstream.WithExpectLastSequencePerSubject(rev)
		if _, err = b.publish(ctx, h, token, value, append(o[:len(o):len(o)], expect)); !wrongRevision(err) {
			return old, err
		}
	}
}

// head returns the head under a token, for what it says of chunks, and its revision. What is no head has no chunks; nor
// has one that does not open, whose chunks go at their end.
func (b *Bucket) head(ctx context.Context, h *handle, token string) (hd head, rev uint64, err error) {
	m, err := b.last(ctx, h, token)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return head{}, 0, nil
	}
	if err != nil {
		return head{}, 0, err
	}
	if value, err := b.seal.open(b.subject(token), m.Header, m.Data); err == nil {
		hd, _, _ = parseHead(value)
	}
	return hd, m.Sequence, nil
}

// parseHead returns a head and what follows it.
func parseHead(value []byte) (hd head, rest []byte, err error) {
	line, rest, ok := bytes.Cut(value, []byte("\n"))
	if !ok || json.Unmarshal(line, &hd) != nil {
		return head{}, nil, errNoBlob
	}
	if hd.Size < 0 || hd.Size > blobMost || (hd.Size > 0) != (hd.Chunks != "") {
		return head{}, nil, errNoBlob
	}
	if _, ok := decodeKey(hd.Chunks); hd.Chunks != "" && !ok {
		return head{}, nil, errNoBlob
	}
	return hd, rest, nil
}

// dropChunks removes the chunks of a head that nothing leads to any more. If it fails they go at their end.
func (b *Bucket) dropChunks(ctx context.Context, h *handle, hd head) {
	if hd.Chunks == "" {
		return
	}
	subject := b.subject(chunksToken + "." + hd.Chunks + ".*")
	if err := h.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
		b.store.suspect()
	}
}

// GetBlob returns the value that PutBlob set under key, or ErrNotFound.
func (b *Bucket) GetBlob(ctx context.Context, key string) (value []byte, err error) {
	err = b.doFor(ctx, blobBound, "get blob", key, func(ctx context.Context, h *handle, token string) error {
		value, err = b.getBlob(ctx, h, token)
		return err
	})
	return value, err
}

// getBlob reads the head and then the chunks. When some are missing, the blob may have been replaced in between: then
// the new one is read.
func (b *Bucket) getBlob(ctx context.Context, h *handle, token string) ([]byte, error) {
	for was := uint64(0); ; {
		m, err := b.value(ctx, h, token)
		if err != nil {
			return nil, err
		}
		hd, value, err := parseHead(m.Data)
		if err != nil {
			return nil, err
		}
		if hd.Chunks != "" {
			value, err = b.getChunks(ctx, h, hd)
		}
		switch {
		case err == nil:
			return b.unpack(hd, value)
		case !errors.Is(err, errNoBlob) || m.Sequence == was:
			return nil, err
		}
		was = m.Sequence
	}
}

func (b *Bucket) unpack(hd head, value []byte) ([]byte, error) {
	if !hd.Zstd {
		return value, nil
	}
	value, err := b.store.packer.DecodeAll(value, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBlob, err)
	}
	return value, nil
}

// getChunks reads a blob's chunks, or errNoBlob when they are not all there.
func (b *Bucket) getChunks(ctx context.Context, h *handle, hd head) ([]byte, error) {
	value := make([]byte, 0, hd.Size)
	for n := 0; len(value) < hd.Size; n++ {
		m, err := b.value(ctx, h, hd.chunk(n))
		if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, ErrNotFound) {
			return nil, errNoBlob
		}
		if err != nil {
			return nil, err
		}
		if len(m.Data) != min(chunkMost, hd.Size-len(value)) {
			return nil, errNoBlob
		}
		value = append(value, m.Data...)
	}
	return value, nil
}

// DeleteBlob removes the blob under key, if there is one; also in a store that is full.
func (b *Bucket) DeleteBlob(ctx context.Context, key string) error {
	return b.doFor(ctx, blobBound, "delete blob", key, func(ctx context.Context, h *handle, token string) error {
		for {
			hd, rev, err := b.head(ctx, h, token)
			if err != nil || rev == 0 {
				return err
			}
			err = b.remove(ctx, h, token, rev)
			if err == nil {
				b.dropChunks(ctx, h, hd)
			}
			if !wrongRevision(err) && !errors.Is(err, ErrConflict) {
				return err
			}
		}
	})
}
