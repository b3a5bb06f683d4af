package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// topicMost bounds an encoded topic: it names a consumer and a folder of the server.
	topicMost = 200
	// leaseDefault is an item's lease when the options name none.
	leaseDefault = 30 * time.Second
	// pushAgain is how long a push waits for its answer before it is made again under the same id.
	pushAgain = time.Second
	// pullRound is how long one request for an item waits at the server, about; pullMost is the bound of all of them
	// when the caller has none.
	pullRound = 5 * time.Second
	pullMost  = 24 * time.Hour
)

// QueueOptions describe a queue. Replicas with one queue name must agree on them.
type QueueOptions struct {
	// Name is made of letters, digits, - and _.
	Name string
	// Lease is how long an item that was pulled and not settled stays with whoever pulled it: then it is given out again.
	// 30 s when zero.
	Lease time.Duration
	// MaxBytes bounds the queue: beyond it Push fails with ErrFull. Zero is no bound.
	MaxBytes int64
	// Seal encrypts the items; nil for none. Pull returns ErrSealed for an item that it does not open, which stays.
	Seal *Sealer
}

// Queue holds items until they are settled. An item that was pushed survives the death of this process, a restart, and
// the loss of a node; it is given out at least once, to one puller at a time while its lease lasts.
//
// Concurrency: all methods may be called at once, by several replicas too.
type Queue struct {
	place
	opt QueueOptions

	mu   sync.Mutex // mu guards the fields below.
	taps map[string]*tap
}

// tap is the consumer of one topic's items in one session.
type tap struct {
	ses      *session
	consumer jetstream.Consumer
}

// Queue returns the queue of that name. It is made when the store is up; the first call for a name settles its options.
func (s *Store) Queue(o QueueOptions) *Queue {
	o.Lease = cmp.Or(o.Lease, leaseDefault)
	s.mu.Lock()
	q := s.queues[o.Name]
	if q == nil {
		q = &Queue{opt: o, taps: map[string]*tap{}, place: place{
			store: s, kind: kindQueue, name: o.Name, prefix: queueSubject + o.Name, want: o.config(s.opt.replicas()),
			marked: proofKept, seal: o.Seal, opening: make(chan struct{}, 1),
		}}
		s.queues[o.Name] = q
		s.places = append(s.places, &q.place)
	}
	s.mu.Unlock()
	s.suspect()
	return q
}

// config is the stream that holds the queue.
func (o QueueOptions) config(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:         queueStream + o.Name,
		Subjects:     []string{queueSubject + o.Name + ".*"},
		Retention:    jetstream.WorkQueuePolicy,
		MaxMsgs:      -1,
		MaxConsumers: -1,
		MaxMsgSize:   -1,
		MaxBytes:     bound(o.MaxBytes),
		Discard:      jetstream.DiscardNew,
		Duplicates:   duplicatesKept,
		Storage:      jetstream.FileStorage,
		Replicas:     replicas,
		AllowMsgTTL:  true, // for proofs
	}
}

// Push appends an item to a topic: when it returns nil the item is on disk, on most nodes of a cluster. Of one id in one
// topic only the first item within two minutes is kept, even when it has been settled (which a restart forgets); after
// ErrDown push the same id again. Without an id every item is kept.
func (q *Queue) Push(ctx context.Context, topic, id string, data []byte) error {
	id, err := encodeKey(cmp.Or(id, rand.Text()))
	if err != nil {
		return fmt.Errorf("store: push to %s: the id: %w", q.name, err)
	}
	return q.do(ctx, callBound, "push to", topic, func(ctx context.Context, h *handle, token string) error {
		m := nats.NewMsg(q.subject(token))
		m.Header.Set(jetstream.MsgIDHeader, token+"."+id)
		q.seal.put(m, data)
		_, err := askSlowly(ctx, pushAgain, func(ctx context.Context) (uint64, error) { return h.publish(ctx, m) })
		return err
	})
}

// Pull takes the oldest item of a topic that nobody has. It waits for one until ctx ends, or a day: at the deadline, or
// half a second before, it returns ErrNotFound. A Pull that is cancelled as an item arrives keeps it from others for a lease.
func (q *Queue) Pull(ctx context.Context, topic string) (*Item, error) {
	var item *Item
	err := q.do(ctx, pullMost, "pull from", topic, func(ctx context.Context, h *handle, token string) error {
		m, err := q.await(ctx, h, token)
		if err == nil {
			item, err = q.item(h, topic, m)
		}
		return err
	})
	return item, err
}

// await asks for an item, round by round, and gives up when no server has answered for callBound.
func (q *Queue) await(ctx context.Context, h *handle, token string) (jetstream.Msg, error) {
	deadline, _ := ctx.Deadline()
	for heard := time.Now(); ; {
		last := time.Until(deadline) <= pullRound
		m, err := q.next(ctx, h, token)
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, nats.ErrTimeout): // The server's word that there is nothing.
			if last {
				return nil, ErrNotFound
			}
			heard = time.Now()
		case ctx.Err() != nil:
			return nil, err
		case time.Since(heard) > callBound || !passing(err):
			return nil, err
		default:
			q.forget(h, token)
			pause(ctx, askAgain)
		}
	}
}

