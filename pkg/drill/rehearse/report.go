package rehearse

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is what became of one promise.
type Outcome string

// The outcomes. A promise that could not be tried is none that was kept.
const (
	Kept   Outcome = "kept"
	Broken Outcome = "broken"
	Untold Outcome = "not possible here"
)

// Result is one promise beside what was seen.
type Result struct {
	Chain    string // "" is the stack as a whole
	Name     string // what was played
	Call     string // how it was called; "" where that says nothing
	Where    string // path in the config file of what promises it
	Promised string
	Seen     string // "" where nothing was tried
	Outcome  Outcome
	Why      string   // a sentence: what is broken, where and what to do; or why it is not possible here
	Drills   []string // ids under which the service logs the exchanges (drill=…)
	Began    time.Time
	Took     time.Duration
}

// Line is the result in one line of text.
func (r *Result) Line() string {
	name := strings.TrimSpace(r.Chain + ": " + r.Name)
	if r.Call != "" {
		name += " (" + r.Call + ")"
	}
	if r.Outcome == Kept {
		return fmt.Sprintf("%-8s %s", "kept", name)
	}
	label := map[Outcome]string{Broken: "BROKEN", Untold: "untold"}[r.Outcome]
	return fmt.Sprintf("%-8s %s\n         %s", label, name, r.Why)
}

// Report is a game day, fit for an audit.
type Report struct {
	Began, Ended time.Time
	File         string // that promises
	Hash         string // of that configuration
	Running      string // hash of the configuration in use, "" if it is not told
	Gateway      string
	Service      string // version of what checks
	Envoy        string // version, "" if it is not told
	Notes        []string
	Interrupted  bool
	Results      []Result
}

// Count is how many promises came to o.
func (r *Report) Count(o Outcome) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Outcome == o {
			n++
		}
	}
	return n
}

// Passed says that all was tried that can be tried here, and that no promise was broken.
func (r *Report) Passed() bool {
	return !r.Interrupted && r.Count(Broken) == 0 && r.shown()
}

// shown says that a chain has kept a promise: what the stack as a whole keeps shows nothing of any.
func (r *Report) shown() bool {
	return slices.ContainsFunc(r.Results, func(one Result) bool { return one.Chain != "" && one.Outcome == Kept })
}

// Verdict is the whole in a sentence.
func (r *Report) Verdict() string {
	say := fmt.Sprintf("%d promises kept, %d broken, %d not possible here, in %s", r.Count(Kept), r.Count(Broken), r.Count(Untold),
		r.Ended.Sub(r.Began).Round(100*time.Millisecond))
	switch {
	case r.Interrupted:
		return "interrupted: " + say
	case r.Count(Broken) > 0:
		return "the drill has failed: " + say
	case !r.shown():
		return "the drill has shown nothing: " + say
	}
	return "the drill has passed: " + say
}

// Chapters are the results by chain, in the order in which they were got.
func (r *Report) Chapters() []Chapter {
	var all []Chapter
	for _, result := range r.Results {
		if n := len(all); n == 0 || all[n-1].Chain != result.Chain {
			all = append(all, Chapter{Chain: result.Chain})
		}
		c := &all[len(all)-1]
		c.Results = append(c.Results, result)
	}
	return all
}

// Chapter is what was seen of one chain.
type Chapter struct {
	Chain   string // "" is the stack as a whole
	Results []Result
}

// Title is the chapter's in a report.
func (c *Chapter) Title() string {
	if c.Chain == "" {
		return "The stack"
	}
	return c.Chain
}

// Count is how many promises of the chapter came to o.
func (c *Chapter) Count(o Outcome) int { return (&Report{Results: c.Results}).Count(o) }
