package store

import (
	"fmt"
	"testing"
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
