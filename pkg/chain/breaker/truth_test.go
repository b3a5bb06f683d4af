package breaker

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestWhichTruthAFleetGoesBy(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	rows := []struct {
		name string
		t, u Truth // t beats u
	}{
		{"an opening beats what came after it", Truth{Gen: 3}, Truth{Gen: 2, Open: true, Until: at(9)}},
		{"a closing beats an opening of the same generation", Truth{Gen: 2, Open: true, Until: at(1)}, Truth{Gen: 2, Since: at(9)}},
		{"the earlier end holds", Truth{Gen: 2, Open: true, Until: at(2)}, Truth{Gen: 2, Open: true, Until: at(1), Streak: 9}},
		{"two openings that end together never agree on their streak", Truth{Gen: 2, Open: true, Streak: 2}, Truth{Gen: 2, Open: true, Streak: 1}},
		{"a replica that begins later changes the truth of the others", Truth{Gen: 2, Since: at(1)}, Truth{Gen: 2, Since: at(2)}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if !row.t.Beats(row.u) || row.u.Beats(row.t) {
				t.Errorf("Beats(%+v, %+v) = %v, and the other way round %v, want true, false", row.t, row.u, row.t.Beats(row.u), row.u.Beats(row.t))
			}
		})
	}
}

func someTruth(t *rapid.T) Truth {
	times := rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64Range(0, 2).Draw(t, "s"), 0).UTC() })
	truth := Truth{Gen: rapid.Uint64Range(0, 2).Draw(t, "gen"), Open: rapid.Bool().Draw(t, "open"), Since: times.Draw(t, "since"),
		Streak: rapid.IntRange(0, 2).Draw(t, "streak"), Why: rapid.SampledFrom([]string{"", "timeout"}).Draw(t, "why")}
	if truth.Open {
		truth.Until = times.Draw(t, "until")
	}
	return truth
}

func TestTruthsAreInOneOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := someTruth(t), someTruth(t), someTruth(t)
		if (a == b) == (a.Beats(b) != b.Beats(a)) {
			t.Fatalf("Beats of %+v and %+v = %v, %v, want one of two that differ", a, b, a.Beats(b), b.Beats(a))
		}
		if a.Beats(b) && b.Beats(c) && !a.Beats(c) {
			t.Fatalf("%+v beats %+v, that beats %+v, but the first does not beat the last", a, b, c)
		}
	})
}

func TestWhatFollowingATruthDoes(t *testing.T) {
	s := Settings{Failures: 3, OpenFor: time.Minute, MaxOpenFor: 4 * time.Minute, Ramp: Ramp{10 * time.Second, 0.1}}
	rows := []struct {
		name, before string
		open         bool
		gen          uint64
		when         time.Duration // it ends, or closed
		follows      bool
		state        State
		left         time.Duration
		share        float64
	}{
		{"an opening elsewhere does not open it", "", true, 1, time.Minute, true, Open, time.Minute, 0},
		{"a late starter is open for the whole time, not the rest", "", true, 7, 10 * time.Second, true, Open, 10 * time.Second, 0},
		{"a late starter does not try what may be tried", "", true, 7, -time.Minute, true, HalfOpen, 0, 0},
		{"a clock that is ahead elsewhere keeps it open for ever", "", true, 1, 24 * time.Hour, true, Open, 4 * time.Minute, 0},
		{"a closing elsewhere does not close it", "fff", false, 2, 0, true, Closed, 0, 0.1},
		{"a clock that is behind elsewhere takes the ramp away", "fff", false, 2, -time.Hour, true, Closed, 0, 0.1},
		{"a clock that is ahead elsewhere prolongs the ramp", "", false, 2, time.Hour, true, Closed, 0, 0.1},
		{"a late starter begins a ramp that is long over", "", false, 6, -time.Hour, true, Closed, 0, 1},
		{"a late starter begins the ramp anew", "", false, 6, -20 * time.Second, true, Closed, 0, 0.4},
		{"late news of an opening opens it after it closed", "fffws", true, 1, time.Minute, false, Closed, 0, 0.1},
		{"late news of a closing closes it after it opened", "fffwsooo", false, 2, -time.Minute, false, Open, 2 * time.Minute, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, s)
				r.play(row.before)
				told := Truth{Gen: row.gen, Open: row.open, Since: time.Now().Add(row.when).UTC().Round(0), Streak: 1}
				if row.open {
					told.Since, told.Until = time.Now().UTC().Round(0), told.Since
				}
				if got := r.Follow(told); got != row.follows {
					t.Errorf("Follow(%+v) = %v, want %v", told, got, row.follows)
				}
				if got := r.Truth(); row.follows && got != told {
					t.Errorf("Truth() = %+v, want %+v", got, told)
				}
				time.Sleep(2 * time.Nanosecond)
				if got := r.State(); got != row.state {
					t.Errorf("State() = %v, want %v", got, row.state)
				}
				if got := max(0, time.Until(r.Returns())+2); row.left > 0 && got != row.left {
					t.Errorf("Returns() = in %v, want in %v", got, row.left)
				}
				if got := r.Share(); got != row.share {
					t.Errorf("Share() = %v, want %v", got, row.share)
				}
			})
		})
	}
}

