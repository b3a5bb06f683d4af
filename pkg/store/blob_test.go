package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// sample is a value that tells its seed, and so the whole of itself. Every other one can be compressed.
func sample(seed, size int) []byte {
	value := binary.LittleEndian.AppendUint64(nil, uint64(seed))
	if seed%2 == 0 {
		return append(value, bytes.Repeat([]byte(fmt.Sprintf("%d,", seed)), size)...)[:max(size, len(value))]
	}
	key := [32]byte{}
	binary.LittleEndian.PutUint64(key[:], uint64(seed))
	rest := make([]byte, max(size-len(value), 0))
	rand.NewChaCha8(key).Read(rest)
	return append(value, rest...)
}

// seedOf is the seed of a sample that is whole.
func seedOf(t testing.TB, value []byte) int {
	t.Helper()
	if len(value) < 8 {
		t.Fatalf("a blob of %d bytes, want a sample", len(value))
	}
	seed := int(binary.LittleEndian.Uint64(value))
	if !bytes.Equal(value, sample(seed, len(value))) {
		t.Errorf("a blob of %d bytes is not all of seed %d", len(value), seed)
	}
	return seed
}

func TestBlobs(t *testing.T) {
	s := openEmbedded(t)
	testBlobs(t, s, s)
}

// testBlobs is what every store must do, whatever it runs on.
func testBlobs(t *testing.T, one, two *Store) {
	o := BucketOptions{Name: "blobs", TTL: time.Hour, Seal: sealer(t, "k")}
	a, b := one.Bucket(o), two.Bucket(o)
	t.Run("of all sizes come back as they were", func(t *testing.T) { testBlobSizes(t, a, b) })
	t.Run("are old or new while they are replaced, never a mixture", func(t *testing.T) { testBlobRace(t, a, b) })
	t.Run("leave nothing behind", func(t *testing.T) { testNoChunksLeft(t, a) })
}

func testBlobSizes(t *testing.T, a, b *Bucket) {
	for n, size := range []int{8, packLeast - 1, packLeast, chunkMost, chunkMost + 1, 2 * chunkMost, 5*chunkMost + 7, blobMost} {
		for _, seed := range []int{2 * n, 2*n + 1} {
			want := sample(seed, size)
			if err := a.PutBlob(bounded(t), "key", want, 0); err != nil {
				t.Fatalf("PutBlob(%d bytes) = %v, want nil", size, err)
			}
			if got, err := b.GetBlob(bounded(t), "key"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("GetBlob() = %d bytes, %v, want the %d of seed %d", len(got), err, len(want), seed)
			}
		}
	}
	for range 2 {
		if err := b.DeleteBlob(bounded(t), "key"); err != nil {
			t.Errorf("DeleteBlob() = %v, want nil", err)
		}
	}
	if got, err := a.GetBlob(bounded(t), "key"); !errors.Is(err, ErrNotFound) {
		t.Errorf("GetBlob() of what was deleted = %d bytes, %v, want ErrNotFound", len(got), err)
	}
	if err := a.PutBlob(bounded(t), "empty", nil, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := b.GetBlob(bounded(t), "empty"); err != nil || len(got) > 0 {
		t.Errorf("GetBlob() = %q, %v, want nothing", got, err)
	}
	if err := a.PutBlob(bounded(t), "key", make([]byte, blobMost+1), 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("PutBlob() of more than the most = %v, want ErrTooLarge", err)
	}
}

// testBlobRace has writers replace and delete one blob while readers read it.
func testBlobRace(t *testing.T, a, b *Bucket) {
	const writes, writers = 12, 3
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range writes {
				seed := 100*w + n
				if err := a.PutBlob(ctx, "race", sample(seed, 8+rand.IntN(4*chunkMost)), time.Minute); err != nil {
					t.Errorf("PutBlob() = %v, want nil", err)
				}
				if n%5 == 4 {
					if err := b.DeleteBlob(ctx, "race"); err != nil {
						t.Errorf("DeleteBlob() = %v, want nil", err)
					}
				}
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			for ctx.Err() == nil {
				value, err := b.GetBlob(ctx, "race")
				switch {
				case err == nil:
					seedOf(t, value)
				case ctx.Err() == nil && !errors.Is(err, ErrNotFound):
					t.Errorf("GetBlob() = %v, want a blob or none", err)
				}
			}
		})
	}
	writing.Wait()
	cancel()
	reading.Wait()
	if value, err := a.GetBlob(bounded(t), "race"); err == nil {
		seedOf(t, value)
	} else if !errors.Is(err, ErrNotFound) {
		t.Errorf("GetBlob() after all = %v, want a blob or none", err)
	}
}

