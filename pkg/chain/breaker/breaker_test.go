package breaker

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var usual = Settings{Failures: 3, OpenFor: time.Minute}

// rig is a breaker whose transitions are written down and checked as they are told.
type rig struct {
	*Breaker
	t     *testing.T
	mu    sync.Mutex // guards told
	told  []Transition
	calls []*Permit // begun and not ended
}

func newRig(t *testing.T, s Settings) *rig {
	r := &rig{t: t}
	r.Breaker = New("a", s, r.listen)
	return r
}

// listen asks for the state, which would deadlock were a lock held.
func (r *rig) listen(t Transition) {
	r.State()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := Closed
	if n := len(r.told); n > 0 {
		last = r.told[n-1].To
	}
	if t.From != last || t.From == t.To || t.Target != "a" {
		r.t.Errorf("told %v after %v, want the transitions once and in order", t, r.told)
	}
	r.told = append(r.told, t)
}

// states is where the told transitions led.
func (r *rig) states() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make([]State, len(r.told))
	for i, t := range r.told {
		states[i] = t.To
	}
	return states
}

// play performs a script, one letter an event: f, s and x are whole calls that fail, succeed, or are excluded; < begins
// a call; F, S and X end the one begun first; o is a failure seen by another replica, O a success; m is just less
// than open_for, i an instant, w both; c is a cooldown of ten seconds.
func (r *rig) play(script string) {
	outcomes := map[rune]Outcome{'f': Failure, 's': Success, 'x': Excluded, 'F': Failure, 'S': Success, 'X': Excluded}
	for _, c := range script {
		switch c {
		case 'f', 's', 'x':
			if p, err := r.Allow(); err == nil {
				p.Done(outcomes[c])
				p.Done(Failure) // counts no more
			}
		case '<':
			if p, err := r.Allow(); err == nil {
				r.calls = append(r.calls, p)
			}
		case 'F', 'S', 'X':
			if len(r.calls) == 0 {
				r.t.Fatalf("%s ends a call that was not allowed", script)
			}
			r.calls[0].Done(outcomes[c])
			r.calls = r.calls[1:]
		case 'o':
			r.Observe(Failure)
		case 'O':
			r.Observe(Success)
		case 'm':
			time.Sleep(usual.OpenFor - 1)
		case 'i':
			time.Sleep(time.Nanosecond)
		case 'w':
			time.Sleep(usual.OpenFor)
		case 'c':
			r.Cool(time.Now().Add(10 * time.Second))
		}
	}
}

func TestWhetherATargetMayBeTried(t *testing.T) {
	rows := []struct {
		name, script string
		want         error
		state        State
	}{
		{"it opens before enough failures", "ff", nil, Closed},
		{"it does not open after enough failures in a row", "fff", ErrOpen, Open},
		{"failures with a success between them open it", "ffsff", nil, Closed},
		{"callers' faults between failures hide an outage", "fxfxf", ErrOpen, Open},
		{"callers' faults alone open it", "xxxxxxxx", nil, Closed},
		{"it lets a request through before open_for is over", "fffm", ErrOpen, Open},
		{"it is still open when open_for is over", "fffmi", nil, HalfOpen},
		{"two requests are let through while half-open", "fffw<", ErrBusy, HalfOpen},
		{"one success of the trial does not close it", "fffw<S", nil, Closed},
		{"a failed trial lets the next one through at once", "fffw<F", ErrOpen, Open},
		{"a failed trial opens it for less than open_for", "fffw<Fm", ErrOpen, Open},
		{"a trial that came to nothing wedges it", "fffw<X", nil, HalfOpen},
		{"a trial that came to nothing twice wedges it", "fffwxx<S", nil, Closed},
		{"failures from before it opened trip it again at once after it closed", "fffwsff", nil, Closed},
		{"a late success of a call begun before it opened closes it", "<fffS", ErrOpen, Open},
		{"a late success of a call begun before it opened closes it half-open", "<fffwS", nil, HalfOpen},
		{"a late failure of a call begun before it opened fails the trial", "<fffw<F", ErrBusy, HalfOpen},
		{"a late failure of a call begun before it opened prolongs it", "<fffmFi", nil, HalfOpen},
		{"a late failure of a call begun before it opened counts after it closed", "<<<fffwsFFF", nil, Closed},
		{"failures seen by other replicas do not open it", "ooo", ErrOpen, Open},
		{"a success seen by another replica does not count", "ffOff", nil, Closed},
		{"another replica's late success closes an open one", "fffO", ErrOpen, Open},
		{"another replica's late failure is taken for the trial's", "fffwo", nil, HalfOpen},
		{"another replica's late success is taken for the trial's", "fffw<O", ErrBusy, HalfOpen},
		{"a cooldown does not keep it from being tried", "c", ErrCooling, Closed},
		{"a cooldown outlasts itself", "cw", nil, Closed},
		{"a cooldown opens it", "cwcwcwcw", nil, Closed},
		{"a cooldown hides that it is open", "fffcw", nil, HalfOpen},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, usual)
				r.play(row.script)
				if got := r.Check(); got != row.want {
					t.Errorf("Check() after %s = %v, want %v", row.script, got, row.want)
				}
				if got := r.State(); got != row.state {
					t.Errorf("State() after %s = %v, want %v", row.script, got, row.state)
				}
				p, err := r.Allow()
				if err != row.want || (p == nil) == (err == nil) {
					t.Errorf("Allow() after %s = %v, %v, want %v", row.script, p, err, row.want)
				}
				if err != nil && !errors.Is(err, ErrRefused) {
					t.Errorf("errors.Is(%v, ErrRefused) = false, want true", err)
				}
			})
		})
	}
}

func TestTransitionsAreToldOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.play("fffwfwxs")
		want := []State{Open, HalfOpen, Open, HalfOpen, Closed}
		if got := r.states(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}

func TestManyCallersAtOnceLoseNoTransitionAndNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Settings{Failures: 2, OpenFor: time.Millisecond})
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for n := range 300 {
					if p, err := r.Allow(); err == nil {
						time.Sleep(time.Duration(i*n%7) * time.Microsecond)
						p.Done([]Outcome{Excluded, Success, Failure, Failure}[(i+n)%4])
						p.Release()
					}
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Millisecond)
		if got := r.State(); len(r.states()) < 10 || r.states()[len(r.told)-1] != got {
			t.Errorf("State() = %v, told %v, want many transitions and the last one to be the state", got, r.states())
		}
		if p, err := r.Allow(); err != nil {
			t.Errorf("Allow() = %v, %v with every permit given back and open_for over, want a permit", p, err)
		}
	})
}

func TestCooldownsMergeByTheLaterEnd(t *testing.T) {
	rows := []struct {
		name  string
		cools []time.Duration
		want  time.Duration
	}{
		{"a later answer without Retry-After shortens a cooldown", []time.Duration{time.Minute, 5 * time.Second}, time.Minute},
		{"a longer one does not lengthen a cooldown", []time.Duration{5 * time.Second, time.Minute}, time.Minute},
		{"one that is over starts a cooldown", []time.Duration{-time.Minute}, 0},
		{"one beyond all time wraps round into the past", []time.Duration{1<<63 - 1}, 1<<63 - 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New("a", usual, func(Transition) {})
				for _, d := range row.cools {
					b.Cool(time.Now().Add(d))
				}
				if got := time.Until(b.Cooling()); got != row.want {
					t.Errorf("Cooling() = in %v, want in %v", got, row.want)
				}
			})
		})
	}
}

func TestWhenATargetReturns(t *testing.T) {
	rows := []struct {
		name, script string
		want         time.Duration
	}{
		{"a target without trouble is not told as free", "f", 0},
		{"an open breaker does not tell when it half-opens", "fff", time.Minute},
		{"a half-open one is told as waiting", "fffw", 0},
		{"a cooldown is not told", "c", 10 * time.Second},
		{"the shorter of cooldown and breaker is told", "fffc", time.Minute},
		{"a cooldown that outlasts the breaker is not told", "fffmc", 10 * time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, usual)
				r.play(row.script)
				if got := max(0, time.Until(r.Returns())); got != row.want {
					t.Errorf("Returns() after %s = in %v, want in %v", row.script, got, row.want)
				}
				if time.Sleep(row.want); r.Check() != nil {
					t.Errorf("Check() at the time of Returns() = %v, want nil", r.Check())
				}
			})
		})
	}
}

func TestReloadsKeepTheState(t *testing.T) {
	longer := Settings{Failures: 3, OpenFor: 2 * time.Minute}
	rows := []struct {
		name, before string
		renew        Settings
		after        string
		want         error
		told         []State
	}{
		{"the same settings end a trial", "fffw<", usual, "S", nil, []State{Open, HalfOpen, Closed}},
		{"new settings forget failures", "ff", longer, "f", ErrOpen, []State{Open}},
		{"fewer failures allowed open a breaker by the reload itself", "ff", Settings{1, time.Minute}, "", nil, nil},
		{"fewer failures allowed do not count", "ff", Settings{1, time.Minute}, "f", ErrOpen, []State{Open}},
		{"new settings close an open breaker", "fff", longer, "", ErrOpen, []State{Open}},
		{"new settings tell again that an open breaker is open", "fff", longer, "f", ErrOpen, []State{Open}},
		{"a longer open_for does not hold", "fff", longer, "w", ErrOpen, []State{Open}},
		{"a longer open_for never ends", "fff", longer, "ww", nil, []State{Open, HalfOpen}},
		{"new settings close a half-open breaker", "fffw", longer, "", ErrOpen, []State{Open, HalfOpen, Open}},
		{"the result of a trial from before closes the breaker", "fffw<", longer, "S", ErrOpen, []State{Open, HalfOpen, Open}},
		{"a call from before tells transitions of a machine that is gone", "<fff", longer, "wSw", nil, []State{Open, HalfOpen}},
		{"new settings end a cooldown", "c", longer, "", ErrCooling, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, usual)
				r.play(row.before)
				r.Renew(row.renew)
				r.play(row.after)
				if got := r.Check(); got != row.want {
					t.Errorf("Check() = %v, want %v", got, row.want)
				}
				if got := r.states(); !slices.Equal(got, row.told) {
					t.Errorf("told %v, want %v", got, row.told)
				}
			})
		})
	}
}

func TestThatPeopleAreToldWhyATargetFailedLast(t *testing.T) {
	b := New("a", usual, func(Transition) {})
	if got := b.Last(); got != "" {
		t.Errorf("Last() = %q before any failure, want none", got)
	}
	b.Blame("overloaded")
	b.Blame("timeout")
	if got := b.Last(); got != "timeout" {
		t.Errorf("Last() = %q, want timeout", got)
	}
}
