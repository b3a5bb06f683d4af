package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestKeysComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(rapid.StringN(1, 40, 300), rapid.StringMatching(`[a-z=./:* >-]{1,20}`)).Draw(t, "key")
		token, err := encodeKey(key)
		if err != nil {
			t.Fatalf("encodeKey(%q) = %v", key, err)
		}
		if strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/_=") != "" {
			t.Fatalf("encodeKey(%q) = %q, which is no NATS key of one token", key, token)
		}
		if back, ok := decodeKey(token); !ok || back != key {
			t.Fatalf("decodeKey(%q) = %q, %v, want %q", token, back, ok, key)
		}
	})
}

func FuzzTokensAreTakenApartInOneWayOnly(f *testing.F) {
	for _, token := range []string{"", "=", "a=", "=2", "=2E", "=2e", "=41", "a/b", "a.b", "=+1", "=3A=3A"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		key, ok := decodeKey(token)
		if !ok {
			return
		}
		if again, err := encodeKey(key); len(token) <= keyMost && (err != nil || again != token) {
			t.Errorf("decodeKey(%q) = %q, whose token is %q, %v", token, key, again, err)
		}
	})
}

func TestBucket(t *testing.T) {
	testBucket(t, openEmbedded(t))
}

// testBucket is what every store must do, whatever it runs on.
func testBucket(t *testing.T, s *Store) {
	ctx := bounded(t)
	b := s.Bucket(BucketOptions{Name: "all"})
	const key = "anthropic/claude-sonnet-5:v1"
	wantErr := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s = %v, want %v", what, err, want)
		}
	}
	_, err := b.Get(ctx, key)
	wantErr("Get of a key never written", err, ErrNotFound)
	one, err := b.Create(ctx, key, []byte("one"), 0)
	wantErr("Create", err, nil)
	_, err = b.Create(ctx, key, []byte("other"), 0)
	wantErr("Create of a key that exists", err, ErrExists)
	two, err := b.Update(ctx, key, []byte("two"), one, 0)
	wantErr("Update at the current revision", err, nil)
	_, err = b.Update(ctx, key, []byte("three"), one, 0)
	wantErr("Update at an old revision", err, ErrConflict)
	wantErr("Delete at an old revision", b.Delete(ctx, key, one), ErrConflict)
	if e, err := b.Get(ctx, key); err != nil || !reflect.DeepEqual(e, Entry{Key: key, Value: []byte("two"), Revision: two}) {
		t.Errorf("Get() = %+v, %v, want two at %d", e, err, two)
	}
	_, err = b.Put(ctx, "other. *>", nil, 0)
	wantErr("Put", err, nil)
	if keys, err := b.Keys(ctx); err != nil || !reflect.DeepEqual(keys, []string{key, "other. *>"}) {
		t.Errorf("Keys() = %q, %v, want both", keys, err)
	}
	wantErr("Delete at the current revision", b.Delete(ctx, key, two), nil)
	_, err = b.Get(ctx, key)
	wantErr("Get of a deleted key", err, ErrNotFound)
	wantErr("Delete of a deleted key", b.Delete(ctx, key, 0), nil)
	_, err = b.Create(ctx, key, []byte("again"), 0)
	wantErr("Create of a deleted key", err, nil)
	_, err = b.Create(ctx, key, nil, 0)
	wantErr("Create of a key made again", err, ErrExists)
	_, err = b.Put(ctx, "", nil, 0)
	wantErr("Put of an empty key", err, ErrTooLarge)
	_, err = b.Put(ctx, strings.Repeat(":", keyMost/3+1), nil, 0)
	wantErr("Put of an absurdly long key", err, ErrTooLarge)
	_, err = b.Get(ctx, strings.Repeat("x", keyMost))
	wantErr("Get of a key of the greatest length", err, ErrNotFound)
	_, err = b.Put(ctx, "large", make([]byte, embeddedPayload+1), 0)
	wantErr("Put of a value that is too large", err, ErrTooLarge)
	wantErr("Ready", s.Ready(), nil)
}

