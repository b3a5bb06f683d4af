package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fetcher hands out tokens t1, t2, … that live for life, after taking for each; while err is set it fails.
type fetcher struct {
	life, takes time.Duration
	calls       atomic.Int64

	mu  sync.Mutex // guards err
	err error
}

func (f *fetcher) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fetcher) fetch(ctx context.Context) (lease, error) {
	n := f.calls.Add(1)
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
		return lease{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return lease{}, f.err
	}
	l := lease{proof: fixed{{"authorization", fmt.Sprintf("t%d", n)}}}
	if f.life != 0 {
		l.ends = time.Now().Add(f.life)
	}
	return l, nil
}

// recorder is a log that goroutines write to.
type recorder struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// renewing starts a renewer in a bubble, and returns its log.
func renewing(t *testing.T, f *fetcher, files ...string) (*renewer, *recorder) {
	t.Helper()
	log := new(recorder)
	r := newRenewer("no test token", f.fetch, files, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	r.start(ctx)
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r, log
}

// token is what a call would carry now, or the error.
func token(t *testing.T, r *renewer) string {
	t.Helper()
	p, err := r.proof(t.Context())
	if err != nil {
		return err.Error()
	}
	headers, err := p.headers(t.Context(), time.Now(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	return headers[0].Value
}

func expectToken(t *testing.T, r *renewer, when, want string) {
	t.Helper()
	if got := token(t, r); !strings.Contains(got, want) {
		t.Errorf("proof() %s = %s, want %s", when, got, want)
	}
}

func expectCalls(t *testing.T, f *fetcher, when string, want int64) {
	t.Helper()
	if got := f.calls.Load(); got != want {
		t.Errorf("fetches %s = %d, want %d", when, got, want)
	}
}

func TestAHundredCallsAtOnceMakeOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{life: time.Hour, takes: time.Second}
		r, _ := renewing(t, f)
		together := func() {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { token(t, r) })
			}
			all.Wait()
		}
		together()
		expectCalls(t, f, "of the first credential", 1)
		expectToken(t, r, "after it", "t1")

		// As after the sleep of a machine: the timer has not fired.
		asleep := *r.latest.Load()
		asleep.held.ends = time.Now()
		r.latest.Store(&asleep)
		together()
		time.Sleep(time.Minute)
		expectCalls(t, f, "after a sleep", 2)
		expectToken(t, r, "after a sleep", "t2")
	})
}

func TestACredentialIsRenewedBeforeItEnds(t *testing.T) {
	for _, row := range []struct {
		name        string
		life, ahead time.Duration
	}{
		{"an hour: ten minutes ahead", time.Hour, 10 * time.Minute},
		{"a day: ten minutes ahead", 24 * time.Hour, 10 * time.Minute},
		{"ten minutes: two ahead", 10 * time.Minute, 2 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fetcher{life: row.life, takes: 5 * time.Second}
				r, _ := renewing(t, f)
				time.Sleep(row.life - row.ahead + f.takes - time.Second)
				expectCalls(t, f, "before it is due", 1)
				time.Sleep(2 * time.Second)
				expectCalls(t, f, "when it is due", 2)
				before := time.Now()
				expectToken(t, r, "while it is renewed", "t1")
				if waited := time.Since(before); waited != 0 {
					t.Errorf("proof() during a renewal waited %s, want not at all", waited)
				}
				time.Sleep(f.takes)
				expectToken(t, r, "once it is renewed", "t2")
			})
		})
	}
}

func TestATokenThatTheServerKeepsIsAskedForUntilItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A metadata server hands out a new token only in the last five minutes of the old one.
		issued, n := time.Now(), 1
		f := func(context.Context) (lease, error) {
			if time.Since(issued) >= 55*time.Minute {
				issued, n = time.Now(), n+1
			}
			return lease{fixed{{"authorization", fmt.Sprintf("t%d", n)}}, issued.Add(time.Hour)}, nil
		}
		r := newRenewer("no test token", f, nil, slog.New(slog.DiscardHandler))
		r.start(t.Context())
		for range 24 * 60 {
			time.Sleep(time.Minute)
			if err := r.ready(); err != nil || !r.latest.Load().held.lasts() {
				t.Fatalf("ready() = %v, and the token at hand lasts to %s; now is %s", err, r.latest.Load().held.ends, time.Now())
			}
		}
		r.cancel()
		<-r.done
	})
}

func TestWhatNeverEndsIsFetchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{}
		r, _ := renewing(t, f)
		time.Sleep(30 * 24 * time.Hour)
		expectCalls(t, f, "in a month", 1)
		expectToken(t, r, "after a month", "t1")
	})
}

func TestAFailingRenewalKeepsWhatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{life: time.Hour}
		r, log := renewing(t, f)
		expectToken(t, r, "at first", "t1")
		f.fail(said{errors.New("out of order")})
		time.Sleep(59 * time.Minute)
		expectToken(t, r, "while it lasts", "t1")
		if err := r.ready(); err != nil {
			t.Errorf("ready() while the old one lasts = %v, want nil", err)
		}
		time.Sleep(time.Minute)
		expectToken(t, r, "when it has ended", "no test token: out of order")
		if err := r.ready(); err == nil || err.Error() != "no test token: out of order" {
			t.Errorf("ready() when it has ended = %v, want no test token: out of order", err)
		}
		f.fail(nil)
		time.Sleep(80 * time.Second) // the longest pause
		expectToken(t, r, "when the server is back", "t")
		synctest.Wait()
		if got := strings.Count(log.String(), "\n"); got != 2 || strings.Count(log.String(), "out of order") != 1 {
			t.Errorf("log = %s, want one line that it fails and one that it works again", log)
		}
	})
}

func TestACredentialThatFailsAtTheStartIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{life: time.Hour}
		f.fail(said{errors.New("out of order")})
		r, log := renewing(t, f)
		synctest.Wait()
		before := time.Now()
		expectToken(t, r, "after the first try", "no test token: out of order")
		if waited := time.Since(before); waited != 0 {
			t.Errorf("proof() after a failed try waited %s, want not at all", waited)
		}
		time.Sleep(time.Hour)
		if got := f.calls.Load(); got < 50 || got > 90 {
			t.Errorf("tries in an hour = %d, want about one a minute", got)
		}
		if got := strings.Count(log.String(), "\n"); got != 1 {
			t.Errorf("log = %s, want one line", log)
		}
		f.fail(nil)
		time.Sleep(80 * time.Second)
		if err := r.ready(); err != nil {
			t.Errorf("ready() when the server is there = %v, want nil", err)
		}
	})
}

func TestACallWaitsOnlyALittleForTheFirstCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := renewing(t, &fetcher{takes: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.proof(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("proof() of a call that is gone = %v, want %v", err, context.Canceled)
		}
		if err := r.ready(); err != nil {
			t.Errorf("ready() while the first try is under way = %v, want nil", err)
		}
		for _, want := range []time.Duration{firstWait, 0} { // the second call knows of the first
			before := time.Now()
			expectToken(t, r, "while the first try hangs", "no test token yet: it is still being fetched")
			if waited := time.Since(before); waited != want {
				t.Errorf("proof() waited %s, want %s", waited, want)
			}
		}
		if err := r.ready(); !says(err, "no test token yet") {
			t.Errorf("ready() after a call has waited in vain = %v, want that there is no token yet", err)
		}
		time.Sleep(fetchLimit)
		expectToken(t, r, "when the try has taken too long", "no test token: no answer in time")
	})
}

func TestACredentialThatHasEndedWhenItComesIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := renewing(t, &fetcher{life: -time.Second})
		expectToken(t, r, "with one that has ended", "is this machine's clock right?")
	})
}

func TestAChangedFileIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "key.json")
		write(t, file, "1")
		f := &fetcher{}
		r, _ := renewing(t, f, file)
		time.Sleep(time.Hour + time.Second/2) // between two looks: one must not see a file half written
		expectToken(t, r, "with the first file", "t1")
		write(t, file, "22") // of another size: in a bubble's time the disk's clock stands still
		time.Sleep(2 * time.Second)
		expectToken(t, r, "two seconds after a change", "t2")
		f.fail(said{errors.New("half written")})
		write(t, file, "")
		time.Sleep(2 * time.Second)
		expectToken(t, r, "with a file that is no good", "t2")
		f.fail(nil)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		write(t, file, "333")
		time.Sleep(2 * time.Second)
		if got := token(t, r); got == "t2" {
			t.Errorf("proof() two seconds after the good file = %s, want a newer one", got)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStopEndsATryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRenewer("no test token", (&fetcher{takes: time.Hour}).fetch, nil, slog.New(slog.DiscardHandler))
		r.start(t.Context())
		synctest.Wait()
		before := time.Now()
		r.cancel()
		<-r.done
		if took := time.Since(before); took != 0 {
			t.Errorf("stopping took %s, want no time", took)
		}
		if o := r.latest.Load(); o.err != nil {
			t.Errorf("err after a stop = %v, want nil: it says nothing about the credential", o.err)
		}
	})
}
