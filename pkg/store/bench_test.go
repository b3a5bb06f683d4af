package store

import (
	"fmt"
	"testing"
	"time"
)

// The figures that documents quote come from here: go test -run '^$' -bench . ./pkg/store

func BenchmarkEmbedded(b *testing.B) {
	s := openEmbedded(b)
	benchmark(b, s, s)
}

func BenchmarkThreeNodes(b *testing.B) {
	fleet := openFleet(b, urls(startCluster(b)))
	benchmark(b, fleet[0], fleet[1])
}

// benchmark writes on one connection and, for propagation, waits on another.
func benchmark(b *testing.B, writer, reader *Store) {
	value := make([]byte, 256)
	from, to := writer.Bucket(BucketOptions{Name: "bench"}), reader.Bucket(BucketOptions{Name: "bench"})
	eventually(b, "the bucket", func() error { _, err := from.Put(bounded(b), "k", value, 0); return err })
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			if _, err := to.Get(b.Context(), "k"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Put", func(b *testing.B) {
		for b.Loop() {
			if _, err := from.Put(b.Context(), "k", value, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("PutToWatch", func(b *testing.B) {
		w := watchAll(b, to)
		w.untilAll(b, "k="+string(value))
		n := 0
		for b.Loop() {
			n++
			if _, err := from.Put(b.Context(), "w", fmt.Append(nil, n), 0); err != nil {
				b.Fatal(err)
			}
			w.want(b, fmt.Sprintf("w=%d", n))
		}
	})
	b.Run("News", func(b *testing.B) {
		heard := make(chan string, newsBuffered)
		defer reader.Subscribe("bench", func(data []byte) { heard <- string(data) })()
		passes := func(text string) {
			writer.Publish("bench", []byte(text))
			for <-heard != text {
			}
		}
		eventually(b, "the first news", func() error {
			writer.Publish("bench", nil)
			select {
			case <-heard:
				return nil
			default:
				return fmt.Errorf("silence")
			}
		})
		n := 0
		for b.Loop() {
			n++
			passes(fmt.Sprint(n))
		}
	})
}

func BenchmarkEmbeddedQueue(b *testing.B) {
	benchmarkQueue(b, openEmbedded(b))
}

func BenchmarkThreeNodesQueue(b *testing.B) {
	benchmarkQueue(b, openFleet(b, urls(startCluster(b)))[0])
}

// benchmarkQueue pushes and settles items of 4 KiB, and puts and gets blobs, sealed ones too.
func benchmarkQueue(b *testing.B, s *Store) {
	data := sample(1, 4<<10)
	q := s.Queue(QueueOptions{Name: "bench"})
	push(b, q, "chat", "first")
	done(b, pull(b, q, "chat"))
	b.Run("Push", func(b *testing.B) {
		for b.Loop() {
			if err := q.Push(b.Context(), "push", "", data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Push16", func(b *testing.B) {
		b.SetParallelism(8) // times two processors
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := q.Push(b.Context(), "push", "", data); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("PullDone", func(b *testing.B) {
		for n := range b.N {
			push(b, q, "chat", fmt.Sprint(b.N, n))
		}
		b.ResetTimer()
		for range b.N {
			i, err := q.Pull(b.Context(), "chat")
			if err == nil {
				err = i.Done(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	plain := s.Bucket(BucketOptions{Name: "plain", TTL: time.Hour})
	sealed := s.Bucket(BucketOptions{Name: "sealed", TTL: time.Hour, Seal: sealer(b, "k")})
	benchmarkBlobs(b, "Blob", plain)
	benchmarkBlobs(b, "SealedBlob", sealed)
}

// benchmarkBlobs takes bytes that do not compress: the dearest case.
func benchmarkBlobs(b *testing.B, name string, bucket *Bucket) {
	eventually(b, "the bucket", func() error { return bucket.PutBlob(bounded(b), "k", nil, 0) })
	for _, size := range []int{4 << 10, 1 << 20} {
		value := sample(1, size)
		b.Run(fmt.Sprintf("Put%s/%dKiB", name, size>>10), func(b *testing.B) {
			for b.Loop() {
				if err := bucket.PutBlob(b.Context(), "k", value, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("Get%s/%dKiB", name, size>>10), func(b *testing.B) {
			for b.Loop() {
				if _, err := bucket.GetBlob(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
