package chain

import (
	"slices"
	"testing"
	"testing/synctest"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// discounted gives the targets a and b tiers, in an OpenAI chain with on.capacity: standard.
func discounted(a, b string) func(*config.Chain) {
	return func(c *config.Chain) {
		c.API, c.On.Capacity = config.OpenAI, "standard"
		c.Rungs[0].Target.Tier, c.Rungs[1].Target.Tier = a, b
	}
}

func TestWhenATargetIsTriedAtTheStandardTier(t *testing.T) {
	lacks, fails := verdict(classify.Capacity), verdict(classify.ServerError)
	next := func(c *config.Chain) { discounted("flex", "")(c); c.On.Capacity = "next" }
	anthropic := func(c *config.Chain) { discounted("", "")(c); c.API = config.Anthropic }
	blips := func(c *config.Chain) { discounted("flex", "default")(c); retrySame(c) }
	rows := []struct {
		name   string
		change func(*config.Chain)
		flex   bool // the client asks for it
		vs     []classify.Verdict
		want   []string
	}{
		{"missing capacity advances the chain at once", discounted("flex", "default"), false, []classify.Verdict{lacks}, []string{"a", "a standard", "b"}},
		{"another failure is tried again at the standard tier", discounted("flex", "default"), false, []classify.Verdict{fails}, []string{"a", "b"}},
		{"a failure at the standard tier ends the chain", discounted("flex", "flex"), false, []classify.Verdict{lacks, fails, lacks, fails}, []string{"a", "a standard", "b", "b standard"}},
		{"missing capacity at the standard tier is tried for ever", discounted("flex", "flex"), false, []classify.Verdict{lacks}, []string{"a", "a standard", "b", "b standard"}},
		{"a target that asks for no discount is tried again", discounted("", "priority"), false, []classify.Verdict{lacks}, []string{"a", "b"}},
		{"the client's own discount is not given up", discounted("", "default"), true, []classify.Verdict{lacks}, []string{"a", "a standard", "b"}},
		{"a client's discount that the target overrides is given up", discounted("default", "auto"), true, []classify.Verdict{lacks}, []string{"a", "b"}},
		{"on.capacity: next tries again", next, true, []classify.Verdict{lacks}, []string{"a", "b"}},
		{"Anthropic's tiers are taken for discounts", anthropic, true, []classify.Verdict{lacks}, []string{"a", "b"}},
		{"a blip hides that the next try lacked capacity", blips, false, []classify.Verdict{fails, lacks, fails}, []string{"a", "a again", "a standard", "b", "b again"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := patient(t, row.change, "a", "b")
				b.x.Flex = row.flex
				if got := b.goes(row.vs...); !slices.Equal(got, row.want) {
					t.Errorf("attempts that end with %v go to %v, want %v", row.vs, got, row.want)
				}
			})
		})
	}
}

func TestOnlyWhoAsksForADiscountPaysASlotForIt(t *testing.T) {
	b := newBench(t, discounted("", ""), "a", "b")
	for flex, want := range map[bool]string{false: "b", true: "skip"} {
		b.x.Flex = flex
		if got := b.begin(2, nil); got != want {
			t.Errorf("Begin(2) of a client that asks for flex: %v = %s, want %s", flex, got, want)
		}
	}
}

func TestAReplicaThatSawNothingTriesNoStandardTier(t *testing.T) {
	b := newBench(t, discounted("flex", "flex"), "a", "b")
	for attempt, want := range []string{"a", "a", "skip", "b", "spent"} {
		if got := b.begin(attempt, nil); got != want {
			t.Errorf("Begin(attempt %d) = %s, want %s", attempt, got, want)
		}
	}
}

func TestMissingCapacityLeavesTheBreakerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, discounted("flex", ""), "a", "b")
		b.goes(verdict(classify.Capacity), verdict(classify.OK))
		if got := b.book.Breaker("a").State(); got != breaker.Closed {
			t.Errorf("State() after missing capacity at a discounted tier = %v, want closed", got)
		}
	})
}
