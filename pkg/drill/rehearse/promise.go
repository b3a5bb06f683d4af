package rehearse

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/drill"
)

// end is how an answer ends.
type end uint8

const (
	whole    end = iota // a good answer in the dialect, to its end marker
	refused             // a refusal in the dialect, to its end marker
	failure             // an error status, in the dialect
	told                // content, and then an error in the dialect
	honest              // begun, and then an error in the dialect or an aborted transfer: never a clean end
	asPlayed            // an error as it was played, whatever its body
)

func (e end) String() string {
	return [...]string{
		"a whole answer in the dialect", "a refusal in the dialect", "an error in the dialect",
		"content, then an error in the dialect", "no clean end, but an error in the dialect or an aborted transfer",
		"the error as it was played",
	}[e]
}

// nobody is the rung of an answer that no target gave.
const nobody = -1

// slack is added to every deadline that the config sets: a busy machine is no broken promise.
const slack = 5 * time.Second

// promise is what a config says will come of a request.
type promise struct {
	status   int      // 0: any that says failure
	rung     int      // or nobody
	targets  []string // of the rung, one of which answers
	attempts int      // 0: left open
	reason   string   // x-llm-fallback-reason; "" is none
	silent   bool     // the reason may be left out: replicas do not always know of each other's attempts
	mode     string   // what x-llm-degraded begins with; "" is none
	end      end
	text     string // of the answer, or of its error; "": left open

	begins time.Duration // until the headers
	ends   time.Duration // until the end; 0: left open
}

func (p promise) String() string {
	var say []string
	add := func(format string, args ...any) { say = append(say, fmt.Sprintf(format, args...)) }
	if p.status == 0 {
		add("an error status")
	} else {
		add("status %d", p.status)
	}
	if p.rung != nobody {
		add("by %s (rung %d)", strings.Join(p.targets, " or "), p.rung)
	}
	if p.attempts > 0 {
		add("at attempt %d", p.attempts)
	}
	if p.reason != "" {
		add("because of %s", p.reason)
	}
	if p.mode != "" {
		add("x-llm-degraded: %s", p.mode)
	}
	add("%s", p.end)
	if p.text != "" {
		add("saying %s", quoted(p.text))
	}
	if p.begins > 0 {
		add("beginning within %s", p.begins)
	}
	if p.ends > 0 {
		add("ending within %s", p.ends)
	}
	return strings.Join(say, ", ")
}

// quoted is a text for a report, as far as somebody would read it: an owner's words are, a model's answer may be longer.
func quoted(text string) string {
	const readable = 2000 // bytes
	if len(text) <= readable {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:readable], len(text))
}

// policy is a chain as its owner wrote it. What it promises is derived here a second time, from the config alone: nothing
// is shared with what decides in the service.
type policy struct {
	*config.Chain
	replicas int
}

// names are the targets of rungs from first to before last.
func (p policy) names(first, last int) []string {
	var names []string
	for _, r := range p.Rungs[first:last] {
		for _, m := range r.All() {
			names = append(names, m.Target.Name)
		}
	}
	return names
}

func (p policy) rung(i int) []string { return p.names(i, i+1) }

// all lets every target before rung meet a fault.
func (p policy) all(rung int, fault string) map[string]string {
	faults := map[string]string{}
	for _, name := range p.names(0, rung) {
		faults[name] = fault
	}
	if len(faults) == 0 {
		faults[drill.Any] = ""
	}
	return faults
}

// failing is a fault that no chain lets through: one with commit: headers passes on what has any headers.
func (p policy) failing() drill.Fault {
	name := "overloaded"
	if p.Commit == config.CommitHeaders {
		name = "reset"
	}
	f, _ := drill.Named(name)
	return f
}

// attempt is at which attempt rung answers when all before it failed, 0 where that is left to chance. Each target has one
// attempt, one more where the same target may be asked again, and one more where it asks for a discounted tier.
func (p policy) attempt(rung int) int {
	n := 1
	for _, r := range p.Rungs[:rung] {
		for _, m := range r.All() {
			n++
			if p.Retry.SameTarget > 0 || p.On.RateLimited == "wait" {
				n++
			}
			if p.On.Capacity == "standard" && m.Target.Tier == "flex" {
				n++
			}
		}
	}
	return n
}

