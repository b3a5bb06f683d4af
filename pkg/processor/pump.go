package processor

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"understudy/pkg/degrade"
)

// grace is what messages are given that waited, as a deadline did, while the client did not read: they came before it.
const grace = time.Millisecond

// errGivenUp is what Envoy hears of an attempt that panicked.
var errGivenUp = status.Error(codes.Internal, "the attempt is given up")

// pump moves one attempt. Envoy's messages come on the goroutine of their stream, without a handing over; what nobody
// asked for (a deadline, the end of this process, what another exchange came to) comes on whatever goroutine brings it. Each
// has its turn, which lasts until Envoy has taken what the attempt made of it: while a slow client is not reading, no more
// is taken from Envoy, which is the back pressure that reaches the provider.
//
// Ownership: Process, which ends it before it returns.
type pump struct {
	a      *attempt
	stream extproc.ExternalProcessor_ProcessServer

	turn  chan struct{} // full while somebody's turn lasts, which guards all else and the attempt
	ended bool          // nothing has a turn any more
	timer *time.Timer   // nil: there was no deadline yet
	armed time.Time     // when timer fires, zero: it does not
	stood bool          // the last deadline has stood back for what waited
}

// Process is one attempt. It returns when Envoy closes the stream; returning earlier would tell Envoy to go on without us.
// A panic is the end of its own attempt only: the front goes on to the next one, and a committed answer is cut.
func (p *Processor) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	p.open.Add(1)
	defer p.open.Add(-1)
	u := &pump{a: newAttempt(stream.Context(), p), stream: stream, turn: make(chan struct{}, 1)}
	u.a.conn, u.a.interrupt = connOf(stream.Context()), u.interrupt
	p.pumps.Store(u, nil)
	defer p.pumps.Delete(u)
	defer u.end()
	if p.draining.Load() {
		u.drain()
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := u.take(func() { u.a.step(m) }); err != nil {
			return err
		}
	}
}

// take gives something that happened its turn. Its error is the stream's end.
func (u *pump) take(what func()) (err error) {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	if u.ended {
		return nil // Envoy closes the stream, or is told that it is lost
	}
	defer u.survive(&err)
	what()
	if u.a.flush(u.stream) != nil {
		u.ended = true
		return nil
	}
	u.arm()
	return nil
}

// survive ends an attempt that panicked.
func (u *pump) survive(err *error) {
	fault := recover()
	if fault == nil {
		return
	}
	u.a.p.log.Error("panic: one attempt is given up", "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
	u.ended, *err = true, errGivenUp
	u.a.abandon()
}

// interrupt gives something that Envoy did not send its turn. The goroutine of the stream cannot tell Envoy of a panic
// then: it waits for Envoy.
func (u *pump) interrupt(what func()) {
	if u.take(what) != nil {
		a := u.a
		_ = u.stream.Send(immediate(degrade.Error(a.api, http.StatusServiceUnavailable, "unavailable", "the attempt is given up"), a.next(), "understudy"))
	}
}

func (u *pump) drain() { u.interrupt(u.a.drain) }

// ring acts on a deadline that is over. One that had to wait stands back once.
func (u *pump) ring() {
	rang := time.Now()
	u.interrupt(func() {
		u.armed = time.Time{}
		now := time.Now()
		if u.stood = !u.stood && now.Sub(rang) >= grace; !u.stood {
			u.a.tick(now)
		}
	})
}

// arm has the next deadline heard of. One that moved back costs nothing: the timer fires early and is armed again.
func (u *pump) arm() {
	due := u.a.due()
	if due.IsZero() || !u.armed.IsZero() && !due.Before(u.armed) {
		return
	}
	u.armed = due
	left := max(time.Until(due), grace)
	if u.timer == nil {
		u.timer = time.AfterFunc(left, u.ring)
		return
	}
	u.timer.Reset(left)
}

// end is the end of the stream: nothing has a turn after it.
func (u *pump) end() {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	u.ended = true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.a.close()
}
