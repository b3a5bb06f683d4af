package classify

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter is the longest pause that is believed: Azure was seen to say "retry after 86400 seconds".
const maxRetryAfter = 24 * time.Hour

// dateFormats are the three forms of an HTTP date (RFC 9110, 5.6.7), and the preferred one with a numeric zone.
var dateFormats = []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC1123Z, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}

// retryAfter is the pause that the headers ask for, in milliseconds from 0 to 24 h, and whether they do. SDKs read
// retry-after-ms first, then retry-after as seconds or a date (wire-formats 10); Azure's other spelling is
// x-ms-retry-after-ms. now is when the headers came. What makes no sense is not there.
func retryAfter(get func(string) string, now time.Time) (int64, bool) {
	for _, name := range []string{"retry-after-ms", "x-ms-retry-after-ms"} {
		if ms, ok := pause(get(name), 1); ok {
			return ms, true
		}
	}
	after := get("retry-after")
	if ms, ok := pause(after, 1000); ok {
		return ms, true
	}
	at, ok := parseDate(after)
	return until(at, now), ok && !now.IsZero()
}

// until is the time from now to at, 0 where one of them is not known.
func until(at, now time.Time) int64 {
	if at.IsZero() || now.IsZero() {
		return 0
	}
	return clamp(float64(at.Sub(now).Milliseconds()))
}

// pause reads a number of units of unit milliseconds, the first of a list: a proxy may add a second header.
func pause(s string, unit float64) (int64, bool) {
	if s == "" { // as nearly always
		return 0, false
	}
	s, _, _ = strings.Cut(s, ",")
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil && v == 0 || !(v >= 0) {
		return 0, false
	}
	return clamp(v * unit), true
}

// clamp rounds up, so that nobody comes back too early.
func clamp(ms float64) int64 {
	limit := float64(maxRetryAfter.Milliseconds())
	switch {
	case ms > limit:
		return int64(limit)
	case ms > 0:
		return int64(math.Ceil(ms))
	}
	return 0
}

func parseDate(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, false
	}
	for _, format := range dateFormats {
		if at, err := time.Parse(format, strings.TrimSpace(s)); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// limit is the headers of one rate limit: how much of it is left, and when it is full again.
type limit struct{ remaining, reset string }

// limits are the rate limits that providers report (wire-formats 1e, 5e, 7).
var limits = []limit{
	{"anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"},
	{"anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"},
	{"anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"},
	{"anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"},
	{"anthropic-priority-input-tokens-remaining", "anthropic-priority-input-tokens-reset"},
	{"anthropic-priority-output-tokens-remaining", "anthropic-priority-output-tokens-reset"},
	{"anthropic-fast-input-tokens-remaining", "anthropic-fast-input-tokens-reset"},
	{"anthropic-fast-output-tokens-remaining", "anthropic-fast-output-tokens-reset"},
	{"x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"},
	{"x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"},
	{"x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"},
}

// resetAfter is the pause until the limits that are used up are full again, in milliseconds; where none says that it
// is used up, until the first of them is. 0 if no header tells. It is too long rather than too short: "-reset is full
// replenishment, so retry-after wins" (wire-formats 1e).
func resetAfter(get func(string) string, now time.Time) int64 {
	var spent, soonest int64
	for _, l := range limits {
		ms := reset(get(l.reset), now)
		switch {
		case ms == 0:
		case get(l.remaining) == "0":
			spent = max(spent, ms)
		case soonest == 0 || ms < soonest:
			soonest = ms
		}
	}
	if spent > 0 {
		return spent
	}
	return soonest
}

// reset reads when a limit is full again: Anthropic's RFC 3339 time, OpenAI's "6m0s", Azure's seconds. 0 and -1 are
// no times: "Responses API may report -1/0" (wire-formats 7).
func reset(s string, now time.Time) int64 {
	if s = strings.TrimSpace(s); s == "" {
		return 0
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return until(at, now)
	}
	if d, err := time.ParseDuration(s); err == nil {
		return clamp(float64(d) / float64(time.Millisecond))
	}
	ms, _ := pause(s, 1000)
	return ms
}

// retryDelay is the pause that an error's RetryInfo asks for: Google writes a duration as "34s" or "0.5s"
// (wire-formats 8). 0 if none.
func (f *facts) retryDelay() int64 {
	ms, _ := pause(strings.TrimSuffix(f.text(factRetryDelay), "s"), 1000)
	return ms
}

// spokenAfter is the pause that an error's message, in lower case, asks for, in milliseconds; 0 if none. Azure says
// "please retry after 37 seconds" (wire-formats 7), OpenAI "please try again in 6m0s" (general knowledge).
func spokenAfter(text string) int64 {
	for _, phrase := range []string{"retry after ", "try again in ", "retry in "} {
		_, rest, found := strings.Cut(text, phrase)
		if !found {
			continue
		}
		words := strings.Fields(rest)
		if len(words) == 0 {
			continue
		}
		if d, err := time.ParseDuration(strings.TrimRight(words[0], ".,")); err == nil {
			return clamp(float64(d) / float64(time.Millisecond))
		}
		if len(words) > 1 && strings.HasPrefix(words[1], "second") {
			ms, _ := pause(words[0], 1000)
			return ms
		}
	}
	return 0
}
