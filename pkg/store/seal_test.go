package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func sealer(t testing.TB, keys ...string) *Sealer {
	t.Helper()
	var all [][]byte
	for _, key := range keys {
		all = append(all, bytes.Repeat([]byte(key), sealKeySize))
	}
	s, err := NewSealer(all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewSealerRefuses(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"no key":            nil,
		"a key of AES-128":  {make([]byte, 16)},
		"a short key later": {make([]byte, 32), make([]byte, 31)},
	} {
		if s, err := NewSealer(keys); err == nil {
			t.Errorf("%s: NewSealer() = %v, want an error", name, s)
		}
	}
}

func TestASealersKeysAreNotPrinted(t *testing.T) {
	s := sealer(t, "s")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb, s); got != "sealer of 1 keys" {
			t.Errorf("Sprintf(%s) = %q, want no key", verb, got)
		}
	}
}

// reopened runs f on the bucket b in dir with another sealer.
func reopened(t *testing.T, dir string, seal *Sealer, f func(*Bucket)) {
	t.Helper()
	s := openStore(t, Options{Dir: dir})
	f(s.Bucket(BucketOptions{Name: "b", Seal: seal}))
	closeStore(t, s)
}

func put(t testing.TB, b *Bucket, key, value string) {
	t.Helper()
	if _, err := b.Put(bounded(t), key, []byte(value), 0); err != nil {
		t.Fatalf("Put(%q) = %v, want nil", key, err)
	}
}

func wantValue(t testing.TB, b *Bucket, key, want string) {
	t.Helper()
	if e, err := b.Get(bounded(t), key); err != nil || string(e.Value) != want {
		t.Errorf("Get(%q) = %q, %v, want %q", key, e.Value, err, want)
	}
}

func wantSealed(t testing.TB, b *Bucket, key string) {
	t.Helper()
	if e, err := b.Get(bounded(t), key); !errors.Is(err, ErrSealed) || e.Value != nil {
		t.Errorf("Get(%q) = %q, %v, want ErrSealed", key, e.Value, err)
	}
}

func TestSealedValuesAreReadWithEveryKeyOfARotationAndNoOther(t *testing.T) {
	dir := t.TempDir()
	reopened(t, dir, nil, func(b *Bucket) { put(t, b, "plain", "secret 0") })
	reopened(t, dir, sealer(t, "1"), func(b *Bucket) { put(t, b, "first", "secret 1"); put(t, b, "empty", "") })
	reopened(t, dir, sealer(t, "2", "1"), func(b *Bucket) {
		put(t, b, "second", "secret 2")
		wantValue(t, b, "first", "secret 1")
		wantValue(t, b, "empty", "")
	})
	reopened(t, dir, sealer(t, "2"), func(b *Bucket) {
		wantValue(t, b, "second", "secret 2")
		wantSealed(t, b, "first")
		wantSealed(t, b, "empty")
		wantSealed(t, b, "plain")
		if _, err := b.Create(bounded(t), "first", nil, 0); !errors.Is(err, ErrExists) {
			t.Errorf("Create() of a key whose value no key opens = %v, want ErrExists", err)
		}
		w := watchAll(t, b)
		w.want(t, "second=secret 2")
		put(t, b, "plain", "secret 3")
		w.want(t, "plain=secret 3")
	})
	reopened(t, dir, nil, func(b *Bucket) {
		wantSealed(t, b, "second")
		if keys, err := b.Keys(bounded(t)); err != nil || strings.Join(keys, " ") != "empty first plain second" {
			t.Errorf("Keys() = %q, %v, want all", keys, err)
		}
	})
	wantNowhere(t, dir, "secret 1", "secret 2", "secret 3")
}

// wantNowhere looks for texts in all files of a folder.
func wantNowhere(t testing.TB, dir string, texts ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%s has %q in it, want it sealed", path, text)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("reading %d files: %v", files, err)
	}
}

