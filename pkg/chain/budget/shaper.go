package budget

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// believed bounds what one answer's headers can do: after it they say nothing any more. The limits that shaping is for
// are per minute; with a daily one that is used up, the provider is asked again every few minutes.
const believed = 5 * time.Minute

// limitMost bounds limits and what remains of them: no account has more than a trillion a minute.
const limitMost = 1e12

// Shaper knows how much room a provider account's rate limits have, from the provider's own headers, and says how long
// to hold a request so that it is not answered with a 429. The zero Shaper knows nothing and holds nothing.
//
// The limits are level and refill, both told by each answer, so that golang.org/x/time/rate, whose level cannot be set,
// does not fit. They are each replica's own: what the others use shows in what the provider says remains.
//
// Concurrency: safe for all.
type Shaper struct {
	mu      sync.Mutex // guards the fields below
	buckets [kinds]bucket

	// What went out and is not answered yet, so not in what the provider says remains.
	pending Load
	calls   int64
	lastOut time.Time
}

// Load is the tokens of a request, or of several: its input, and the most it may write.
type Load struct{ Input, Output int64 }

// kind is what a limit counts.
type kind int

const (
	requests     kind = iota
	anthropicAll      // "the most restrictive limit in effect"; output counts as it is made
	anthropicIn       // uncached input
	anthropicOut      // output, as it is made
	openaiAll         // input and max_tokens, as the request comes
	openaiProject
	kinds
)

// need is what a request takes of a limit. Of one that counts output as it is made there only has to be some left.
func (k kind) need(calls int64, l Load) float64 {
	switch k {
	case requests:
		return float64(calls)
	case anthropicAll, anthropicIn:
		return float64(l.Input)
	case anthropicOut:
		return float64(calls)
	default:
		return float64(l.Input) + float64(l.Output)
	}
}

// names are the headers of each kind of limit, wire-formats 1e, 5e and 7; fast and priority traffic of Anthropic's has
// limits of its own, which do not hold the rest.
var names = [...]struct {
	kind                    kind
	limit, remaining, reset string
}{
	{requests, "anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"},
	{anthropicAll, "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"},
	{anthropicIn, "anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"},
	{anthropicOut, "anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"},
	{requests, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"},
	{openaiAll, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"},
	{openaiProject, "x-ratelimit-limit-project-tokens", "x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"},
}

// bucket is one limit, as told at a moment.
type bucket struct {
	level float64 // what was left then
	limit float64 // when it is full; +Inf where that is not told
	rate  float64 // of refill, per second
	at    time.Time
	full  time.Time // from then on it says nothing: it is full, or too old to go by
}

// Observe takes the headers of an answer that came at now. get is asked for lower-case names and returns "" for a header
// that is absent.
func (s *Shaper) Observe(now time.Time, get func(lowerCaseName string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered(now)
	for _, n := range names {
		b, ok := readBucket(now, get(n.limit), get(n.remaining), get(n.reset))
		if ok {
			b.level -= n.kind.need(s.calls, s.pending)
			s.buckets[n.kind] = b
		}
	}
}

// Lost notes that a request which Wait has counted got no answer.
func (s *Shaper) Lost(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered(now)
}

// Return takes back what Wait has counted for a request that was not sent.
func (s *Shaper) Return(l Load) {
	l = l.bounded()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.buckets {
		s.buckets[k].level += kind(k).need(1, l)
	}
	s.calls = max(s.calls-1, 0)
	s.pending.Input = max(s.pending.Input-l.Input, 0)
	s.pending.Output = max(s.pending.Output-l.Output, 0)
}

func (l Load) bounded() Load {
	return Load{min(max(l.Input, 0), limitMost), min(max(l.Output, 0), limitMost)}
}

// answered takes the average of what is pending off it. What nobody answers is forgotten a while after the last request.
// Caller holds mu.
func (s *Shaper) answered(now time.Time) {
	if s.calls <= 1 || now.Sub(s.lastOut) > time.Minute {
		s.calls, s.pending = 0, Load{}
		return
	}
	s.pending.Input -= s.pending.Input / s.calls
	s.pending.Output -= s.pending.Output / s.calls
	s.calls--
}

// Wait is how long to hold a request; with 0 it is counted, and is to be sent. It is at most five minutes.
func (s *Shaper) Wait(now time.Time, l Load) time.Duration {
	l = l.bounded()
	s.mu.Lock()
	defer s.mu.Unlock()
	var wait time.Duration
	for k := range s.buckets {
		wait = max(wait, s.buckets[k].wait(now, kind(k).need(1, l)))
	}
	if wait > 0 {
		return wait
	}
	for k := range s.buckets {
		s.buckets[k].level -= kind(k).need(1, l)
	}
	s.calls, s.lastOut = s.calls+1, now
	s.pending.Input = min(s.pending.Input+l.Input, limitMost)
	s.pending.Output = min(s.pending.Output+l.Output, limitMost)
	return 0
}

// wait is how long until a bucket has room for need, or is full, for a need that is larger than it.
func (b *bucket) wait(now time.Time, need float64) time.Duration {
	if !now.Before(b.full) {
		return 0
	}
	missing := min(need, b.limit) - min(b.limit, b.level+b.rate*max(now.Sub(b.at).Seconds(), 0))
	if missing <= 0 {
		return 0
	}
	until := min(b.full.Sub(now), believed)
	if seconds := missing / b.rate; seconds < until.Seconds() {
		return max(time.Duration(math.Ceil(seconds*1e3))*time.Millisecond, time.Millisecond)
	}
	return until
}

// readBucket reads one limit; ok is false where the headers do not tell one, or tell none that can be.
func readBucket(now time.Time, limit, remaining, reset string) (b bucket, ok bool) {
	level, known := count(remaining)
	if !known {
		return b, false
	}
	b = bucket{level: level, limit: math.Inf(1), at: now}
	after, told := untilReset(now, reset)
	if most, known := count(limit); known && most > 0 {
		b.limit, b.level = most, min(level, most)
		if gone := b.limit - b.level; told && gone > 0 {
			b.rate = gone / after.Seconds()
		} else {
			after, b.rate = time.Minute, b.limit/60 // Limits are per minute, unless they say otherwise.
		}
	} else if !told {
		return b, false
	}
	b.full = now.Add(after)
	return b, true
}

// count reads what a limit counts. "Responses API may report -1" (wire-formats 7).
func count(s string) (float64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return float64(min(n, limitMost)), err == nil && n >= 0
}

// untilReset reads when a limit is full again: Anthropic's RFC 3339 time, OpenAI's "6m0s", Azure's seconds (wire-formats
// 1e, 5e, 7). What lies behind, or is 0, tells nothing; what lies far ahead is not believed.
func untilReset(now time.Time, s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	d, err := time.ParseDuration(s)
	if err != nil {
		var seconds float64
		if seconds, err = strconv.ParseFloat(s, 64); err == nil && seconds < believed.Seconds() {
			d = time.Duration(seconds * float64(time.Second))
		} else if err == nil && seconds > 0 {
			d = believed
		}
	}
	if err != nil {
		var at time.Time
		if at, err = time.Parse(time.RFC3339, s); err == nil {
			d = at.Sub(now)
		}
	}
	return min(d, believed), err == nil && d > 0
}