// chunks counts the messages of a bucket that are a blob's chunks.
func chunks(t testing.TB, b *Bucket) int {
	t.Helper()
	n := 0
	info, err := b.handle.Load().stream.Info(bounded(t), jetstream.WithSubjectFilter(b.subject(chunksToken+".>")))
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n
}

func testNoChunksLeft(t *testing.T, b *Bucket) {
	for _, key := range []string{"race", "key"} {
		if err := b.DeleteBlob(bounded(t), key); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the last chunk's end", func() error {
		if n := chunks(t, b); n > 0 {
			return fmt.Errorf("%d chunks", n)
		}
		return nil
	})
	keys, err := b.Keys(bounded(t))
	if got := strings.Join(keys, " "); err != nil || got != "empty" {
		t.Errorf("Keys() = %s, %v, want the one blob that is left", got, err)
	}
}

func TestBlobsOfAnyHistory(t *testing.T) {
	s := openEmbedded(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		b := s.Bucket(BucketOptions{Name: fmt.Sprint("b", n%4), TTL: time.Hour})
		now := map[string][]byte{}
		for _, key := range []string{"a", "b"} {
			if err := b.DeleteBlob(bounded(t), key); err != nil {
				rt.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
			if rapid.IntRange(0, 4).Draw(rt, "delete") == 0 {
				if err := b.DeleteBlob(bounded(t), key); err != nil {
					rt.Fatalf("DeleteBlob(%s) = %v", key, err)
				}
				delete(now, key)
			} else {
				value := sample(rapid.IntRange(0, 99).Draw(rt, "seed"), rapid.IntRange(8, 3*chunkMost).Draw(rt, "size"))
				if err := b.PutBlob(bounded(t), key, value, 0); err != nil {
					rt.Fatalf("PutBlob(%s, %d bytes) = %v", key, len(value), err)
				}
				now[key] = value
			}
			for _, key := range []string{"a", "b"} {
				got, err := b.GetBlob(bounded(t), key)
				if want, ok := now[key]; ok != (err == nil) || !bytes.Equal(got, want) || !ok && !errors.Is(err, ErrNotFound) {
					rt.Fatalf("GetBlob(%s) = %d bytes, %v, want %d bytes", key, len(got), err, len(want))
				}
			}
		}
	})
}

func TestABlobThatIsNotWholeIsNotFound(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "b", TTL: time.Hour})
	wantNone := func(what string) {
		t.Helper()
		if got, err := b.GetBlob(bounded(t), "k"); !errors.Is(err, ErrNotFound) || got != nil {
			t.Errorf("GetBlob() %s = %d bytes, %v, want ErrNotFound", what, len(got), err)
		}
	}
	wantNone("of what never was")
	put(t, b, "k", "a value")
	wantNone("of what is no blob")
	h := b.handle.Load()
	hd := head{Chunks: "NONCE", Size: 2 * chunkMost}
	if err := b.DeleteBlob(bounded(t), "k"); err != nil {
		t.Fatal(err)
	}
	if err := b.putChunks(bounded(t), h, hd, sample(1, hd.Size), time.Minute); err != nil {
		t.Fatal(err)
	}
	wantNone("whose writer died before its head")
	m, err := b.last(bounded(t), h, hd.chunk(1))
	if err != nil || m.Header.Get("Nats-TTL") != (time.Minute+blobBound).String() {
		t.Errorf("a chunk's lifetime is %q, %v, want that of its blob and what its write may take", m.Header.Get("Nats-TTL"), err)
	}
	put(t, b, "k", fmt.Sprintf(`{"chunks":"NONCE","size":%d}`+"\n", hd.Size))
	if got, err := b.GetBlob(bounded(t), "k"); err != nil || seedOf(t, got) != 1 {
		t.Errorf("GetBlob() of the whole = %v, want nil", err)
	}
	cut := nats.NewMsg(b.subject(hd.chunk(1)))
	cut.Data = make([]byte, chunkMost-1)
	if _, err := h.publish(bounded(t), cut); err != nil {
		t.Fatal(err)
	}
	wantNone("with a chunk cut short")
	if err := b.remove(bounded(t), h, hd.chunk(1), 0); err != nil {
		t.Fatal(err)
	}
	wantNone("with a chunk gone")
	put(t, b, "k", "{\"zstd\":true}\nnonsense")
	wantNone("that does not unpack")
	put(t, b, "k", "{\"zstd\":true}\n"+string(b.store.packer.EncodeAll(make([]byte, blobMost+1), nil)))
	wantNone("that is larger than a blob may be")
}