func TestAnEmptyBucketHasNoKeys(t *testing.T) {
	if keys, err := openEmbedded(t).Bucket(BucketOptions{Name: "empty"}).Keys(bounded(t)); err != nil || len(keys) > 0 {
		t.Errorf("Keys() = %q, %v, want none", keys, err)
	}
}

func TestOneNameIsOneBucket(t *testing.T) {
	s := openEmbedded(t)
	one, two := s.Bucket(BucketOptions{Name: "b"}), s.Bucket(BucketOptions{Name: "b"})
	if one != two {
		t.Error("Bucket() twice gave two buckets, want one")
	}
}

func TestABucketThatCannotBeMadeSpoilsNoOther(t *testing.T) {
	n := newNode(t, freeAddress(t))
	n.start(t)
	defer n.stop()
	s := openStore(t, Options{URLs: []string{n.url()}})
	bad := s.Bucket(BucketOptions{Name: "huge", MaxBytes: 1 << 60})
	eventually(t, "the bad bucket's fault, before there is a good one", s.wantFault("bucket huge"))
	good := s.Bucket(BucketOptions{Name: "good"})
	if _, err := bad.Put(bounded(t), "k", nil, 0); err == nil {
		t.Error("Put() in a bucket larger than the server's disk = nil, want an error")
	}
	eventually(t, "the bad bucket's fault", s.wantFault("bucket huge"))
	if _, err := good.Put(bounded(t), "k", nil, 0); err != nil {
		t.Errorf("Put() in another bucket = %v, want nil", err)
	}
	if got := s.Stats().Losses; got != 0 {
		t.Errorf("Stats().Losses = %d, want 0", got)
	}
}

// wantFault is nil when Ready tells what it contains.
func (s *Store) wantFault(text string) func() error {
	return func() error {
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("Ready() = %v, want an error with %q", err, text)
		}
		return nil
	}
}

func TestAFullBucketDropsItsOldestValues(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "cache", MaxBytes: 64 << 10})
	for n := range 20 {
		if _, err := b.Put(bounded(t), fmt.Sprint(n), make([]byte, 10<<10), 0); err != nil {
			t.Fatalf("Put(%d) = %v, want nil", n, err)
		}
	}
	if _, err := b.Get(bounded(t), "0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get() of the oldest = %v, want ErrNotFound", err)
	}
	if _, err := b.Get(bounded(t), "19"); err != nil {
		t.Errorf("Get() of the newest = %v, want nil", err)
	}
}

func TestAFullBucketThatKeepsRefusesAndDeletesAllTheSame(t *testing.T) {
	testKeep(t, openEmbedded(t))
}

func testKeep(t *testing.T, s *Store) {
	b := s.Bucket(BucketOptions{Name: "kept", MaxBytes: 64 << 10, Keep: true})
	ctx := bounded(t)
	tiny, err := b.Put(ctx, "tiny", nil, 0) // Smaller than the marker of its deletion.
	eventually(t, "the bucket", func() error { tiny, err = b.Put(ctx, "tiny", nil, 0); return err })
	other, err := b.Put(ctx, "other", nil, 0)
	n := 0
	for size := 10 << 10; size > 0 && err == nil; n++ {
		if _, err = b.Put(ctx, fmt.Sprint(n), make([]byte, size), 0); errors.Is(err, ErrFull) && size > 1 {
			size, err = size/2, nil // until not a byte fits
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("Put() in a full bucket = %v, want ErrFull", err)
	}
	wantValue(t, b, "0", string(make([]byte, 10<<10)))
	if err := b.Delete(ctx, "tiny", other); !errors.Is(err, ErrConflict) {
		t.Errorf("Delete() at another revision = %v, want ErrConflict", err)
	}
	if err := errors.Join(b.Delete(ctx, "tiny", tiny), b.Delete(ctx, "other", 0)); err != nil {
		t.Errorf("Delete() in a full bucket = %v, want nil", err)
	}
	for _, key := range []string{"tiny", "other"} {
		if _, err := b.Get(ctx, key); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get(%s) after it = %v, want ErrNotFound", key, err)
		}
	}
	if err := b.Delete(ctx, "0", 0); err != nil {
		t.Errorf("Delete() of the largest = %v, want nil", err)
	}
	put(t, b, "new", "v")
	wantValue(t, b, "1", string(make([]byte, 10<<10)))
}

