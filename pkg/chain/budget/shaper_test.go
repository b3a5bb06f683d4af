package budget

import (
	"testing"
	"time"
)

func headersOf(h map[string]string) func(string) string {
	return func(name string) string { return h[name] }
}

// TestShaper: the header formats are those of wire-formats 1e, 5e and 7.
func TestShaper(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		h    map[string]string
		load Load
		want time.Duration
	}{
		{"no headers, no wait", nil, Load{Input: 1e9}, 0},
		{"Anthropic has room", map[string]string{"anthropic-ratelimit-input-tokens-limit": "60000", "anthropic-ratelimit-input-tokens-remaining": "10000",
			"anthropic-ratelimit-input-tokens-reset": "2026-11-30T12:00:50Z"}, Load{Input: 10000}, 0},
		{"Anthropic refills until the reset", map[string]string{"anthropic-ratelimit-input-tokens-limit": "60000", "anthropic-ratelimit-input-tokens-remaining": "10000",
			"anthropic-ratelimit-input-tokens-reset": "2026-11-30T12:00:50Z"}, Load{Input: 20000}, 10 * time.Second},
		{"Anthropic's output counts as it is made", map[string]string{"anthropic-ratelimit-output-tokens-limit": "8000", "anthropic-ratelimit-output-tokens-remaining": "1000",
			"anthropic-ratelimit-output-tokens-reset": "2026-11-30T12:00:52Z"}, Load{Output: 8000}, 0},
		{"Anthropic's output is used up", map[string]string{"anthropic-ratelimit-output-tokens-limit": "60", "anthropic-ratelimit-output-tokens-remaining": "0",
			"anthropic-ratelimit-output-tokens-reset": "2026-11-30T12:01:00Z"}, Load{Output: 8000}, time.Second},
		{"OpenAI counts max_tokens, its reset is a duration", map[string]string{"x-ratelimit-limit-tokens": "60000", "x-ratelimit-remaining-tokens": "0",
			"x-ratelimit-reset-tokens": "1m0s"}, Load{Input: 3000, Output: 2000}, 5 * time.Second},
		{"requests are used up", map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
			"x-ratelimit-reset-requests": "1m0s"}, Load{}, time.Second},
		{"a reset in milliseconds", map[string]string{"x-ratelimit-limit-requests": "1", "x-ratelimit-remaining-requests": "0",
			"x-ratelimit-reset-requests": "20ms"}, Load{}, 20 * time.Millisecond},
		{"Azure's reset is in seconds", map[string]string{"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "0",
			"x-ratelimit-reset-tokens": "10"}, Load{Input: 100}, time.Second},
		{"without a limit it is full at the reset", map[string]string{"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "10"}, Load{Input: 6}, 10 * time.Second},
		{"without a reset it is a limit per minute", map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"}, Load{}, time.Second},
		{"Azure's Responses API reports -1", map[string]string{"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, Load{Input: 1e6}, 0},
		{"more than the whole limit waits until it is full", map[string]string{"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "500", "x-ratelimit-reset-tokens": "30"}, Load{Input: 1e6}, 30 * time.Second},
		{"a reset in years is not believed", map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2099-01-01T00:00:00Z"}, Load{}, believed},
		{"a reset that is past says nothing", map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2020-01-01T00:00:00Z"}, Load{}, 0},
		{"infinite seconds", map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "Inf"}, Load{}, believed},
		{"no number at all", map[string]string{"x-ratelimit-remaining-requests": "many", "x-ratelimit-reset-requests": "NaN"}, Load{}, 0},
	} {
		var s Shaper
		s.Observe(now, headersOf(tt.h))
		if got := s.Wait(now, tt.load); got != tt.want {
			t.Errorf("%s: Wait(%+v) = %s, want %s", tt.name, tt.load, got, tt.want)
		}
	}
}

func TestAShaperCountsWhatIsOnItsWay(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	full := headersOf(map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "57s"})
	var s Shaper
	s.Observe(now, full)
	for i := range 3 {
		if got := s.Wait(now, Load{}); got != 0 {
			t.Fatalf("Wait of request %d of 3 = %s, want 0", i+1, got)
		}
	}
	if got := s.Wait(now, Load{}); got != time.Second {
		t.Errorf("Wait of a fourth = %s, want 1s", got)
	}
	s.Observe(now, full) // One of the three is answered; two are not in what remains.
	if got := s.Wait(now, Load{}); got != 0 {
		t.Errorf("Wait with one place left = %s, want 0", got)
	}
	if got := s.Wait(now, Load{}); got != time.Second {
		t.Errorf("Wait with none left = %s, want 1s", got)
	}
	if got := s.Wait(now.Add(believed), Load{Input: 1e9}); got != 0 {
		t.Errorf("Wait when the headers are old = %s, want 0", got)
	}
}

// FuzzShaper: no header makes a wait longer than is believed, or one that never ends.
func FuzzShaper(f *testing.F) {
	f.Add("60000", "0", "1m0s", int64(100), int64(100))
	f.Add("1", "1", "2026-11-30T12:00:50Z", int64(1), int64(0))
	f.Add("-1", "-1", "0", int64(-1), int64(1)<<62)
	f.Add("9223372036854775807", "9223372036854775807", "-Inf", int64(1)<<62, int64(1)<<62)
	f.Fuzz(func(t *testing.T, limit, remaining, reset string, in, out int64) {
		var s Shaper
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		for range 3 {
			s.Observe(now, func(name string) string {
				for _, n := range names {
					switch name {
					case n.limit:
						return limit
					case n.remaining:
						return remaining
					case n.reset:
						return reset
					}
				}
				return ""
			})
			wait := s.Wait(now, Load{in, out})
			if wait < 0 || wait > believed {
				t.Fatalf("Wait = %s, want 0 to %s", wait, believed)
			}
			now = now.Add(wait)
		}
		if wait := s.Wait(now.Add(believed), Load{in, out}); wait != 0 {
			t.Fatalf("Wait when the headers are old = %s, want 0", wait)
		}
	})
}
