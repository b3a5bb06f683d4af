package store_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"understudy/pkg/store"
)

// One replica with its own folder; with URLs instead of Dir the same code shares a cluster.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "store-*")
	defer os.RemoveAll(dir)
	s, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	probes := s.Bucket(store.BucketOptions{Name: "probes"})
	lease, err := probes.Lease(ctx, "anthropic/claude-sonnet-5", "replica-1", 10*time.Second)
	fmt.Println("replica-1:", err)
	_, err = probes.Lease(ctx, "anthropic/claude-sonnet-5", "replica-2", 10*time.Second)
	fmt.Println("replica-2:", err)
	fmt.Println("released:", lease.Release(ctx))
	// Output:
	// replica-1: <nil>
	// replica-2: store: lease "anthropic/claude-sonnet-5" in probes: the lease is held
	// released: <nil>
}
