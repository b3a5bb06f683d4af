package rehearse

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"short":  func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() },
	"class":  func(o Outcome) string { return strings.Fields(string(o))[0] },
	"joined": func(list []string) string { return strings.Join(list, " ") },
	"kept":   func() Outcome { return Kept },
	"broken": func() Outcome { return Broken },
	"untold": func() Outcome { return Untold },
}).Parse(page))

// HTML writes the report as one page that needs nothing else, for a screen or for paper.
func (r *Report) HTML(w io.Writer) error { return pageTemplate.Execute(w, r) }
