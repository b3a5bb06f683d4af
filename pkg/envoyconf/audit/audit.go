// Package audit finds in a running Envoy's configuration what would defeat failover.
//
// It takes the configuration as Envoy's admin interface dumps it, from whatever control plane it came and under
// whatever names, finds the parts that matter here (see Run), and compares their settings, as they take effect after
// Envoy's defaults and inheritance, with those that `extproc envoy` writes for the same config file.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// Level is how far an Envoy has adopted the service.
type Level string

// The levels.
const (
	None        Level = "none"         // nothing leads to the service
	Observe     Level = "observe"      // the filter, and Envoy waits for nothing that it says
	NextRequest Level = "next-request" // the filter, without a front that retries
	SameRequest Level = "same-request" // front and hop, or one of the two with the other elsewhere
)

// Severity says what a Finding is to an exit code.
type Severity string

// The severities. A Conflict defeats failover, or protection, in some situation; Advice costs time, memory or sight.
const (
	Conflict Severity = "conflict"
	Advice   Severity = "advice"
)

// Finding is one setting that is not as it should be.
type Finding struct {
	Severity Severity
	Where    []string // listeners, routes or clusters, as Envoy names them
	Is       string   // what it is now
	Costs    string   // what that does to an exchange
	Set      string   // YAML to put there; "" where the place itself is missing
}

// Report is what Run found, conflicts first.
type Report struct {
	Level    Level
	Notes    []string // what was taken for front and hop, and what could not be read
	Findings []Finding
}

// Conflicts is how many findings defeat failover.
func (r Report) Conflicts() int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == Conflict {
			n++
		}
	}
	return n
}

// shown bounds how many places of one finding are printed.
const shown = 5

// String is one finding as a paragraph.
func (f Finding) String() string {
	where := f.Where
	if more := len(where) - shown; more > 0 {
		where = append(slices.Clone(where[:shown]), fmt.Sprintf("%d more", more))
	}
	text := fmt.Sprintf("%s: %s: %s\n  costs: %s\n", f.Severity, strings.Join(where, ", "), f.Is, f.Costs)
	if f.Set == "" {
		return text
	}
	return text + "  set:\n    " + strings.ReplaceAll(strings.TrimSuffix(f.Set, "\n"), "\n", "\n    ") + "\n"
}

// Run compares what a running Envoy holds with what c needs.
//
// The hop is every connection manager with an ext_proc filter that leads to the service: its gRPC cluster has one of
// c's envoy.services as an endpoint, or the filter, its cluster or a metadata namespace that it receives is named
// understudy. The front is every connection manager with a route to a cluster whose endpoint is a hop's listener, or
// with a route that retries on x-llm-failover.
func Run(d *Dump, c *config.Config) (Report, error) {
	pieces, err := envoyconf.Build(c, envoyconf.Internal)
	if err != nil {
		return Report{}, err
	}
	a := &auditor{dump: d, c: c, want: wanted{pieces}, longest: longest(c)}
	a.discover()
	a.level = a.adopted()
	a.notes = append(a.notes, d.unread...)
	switch a.level {
	case None:
		a.nothing()
	case Observe:
		a.checkObservers()
	default:
		a.checkFronts()
		a.checkHops()
		a.checkClusters()
	}
	a.settle()
	return Report{Level: a.level, Notes: a.notes, Findings: a.findings}, nil
}

// auditor holds one comparison.
type auditor struct {
	dump    *Dump
	c       *config.Config
	want    wanted
	longest time.Duration // an exchange of any chain

	fronts []*manager
	hops   []*hop
	level  Level

	notes    []string
	findings []Finding
}

// longest is how long an exchange may take: nothing in Envoy may be shorter.
func longest(c *config.Config) time.Duration {
	var d time.Duration
	for _, ch := range c.Chains {
		d = max(d, ch.Deadlines.Total)
	}
	return d
}

