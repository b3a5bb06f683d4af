package store

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
)

func TestASubscriptionAtRestTakesLittleMemory(t *testing.T) {
	s := openEmbedded(t)
	const subscriptions = 16
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range subscriptions {
		defer s.Subscribe(fmt.Sprint("quiet.", n), func([]byte) {})()
	}
	runtime.ReadMemStats(&after)
	// nats.Conn.SubscribeSync alone takes 512 KiB.
	if each := (after.TotalAlloc - before.TotalAlloc) / subscriptions; each > 64<<10 {
		t.Errorf("Subscribe() took %d bytes, want at most 64 KiB", each)
	}
}

func TestAnInboxThatNobodyReadsKeepsTheOldestAndCountsTheRest(t *testing.T) {
	nc := openEmbedded(t).state.Load().ses.nc
	in, err := listen(nc, "full")
	if err != nil {
		t.Fatal(err)
	}
	defer in.stop()
	const more = 1000
	for n := range inboxHolds + more {
		if err := nc.Publish("full", fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil { // its answer comes after all of them
		t.Fatal(err)
	}
	if got := in.dropped(); got == 0 || got > more {
		t.Errorf("%d messages are dropped, want 1 to %d", got, more)
	}
	for n := range 100 {
		if m, err := in.take(bounded(t)); err != nil || string(m.Data) != fmt.Sprint(n) {
			t.Fatalf("take() = %v, %v, want message %d", m, err, n)
		}
	}
}

func TestAStoppedInboxHoldsUpNobody(t *testing.T) {
	nc := openEmbedded(t).state.Load().ses.nc
	in, err := listen(nc, "x")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	in.sub.SetClosedHandler(func(string) { close(over) })
	if err := errors.Join(nc.Publish("x", nil), nc.Flush()); err != nil { // it waits for a reader that does not come
		t.Fatal(err)
	}
	in.stop()
	in.stop()
	select {
	case <-over:
	case <-bounded(t).Done():
		t.Fatal("the goroutine of a stopped inbox goes on")
	}
	if m, err := in.take(bounded(t)); err == nil {
		t.Errorf("take() after stop() = %v, want an error", m)
	}
}
