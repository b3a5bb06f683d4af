//lint:file-ignore SA1019 the newer schema is of an API server; files that Grafana is provisioned with are of this one

package envoy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

func file(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile("grafana/understudy.json")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// load reads the dashboard.
func load(t *testing.T) (d dashboard.Dashboard) {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	if err := json.Unmarshal(file(t), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// strict tells what Grafana's schema does not allow: fields that it does not know, required ones that are missing, values
// out of range.
func strict(t *testing.T, raw []byte) string {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	// Where there is no fault its error is an empty list, which is not nil.
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(raw); err != nil && err.Error() != "" {
		return err.Error()
	}
	var d dashboard.Dashboard
	if err := json.Unmarshal(raw, &d); err != nil {
		return err.Error()
	}
	if err := d.Validate(); err != nil {
		return err.Error()
	}
	return ""
}

// shown is one expression of the dashboard and where it stands.
type shown struct{ where, expr, legend string }

// expressions are what the panels, annotations and variables ask Prometheus for.
func expressions(t *testing.T, d dashboard.Dashboard) (out []shown) {
	t.Helper()
	for _, p := range d.Panels {
		if p.Panel == nil {
			continue // a row
		}
		if len(p.Panel.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", *p.Panel.Title)
		}
		for _, target := range p.Panel.Targets {
			q, ok := target.(*prometheus.Dataquery)
			if !ok {
				t.Fatalf("panel %q: a query is a %T, want one of Prometheus", *p.Panel.Title, target)
			}
			out = append(out, shown{*p.Panel.Title, q.Expr, *q.LegendFormat})
		}
	}
	for _, a := range d.Annotations.List {
		out = append(out, shown{a.Name, *a.Expr, *a.TitleFormat})
	}
	return out
}

func TestTheDashboardIsOneOfGrafanas(t *testing.T) {
	if faults := strict(t, file(t)); faults != "" {
		t.Error(faults)
	}
	for _, broken := range []string{"gridPos", "legendFormat", "stacking", "titleFormat", "includeAll"} {
		raw := bytes.Replace(file(t), []byte(`"`+broken+`"`), []byte(`"`+broken+`s"`), 1)
		if strict(t, raw) == "" {
			t.Errorf("a dashboard with %ss in the place of %s is not refused", broken, broken)
		}
	}
}

func TestPanelsAreOnTheirOwn(t *testing.T) {
	d := load(t)
	ids := map[uint32]bool{}
	for _, p := range d.Panels {
		switch {
		case p.Panel != nil && ids[*p.Panel.Id], p.RowPanel != nil && ids[p.RowPanel.Id]:
			t.Errorf("two panels have the id of %v", p)
		case p.Panel != nil:
			ids[*p.Panel.Id] = true
		default:
			ids[p.RowPanel.Id] = true
		}
	}
}

func TestTheDashboardHasARowForEachQuestion(t *testing.T) {
	var got []string
	for _, p := range load(t).Panels {
		if p.RowPanel != nil {
			got = append(got, *p.RowPanel.Title)
		}
	}
	want := "Outcome, Verdict classes, Breakers, Failovers by chain, First content, Overhead, Spend and budget, Queue, Cooldowns, Reload, store, Envoy"
	if rows := strings.Join(got, ", "); rows != want {
		t.Errorf("rows = %s, want %s", rows, want)
	}
}

func TestTheDashboardUsesOnlyMetricsAndLabelsThatExist(t *testing.T) {
	c, d := known(t), load(t)
	told := regexp.MustCompile(`{{(\w+)}}`)
	for _, s := range expressions(t, d) {
		for _, fault := range c.faults(s.expr) {
			t.Errorf("%s: %s", s.where, fault)
		}
		for _, m := range told.FindAllStringSubmatch(s.legend, -1) {
			if !regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(s.expr) && m[1] != "instance" {
				t.Errorf("%s: the legend tells %s, which %s does not keep", s.where, m[1], s.expr)
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition == nil {
			continue // the data source
		}
		metric, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(*v.Definition, "label_values("), ")"), ", ")
		if !ok || len(c.faults(metric+`{`+label+`="x"}`)) > 0 {
			t.Errorf("variable %s: %s: no such metric with this label", v.Name, *v.Definition)
		}
	}
}

func TestPromtoolParsesTheQueriesOfTheDashboard(t *testing.T) {
	var exprs []string
	for _, s := range expressions(t, load(t)) {
		exprs = append(exprs, strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(s.expr))
	}
	parses(t, exprs)
}