// patience is how long a good answer of one target may take to begin.
func (p policy) patience(stream bool) time.Duration {
	switch {
	case !stream:
		return p.Deadlines.Answer
	case p.Commit == config.CommitComplete:
		return min(p.Deadlines.Answer, p.Hold.Time)
	}
	return p.Deadlines.FirstContent
}

// serves is what rung promises when all before it failed for a reason.
func (p policy) serves(rung int, reason string, stream bool) promise {
	w := promise{status: 200, rung: rung, targets: p.rung(rung), attempts: p.attempt(rung), end: whole, begins: p.patience(stream) + slack}
	if rung > 0 {
		w.reason, w.silent = reason, p.replicas > 1
	}
	if p.down(rung) {
		w.mode = "downshift"
	}
	return w
}

func (p policy) down(rung int) bool { return p.Downshift > 0 && rung >= p.Downshift }

// spent is what an exchange gets that no target and no degraded mode answers.
func (p policy) spent(after time.Duration) promise {
	return promise{rung: nobody, end: failure, begins: after + slack}
}

// tries is how often the primary is asked that fails with a class.
func (p policy) tries(c classify.Class) time.Duration {
	if p.Retry.SameTarget > 0 && slices.Contains(p.Retry.On, c.String()) {
		return 2
	}
	return 1
}

// silence is how long a slow fault lasts until a deadline ends it.
func (p policy) silence(f drill.Fault, stream bool) time.Duration {
	d := p.Deadlines
	switch {
	case !f.Slow:
		return 0
	case late(f) && p.Commit == config.CommitComplete:
		return min(d.Idle, d.Answer, p.Hold.Time)
	case late(f):
		return d.Idle
	case !stream:
		return d.Answer
	case p.Commit == config.CommitComplete && f.Status != 0:
		return min(d.FirstContent, d.Answer, p.Hold.Time)
	case p.Commit == config.CommitComplete:
		return min(d.FirstContent, d.Answer)
	}
	return d.FirstContent
}

// late faults begin as a good answer.
func late(f drill.Fault) bool { return f.Streamed && !f.Hidden }

// dear says that budget.max_premium may keep out a fallback among names, "" where it keeps out none: one of its prices is
// that much higher than the primary's, and how much each of them weighs depends on the request.
func (p policy) dear(names []string) string {
	first, most := p.Rungs[0].Target, p.Budget.MaxPremium
	for _, r := range p.Rungs[1:] {
		for _, m := range r.All() {
			if slices.Contains(names, m.Target.Name) && most > 0 && exceeds(m.Target.Price, most, first.Price) {
				return fmt.Sprintf("%s may keep out %s, which can cost more than %g times what %s does", p.at("budget.max_premium"), m.Target.Name, most, first.Name)
			}
		}
	}
	return ""
}

// exceeds says that one of a's prices at its dearest tier is more than most times that of b.
func exceeds(a config.Price, most float64, b config.Price) bool {
	dearest := func(p config.Price) float64 {
		return slices.Max(append(slices.Collect(maps.Values(p.Tiers)), 1))
	}
	over := dearest(a) / (most * dearest(b))
	return a.Input*over > b.Input || a.Output*over > b.Output || a.CacheRead*over > b.CacheRead || a.CacheWrite*over > b.CacheWrite
}

// alone says that nobody else may answer for the primary.
func (p policy) alone() bool {
	if len(p.Rungs) == 1 {
		return len(p.Rungs[0].All()) == 1
	}
	for i := 1; i < len(p.Rungs); i++ {
		if p.dear(p.rung(i)) == "" {
			return false
		}
	}
	return true
}

// passes says that the client sees the fault, by the chain's commit policy.
func (p policy) passes(f drill.Fault, stream bool) bool {
	switch {
	case p.Commit == config.CommitHeaders:
		return f.Status != 0
	case p.Commit == config.CommitComplete:
		return false
	}
	// What is held for too long is let go.
	return late(f) || f.Slow && f.Status != 0 && stream && p.Hold.Time < p.Deadlines.FirstContent
}

