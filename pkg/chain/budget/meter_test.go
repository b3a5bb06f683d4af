package budget

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/config"
)

func mustReserve(t *testing.T, r *replica, key Key, b config.Budget, worst Money) *Reservation {
	t.Helper()
	got, err := r.Reserve(t.Context(), key, b, Ask{Worst: worst})
	if err != nil {
		t.Fatalf("Reserve(%v, %s) = %v, want a reservation", key, worst, err)
	}
	return got
}

// spree spends from all replicas at once, until each exchange was refused. Each attempt costs all or a part of its
// reservation.
func spree(t *testing.T, all []*replica, exchanges int, b config.Budget, worst Money, real func() Money) (spent Money) {
	var wg sync.WaitGroup
	var sum atomic.Int64
	for i := range exchanges {
		r := all[i%len(all)]
		wg.Go(func() {
			for refused := 0; refused < 20; {
				held, err := r.Reserve(t.Context(), support, b, Ask{Worst: worst})
				if err != nil {
					if !errors.Is(err, ErrSpent) {
						t.Errorf("Reserve = %v, want a reservation or %v", err, ErrSpent)
						return
					}
					refused++
					time.Sleep(rand.N(500 * time.Millisecond))
					continue
				}
				time.Sleep(rand.N(time.Second))
				cost := real()
				sum.Add(int64(cost))
				held.Settle(cost)
			}
		})
	}
	wg.Wait()
	return Money(sum.Load())
}

func TestSpendStopsWithinOneReservationOfTheLimit(t *testing.T) {
	worst := Dollar / 10
	for name, real := range map[string]func() Money{
		"as dear as it can be": func() Money { return worst },
		"as it comes":          func() Money { return rand.N(worst) + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				b := hourly(50)
				spent := spree(t, w.replicas(t, 3), 200, b, worst, real)
				if limit := FromUSD(b.USD); spent > limit || spent <= limit-worst {
					t.Errorf("3 replicas and 200 exchanges spent %s of %s, want all of it but less than %s", spent, limit, worst)
				}
			})
		})
	}
}

func TestSpendStopsAcrossAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, worst := hourly(20), Dollar/10
		all := w.replicas(t, 3)
		lost := Money(0)
		for range 30 { // Attempts under way when the process dies: they are spent, and nobody is told.
			mustReserve(t, all[0], support, b, worst)
			lost += worst
		}
		time.Sleep(1500 * time.Millisecond)
		all[0].halt()
		all[0] = w.replica(t, "r0 again", nil)
		spent := lost + spree(t, all, 200, b, worst, func() Money { return worst })
		limit := FromUSD(b.USD)
		if slice := limit / 8; spent > limit || spent <= limit-worst-slice {
			t.Errorf("spent %s of %s, want no more, and less only by the slice that the dead replica held", spent, limit)
		}
		time.Sleep(time.Hour + 20*time.Minute)
		if r := mustReserve(t, all[1], support, b, limit); r == nil {
			t.Error("the window did not let go of what the dead replica had")
		}
	})
}

func TestSpendSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), hourly(10)
		first := w.replica(t, "first", nil)
		mustReserve(t, first, support, b, 4*Dollar).Settle(3 * Dollar)
		if err := first.Stop(t.Context()); err != nil {
			t.Fatalf("Stop = %v", err)
		}
		second := w.replica(t, "second", nil)
		if err := second.Load(t.Context(), support, b); err != nil || second.Remaining("support", b) != 7*Dollar {
			t.Errorf("Load = %v, Remaining = %s, want $7", err, second.Remaining("support", b))
		}
		if _, err := second.Reserve(t.Context(), support, b, Ask{Worst: 7*Dollar + 1}); !errors.Is(err, ErrSpent) {
			t.Errorf("Reserve of more than the rest = %v, want %v", err, ErrSpent)
		}
		time.Sleep(time.Second)
		mustReserve(t, second, support, b, 7*Dollar).Release()
		if got := second.Spent(support, b); got != 3*Dollar {
			t.Errorf("Spent = %s, want $3", got)
		}
	})
}

func TestAReservationIsSettledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newWorld().replica(t, "r", nil), hourly(10)
		r := mustReserve(t, m, support, b, 5*Dollar)
		r.Settle(Dollar)
		r.Settle(Dollar)
		r.Release()
		mustReserve(t, m, support, b, Dollar).Release()
		late := mustReserve(t, m, support, b, Dollar)
		time.Sleep(30 * time.Minute)
		late.Settle(2 * Dollar) // A bill may be larger than the reservation.
		if got := m.Spent(support, b); got != 3*Dollar {
			t.Errorf("Spent = %s, want $3", got)
		}
		if got := m.Remaining("support", b); got != 7*Dollar {
			t.Errorf("Remaining = %s, want $7", got)
		}
	})
}

func TestAChainsStateIsThatOfItsWorstTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newWorld().replica(t, "r", nil), hourly(10)
		mustReserve(t, m, Key{Chain: "support", Tenant: "acme"}, b, 10*Dollar).Settle(10 * Dollar)
		mustReserve(t, m, Key{Chain: "support", Tenant: "globex"}, b, Dollar).Settle(Dollar)
		mustReserve(t, m, Key{Chain: "other"}, b, Dollar).Settle(Dollar)
		for chain, want := range map[string]State{"support": Open, "other": Closed, "unasked": Closed} {
			if got := m.Strictest(chain, b); got != want {
				t.Errorf("Strictest(%s) = %s, want %s", chain, got, want)
			}
		}
	})
}

func TestTheStatesOfABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		m := newWorld().replica(t, "r", func(x Transition) { heard = append(heard, fmt.Sprint(x.Key.Chain, ": ", x.From, " → ", x.To)) })
		b := hourly(10)
		b.Soft = 0.5
		began := time.Now()
		mustReserve(t, m, support, b, 4*Dollar).Settle(4 * Dollar)
		if got := m.State(support, b); got != Closed {
			t.Errorf("State at $4 of $10 = %s, want closed", got)
		}
		time.Sleep(10 * time.Minute)
		mustReserve(t, m, support, b, 2*Dollar).Settle(2 * Dollar)
		if got := m.State(support, b); got != Soft {
			t.Errorf("State at $6 of $10 = %s, want soft", got)
		}
		mustReserve(t, m, support, b, 4*Dollar).Settle(4 * Dollar)
		if got := m.State(support, b); got != Open {
			t.Errorf("State at $10 of $10 = %s, want open", got)
		}
		if _, err := m.Reserve(t.Context(), support, b, Ask{Worst: 2 * Dollar}); !errors.Is(err, ErrSpent) {
			t.Errorf("Reserve of a spent budget = %v, want %v", err, ErrSpent)
		}
		at := m.Reopens(support, b)
		if early, late := began.Add(time.Hour), began.Add(time.Hour+2*time.Minute); at.Before(early) || at.After(late) {
			t.Errorf("Reopens = %s, want about %s", at, early)
		}
		time.Sleep(time.Until(at) + time.Second)
		if got := m.State(support, b); got != Soft {
			t.Errorf("State when the first $4 have left = %s, want soft", got)
		}
		mustReserve(t, m, support, b, 2*Dollar).Release()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []string{"support: closed → soft", "support: soft → open", "support: open → soft", "support: soft → closed"}
		if !slices.Equal(heard, want) {
			t.Errorf("the listener heard %q, want %q", heard, want)
		}
	})
}

func TestAMonthEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(31*24*time.Hour - 20*time.Minute) // A bubble begins with the year 2000.
		m, b := newWorld().replica(t, "r", nil), config.Budget{USD: 10, Month: true}
		mustReserve(t, m, support, b, 10*Dollar).Settle(10 * Dollar)
		first := time.Now().UTC()
		want := time.Date(first.Year(), first.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		if got := m.Reopens(support, b); !got.Equal(want) {
			t.Errorf("Reopens = %s, want %s", got, want)
		}
		time.Sleep(time.Until(want) - time.Second)
		if _, err := m.Reserve(t.Context(), support, b, Ask{Worst: 1}); !errors.Is(err, ErrSpent) {
			t.Errorf("Reserve a second before the month ends = %v, want %v", err, ErrSpent)
		}
		time.Sleep(2 * time.Second)
		mustReserve(t, m, support, b, 10*Dollar).Release()
	})
}