func TestWhatFollowingKeeps(t *testing.T) {
	rows := []struct {
		name, before string
		tell         func(own Truth) Truth
		after        string
		state        State
	}{
		{"news of the same opening voids the trial that is out", "fffw<", func(own Truth) Truth {
			own.Streak++
			return own
		}, "S", Closed},
		{"news of the same closing forgets failures", "fffwsff", func(own Truth) Truth { own.Streak++; return own }, "f", Open},
		{"news of a later closing keeps failures of before", "fffwsff", func(own Truth) Truth { own.Gen += 2; return own }, "ff", Closed},
		{"a trial from before a later opening counts", "fffw<", func(own Truth) Truth {
			own.Gen++
			own.Until = own.Until.Add(time.Minute)
			return own
		}, "S", Open},
		{"a call from before a later closing counts", "<<<", func(own Truth) Truth { own.Gen += 2; return own }, "FFF", Closed},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, usual)
				r.play(row.before)
				if told := row.tell(r.Truth()); !r.Follow(told) {
					t.Errorf("Follow(%+v) = false, want true", told)
				}
				r.play(row.after)
				if got := r.State(); got != row.state {
					t.Errorf("State() after %s = %v, want %v", row.after, got, row.state)
				}
			})
		})
	}
}

func TestWhatIsToldOfAFollowedTruth(t *testing.T) {
	const own, fleets = true, false
	rows := []struct {
		name, before string
		open         bool
		want         []Transition
	}{
		{"an opening elsewhere is told as one's own", "", true, []Transition{{"a", Closed, Open, fleets}}},
		{"a closing elsewhere is told to a closed one", "", false, nil},
		{"a later opening is told to an open one", "fff", true, []Transition{{"a", Closed, Open, own}}},
		{"a closing elsewhere hides that it was half-open", "fffw", false, []Transition{{"a", Closed, Open, own}, {"a", Open, HalfOpen, own}, {"a", HalfOpen, Closed, fleets}}},
		{"an opening elsewhere hides that it was half-open", "fffw", true, []Transition{{"a", Closed, Open, own}, {"a", Open, HalfOpen, own}, {"a", HalfOpen, Open, fleets}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, usual)
				r.play(row.before)
				told := Truth{Gen: 9, Open: row.open, Since: time.Now()}
				if row.open {
					told.Until = told.Since.Add(time.Minute)
				}
				r.Follow(told)
				if !slices.Equal(r.told, row.want) {
					t.Errorf("told %v, want %v", r.told, row.want)
				}
			})
		})
	}
}

func TestOnlyTheLeaderOfAFleetTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.Fleet(true)
		r.play("fffw")
		if _, err := r.Allow(); err != ErrBusy {
			t.Errorf("Allow() without the lead = %v, want %v", err, ErrBusy)
		}
		r.Lead(r.Truth().Gen - 1)
		if _, err := r.Allow(); err != ErrBusy {
			t.Errorf("Allow() with the lead of an earlier generation = %v, want %v", err, ErrBusy)
		}
		r.Lead(r.Truth().Gen)
		r.play("f")
		if got := r.Truth().Gen; got != 2 {
			t.Errorf("Truth().Gen after the leader's trial = %d, want 2", got)
		}
		r.play("ww")
		if _, err := r.Allow(); err != ErrBusy {
			t.Errorf("Allow() in the next generation = %v, want %v", err, ErrBusy)
		}
		r.Fleet(false)
		if _, err := r.Allow(); err != nil {
			t.Errorf("Allow() without a fleet = %v, want a permit", err)
		}
	})
}

func TestATruthIsTheSameAfterItsJourney(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		time.Sleep(1234567891)
		r.Blame("timeout")
		r.play("fff")
		data, err := json.Marshal(r.Truth())
		if err != nil {
			t.Fatal(err)
		}
		var got Truth
		if err := json.Unmarshal(data, &got); err != nil || got != r.Truth() {
			t.Errorf("Unmarshal(%s) = %+v, %v, want %+v", data, got, err, r.Truth())
		}
	})
}

func TestTheReasonTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, idle, late := newRig(t, usual), newRig(t, usual), newRig(t, usual)
		busy.Blame("overloaded")
		busy.play("ff")
		idle.Observe(busy.Drain())
		if got := idle.Last(); got != "overloaded" {
			t.Errorf("Last() after another replica's failures = %q, want overloaded", got)
		}
		idle.play("f")
		if got := idle.Truth().Why; got != "overloaded" {
			t.Errorf("Truth().Why = %q, want overloaded", got)
		}
		late.Blame("timeout")
		late.Follow(idle.Truth())
		if got := late.Last(); got != "overloaded" {
			t.Errorf("Last() after an opening elsewhere = %q, want overloaded", got)
		}
	})
}