// passing says that another attempt may do better: the consumer's leader changed or is not there, or the consumer is
// not.
func passing(err error) bool {
	for _, e := range []error{
		nats.ErrNoResponders, jetstream.ErrNoHeartbeat, jetstream.ErrConsumerDeleted, jetstream.ErrConsumerLeadershipChanged,
		jetstream.ErrServerShutdown, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return hasCode(err, codeNoLeader)
}

// next makes one request for an item. It is nats.ErrTimeout when there is none.
func (q *Queue) next(ctx context.Context, h *handle, token string) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullRound)
	defer cancel()
	consumer, err := q.tap(ctx, h, token)
	if err != nil {
		return nil, err
	}
	o := []jetstream.FetchOpt{jetstream.FetchContext(ctx)}
	beat := q.store.heartbeat()
	if deadline, _ := ctx.Deadline(); time.Until(deadline) > heartbeatsMissed*beat {
		o = append(o, jetstream.FetchHeartbeat(beat))
	}
	return consumer.Next(o...)
}

// tap returns the topic's consumer. Only the first call in a session has to make it or to compare its configuration.
func (q *Queue) tap(ctx context.Context, h *handle, token string) (jetstream.Consumer, error) {
	q.mu.Lock()
	t := q.taps[token]
	q.mu.Unlock()
	if t != nil && t.ses == h.ses {
		return t.consumer, nil
	}
	consumer, err := ask(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return h.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: tapName(token), FilterSubject: q.subject(token), AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: q.opt.Lease, MaxDeliver: -1, MaxAckPending: -1,
		})
	})
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	q.taps[token] = &tap{h.ses, consumer}
	q.mu.Unlock()
	return consumer, nil
}

func (q *Queue) forget(h *handle, token string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.taps[token]; t != nil && t.ses == h.ses {
		delete(q.taps, token)
	}
}

// tapName is a topic's consumer: a name may not have a slash, which a token may. No token has this escape.
func tapName(token string) string { return strings.ReplaceAll(token, "/", "=2F") }

// QueueStats are of one topic.
type QueueStats struct {
	// Waiting is how many items were never given out.
	Waiting uint64
	// Running is how many were given out and are not settled: with a puller, put off by Later, or with a lease that ran
	// out.
	Running uint64
	// Oldest is when the first item of the topic that is still here was pushed; zero without one.
	Oldest time.Time
}

// Stats counts the items of a topic. In a cluster the counts may lag a moment behind.
func (q *Queue) Stats(ctx context.Context, topic string) (QueueStats, error) {
	var stats QueueStats
	err := q.do(ctx, callBound, "count", topic, func(ctx context.Context, h *handle, token string) (err error) {
		stats, err = q.count(ctx, h, token)
		if err == nil && stats != (QueueStats{}) {
			stats.Oldest, err = q.oldest(ctx, h, token)
		}
		return err
	})
	return stats, err
}

// count asks the topic's consumer; while there is none, nothing was given out and the stream knows.
func (q *Queue) count(ctx context.Context, h *handle, token string) (QueueStats, error) {
	consumer, err := ask(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return h.stream.Consumer(ctx, tapName(token))
	})
	if err == nil {
		info := consumer.CachedInfo()
		return QueueStats{Waiting: info.NumPending, Running: uint64(info.NumAckPending)}, nil
	}
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return QueueStats{}, err
	}
	info, err := ask(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return h.stream.Info(ctx, jetstream.WithSubjectFilter(q.subject(token)))
	})
	if err != nil {
		return QueueStats{}, err
	}
	return QueueStats{Waiting: info.State.Subjects[q.subject(token)]}, nil
}

// oldest is when a topic's first item was pushed.
func (q *Queue) oldest(ctx context.Context, h *handle, token string) (time.Time, error) {
	m, err := ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return h.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(q.subject(token)))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) { // It was settled meanwhile.
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}

// do is run for one topic.
func (q *Queue) do(ctx context.Context, most time.Duration, op, topic string, f func(context.Context, *handle, string) error) error {
	token, err := encodeKey(topic)
	if err == nil && len(tapName(token)) > topicMost {
		err = fmt.Errorf("%w: a topic of %d bytes, want at most %d", ErrTooLarge, len(tapName(token)), topicMost)
	}
	if err != nil {
		return fmt.Errorf("store: %s a topic of %s: %w", op, q.name, err)
	}
	op = fmt.Sprintf("%s %q", op, topic)
	return q.runFor(ctx, most, op, func(ctx context.Context, h *handle) error { return f(ctx, h, token) })
}
