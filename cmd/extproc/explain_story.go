package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// was says what an answer of a class really was, of a target.
var was = map[string]string{
	"ok":             "gave a good answer",
	"overloaded":     "was overloaded",
	"server_error":   "had an error of its own",
	"timeout":        "did not answer in time",
	"transport":      "could not be reached, or the connection to it broke",
	"truncated":      "broke its answer off",
	"malformed":      "answered what is not of its API",
	"rate_limited":   "said that the account's rate limit is reached",
	"capacity":       "had no room in the cheaper service tier",
	"quota":          "said that the account's money is used up",
	"auth":           "refused the credential",
	"invalid":        "found the request wrong",
	"context_length": "found the prompt too long for the model",
	"refusal":        "refused to answer",
	"filtered":       "filtered the prompt or the answer",
	"canceled":       "was not heard to the end",
}

// seenIn says where a verdict was found, by its phase.
var seenIn = map[string]string{
	"status": "its status or headers said so", "body": "its body said so", "first": "its stream said so before any content",
	"stream": "its stream said so after content", "end": "the end of its answer said so", "transport": "there was no usable response",
}

// tell writes the story of exchanges that belong together.
func tell(w *bufio.Writer, lines []*exchangeLine) {
	for i, x := range lines {
		if i > 0 {
			fmt.Fprintln(w)
		}
		s := tale{w: w, x: x}
		s.head(i > 0 && lines[i-1].Key == x.Key)
		s.attempts()
		s.end()
		s.cost()
	}
}

// tale writes that of one exchange. A duration at the start of a line is since the exchange began.
type tale struct {
	w *bufio.Writer
	x *exchangeLine
}