// next is the rung to which the chain goes on from a primary that meets a fault before anything of it is let through; 0:
// to none, by its policy or for want of one that could do better.
func (p policy) next(f drill.Fault) int {
	on := true
	switch {
	case f.Class == classify.RateLimited:
		on = p.On.RateLimited == "next" || p.On.RateLimited == "wait"
	case f.Class == classify.Refusal:
		on = p.On.Refusal == "next"
	case f.Name == "tier_downgrade":
		on = p.On.TierDowngrade == "next"
	}
	for i := 1; i < len(p.Rungs) && on; i++ {
		// A refusal is the model's own: another family may think otherwise.
		if f.Class != classify.Refusal || p.Rungs[i].Target.Family != p.Rungs[0].Target.Family {
			return i
		}
	}
	return 0
}

// stays says that the primary's own answer is the client's when the chain does not go on.
func (p policy) stays(f drill.Fault) bool {
	return f.Class == classify.Refusal || f.Class == classify.OK ||
		f.Class == classify.RateLimited && (p.On.RateLimited == "return" || p.On.RateLimited == "queue")
}

// reason is the fault in the words of x-llm-fallback-reason.
func reason(f drill.Fault) string {
	if f.Class == classify.OK {
		return f.Name
	}
	return f.Class.String()
}

// meets is what the chain promises when its primary meets a fault, and which degraded mode the caller must accept for it.
func (p policy) meets(f drill.Fault, stream bool) (w promise, accept string) {
	next, silence := p.next(f), p.waits(f, stream)
	switch {
	case p.passes(f, stream):
		return p.let(f, stream), "none"
	case next == 0 && p.stays(f):
		return p.returned(f, stream)
	case next == 0:
		w = p.spent(silence)
		if f.Name == "html_error" { // the failure that a chain shows is the primary's, as it came
			w.end = asPlayed
		}
		return w, "none"
	}
	w = p.serves(next, reason(f), stream)
	w.begins += silence
	if p.down(next) {
		accept = "downshift"
	}
	return w, accept
}

// waits is how long the chain waits for a primary that meets a fault: each of its members, each of their tries.
func (p policy) waits(f drill.Fault, stream bool) time.Duration {
	each := p.silence(f, stream) * p.tries(f.Class)
	if f.Class == classify.RateLimited && p.On.RateLimited == "wait" {
		each = p.On.MaxWait
	}
	return each * time.Duration(len(p.Rungs[0].All()))
}

// let is what a client sees of a fault that is not held back.
func (p policy) let(f drill.Fault, stream bool) promise {
	w := p.serves(0, "", stream)
	w.status, w.begins = f.Status, p.Deadlines.FirstContent+p.Hold.Time+slack
	switch {
	case f.Status >= 400:
		w.end = asPlayed
	case f.Class == classify.Refusal:
		w.end = refused
	case f.Class == classify.OK:
		w.end = whole
	case f.Name == "late_error", f.Name == "stall":
		w.end = told
	default:
		w.end = honest
	}
	if silence := p.silence(f, stream); silence > 0 {
		w.ends = p.Deadlines.FirstContent + silence + slack
	}
	return w
}

// returned is what becomes of a fault from which the policy does not go on.
func (p policy) returned(f drill.Fault, stream bool) (w promise, accept string) {
	w = p.serves(0, "", stream)
	switch {
	case f.Class == classify.Refusal:
		w.end = refused
	case f.Class == classify.RateLimited && p.On.RateLimited == "queue":
		return p.queued(), "queue"
	case f.Class == classify.RateLimited:
		w.status, w.end = f.Status, failure
	}
	return w, ""
}

// queued is what the mode `queue` says to a request; its job is named behind the message.
func (p policy) queued() promise {
	return promise{status: 202, rung: nobody, mode: "queue; job=", end: whole, text: p.Queue.Message, begins: ladder}
}

// off is what the mode `off` says.
func (p policy) off() promise {
	w := promise{status: p.Off.Status, rung: nobody, mode: "off", end: failure, text: p.Off.Message, begins: ladder}
	if p.Off.Answer {
		w.end = whole
	}
	return w
}

// ladder is how long the degraded modes may take together.
const ladder = 8*time.Second + slack
