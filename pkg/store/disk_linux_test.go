package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a disk of 16 MiB for the test.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("mounting a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("Unmount(%s) = %v, want nil", dir, err)
		}
	})
	return dir
}

// fill writes files until the disk is full, and returns what frees it again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk ended with %v, want ENOSPC", err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}
}

func TestADiskThatIsFullIsToldAndHealsWhenItHasRoom(t *testing.T) {
	dir := smallDisk(t)
	s := openStore(t, Options{Dir: dir})
	b := s.Bucket(BucketOptions{Name: "b"})
	var kept []string
	put := func() error {
		key := fmt.Sprint(len(kept))
		_, err := b.Put(bounded(t), key, bytes.Repeat([]byte(key), 2000), 0)
		if err == nil {
			kept = append(kept, key)
		}
		return err
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	free := fill(t, dir)
	var err error
	for err == nil {
		err = put()
	}
	if !errors.Is(err, ErrDown) {
		t.Errorf("Put() on a full disk = %v, want ErrDown", err)
	}
	eventually(t, "the reason", s.wantFault("no space left on device"))
	free()
	awaitReady(t, s)
	if err := put(); err != nil {
		t.Errorf("Put() with room again = %v, want nil", err)
	}
	for _, key := range kept {
		if e, err := b.Get(bounded(t), key); err != nil || !bytes.Equal(e.Value, bytes.Repeat([]byte(key), 2000)) {
			t.Errorf("Get(%s) = %d bytes, %v, want what was acknowledged", key, len(e.Value), err)
		}
	}
}

// A stream that had no write while the disk was full is well, and hides that the others' server refuses for good.
func TestOneBucketOfAFullDiskHealsBesideOneThatNeverSuffered(t *testing.T) {
	dir := smallDisk(t)
	s := openStore(t, Options{Dir: dir})
	busy, quiet := s.Bucket(BucketOptions{Name: "busy"}), s.Bucket(BucketOptions{Name: "quiet"})
	put := func(b *Bucket, size int) error {
		_, err := b.Put(bounded(t), "k", make([]byte, size), 0)
		return err
	}
	if err := errors.Join(put(busy, 1), put(quiet, 1)); err != nil {
		t.Fatal(err)
	}
	free := fill(t, dir)
	if err := put(busy, 100<<10); !errors.Is(err, ErrDown) {
		t.Errorf("Put() on a full disk = %v, want ErrDown", err)
	}
	if err := put(quiet, 1); err != nil { // into what was laid out before
		t.Skipf("the other bucket has no room of its own: %v", err)
	}
	free()
	eventually(t, "both buckets", func() error { return errors.Join(put(busy, 100<<10), put(quiet, 1)) })
}

func TestTheStoresOwnShareOfADiskEndsWithErrFull(t *testing.T) {
	s := openStore(t, Options{Dir: smallDisk(t)})
	b := s.Bucket(BucketOptions{Name: "b"})
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = b.Put(bounded(t), fmt.Sprint(n), make([]byte, 1<<20), 0)
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("Put() number %d = %v, want ErrFull", n, err)
	}
	if _, err := b.Get(bounded(t), "0"); err != nil {
		t.Errorf("Get() in a full store = %v, want nil", err)
	}
	s.doubt()
	if _, err := b.look(bounded(t), s.state.Load().ses, true); err != nil {
		t.Errorf("a full store that answers is called unavailable: %v", err)
	}
	w := watchAll(t, b)
	w.untilAll(t, "0="+string(make([]byte, 1<<20)))
	if err := b.Delete(bounded(t), "0", 0); err != nil {
		t.Errorf("Delete() in a full store = %v, want nil", err)
	}
	w.untilAll(t, "-0")
	if _, err := b.Put(bounded(t), "0", nil, 0); err != nil {
		t.Errorf("Put() after it = %v, want nil", err)
	}
}

func TestAFullDiskRefusesItemsAndKeepsThoseAccepted(t *testing.T) {
	dir := smallDisk(t)
	s := openStore(t, Options{Dir: dir})
	q := s.Queue(QueueOptions{Name: "q"})
	accepted := ledger{}
	try := func() error {
		id := fmt.Sprint(len(accepted["pushed"]))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := q.Push(ctx, "chat", id, []byte(id))
		if err == nil {
			accepted["pushed"] = append(accepted["pushed"], id)
		}
		return err
	}
	for range 20 {
		if err := try(); err != nil {
			t.Fatal(err)
		}
	}
	free := fill(t, dir)
	eventually(t, "a push refused with the reason", func() error {
		if err := try(); !errors.Is(err, ErrFull) {
			return fmt.Errorf("Push() = %v", err)
		}
		return nil
	})
	if err := s.Ready(); !errors.Is(err, ErrFull) || !errors.Is(err, ErrDown) {
		t.Errorf("Ready() with a full disk = %v, want ErrDown and ErrFull", err)
	}
	free()
	awaitReady(t, s)
	if err := try(); err != nil {
		t.Errorf("Push() with room again = %v, want nil", err)
	}
	accepted.check(t, q, "chat")
}

func TestTheStoresOwnShareOfADiskRefusesItemsWithErrFull(t *testing.T) {
	s := openStore(t, Options{Dir: smallDisk(t)})
	q := s.Queue(QueueOptions{Name: "q"})
	var err error
	n := 0
	for ; err == nil; n++ {
		err = q.Push(bounded(t), "chat", fmt.Sprint(n), make([]byte, 1<<20))
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("Push() number %d = %v, want ErrFull", n, err)
	}
	wantStats(t, q, "chat", uint64(n-1), 0)
	for range n - 1 {
		done(t, pull(t, q, "chat"))
	}
	eventually(t, "room", func() error { return q.Push(bounded(t), "chat", "again", make([]byte, 1<<20)) })
}

func TestAFullDiskIsRefusedAtOpen(t *testing.T) {
	dir := smallDisk(t)
	defer fill(t, dir)()
	s, err := Open(bounded(t), Options{Dir: dir})
	if err == nil {
		closeStore(t, s)
	}
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("Open() on a full disk = %v, want no space left on device", err)
	}
}

func TestASmallDiskTakesBoundsThatAreLargerThanItIs(t *testing.T) {
	dir := smallDisk(t)
	open := func(bytes int64) (*Store, []*Bucket) {
		s := openStore(t, Options{Dir: dir})
		var bs []*Bucket
		for _, name := range []string{"a", "b", "c", "d"} {
			bs = append(bs, s.Bucket(BucketOptions{Name: name, MaxBytes: bytes, Keep: true}))
		}
		return s, bs
	}
	s, buckets := open(4 << 30)
	for _, b := range buckets {
		if _, err := b.Put(bounded(t), "k", make([]byte, 100<<10), 0); err != nil {
			t.Errorf("Put() in %s = %v, want nil", b.name, err)
		}
	}
	closeStore(t, s)
	_, buckets = open(4 << 30)
	for _, b := range buckets {
		if e, err := b.Get(bounded(t), "k"); err != nil || len(e.Value) != 100<<10 {
			t.Errorf("Get() in %s after a restart = %d bytes, %v, want what was put", b.name, len(e.Value), err)
		}
	}
}
