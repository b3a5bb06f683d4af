package store

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// inboxHolds is how many messages wait for a reader before the next ones are dropped.
const inboxHolds = nats.DefaultMaxChanLen

// inbox hears a subject, in order. What waits is a list that grows with it: nats.Conn.SubscribeSync would set half a MiB
// aside for each of them, most of what the heap of a replica at rest held.
//
// Ownership: who calls listen calls stop.
type inbox struct {
	sub     *nats.Subscription
	next    chan *nats.Msg
	stopped chan struct{}
	end     func() // closes stopped
}

func listen(nc *nats.Conn, subject string) (_ *inbox, err error) {
	in := &inbox{next: make(chan *nats.Msg), stopped: make(chan struct{})}
	in.end = sync.OnceFunc(func() { close(in.stopped) })
	if in.sub, err = nc.Subscribe(subject, in.put); err == nil {
		err = in.sub.SetPendingLimits(inboxHolds, nats.DefaultSubPendingBytesLimit)
	}
	if err != nil {
		in.end()
		return nil, err
	}
	return in, nil
}

func (in *inbox) put(m *nats.Msg) {
	select {
	case in.next <- m:
	case <-in.stopped:
	}
}

// take waits for a message until ctx ends or the inbox is stopped.
func (in *inbox) take(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-in.next:
		return m, nil
	case <-in.stopped:
		return nil, nats.ErrBadSubscription
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// dropped is how many messages have found no room so far; less when the subscription is over.
func (in *inbox) dropped() int {
	n, _ := in.sub.Dropped()
	return n
}

// stop can be called more than once. After the end of the connection the subscription is gone anyway.
func (in *inbox) stop() {
	in.end()
	in.sub.Unsubscribe()
}