func FuzzParseHead(f *testing.F) {
	for _, value := range []string{
		"", "\n", "{}\n", "{}\nrest", `{"zstd":true}` + "\nrest", `{"chunks":"A","size":1}` + "\n", `{"size":1}` + "\n",
		`{"chunks":"*","size":1}` + "\n", `{"chunks":"a.>","size":1}` + "\n", `{"chunks":"A","size":-1}` + "\n", "null\n",
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		hd, rest, err := parseHead(value)
		if err != nil {
			return
		}
		if hd.Size < 0 || hd.Size > blobMost || strings.ContainsAny(hd.Chunks, ".*> \r\n") || len(rest) > len(value) {
			t.Errorf("parseHead(%q) = %+v, which leads astray", value, hd)
		}
	})
}

func TestABlobMustHaveAnEnd(t *testing.T) {
	s := openEmbedded(t)
	if err := s.Bucket(BucketOptions{Name: "b"}).PutBlob(bounded(t), "k", nil, 0); err == nil || errors.Is(err, ErrDown) {
		t.Errorf("PutBlob() without any ttl = %v, want an error that says so", err)
	}
}

func TestBlobsExpire(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "b"})
	if err := b.PutBlob(bounded(t), "k", sample(1, 2*chunkMost), time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the blob's end", func() error {
		if _, err := b.GetBlob(bounded(t), "k"); !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("GetBlob() = %v", err)
		}
		return nil
	})
}

func TestAFullBucketThatKeepsRefusesABlobWhole(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "b", TTL: time.Hour, MaxBytes: 4 << 20, Keep: true})
	old := sample(1, 3*chunkMost)
	if err := b.PutBlob(bounded(t), "k", old, 0); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "other"} {
		if err := b.PutBlob(bounded(t), key, sample(3, 7*chunkMost), 0); !errors.Is(err, ErrFull) {
			t.Errorf("PutBlob(%s) beyond the bound = %v, want ErrFull", key, err)
		}
	}
	if got, err := b.GetBlob(bounded(t), "k"); err != nil || !bytes.Equal(got, old) {
		t.Errorf("GetBlob() of what was there = %d bytes, %v, want it", len(got), err)
	}
	if n := chunks(t, b); n != 3 {
		t.Errorf("%d chunks are left, want those 3 of the blob that is there", n)
	}
}

func TestABucketThatDropsItsOldestHasNoTornBlobs(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "b", TTL: time.Hour, MaxBytes: 4 << 20})
	for n := range 12 {
		if err := b.PutBlob(bounded(t), fmt.Sprint(n), sample(2*n+1, 2*chunkMost), 0); err != nil {
			t.Fatal(err)
		}
		if got, err := b.GetBlob(bounded(t), fmt.Sprint(n)); err != nil || seedOf(t, got) != 2*n+1 {
			t.Errorf("GetBlob(%d) = %v, want what was just put", n, err)
		}
	}
	if _, err := b.GetBlob(bounded(t), "0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("GetBlob() of the oldest = %v, want ErrNotFound", err)
	}
}

func TestASealedBlobsChunksCannotBeExchanged(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir})
	b := s.Bucket(BucketOptions{Name: "b", TTL: time.Hour, Seal: sealer(t, "k")})
	secret := strings.Repeat("no two words of it are in any file ", 10)
	value := append(sample(1, 2*chunkMost), secret...)
	if err := b.PutBlob(bounded(t), "k", value, 0); err != nil {
		t.Fatal(err)
	}
	wantNowhere(t, dir, "no two words")
	hd, _, err := b.head(bounded(t), b.handle.Load(), "k")
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.last(bounded(t), b.handle.Load(), hd.chunk(0))
	if err != nil {
		t.Fatal(err)
	}
	exchanged := nats.NewMsg(b.subject(hd.chunk(1)))
	exchanged.Header, exchanged.Data = m.Header, m.Data
	if _, err := b.handle.Load().publish(bounded(t), exchanged); err != nil {
		t.Fatal(err)
	}
	if got, err := b.GetBlob(bounded(t), "k"); !errors.Is(err, ErrSealed) || got != nil {
		t.Errorf("GetBlob() with a chunk put in another's place = %d bytes, %v, want ErrSealed", len(got), err)
	}
}