func TestABucketTakesNewOptionsWhenItIsOpenedAgain(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir})
	if _, err := s.Bucket(BucketOptions{Name: "b"}).Put(bounded(t), "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	b := openStore(t, Options{Dir: dir}).Bucket(BucketOptions{Name: "b", TTL: time.Second})
	if _, err := b.Put(bounded(t), "k2", nil, 0); err != nil {
		t.Fatalf("Put() = %v, want nil", err)
	}
	eventually(t, "the end of values under the new TTL", func() error {
		if keys, err := b.Keys(bounded(t)); err != nil || len(keys) > 0 {
			return fmt.Errorf("Keys() = %q, %v, want none", keys, err)
		}
		return nil
	})
}

func TestValuesExpire(t *testing.T) {
	s := openEmbedded(t)
	ctx := bounded(t)
	own := s.Bucket(BucketOptions{Name: "own"})
	w := watchAll(t, own)
	if _, err := own.Put(ctx, "kept", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Create(ctx, "short", []byte("1"), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w.want(t, "kept=1", "short=1", "-short")
	if _, err := own.Create(ctx, "short", []byte("2"), 0); err != nil {
		t.Errorf("Create() after expiry = %v, want nil", err)
	}
	w.want(t, "short=2")
	whole := s.Bucket(BucketOptions{Name: "whole", TTL: time.Second})
	w = watchAll(t, whole)
	if _, err := whole.Put(ctx, "k", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	w.want(t, "k=1", "-k")
}

func TestWatchTellsCurrentValuesFirstThenChangesInOrder(t *testing.T) {
	ctx := bounded(t)
	b := openEmbedded(t).Bucket(BucketOptions{Name: "w"})
	for _, key := range []string{"a", "b", "gone", "a"} {
		if _, err := b.Put(ctx, key, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Delete(ctx, "gone", 0); err != nil {
		t.Fatal(err)
	}
	w := watchAll(t, b)
	w.want(t, "b=1", "a=1")
	for n := range 500 {
		if _, err := b.Put(ctx, "n", fmt.Append(nil, n), 0); err != nil {
			t.Fatal(err)
		}
		w.want(t, fmt.Sprintf("n=%d", n))
	}
	if err := errors.Join(b.Delete(ctx, "a", 0), b.Delete(ctx, "a", 0), b.Delete(ctx, "never", 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(ctx, "end", nil, 0); err != nil {
		t.Fatal(err)
	}
	w.want(t, "-a", "end=")
}

func TestANodeThatLagsBehindDoesNotTakeAWatchBackInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	s := openEmbedded(t)
	b := s.Bucket(BucketOptions{Name: "w"})
	for n, key := range []string{"k", "gone", "n", "n", "n"} {
		if rev, err := b.Put(ctx, key, fmt.Append(nil, n+1), 0); err != nil || rev != uint64(n+1) {
			t.Fatalf("Put() = %d, %v, want %d", rev, err, n+1)
		}
	}
	info, err := b.handle.Load().stream.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	w := &watch{bucket: b, born: info.Created, high: 4, known: map[string]uint64{"k": 3}, f: func(e Entry) {
		told = append(told, fmt.Sprintf("%s=%s %v", e.Key, e.Value, e.Deleted))
		if e.Deleted {
			cancel()
		}
	}}
	w.session(ctx)
	if want := []string{"n=5 false", "k= true"}; !reflect.DeepEqual(told, want) {
		t.Errorf("Watch told %q after revision 4 with k at 3, want %q", told, want)
	}
}

func TestAKeyDeletedWhileAWatchCatchesUpIsTold(t *testing.T) {
	ctx := bounded(t)
	s := openEmbedded(t)
	b := s.Bucket(BucketOptions{Name: "w"})
	for _, key := range []string{"a", "b"} {
		if _, err := b.Put(ctx, key, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	w := &watch{bucket: b, known: map[string]uint64{}}
	w.f = func(e Entry) {
		told = append(told, fmt.Sprint(e.Key, e.Deleted))
		if e.Key == "a" && !e.Deleted {
			if err := b.Delete(ctx, "a", 0); err != nil {
				t.Error(err)
			}
		}
	}
	c, err := w.begin(ctx, s.state.Load().ses)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	c.barrier = 3
	if err := w.catchUp(ctx, c); err != nil {
		t.Fatal(err)
	}
	if want := []string{"afalse", "bfalse", "atrue"}; !reflect.DeepEqual(told, want) {
		t.Errorf("Watch told %q, want %q", told, want)
	}
}

func TestASlowWatchMissesNoKeysLastValue(t *testing.T) {
	ctx, cancel := context.WithCancel(bounded(t))
	b := openEmbedded(t).Bucket(BucketOptions{Name: "w"})
	release := make(chan struct{})
	last := map[string]string{}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		b.Watch(ctx, func(e Entry) {
			<-release
			last[e.Key] = string(e.Value[:1])
			if e.Key == "end" {
				cancel()
			}
		})
	})
	big := make([]byte, 1<<20)
	for n := range 60 {
		big[0] = 'a' + byte(n%26)
		if _, err := b.Put(t.Context(), fmt.Sprint(n%3), big, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Put(t.Context(), "end", []byte("."), 0); err != nil {
		t.Fatal(err)
	}
	close(release)
	wg.Wait()
	if want := map[string]string{"0": "f", "1": "g", "2": "h", "end": "."}; !reflect.DeepEqual(last, want) {
		t.Errorf("Watch last told %v, want %v", last, want)
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	b := openEmbedded(t).Bucket(BucketOptions{Name: "b"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() with a cancelled context = %v, want context.Canceled", err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := b.Put(late, "k", nil, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put() past its deadline = %v, want context.DeadlineExceeded", err)
	}
	if _, err := b.Put(bounded(t), "k", nil, 0); err != nil {
		t.Errorf("Put() after them = %v, want nil", err)
	}
}

func TestOfManyUpdatesAtOneRevisionOneWins(t *testing.T) {
	testCAS(t, openEmbedded(t))
}

func testCAS(t *testing.T, stores ...*Store) {
	ctx := bounded(t)
	const rounds, writers = 20, 4
	var wg sync.WaitGroup
	for w := range writers {
		b := stores[w%len(stores)].Bucket(BucketOptions{Name: "cas"})
		wg.Go(func() {
			for n := 0; n < rounds; {
				e, err := b.Get(ctx, "count")
				if errors.Is(err, ErrNotFound) {
					_, err = b.Create(ctx, "count", []byte("1"), 0)
				} else if err == nil {
					_, err = b.Update(ctx, "count", append(e.Value, '1'), e.Revision, 0)
				}
				switch {
				case err == nil:
					n++
				case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists):
					t.Errorf("a write = %v, want success or a conflict", err)
					return
				}
			}
		})
	}
	wg.Wait()
	e, err := stores[0].Bucket(BucketOptions{Name: "cas"}).Get(ctx, "count")
	if err != nil || len(e.Value) != rounds*writers {
		t.Errorf("%d writes are left, %v, want %d", len(e.Value), err, rounds*writers)
	}
}
