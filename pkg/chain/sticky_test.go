package chain

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func sticky(c *config.Chain) { c.Sticky = config.Sticky{For: time.Hour, Header: "x-conversation"} }

func TestWhereAConversationGoes(t *testing.T) {
	fails := []classify.Verdict{verdict(classify.Overloaded)}
	downshift := func(c *config.Chain) { sticky(c); c.Downshift = 2 }
	rows := []struct {
		name    string
		change  func(*config.Chain)
		prefer  string
		trouble []string
		to      []string // that it fits; nil: all
		want    []string // where its attempts, which all fail, go
	}{
		{"a conversation leaves who served it", sticky, "b", nil, nil, []string{"b", "a", "c", "d"}},
		{"the other targets lose their order", sticky, "c", nil, nil, []string{"c", "a", "b", "d"}},
		{"a new conversation has no first target", sticky, "", nil, nil, []string{"a", "b", "c", "d"}},
		{"the primary is promoted to a second try", sticky, "a", nil, nil, []string{"a", "b", "c", "d"}},
		{"a target that a reload has removed is waited for", sticky, "gone", nil, nil, []string{"a", "b", "c", "d"}},
		{"a conversation insists on a target that is open", sticky, "b", []string{"b open"}, nil, []string{"a", "c", "d"}},
		{"a conversation insists on a target that it does not fit", sticky, "b", nil, []string{"a", "c"}, []string{"a", "c"}},
		{"a downshift is preferred", downshift, "c", nil, nil, []string{"a", "b", "c", "d"}},
		{"a chain that is not sticky keeps to who served", nil, "b", nil, nil, []string{"a", "b", "c", "d"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.change, "a", "b", "c", "d")
				b.x.Prefer = row.prefer
				if row.to != nil {
					b.bound(row.to...)
				}
				b.trouble(row.trouble...)
				if got := b.goes(fails...); !slices.Equal(got, row.want) {
					t.Errorf("a conversation that prefers %q goes to %v, want %v", row.prefer, got, row.want)
				}
			})
		})
	}
}

func TestAPreferredTargetKeepsItsRung(t *testing.T) {
	b := newBench(t, sticky, "a", "b")
	b.x.Prefer, b.x.Attempt = "b", 1
	try, err := b.plan().Begin(b.x, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer try.Release()
	if try.Target.Name != "b" || try.Rung != 1 || try.Index != 0 {
		t.Errorf("Begin(1) = %s, rung %d, slot %d, want b, its rung 1 and slot 0", try.Target.Name, try.Rung, try.Index)
	}
}

func TestAConversationStaysWithAMember(t *testing.T) {
	b := newBench(t, sticky, "a+b", "c")
	b.draw("a", "b", "c")
	b.x.Prefer = "b"
	if got := b.order(); !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("order of an exchange that prefers b = %v, want b, a, c", got)
	}
}

// TestAPreferenceThatChangesInMidExchangeChangesNothing: the failure of an attempt may itself be what changes it.
func TestAPreferenceThatChangesInMidExchangeChangesNothing(t *testing.T) {
	for _, later := range []string{"", "a", "c"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, sticky, "a", "b", "c")
			b.x.Prefer = "b"
			past := []Past{b.past(1, 0, verdict(classify.Overloaded))}
			b.x.Prefer = later
			for attempt, want := range map[int]string{2: "a", 3: "c"} {
				if got := b.begin(attempt, past); got != want {
					t.Errorf("Begin(%d) after an attempt at b, of an exchange that now prefers %q = %s, want %s", attempt, later, got, want)
				}
			}
		})
	}
}

// TestAnExtraTryIsMadeOnce: another preference may bring its slot round again.
func TestAnExtraTryIsMadeOnce(t *testing.T) {
	rows := []struct {
		name string
		v    classify.Verdict
		want string // the extra try
	}{
		{"a blip is tried again for ever", verdict(classify.ServerError), "b again"},
		{"missing capacity is tried at the standard tier for ever", verdict(classify.Capacity), "b standard"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := patient(t, func(c *config.Chain) {
					sticky(c)
					if discounted("", "flex")(c); row.v.Class == classify.ServerError {
						c.On.Capacity = "next"
						retrySame(c)
					}
				}, "a", "b", "c")
				// The chain is a, a again, b, b again, …, or a, b, b standard, ….
				first := slices.Index(b.plan().plain, slices.IndexFunc(b.plan().slots, func(s Slot) bool { return s.Target.Name == "b" }))
				past := []Past{b.past(first+1, first, row.v)}
				if got := b.begin(first+2, past); got != row.want {
					t.Fatalf("Begin(%d) after b failed = %s, want %s", first+2, got, row.want)
				}
				past = append(past, b.past(first+2, first+1, row.v))
				b.x.Prefer = "c"
				for attempt := first + 3; attempt <= first+4; attempt++ {
					if got := b.begin(attempt, past); got != "skip" && got != "a" {
						t.Errorf("Begin(%d) of an exchange that now prefers c = %s, want no third try of b", attempt, got)
					}
				}
			})
		})
	}
}

func TestTheWalkBeyondAStickyChainMeetsEachTargetOnce(t *testing.T) {
	b := newBench(t, sticky, "a", "b")
	for attempt, want := range map[int]string{1: "a", 2: "b", 3: "a", 4: "b", 5: "a", 6: "b", 7: "spent"} {
		if got := b.begin(attempt, nil); got != want {
			t.Errorf("Begin(attempt %d) = %s, want %s", attempt, got, want)
		}
	}
}

func TestObservingTakesThePrimaryWhateverTheConversationPrefers(t *testing.T) {
	b := newBench(t, sticky, "a", "b")
	b.x.Prefer = "b"
	try, err := b.plan().Observe(b.x)
	if err != nil {
		t.Fatal(err)
	}
	defer try.Release()
	if try.Target.Name != "a" {
		t.Errorf("Observe() = %s, want a", try.Target.Name)
	}
}

// TestARequestIDThatIsUsedAgainIsAnotherExchange: what the first one tried is not tried by the second.
func TestARequestIDThatIsUsedAgainIsAnotherExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, sticky, "a", "b", "c")
		overloaded := verdict(classify.Overloaded)
		past := []Past{b.past(1, 0, overloaded), b.past(2, 1, overloaded), b.past(3, 2, overloaded), b.past(1, 0, overloaded)}
		if got := b.begin(2, past); got != "b" {
			t.Errorf("Begin(2) = %s, want b, which only an earlier exchange of this id has tried", got)
		}
	})
}

// TestReplicasThatPreferOtherTargetsPassNobodyOver tries every mix of preferences, one for each attempt, each on a
// replica of its own that remembers nothing: together they reach every target.
func TestReplicasThatPreferOtherTargetsPassNobodyOver(t *testing.T) {
	prefers := []string{"", "a", "b", "c"}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, sticky, "a", "b", "c")
		for mix := range 4 * 4 * 4 {
			tried := map[string]bool{}
			for attempt := 1; attempt <= b.plan().attempts; attempt++ {
				x := b.x
				x.Attempt, x.Prefer = attempt, prefers[mix>>(2*min(attempt-1, 2))&3]
				try, err := b.plan().Begin(x, nil)
				if errors.Is(err, ErrSpent) {
					break
				}
				if err != nil {
					continue
				}
				tried[try.Target.Name] = true
				more := try.More(verdict(classify.Quota))
				try.Release()
				if !more {
					break
				}
			}
			if len(tried) != 3 {
				t.Errorf("mix %d of preferences reaches %v, want a, b and c", mix, tried)
			}
		}
	})
}
