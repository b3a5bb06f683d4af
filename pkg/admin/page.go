package admin

import (
	"embed"
	"fmt"
	"html/template"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// pages are the templates. Everything that is shown is escaped by them, whoever has said it.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":   func(t time.Time) string { return t.UTC().Format("Jan 2 15:04:05 UTC") },
	"percent": percent,
	"usd":     func(v float64) string { return fmt.Sprintf("$%.2f", v) },
	"age":     func(seconds float64) string { return left(time.Duration(seconds * float64(time.Second))) },
	"millis":  func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() },
	"short":   func(hash string) string { return hash[:min(12, len(hash))] },
	"mark": func(state string) string {
		return map[string]string{"closed": "✓", "half-open": "◐", "open": "✕"}[state]
	},
	"tone": tone,
}).ParseFS(assets, "assets/*.html"))

// percent is a share in words. What is not all and not nothing never looks like it.
func percent(share float64) string {
	switch p := share * 100; {
	case p > 0 && p < 1:
		return "<1 %"
	case p < 100 && p > 99:
		return ">99 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

// tone is how a verdict's class looks: what it means is in its word.
func tone(class string) string {
	switch class {
	case "ok":
		return "good"
	case "rate_limited", "capacity", "invalid", "context_length", "refusal", "filtered", "canceled":
		return "warn"
	}
	return "bad"
}

// left is a time to wait, in whole seconds, so that it never says that it is over too soon.
func left(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return (d + time.Second - 1).Truncate(time.Second).String()
}

// until is how long it is from now to at, "" when that is unknown or past.
func until(now time.Time, at *time.Time) string {
	if at == nil {
		return ""
	}
	return left(at.Sub(now))
}

// part is a piece of the page that changes by itself.
type part struct {
	ID   string        `json:"id"`
	HTML template.HTML `json:"html"`
	seq  uint64        // of the look that found it changed
}

// chainRow and targetRow are rows of the page's tables.
type chainRow struct {
	Chain
	ID    string
	Rungs []rungCell
}

type rungCell struct {
	Rung
	Of []targetRef
}

type targetRef struct{ ID, Name, State string }

type targetRow struct {
	Target
	ID          string
	Left, Cools string
}

// Sick is how many breakers are not closed.
func (s *Status) Sick() (n int) {
	for _, t := range s.Targets {
		if t.State != "closed" {
			n++
		}
	}
	return n
}

// chainRows are the chains with what their rungs' targets are doing.
func (s *Status) chainRows() []chainRow {
	refs := make(map[string]targetRef, len(s.Targets))
	for i, t := range s.Targets {
		refs[t.Name] = targetRef{targetID(i), t.Name, t.State}
	}
	rows := make([]chainRow, len(s.Chains))
	for i, c := range s.Chains {
		rows[i] = chainRow{Chain: c, ID: fmt.Sprintf("c%d", i)}
		for _, r := range c.Rungs {
			cell := rungCell{Rung: r}
			for _, name := range r.Targets {
				cell.Of = append(cell.Of, refs[name])
			}
			rows[i].Rungs = append(rows[i].Rungs, cell)
		}
	}
	return rows
}

func targetID(i int) string { return fmt.Sprintf("t%d", i) }

// parts are the pieces of the page, in its order.
func (s *Status) parts() ([]part, error) {
	var w writer
	for _, name := range []string{"clock", "banner", "summary"} {
		w.add(name, name, s)
	}
	for _, row := range s.chainRows() {
		w.add(row.ID, "chain", row)
	}
	for i, t := range s.Targets {
		w.add(targetID(i), "target", targetRow{t, targetID(i), until(s.At, t.Until), until(s.At, t.Cooling)})
	}
	w.add("failovers", "failovers", s.Failovers)
	w.add("transitions", "transitions", s.Transitions)
	w.add("providers", "providers", s.Providers)
	w.add("envoys", "envoys", s.Envoy)
	return w.parts, w.err
}

// writer writes parts until one fails.
type writer struct {
	parts []part
	err   error
}

func (w *writer) add(id, name string, data any) {
	var b strings.Builder
	if w.err == nil {
		w.err = pages.ExecuteTemplate(&b, name, data)
	}
	w.parts = append(w.parts, part{ID: id, HTML: template.HTML(b.String())})
}

// whole is what the page is made of.
type whole struct {
	Shape, Since, Done string
	Minutes            int
	Parts              map[string]template.HTML
	Chains, Targets    []template.HTML
}

// page is the page that v shows. done says what a change has just come to.
func (v *view) page(done string) whole {
	p := whole{Shape: v.shape, Since: v.since(), Done: done, Minutes: v.status.Window / 60, Parts: map[string]template.HTML{}}
	for _, part := range v.parts {
		switch part.ID[0] {
		case 'c':
			if part.ID != "clock" {
				p.Chains = append(p.Chains, part.HTML)
				continue
			}
		case 't':
			if part.ID != "transitions" {
				p.Targets = append(p.Targets, part.HTML)
				continue
			}
		}
		p.Parts[part.ID] = part.HTML
	}
	return p
}
