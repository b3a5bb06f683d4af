//go:build story

package story

import (
	"context"
	"sync"
	"time"

	"understudy/internal/stage"
)

// traffic is a client that calls four times a second, one call after the other, and counts what it has asked.
//
// Concurrency: calls may be read after stop.
type traffic struct {
	calls  int
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// steady starts it. A call that is not answered is the test's failure: users are to notice nothing.
func (s *stack) steady(call stage.Call) *traffic {
	call.URL, call.Model = s.front, "m"
	ctx, cancel := context.WithCancel(s.t.Context())
	f := &traffic{cancel: cancel}
	s.t.Cleanup(f.stop)
	f.wg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			f.calls++
			a := call.Ask(s.t.Context(), "hello") // not ctx: the last call ends well, too
			if (a.Err != nil || a.Text == "") && s.t.Context().Err() == nil {
				s.t.Errorf("call %d of a client = %q, %v, want an answer", f.calls, a.Text, a.Err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return f
}

// stop waits for the last call's answer. It may be called again.
func (f *traffic) stop() {
	f.cancel()
	f.wg.Wait()
}
