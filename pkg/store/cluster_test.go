package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// openFleet opens three replicas' stores on one cluster.
func openFleet(t testing.TB, addresses []string) []*Store {
	t.Helper()
	var fleet []*Store
	for range 3 {
		fleet = append(fleet, openStore(t, Options{URLs: addresses, Replicas: 3}))
	}
	for _, s := range fleet {
		awaitReady(t, s)
	}
	return fleet
}

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	fleet := openFleet(t, urls(startCluster(t)))
	eventually(t, "a bucket on three nodes", func() error {
		_, err := fleet[0].Bucket(BucketOptions{Name: "all"}).Put(bounded(t), "warm", nil, 0)
		return errors.Join(err, fleet[0].Bucket(BucketOptions{Name: "all"}).Delete(bounded(t), "warm", 0))
	})
	t.Run("keep a bucket's promises", func(t *testing.T) { testBucket(t, fleet[0]) })
	t.Run("let one of many updates win", func(t *testing.T) { testCAS(t, fleet...) })
	t.Run("give a lease to one contender", func(t *testing.T) { testLease(t, fleet[0], fleet[1]) })
	t.Run("pass news on", func(t *testing.T) { testNews(t, fleet[0], fleet[2]) })
	t.Run("keep a queue's promises", func(t *testing.T) { testQueue(t, fleet...) })
	t.Run("keep blobs whole", func(t *testing.T) { testBlobs(t, fleet[0], fleet[1]) })
	t.Run("refuse what does not fit a bucket that keeps", func(t *testing.T) { testKeep(t, fleet[2]) })
	t.Run("show every write to every reader", func(t *testing.T) { testReadYourFleetsWrites(t, fleet) })
}

// testReadYourFleetsWrites reads on one replica what another has just written.
func testReadYourFleetsWrites(t *testing.T, fleet []*Store) {
	w := watchAll(t, fleet[2].Bucket(BucketOptions{Name: "seen"}))
	for n := range 100 {
		value := fmt.Sprint(n)
		if _, err := fleet[n%3].Bucket(BucketOptions{Name: "seen"}).Put(bounded(t), "k", []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		e, err := fleet[(n+1)%3].Bucket(BucketOptions{Name: "seen"}).Get(bounded(t), "k")
		if err != nil || string(e.Value) != value {
			t.Fatalf("Get() = %q, %v, want %s", e.Value, err, value)
		}
		w.want(t, "k="+value)
	}
}

func TestAStoppedNodeLosesNothing(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	fleet := openFleet(t, urls(nodes))
	b := fleet[0].Bucket(BucketOptions{Name: "b"})
	eventually(t, "a bucket on three nodes", func() error {
		_, err := b.Put(bounded(t), "k0", []byte("v"), 0)
		return err
	})
	var watches []*seen
	for _, s := range fleet {
		w := watchAll(t, s.Bucket(BucketOptions{Name: "b"}))
		w.want(t, "k0=v")
		watches = append(watches, w)
	}
	for round, n := range nodes {
		n.stop()
		key := fmt.Sprintf("k%d", round+1)
		eventually(t, "a write with a node stopped", func() error {
			_, err := b.Put(bounded(t), key, []byte("v"), 0)
			return err
		})
		for _, w := range watches {
			w.untilAll(t, key+"=v")
		}
		n.start(t)
		eventually(t, "the node's return", func() error { return caughtUp(n) })
	}
	keys, err := fleet[2].Bucket(BucketOptions{Name: "b"}).Keys(bounded(t))
	if got := strings.Join(keys, " "); err != nil || got != "k0 k1 k2 k3" {
		t.Errorf("Keys() = %s, %v, want all that was written", got, err)
	}
}

// caughtUp is nil when the node's copies are complete, so that the next node may stop.
func caughtUp(n *node) error {
	if h := n.srv.Healthz(nil); h.StatusCode != 200 {
		return errors.New(h.Error)
	}
	return nil
}
