package config

import (
	"testing"
	"time"
)

func TestSlots(t *testing.T) {
	three := make([]Rung, 3)
	members := []Rung{{Members: make([]Member, 2)}, {}}
	tier := func(tiers ...string) (rungs []Rung) {
		for _, tier := range tiers {
			rungs = append(rungs, Rung{Target: &Target{Tier: tier}})
		}
		return rungs
	}
	standard := On{Capacity: "standard"}
	for _, tt := range []struct {
		name  string
		chain Chain
		want  int
	}{
		{"a target is tried once", Chain{Rungs: three}, 3},
		{"a blip is tried again", Chain{Rungs: three, Retry: Retry{SameTarget: 1}}, 6},
		{"a short Retry-After is waited out", Chain{Rungs: three, On: On{RateLimited: "wait"}}, 6},
		{"one more try serves both", Chain{Rungs: three, Retry: Retry{SameTarget: 1}, On: On{RateLimited: "wait"}}, 6},
		{"a rate limit moves on", Chain{Rungs: three, On: On{RateLimited: "next"}}, 3},
		{"each member of a rung is tried", Chain{Rungs: members}, 3},
		{"each member is tried again", Chain{Rungs: members, Retry: Retry{SameTarget: 1}}, 6},
		{"a discounted target is tried at the standard tier", Chain{Rungs: tier("flex", "default"), On: standard, API: Anthropic}, 3},
		{"a client may ask for the discounted tier", Chain{Rungs: tier("", "priority"), On: standard, API: OpenAI}, 3},
		{"a client cannot ask Anthropic for one", Chain{Rungs: tier("", "auto"), On: standard, API: Anthropic}, 2},
		{"missing capacity moves on", Chain{Rungs: tier("flex", ""), On: On{Capacity: "next"}, API: OpenAI}, 2},
		{"a sticky chain makes good what replicas pass over", Chain{Rungs: members, Sticky: Sticky{For: time.Minute}, Retry: Retry{SameTarget: 1}}, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Slots(&tt.chain); got != tt.want {
				t.Errorf("Slots(%+v) = %d, want %d", tt.chain, got, tt.want)
			}
		})
	}
}

func TestRetriesAreEnoughForTheLongestChain(t *testing.T) {
	c := &Config{Chains: []*Chain{{Rungs: make([]Rung, 1)}, {Rungs: make([]Rung, 2), Retry: Retry{SameTarget: 1}}}}
	if got := Retries(c); got != 8 {
		t.Errorf("Retries = %d, want 8: four slots and four faults of the service", got)
	}
}