// cuts says whether a limit of Envoy's acts before the chains' own. Where both are equal, chance decides.
func (a *auditor) cuts(d time.Duration) bool { return d > 0 && d <= a.longest }

func (a *auditor) conflict(where, is, costs, set string) { a.find(Conflict, where, is, costs, set) }
func (a *auditor) advice(where, is, costs, set string)   { a.find(Advice, where, is, costs, set) }

// find notes a finding; one that differs from another in its place alone is the same.
func (a *auditor) find(s Severity, where, is, costs, set string) {
	i := slices.IndexFunc(a.findings, func(f Finding) bool {
		return f.Severity == s && f.Is == is && f.Costs == costs && f.Set == set
	})
	if i < 0 {
		a.findings = append(a.findings, Finding{s, []string{where}, is, costs, set})
		return
	}
	if f := &a.findings[i]; !slices.Contains(f.Where, where) {
		f.Where = append(f.Where, where)
	}
}

// settle puts conflicts first. What is a conflict for one path is not told as advice for another.
func (a *auditor) settle() {
	slices.SortStableFunc(a.findings, func(x, y Finding) int { return -cmp.Compare(x.Severity, y.Severity) })
	var told []Finding
	for _, f := range a.findings {
		if !slices.ContainsFunc(told, func(t Finding) bool {
			return t.Severity != f.Severity && t.Is == f.Is && slices.Equal(t.Where, f.Where)
		}) {
			told = append(told, f)
		}
	}
	a.findings = told
}

func (a *auditor) note(format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

// adopted tells the level by what is there: that attempts are counted or retried tells a front, and local replies that
// ask for another attempt tell the hop of a front elsewhere.
func (a *auditor) adopted() Level {
	switch {
	case len(a.hops) == 0 && len(a.fronts) == 0:
		return None
	case len(a.hops) == 0:
		a.note("no listener here has the filter: check the Envoy that has it, too")
		return SameRequest
	case slices.ContainsFunc(a.fronts, (*manager).fails):
		return SameRequest
	case len(a.fronts) == 0 && slices.ContainsFunc(a.hops, (*hop).asksForNext):
		a.note("no route here leads to %s: check the Envoy of the front, too", a.hops[0].where())
		return SameRequest
	case !slices.ContainsFunc(a.hops, func(h *hop) bool { return !h.filter.ObservabilityMode }):
		a.note("Envoy waits for nothing that the service says: it only observes")
		return Observe
	}
	a.note("a failure is noticed for the next request only; `extproc envoy attach --level same-request` prints what retries the same one")
	return NextRequest
}

// nothing is an Envoy that knows no part of ours.
func (a *auditor) nothing() {
	others := "there is no ext_proc filter at all"
	if len(a.dump.strangers) > 0 {
		others = "there are others: " + strings.Join(a.dump.strangers, ", ")
	}
	a.conflict("listeners", "none has an ext_proc filter that leads to the service ("+others+")",
		"requests pass without breakers or failover",
		lines("http_filters", a.want.httpFilter()))
}

// sorted is what a finding names several of.
func sorted(names []string) string {
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// entries are where clients come in.
func (a *auditor) entries() []*manager {
	if len(a.fronts) > 0 {
		return a.fronts
	}
	var ms []*manager
	for _, h := range a.hops {
		if a.level != SameRequest {
			ms = append(ms, h.manager)
		}
	}
	return ms
}

// acts says whether a chain that does more than observe may take a request on path.
func (a *auditor) acts(path string) bool {
	return slices.ContainsFunc(a.c.Chains, func(ch *config.Chain) bool { return !ch.Observe && ch.MayTake(path) })
}

// idleTimeout is the limit on silence in a stream: https://www.envoyproxy.io/docs/envoy/latest/faq/configuration/timeouts
func idleTimeout(m *hcmv3.HttpConnectionManager) time.Duration {
	if m.StreamIdleTimeout == nil {
		return 5 * time.Minute
	}
	return m.StreamIdleTimeout.AsDuration()
}
