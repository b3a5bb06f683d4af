// Package drill is the game day: the faults that attempts can be made to meet in place of a provider, which attempts
// those are, and a server that plays the faults. Nothing changes at the provider, and nothing is sent to it.
package drill

import (
	"slices"
	"time"

	"understudy/pkg/classify"
)

// Fault is one way in which a provider can fail.
type Fault struct {
	Name   string
	Means  string         // for a report
	Class  classify.Class // what it must be read as
	Script string         // how it is played, in the words of scripted.ParseBehaviour
	Status int            // of the answer's headers; 0: none come

	// Streamed faults are nothing that an answer without a stream could show.
	Streamed bool
	// Hidden says that nothing of the fault passes for an answer, whatever the chain's policy: only such a fault may meet
	// traffic of clients, who must not take an invented answer for a model's.
	Hidden bool
	// Slow faults show only when a deadline is over.
	Slow bool
}

// Faults are all of them. What each looks like on the wire is in docs/wire-formats.md.
func Faults() []Fault {
	return []Fault{
		{Name: "overloaded", Means: "529 overloaded", Class: classify.Overloaded, Script: "529", Status: 529, Hidden: true},
		{Name: "server_error", Means: "500", Class: classify.ServerError, Script: "500", Status: 500, Hidden: true},
		{Name: "html_error", Means: "an HTML page of a proxy, 502", Class: classify.ServerError, Script: "html502", Status: 502, Hidden: true},
		{Name: "sse_error", Means: "a 200 whose stream fails before any content", Class: classify.Overloaded, Script: "error-start", Status: 200, Streamed: true, Hidden: true},
		{Name: "rate_limit", Means: "429 with Retry-After: 2", Class: classify.RateLimited, Script: "429 retry-after=2", Status: 429, Hidden: true},
		{Name: "reset", Means: "the connection is reset", Class: classify.Transport, Script: "reset", Hidden: true},
		{Name: "empty", Means: "a 200 that ends without a word", Class: classify.Truncated, Script: "cut n=0 how=end", Status: 200, Hidden: true},
		{Name: "malformed", Means: "a 200 that is not the dialect", Class: classify.Malformed, Script: "malformed n=0", Status: 200, Hidden: true},
		{Name: "auth", Means: "401", Class: classify.Auth, Script: "401", Status: 401, Hidden: true},
		{Name: "hang", Means: "nothing at all, until a deadline", Class: classify.Timeout, Script: "hang", Hidden: true, Slow: true},
		{Name: "slow_first_token", Means: "headers and keep-alives, but no content until a deadline", Class: classify.Timeout, Script: "keepalive", Status: 200, Streamed: true, Hidden: true, Slow: true},
		{Name: "flapping", Means: "overloaded for two seconds in four", Class: classify.Overloaded, Script: "529", Status: 529, Hidden: true},
		{Name: "refusal", Means: "the model refuses", Class: classify.Refusal, Script: "refusal n=0", Status: 200},
		{Name: "tier_downgrade", Means: "an answer at a lower tier than asked", Class: classify.OK, Script: "ok tier=flex", Status: 200},
		{Name: "cut", Means: "the connection dies after content", Class: classify.Transport, Script: "cut n=3 delay=100ms how=reset", Status: 200, Streamed: true},
		{Name: "late_error", Means: "the stream fails after content", Class: classify.Overloaded, Script: "error n=3 delay=100ms", Status: 200, Streamed: true},
		{Name: "stall", Means: "silence after content, until a deadline", Class: classify.Timeout, Script: "stall n=3", Status: 200, Streamed: true, Slow: true},
	}
}

// FlapPeriod is how long a flapping provider is down, and then up again.
const FlapPeriod = 2 * time.Second

// strikes says whether a request meets the fault at that time.
func (f Fault) strikes(streamed bool, now time.Time) bool {
	return (streamed || !f.Streamed) && (f.Name != "flapping" || now.UnixNano()/int64(FlapPeriod)%2 == 0)
}

// Named is the fault of that name.
func Named(name string) (Fault, bool) {
	all := Faults()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return all[i], true
}