func (s tale) say(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// at writes what happened so many milliseconds after the start.
func (s tale) at(ms int64, format string, args ...any) {
	s.say("%12s  %s", sometime(ms), fmt.Sprintf(format, args...))
}

func sometime(ms int64) string {
	if ms < 0 {
		return "?"
	}
	return (time.Duration(min(ms, 1<<40)) * time.Millisecond).String()
}

func (s tale) head(follows bool) {
	x := s.x
	kind := "Exchange"
	if x.Job {
		kind = "Run of a queued request, exchange"
		if follows {
			kind = "Later, the queued request was run: exchange"
		}
	}
	s.say("%s %s of chain %s, %s.", kind, plain(x.ID), plain(x.Chain), x.Start.UTC().Format("2006-01-02 15:04:05.000 UTC"))
	about := []string{}
	add := func(what, value string) {
		if value != "" {
			about = append(about, what+" "+plain(value))
		}
	}
	add("request", x.RequestID)
	add("trace", x.TraceID)
	add("ended by replica", x.Replica)
	add("config", x.Config[:min(len(x.Config), 12)])
	if len(about) > 0 {
		s.say("(%s)", strings.Join(about, ", "))
	}
	if x.Drill != "" {
		s.say("It was part of drill %s.", plain(x.Drill))
	}
	s.say("")
	asked := "one whole answer"
	if x.Streamed {
		asked = "a stream"
	}
	s.at(0, "The request came, for %s.", asked)
	if x.ClientRetry > 0 {
		s.at(0, "It was the client library's own retry number %d.", x.ClientRetry)
	}
}

// attempts tells who was asked, and what each answer was.
func (s tale) attempts() {
	x, known := s.x, map[int]bool{}
	for _, p := range x.Past {
		known[p.Attempt] = true
		s.attempt(p, p.SentMS)
		if p.SentMS != nil {
			s.at(*p.SentMS+p.TookMS, "%s %s.", plain(p.Target), p.verdict())
		}
	}
	s.unknown(known)
	if x.Target == "" || x.SentMS == nil {
		return
	}
	last := x.attemptLine
	last.Attempt = x.Attempts
	s.attempt(last, x.SentMS)
	if x.Fault != "" {
		s.at(*x.SentMS, "The drill's fault %s was played in its place.", plain(x.Fault))
	}
	if x.FirstContentMS != nil {
		s.at(*x.FirstContentMS, "Its first content came, %s after it was asked.", sometime(*x.FirstContentMS-*x.SentMS))
	}
	if x.CommittedMS != nil {
		s.at(*x.CommittedMS, "The headers left for the client, with status %d: from here on nobody else could answer.", x.Status)
	}
	if x.Class != "" {
		s.at(x.TookMS, "%s %s.", plain(x.Target), last.verdict())
	}
	if x.Downgraded {
		s.at(x.TookMS, "It was served at tier %s, and %s was asked for.", plain(x.ServedTier), plain(x.AskedTier))
	}
}

func (s tale) attempt(a attemptLine, sent *int64) {
	if sent == nil {
		return
	}
	rung := "the primary"
	if a.Rung > 0 {
		rung = "rung " + strconv.Itoa(a.Rung)
	}
	s.at(*sent, "Attempt %d asked %s, %s.", a.Attempt, plain(a.Target), rung)
}

// verdict says what a target did, and how that is known.
func (a attemptLine) verdict() string {
	did := was[a.Class]
	if did == "" {
		did = "came to " + plain(a.Class)
	}
	why := []string{}
	if a.Detail != "" {
		why = append(why, plain(a.Detail))
	}
	if seen := seenIn[a.Phase]; seen != "" && a.Class != "ok" && a.Class != "canceled" {
		why = append(why, seen)
	}
	if a.ProviderStatus > 0 && a.Class != "ok" {
		why = append(why, fmt.Sprintf("an honest status is %d", a.ProviderStatus))
	}
	if a.ProviderID != "" {
		why = append(why, "the provider calls it "+plain(a.ProviderID))
	}
	if len(why) > 0 {
		did += " (" + strings.Join(why, "; ") + ")"
	}
	return did
}

// unknown tells of the attempts that no known call belongs to.
func (s tale) unknown(known map[int]bool) {
	x := s.x
	var missing []string
	before := min(x.Attempts, 100)
	if x.Target == "" {
		before++ // the last asked nobody either
	}
	for n := 1; n < before; n++ {
		if !known[n] {
			missing = append(missing, strconv.Itoa(n))
		}
	}
	if len(missing) > 0 {
		s.say("%12s  Of attempt %s no call is known here: its target was passed over (breaker, cooldown, limits), or another replica made it.",
			"", strings.Join(missing, ", "))
	}
	if x.PastLeftOut > 0 {
		s.say("%12s  %d more attempts are not in the line.", "", x.PastLeftOut)
	}
	if x.Ineligible != "" {
		s.say("%12s  The request itself kept targets out: %s.", "", plain(x.Ineligible))
	}
}

// end tells what the client got.
func (s tale) end() {
	x := s.x
	s.say("")
	who := "The client"
	if x.Job {
		who = "The job"
	}
	s.say("%s %s", who, s.got())
	if x.CommittedMS != nil && !x.Job {
		s.say("It waited %s for the first byte and %s for the last.", sometime(*x.CommittedMS), sometime(x.TookMS))
	} else {
		s.say("All took %s.", sometime(x.TookMS))
	}
}

func (s tale) got() string {
	x := s.x
	because := ""
	if x.Reason != "" {
		because = "; what failed last before it was " + plain(x.Reason)
	}
	switch {
	case x.Replayed:
		return fmt.Sprintf("got what another exchange under the same idempotency key got, with status %d.", x.Status)
	case x.Outcome == "served":
		return fmt.Sprintf("got the answer of %s, the primary, with status %d.", plain(x.Target), x.Status)
	case x.Outcome == "fallback":
		return fmt.Sprintf("got the answer of %s, a fallback, with status %d%s.", plain(x.Target), x.Status, because)
	case x.Outcome == "degraded":
		return s.degraded() + because + "."
	case x.Outcome == "canceled" && x.CommittedMS != nil:
		return "left before the answer had ended."
	case x.Outcome == "canceled":
		return "left before there was an answer."
	case x.CommittedMS != nil && x.Status < 400:
		return fmt.Sprintf("got the beginning of an answer with status %d, and then an honest end: an error in the stream, or an aborted transfer.", x.Status)
	case x.Status == 0:
		return "got no answer of the service's."
	}
	return fmt.Sprintf("got an error, with status %d%s.", x.Status, because)
}

func (s tale) degraded() string {
	x := s.x
	label, rest, _ := strings.Cut(x.Degraded, "; ")
	switch {
	case label == "cache":
		return fmt.Sprintf("got an earlier answer from the cache (%s), with status %d", plain(rest), x.Status)
	case x.jobID() != "":
		return fmt.Sprintf("was told that the request is queued as job %s, with status %d", plain(x.jobID()), x.Status)
	case x.Mode == "downshift":
		return fmt.Sprintf("got the answer of %s, a downshift, with status %d", plain(x.Target), x.Status)
	}
	return fmt.Sprintf("got the chain's %s answer, with status %d", plain(x.Mode), x.Status)
}

// cost tells what was used, and what all known attempts cost.
func (s tale) cost() {
	x := s.x
	if in := x.InputTokens + x.CacheReadTokens + x.CacheWriteTokens; in+x.OutputTokens > 0 {
		cached := ""
		if x.CacheReadTokens > 0 {
			cached = fmt.Sprintf(" (%d of them from the provider's cache)", x.CacheReadTokens)
		}
		s.say("%s used %d tokens of input%s and %d of output.", plain(x.Target), in, cached, x.OutputTokens)
	}
	sum := x.CostUSD
	for _, p := range x.Past {
		sum += p.CostUSD
	}
	if sum > 0 {
		about := ""
		if x.CostEstimated {
			about = "about "
		}
		s.say("The attempts that are known here cost %s%.6g USD.", about, sum)
	}
}

// longestWord is the most, in bytes, that is shown of what a log says.
const longestWord = 400

// plain is s as a terminal may have it: what is not printable, escapes above all, is written as Go does.
func plain(s string) string {
	if len(s) > longestWord {
		cut := longestWord
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
