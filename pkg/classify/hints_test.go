package classify

import (
	"testing"
	"time"
)

func TestRetryHintsHaveAnOrder(t *testing.T) {
	now := time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)
	spent := []string{"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "30s"}
	for _, tt := range []struct {
		name    string
		class   Class
		spoken  int64
		headers []string
		want    int64
	}{
		{"nothing is told", RateLimited, 0, nil, 0},
		{"the message alone", RateLimited, 37_000, nil, 37_000},
		{"a reset before the message", RateLimited, 37_000, spent, 30_000},
		{"retry-after before a reset", RateLimited, 37_000, append(spent, "retry-after", "2"), 2000},
		{"retry-after of 0 is told", RateLimited, 37_000, append(spent, "retry-after", "0"), 0},
		{"a nonsense retry-after is not told", RateLimited, 0, append(spent, "retry-after", "-1"), 30_000},
		{"a past date is told", RateLimited, 0, append(spent, "retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"), 0},
		{"x-ms-retry-after-ms before retry-after", RateLimited, 0, []string{"retry-after", "2", "x-ms-retry-after-ms", "1500"}, 1500},
		{"retry-after-ms before x-ms-retry-after-ms", RateLimited, 0, []string{"retry-after-ms", "1400", "x-ms-retry-after-ms", "1500"}, 1400},
		{"a reset says nothing of an overload", Overloaded, 0, spent, 0},
		{"an overload may ask in its message", Overloaded, 20_000, spent, 20_000},
		{"full capacity may ask in its message", Capacity, 20_000, nil, 20_000},
		{"money does not come back", Quota, 20_000, spent, 0},
		{"money may have a retry-after", Quota, 0, []string{"retry-after", "9"}, 9000},
		{"an answer asks for nothing", OK, 20_000, append(spent, "retry-after", "9"), 0},
		{"the spent limit that is full last", RateLimited, 0, []string{
			"anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset", "2026-10-21T07:28:05Z",
			"anthropic-ratelimit-tokens-remaining", "0", "anthropic-ratelimit-tokens-reset", "2026-10-21T09:28:50+02:00",
			"anthropic-ratelimit-input-tokens-remaining", "1000", "anthropic-ratelimit-input-tokens-reset", "2026-10-21T07:30:00Z"}, 50_000},
		{"no spent limit: the one that is full first", RateLimited, 0, []string{
			"x-ratelimit-reset-requests", "6m0s", "x-ratelimit-reset-tokens", "16m17.764s"}, 360_000},
		{"a spent limit without a time", RateLimited, 0, []string{
			"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "-1", "x-ratelimit-reset-tokens", "20ms"}, 20},
		{"an absurd reset is clamped", RateLimited, 0, []string{"x-ratelimit-reset-tokens", "999999h"}, 86_400_000},
		{"a reset that is a word", RateLimited, 0, []string{"x-ratelimit-reset-tokens", "soon"}, 0},
	} {
		h := readHints(headers(tt.headers...), now)
		if got := h.pause(tt.class, tt.spoken); got != tt.want {
			t.Errorf("%s: pause(%v) = %d, want %d", tt.name, tt.class, got, tt.want)
		}
	}
}

func TestAMessageMayAskForAPause(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0,
		"please retry after 37 seconds. please go here: https://x": 37_000,
		"please retry after 1 second.":                             1000,
		"please retry after 86400 seconds":                         86_400_000,
		"please retry after 99999999 seconds":                      86_400_000,
		"please try again in 20s.":                                 20_000,
		"please try again in 6m0s. visit":                          360_000,
		"please try again in 120ms.":                               120,
		"please retry in 34.074824224s.":                           34_075,
		"please retry after -5 seconds":                            0,
		"please retry after some seconds":                          0,
		"please retry after":                                       0,
		"please retry after ":                                      0,
		"please retry after a while, or try again in 2s":           2000,
		"try again in 5 minutes":                                   0,
	} {
		if got := spokenAfter(text); got != want {
			t.Errorf("spokenAfter(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestOnlyTheFirstErrorsMessageCounts(t *testing.T) {
	r := New(Options{API: OpenAIResponses})
	r.Header(200, eventStream)
	r.Feed([]byte("data: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"retry after 7 seconds\"}\n\n"))
	r.Feed([]byte("data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"retry after 9 seconds\"}}}\n\n"))
	if v := r.End(true); v.Class != RateLimited || v.RetryAfterMS != 7000 {
		t.Errorf("End = %v, retry after %d, want %v, 7000", v.Class, v.RetryAfterMS, RateLimited)
	}
}

func TestShouldRetryIsToldOfFailures(t *testing.T) {
	for _, tt := range []struct {
		status int
		header string
		want   string
	}{
		{503, "true", "true"}, {503, "FALSE", "false"}, {503, "", "nil"}, {503, "perhaps", "nil"}, {200, "true", "nil"},
	} {
		r := New(Options{API: OpenAIChat})
		r.Header(tt.status, headers("x-should-retry", tt.header))
		r.Feed([]byte(`{"choices":[{}]}`))
		got := "nil"
		if v := r.End(true); v.ShouldRetry != nil {
			got = map[bool]string{true: "true", false: "false"}[*v.ShouldRetry]
		}
		if got != tt.want {
			t.Errorf("%d with x-should-retry %q: ShouldRetry = %s, want %s", tt.status, tt.header, got, tt.want)
		}
	}
}

func TestAnIgnoredTierIsToldAndNotCompared(t *testing.T) {
	for ignore, want := range map[bool]bool{false: true, true: false} {
		r := New(Options{API: OpenAIChat, AskedTier: "priority", IgnoreTier: ignore})
		r.Header(200, headers())
		r.Feed([]byte(`{"choices":[{}],"service_tier":"default"}`))
		if v := r.End(true); v.Downgraded != want || v.AskedTier != "priority" || v.ServedTier != "default" {
			t.Errorf("IgnoreTier %v: asked %s, served %s, downgraded %v, want priority, default, %v", ignore, v.AskedTier, v.ServedTier, v.Downgraded, want)
		}
	}
}