func TestASealedValueThatWasMovedOrChangedIsNotRead(t *testing.T) {
	s := openEmbedded(t)
	key := sealer(t, "k")
	a, b := s.Bucket(BucketOptions{Name: "a", Seal: key}), s.Bucket(BucketOptions{Name: "b", Seal: key})
	put(t, a, "k", "secret")
	put(t, b, "k", "other")
	h := a.handle.Load()
	m, err := a.last(bounded(t), h, "k")
	if err != nil {
		t.Fatal(err)
	}
	forge := func(to *Bucket, key string, change func(*nats.Msg)) {
		t.Helper()
		forged := nats.NewMsg(to.subject(key))
		forged.Header.Set(sealedHeader, sealedWith)
		forged.Data = bytes.Clone(m.Data)
		change(forged)
		if _, err := h.publish(bounded(t), forged); err != nil {
			t.Fatal(err)
		}
		wantSealed(t, to, key)
	}
	forge(a, "k2", func(*nats.Msg) {})
	forge(b, "k", func(*nats.Msg) {})
	forge(a, "k", func(m *nats.Msg) { m.Data[0] ^= 1 })
	forge(a, "k", func(m *nats.Msg) { m.Data = m.Data[:len(m.Data)-1] })
	forge(a, "k", func(m *nats.Msg) { m.Data = nil })
	forge(a, "k", func(m *nats.Msg) { m.Header.Set("Nats-Msg-Id", "x") })
	forge(a, "k", func(m *nats.Msg) { m.Header = nats.Header{} })
}

func TestAWatchTakesAValueThatNoLongerOpensForDeleted(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "b", Seal: sealer(t, "k")})
	put(t, b, "k", "secret")
	w := watchAll(t, b)
	w.want(t, "k=secret")
	if _, err := b.handle.Load().publish(bounded(t), nats.NewMsg(b.subject("k"))); err != nil {
		t.Fatal(err)
	}
	w.want(t, "-k")
}

func TestALeaseInASealedBucket(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "leases", Seal: sealer(t, "k")})
	l, err := b.Lease(bounded(t), "k", "holder", 60e9)
	if err != nil {
		t.Fatal(err)
	}
	if l.rev--; l.Renew(bounded(t)) != nil {
		t.Error("Renew() after an answer that was lost fails, want nil")
	}
}

func TestSealedItems(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir})
	q := s.Queue(QueueOptions{Name: "q", Seal: sealer(t, "1"), Lease: 1e9})
	push(t, q, "chat", "secret 1")
	if i := pull(t, q, "chat"); string(i.Data) != "secret 1" {
		t.Errorf("Pull() = %q, want secret 1", i.Data)
	}
	closeStore(t, s)
	pulled := func(seal *Sealer) (*Item, error) {
		s := openStore(t, Options{Dir: dir})
		defer closeStore(t, s)
		return s.Queue(QueueOptions{Name: "q", Seal: seal, Lease: 1e9}).Pull(bounded(t), "chat")
	}
	for name, seal := range map[string]*Sealer{"without a key": nil, "with another key": sealer(t, "2")} {
		if i, err := pulled(seal); !errors.Is(err, ErrSealed) || i != nil {
			t.Errorf("Pull() %s = %+v, %v, want ErrSealed", name, i, err)
		}
	}
	if i, err := pulled(sealer(t, "2", "1")); err != nil || string(i.Data) != "secret 1" || i.Deliveries != 4 {
		t.Errorf("Pull() with the key again = %+v, %v, want secret 1 for the fourth time", i, err)
	}
}

func TestASealedItemThatWasMovedIsNotRead(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q", Seal: sealer(t, "k")})
	push(t, q, "chat", "secret")
	h := q.handle.Load()
	m, err := h.stream.GetMsg(bounded(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	moved := nats.NewMsg(q.subject("mail"))
	moved.Header, moved.Data = m.Header, m.Data
	moved.Header.Del("Nats-Msg-Id")
	if _, err := h.publish(bounded(t), moved); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	if i, err := q.Pull(ctx, "mail"); !errors.Is(err, ErrSealed) {
		t.Errorf("Pull() of an item of another topic = %+v, %v, want ErrSealed", i, err)
	}
}
