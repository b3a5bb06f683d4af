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

// retryAfter is the pause a response asks for, in milliseconds from 0 to 24 h; what makes no sense is 0. SDKs read
// retry-after-ms first, then retry-after as seconds or a date (wire-formats 10). now is when the headers came.
func retryAfter(get func(string) string, now time.Time) int64 {
	if ms, ok := pause(get("retry-after-ms"), 1); ok {
		return ms
	}
	after := get("retry-after")
	if ms, ok := pause(after, 1000); ok {
		return ms
	}
	if now.IsZero() {
		now, _ = parseDate(get("date"))
	}
	at, ok := parseDate(after)
	if !ok || now.IsZero() {
		return 0
	}
	return clamp(float64(at.Sub(now).Milliseconds()))
}

// pause reads a number of units of unit milliseconds.
func pause(s string, unit float64) (int64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil && v == 0 {
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
	for _, format := range dateFormats {
		if at, err := time.Parse(format, strings.TrimSpace(s)); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
