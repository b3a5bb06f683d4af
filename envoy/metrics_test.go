package envoy_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// catalogue is what a scrape may hold: the labels of each metric, by its name.
type catalogue map[string][]string

// known are the metrics that the source makes, and those of Prometheus and its client that are used here.
func known(t *testing.T) catalogue {
	t.Helper()
	c := catalogue{"up": nil, "process_resident_memory_bytes": nil}
	for _, root := range []string{"../cmd", "../pkg"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				ast.Inspect(file, c.read)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(c) < 30 {
		t.Fatalf("the source makes %d metrics, want more: are they made in another way now?", len(c))
	}
	return c
}

// read adds the metric that a call makes: NewDesc(name, help, labels, …), New…(…Opts{Name: name}, labels), or
// a function counter or histogram(…, name without its prefix, help, …, labels…).
func (c catalogue) read(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return true
	}
	var name string
	var words, labels []string
	for _, arg := range call.Args {
		switch arg := arg.(type) {
		case *ast.BasicLit:
			words = append(words, text(arg))
		case *ast.CompositeLit:
			for _, e := range arg.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); !ok {
					labels = append(labels, text(e))
				} else if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Name" {
					name = text(kv.Value)
				}
			}
		}
	}
	switch f, _ := call.Fun.(*ast.Ident); {
	case name != "":
	case len(words) > 0 && strings.HasPrefix(words[0], "understudy_"):
		name = words[0]
	case f != nil && len(words) > 1 && (f.Name == "counter" || f.Name == "histogram"):
		name, labels = "understudy_"+words[0], words[2:]
	}
	if strings.HasPrefix(name, "understudy_") {
		c[name] = labels
	}
	return true
}

// text is the value of a string literal, "" for another expression.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value)
	return s
}

// of is the labels of the series of a name in an expression: a histogram's have names and a label of their own.
func (c catalogue) of(series string) (labels []string, known bool) {
	labels, known = c[series]
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(series, suffix); cut && !known {
			labels, known = c[base]
			labels = append(slices.Clone(labels), "le")
		}
	}
	return append(slices.Clone(labels), "instance", "job"), known // the last two are the scraper's
}

var (
	// selector is a metric in an expression, with its matchers.
	selector = regexp.MustCompile(`\b(understudy_\w+|process_\w+|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	// grouping is by (…), and what else takes a list of labels.
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// faults tells which metrics of a PromQL expression do not exist, and which labels its metrics do not have. Whether it
// is PromQL at all is for promtool to say.
func (c catalogue) faults(expr string) (faults []string) {
	last := []string{}
	all := selector.FindAllStringSubmatchIndex(expr, -1)
	for _, at := range all {
		name := expr[at[2]:at[3]]
		labels, ok := c.of(name)
		if !ok {
			faults = append(faults, fmt.Sprintf("no code makes %s", name))
		}
		if at[4] >= 0 {
			faults = append(faults, absent(name, labels, matches(expr[at[4]:at[5]]))...)
		}
	}
	for _, at := range grouping.FindAllStringSubmatchIndex(expr, -1) {
		name := "an expression without a metric"
		for _, metric := range all { // the one that is grouped, or that the other side is joined with
			if metric[0] > at[0] {
				name = expr[metric[2]:metric[3]]
				last, _ = c.of(name)
				break
			}
		}
		faults = append(faults, absent(name, last, words(expr[at[2]:at[3]]))...)
	}
	return faults
}

func absent(metric string, has, wanted []string) (faults []string) {
	for _, label := range wanted {
		if !slices.Contains(has, label) {
			faults = append(faults, fmt.Sprintf("%s has no label %q, only %v", metric, label, has))
		}
	}
	return faults
}

func matches(matchers string) (labels []string) {
	for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
		labels = append(labels, m[1])
	}
	return labels
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func TestFaultsOfExpressionsAreSeen(t *testing.T) {
	c := catalogue{"understudy_a_total": {"chain", "class"}, "understudy_b_seconds": {"target"}, "up": nil}
	for _, row := range []struct {
		name, expr, want string
	}{
		{"a sum of what there is", `sum by (chain) (rate(understudy_a_total{class=~"x,y=z|w"}[5m])) > 0`, ""},
		{"a metric that nobody makes", `rate(understudy_aa_total[5m])`, "no code makes understudy_aa_total"},
		{"a matcher of a label that it does not have", `understudy_a_total{target="x"}`, `understudy_a_total has no label "target"`},
		{"a grouping by a label that it does not have", `sum by (target) (understudy_a_total)`, `understudy_a_total has no label "target"`},
		{"the second of two groupings", `sum by (chain) (understudy_a_total) > on (chain) sum by (chain) (understudy_b_seconds)`,
			`understudy_b_seconds has no label "chain"`},
		{"the buckets of a histogram", `sum by (le, target) (rate(understudy_b_seconds_bucket[5m]))`, ""},
		{"the buckets of what is none", `sum by (le) (understudy_a_total)`, `understudy_a_total has no label "le"`},
		{"what the scraper adds", `min by (instance) (understudy_b_seconds) * up{job="x"}`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := strings.Join(c.faults(row.expr), "; ")
			if row.want == "" && got != "" || !strings.Contains(got, row.want) {
				t.Errorf("faults(%s) = %q, want %q", row.expr, got, row.want)
			}
		})
	}
}