func TestWhatTheSoftLimitAndThePremiumRefuse(t *testing.T) {
	soft := hourly(10)
	soft.Soft, soft.MaxPremium = 0.5, 3
	for _, tt := range []struct {
		name  string
		spent Money
		ask   Ask
		want  error
	}{
		{"below the soft limit a dear fallback serves", 4, Ask{Worst: 2, Primary: 1}, nil},
		{"above it it does not", 5, Ask{Worst: 2, Primary: 1}, ErrDear},
		{"the primary serves where nothing is cheaper", 5, Ask{Worst: 1, Primary: 1, Cheapest: 1}, nil},
		{"the primary serves where nobody says what is cheaper", 5, Ask{Worst: 1, Primary: 1}, nil},
		{"the primary makes way for a cheaper rung", 5, Ask{Worst: 2, Primary: 2, Cheapest: 1}, ErrDear},
		{"the cheaper rung serves", 5, Ask{Worst: 1, Primary: 2, Cheapest: 1}, nil},
		{"a premium at the bound", 0, Ask{Worst: 3, Primary: 1}, nil},
		{"a premium above it", 0, Ask{Worst: 4, Primary: 1}, ErrPremium},
		{"nothing to compare with", 0, Ask{Worst: 9}, nil},
		{"more than there is", 0, Ask{Worst: 11}, ErrSpent},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newWorld().replica(t, "r", nil)
			if tt.spent > 0 {
				mustReserve(t, m, support, soft, tt.spent*Dollar).Settle(tt.spent * Dollar)
			}
			ask := Ask{tt.ask.Worst * Dollar, tt.ask.Primary * Dollar, tt.ask.Cheapest * Dollar}
			if _, err := m.Reserve(t.Context(), support, soft, ask); !errors.Is(err, tt.want) {
				t.Errorf("%s: Reserve(%+v) at $%d = %v, want %v", tt.name, tt.ask, tt.spent, err, tt.want)
			}
		})
	}
}

func TestWithoutTheStoreAReplicaSpendsWhatItHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), hourly(100)
		m := w.replica(t, "r", nil)
		mustReserve(t, m, support, b, Dollar).Settle(Dollar)
		m.link.set(true, 0)
		served := 0
		var err error
		for ; err == nil && served < 100; served++ {
			var r *Reservation
			if r, err = m.Reserve(t.Context(), support, b, Ask{Worst: Dollar}); err == nil {
				r.Settle(Dollar)
			}
		}
		if served < 2 || served > 13 || !errors.Is(err, ErrUnsure) {
			t.Errorf("with the store down %d attempts were let through, then %v, want a slice of them, then %v", served, err, ErrUnsure)
		}
		m.link.set(false, 0)
		time.Sleep(time.Second)
		mustReserve(t, m, support, b, Dollar).Release()
		m.link.set(true, 0)
		time.Sleep(7 * time.Minute) // The lease of an hour's window is six.
		if _, err := m.Reserve(t.Context(), support, b, Ask{Worst: 1}); !errors.Is(err, ErrUnsure) {
			t.Errorf("Reserve when the slice has lapsed = %v, want %v", err, ErrUnsure)
		}
	})
}

func TestTenantsHaveBudgetsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newWorld().replica(t, "r", nil), hourly(10)
		a, c := Key{"support", "a"}, Key{"support", "c"}
		mustReserve(t, m, a, b, 8*Dollar).Settle(8 * Dollar)
		mustReserve(t, m, c, b, 8*Dollar).Settle(5 * Dollar)
		if got := m.Remaining("support", b); got != 2*Dollar {
			t.Errorf("Remaining = %s, want the $2 of the tenant with the least", got)
		}
		if got := m.Remaining("other", b); got != 10*Dollar {
			t.Errorf("Remaining of a chain nobody asked for = %s, want all of it", got)
		}
		time.Sleep(2 * time.Hour)
		if n := m.count.Load(); n != 0 {
			t.Errorf("%d tenants are remembered after two hours, want none", n)
		}
		mustReserve(t, m, a, b, 10*Dollar).Release()
	})
}

func TestATenantThatWasForgottenIsRememberedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newWorld().replica(t, "r", nil), hourly(10)
		for range 8 {
			mustReserve(t, m, support, b, Dollar).Settle(Dollar)
		}
		time.Sleep(15 * time.Minute)
		if n := m.count.Load(); n != 0 {
			t.Fatalf("%d accounts are remembered, want none", n)
		}
		if _, err := m.Reserve(t.Context(), support, b, Ask{Worst: 3 * Dollar}); !errors.Is(err, ErrSpent) {
			t.Errorf("Reserve = %v, want %v", err, ErrSpent)
		}
		time.Sleep(time.Second)
		mustReserve(t, m, support, b, 2*Dollar).Settle(Dollar)
		if got := m.Spent(support, b); got != 9*Dollar {
			t.Errorf("Spent = %s, want $9", got)
		}
	})
}

func TestNoMoreTenantsAreRememberedThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld().replica(t, "r", nil)
		for i := range maxAccounts {
			m.Charge(Key{"support", fmt.Sprint(i)}, hourly(1), 1)
		}
		if _, err := m.Reserve(t.Context(), Key{"support", "one more"}, hourly(1), Ask{Worst: 1}); !errors.Is(err, ErrUnsure) {
			t.Errorf("Reserve for one tenant too many = %v, want %v", err, ErrUnsure)
		}
		m.halt()
	})
}

func TestWithoutALimitSpendIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		all := w.replicas(t, 2)
		b := config.Budget{Window: time.Hour}
		for _, r := range all {
			mustReserve(t, r, support, b, 1e6*Dollar).Settle(Dollar)
			r.Charge(support, b, Dollar)
		}
		time.Sleep(3 * time.Second)
		for _, r := range all {
			mustReserve(t, r, support, b, Dollar).Settle(Dollar)
			time.Sleep(3 * time.Second)
		}
		if got := all[1].Spent(support, b); got != 6*Dollar {
			t.Errorf("Spent = %s, want $6", got)
		}
	})
}

func TestAStoppedMeterRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld().replica(t, "r", nil)
		if err := m.Stop(t.Context()); err != nil {
			t.Fatalf("Stop = %v", err)
		}
		if _, err := m.Reserve(t.Context(), support, hourly(1), Ask{Worst: 1}); !errors.Is(err, ErrUnsure) {
			t.Errorf("Reserve after Stop = %v, want %v", err, ErrUnsure)
		}
	})
}

func TestWhatWasGivenBackWithoutAnAnswerIsNotSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), hourly(10)
		all := w.replicas(t, 2)
		mustReserve(t, all[0], support, b, Dollar/2).Release() // It now has $1.50, and will give back a part.
		all[0].link.setMute(true)
		for before := w.made(); w.made() == before; {
			time.Sleep(time.Millisecond)
		}
		all[0].link.set(true, 0) // It does not hear that it did.
		all[0].link.setMute(false)
		total := Money(0)
		for i, worst := range []Money{Dollar / 1000, Dollar / 2} {
			var err error
			for ; err == nil; total += worst {
				_, err = all[1-i].Reserve(t.Context(), support, b, Ask{Worst: worst})
			}
			total -= worst // Of the one that was refused.
		}
		if total > 10*Dollar || total < 9*Dollar {
			t.Errorf("%s were reserved, want at most $10, and most of them", total)
		}
	})
}

func TestAReplicaThatWasTakenForDeadBeginsAnew(t *testing.T) {
	for _, tt := range []struct {
		name  string
		real  Money
		spent Money // after $4 were reserved, and counted as spent when the replica was not heard of
	}{
		{"its reservations are spent", Dollar, 4 * Dollar},
		{"a bill that is larger still counts", 6 * Dollar, 6 * Dollar},
	} {
		synctest.Test(t, func(t *testing.T) {
			all, b := newWorld().replicas(t, 2), hourly(10)
			held := mustReserve(t, all[0], support, b, 4*Dollar)
			time.Sleep(2 * time.Second)
			all[0].link.set(true, 0)
			time.Sleep(15 * time.Minute) // Twice the lease of six minutes.
			mustReserve(t, all[1], support, b, Dollar).Settle(1)
			time.Sleep(2 * time.Second)
			if tt.real > 4*Dollar {
				held.Settle(tt.real) // Before it can know.
			}
			all[0].link.set(false, 0)
			time.Sleep(2 * time.Second)
			mustReserve(t, all[0], support, b, Dollar/1000).Settle(1)
			held.Settle(tt.real)
			time.Sleep(2 * time.Second)
			if got := all[0].Spent(support, b); got != tt.spent+2 {
				t.Errorf("%s: Spent = %s, want %s", tt.name, got, tt.spent+2)
			}
			rest := 10*Dollar - tt.spent - 2
			if _, err := all[0].Reserve(t.Context(), support, b, Ask{Worst: rest + 1}); !errors.Is(err, ErrSpent) {
				t.Errorf("%s: Reserve of more than the rest = %v, want %v", tt.name, err, ErrSpent)
			}
			time.Sleep(2 * time.Second)
			mustReserve(t, all[0], support, b, rest).Release()
		})
	}
}
