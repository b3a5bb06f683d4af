package config

import "testing"

func TestSlots(t *testing.T) {
	for _, tt := range []struct {
		name  string
		chain Chain
		want  int
	}{
		{"a target is tried once", Chain{Rungs: make([]Rung, 3)}, 3},
		{"a blip is tried again", Chain{Rungs: make([]Rung, 3), Retry: Retry{SameTarget: 1}}, 6},
		{"a short Retry-After is waited out", Chain{Rungs: make([]Rung, 3), On: On{RateLimited: "wait"}}, 6},
		{"one more try serves both", Chain{Rungs: make([]Rung, 3), Retry: Retry{SameTarget: 1}, On: On{RateLimited: "wait"}}, 6},
		{"each that shares a rung is tried", Chain{Rungs: []Rung{{Members: make([]Member, 2)}, {Members: make([]Member, 1)}}}, 3},
		{"each that shares a rung is tried again", Chain{Rungs: []Rung{{Members: make([]Member, 2)}}, Retry: Retry{SameTarget: 1}}, 4},
		{"a rate limit moves on", Chain{Rungs: make([]Rung, 3), On: On{RateLimited: "next"}}, 3},
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
