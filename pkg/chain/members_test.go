package chain

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func TestWhereAFailureOfAMemberLeads(t *testing.T) {
	on := func(set func(*config.On)) func(*config.Chain) { return func(c *config.Chain) { set(&c.On) } }
	next := on(func(o *config.On) { o.ContextLength, o.Refusal, o.Filtered = "next", "next", "next" })
	account := func(c *config.Chain) {
		for _, r := range c.Rungs[:1] {
			p := *r.Target.Provider
			p.SharedLimits = true
			for _, m := range r.Members {
				m.Target.Provider = &p
			}
		}
	}
	gone := classify.Verdict{Class: classify.Invalid, Status: 404}
	lower := classify.Verdict{Class: classify.OK, Downgraded: true}
	rows := []struct {
		name   string
		change func(*config.Chain)
		v      classify.Verdict // of all attempts
		want   []string
	}{
		{"a reset passes over a member", nil, verdict(classify.Transport), []string{"b", "a", "c", "d"}},
		{"an overload passes over a member", nil, verdict(classify.Overloaded), []string{"b", "a", "c", "d"}},
		{"a timeout passes over a member", nil, verdict(classify.Timeout), []string{"b", "a", "c", "d"}},
		{"a rate limit passes over a member", nil, limited(time.Second), []string{"b", "a", "c", "d"}},
		{"a rate limit of the account goes to another member of it", account, limited(time.Second), []string{"b", "c", "d"}},
		{"missing money passes over a member", nil, verdict(classify.Quota), []string{"b", "a", "c", "d"}},
		{"a wrong key passes over a member", nil, verdict(classify.Auth), []string{"b", "a", "c", "d"}},
		{"missing capacity passes over a member", nil, verdict(classify.Capacity), []string{"b", "a", "c", "d"}},
		{"a lower tier passes over a member", on(func(o *config.On) { o.TierDowngrade = "next" }), lower, []string{"b", "a", "c", "d"}},
		{"a deployment that is gone is final, or leads to another model", nil, gone, []string{"b", "a"}},
		{"a prompt too long for the model goes to another member", next, verdict(classify.ContextLength), []string{"b", "c"}},
		{"a refusal goes to another member", next, verdict(classify.Refusal), []string{"b", "c"}},
		{"a filter goes to another member", next, verdict(classify.Filtered), []string{"b", "c"}},
		{"a caller's mistake goes to another member", next, classify.Verdict{Class: classify.Invalid, Status: 400}, []string{"b"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a:m+b:m", "c:n+d:n")
				b.draw("b", "a", "c", "d")
				if got := b.goes(row.v); !slices.Equal(got, row.want) {
					t.Errorf("attempts that all end with %v go to %v, want %v", row.v.Class, got, row.want)
				}
			})
		})
	}
}

func TestALargerRungThatIsTooSmallIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *config.Chain) { c.Rungs[1].Larger = true }, "a", "b+c")
		b.draw("a", "b", "c")
		if got := b.goes(verdict(classify.ContextLength)); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("a prompt too long for all goes to %v, want a, b", got)
		}
	})
}

func TestABlipOfAMemberIsTriedAgainBeforeTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, retrySame, "a+b", "c")
		b.draw("b", "a", "c")
		want := []string{"b", "b again", "a", "a again", "c", "c again"}
		if got := b.goes(verdict(classify.ServerError)); !slices.Equal(got, want) {
			t.Errorf("blips go to %v, want %v", got, want)
		}
	})
}

func TestAMemberInTroubleIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a+b", "c")
		b.draw("a", "b", "c")
		b.trouble("a open")
		for attempt, want := range []string{"b", "skip", "b", "c"} {
			if got := b.begin(attempt, nil); got != want {
				t.Errorf("Begin(attempt %d) = %s, want %s", attempt, got, want)
			}
		}
	})
}

// TestTwoFailingMembersAreTwoFailingTargets: trying the one after the other multiplies the load all the same.
func TestTwoFailingMembersAreTwoFailingTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := patient(t, nil, "a+b", "c")
		if got := b.extras(2000, 10*time.Second, "a", "b"); got < 150 || got > 205 {
			t.Errorf("attempts beyond the first of 2000 requests = %d, want 150 to 205", got)
		}
	})
}

// ids are request ids as Envoy makes them, and as a careless client does.
func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%08x-7f3a-4c1e-8000-2b1c5d%06x", uint32(i)*2654435761, i*7), fmt.Sprint(i))
	}
	return all
}

func TestMembersHaveTheirSharesOfFirstAttempts(t *testing.T) {
	rows := []struct {
		name    string
		members string
		weights []float64
	}{
		{"equal members are not equal", "a+b", []float64{1, 1}},
		{"weights are ignored", "a+b", []float64{3, 1}},
		{"names that differ in one letter are drawn alike", "openai/1+openai/2+openai/3", []float64{5, 3, 2}},
		{"a small share is none", "a+b", []float64{0.99, 0.01}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, func(c *config.Chain) {
				for i, w := range row.weights {
					c.Rungs[0].Members[i].Weight = w
				}
			}, row.members, "z")
			firsts, seconds, n := map[string]int{}, map[[2]string]int{}, 0
			for _, b.x.ID = range ids(20_000) {
				got := b.order()
				firsts[got[0]]++
				seconds[[2]string(got)]++
				n++
			}
			total := 0.0
			for _, w := range row.weights {
				total += w
			}
			all := b.cfg.Chains[0].Rungs[0].Members
			for _, m := range all {
				near(t, m.Target.Name+" first", firsts[m.Target.Name], m.Weight/total, n)
				for _, other := range all {
					if len(all) > 2 && other != m {
						near(t, other.Target.Name+" after "+m.Target.Name, seconds[[2]string{m.Target.Name, other.Target.Name}],
							other.Weight/(total-m.Weight), firsts[m.Target.Name])
					}
				}
			}
		})
	}
}

// near checks that got is share of n, to five standard deviations.
func near(t *testing.T, what string, got int, share float64, n int) {
	t.Helper()
	want := share * float64(n)
	if off := math.Abs(float64(got) - want); off > 5*math.Sqrt(want*(1-share)) {
		t.Errorf("%s: %d of %d, want about %.0f", what, got, n, want)
	}
}

func TestRungsAreDrawnApart(t *testing.T) {
	b := newBench(t, nil, "a+b", "c+d")
	both := map[string]int{}
	n := 0
	for _, b.x.ID = range ids(10_000) {
		got := b.order()
		both[got[0]+got[2]]++
		n++
	}
	for _, pair := range []string{"ac", "ad", "bc", "bd"} {
		near(t, pair, both[pair], 0.25, n)
	}
}

// TestReplicasOfDifferentVersionsDrawAlike: an exchange may meet both while one replaces the other.
func TestReplicasOfDifferentVersionsDrawAlike(t *testing.T) {
	for name, want := range map[string]float64{"openai/a": 0.4637747609852167, "openai/b": 0.6360676567638328} {
		if got := chance("7f3a2c1e-0000-4000-8000-000000000001", name); got != want {
			t.Errorf("chance(%s) = %v, want %v", name, got, want)
		}
	}
}
