package envoy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const rulesFile = "prometheus/understudy.rules.yaml"

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert         string            `json:"alert"`
	Expr          string            `json:"expr"`
	For           string            `json:"for,omitempty"`
	KeepFiringFor string            `json:"keep_firing_for,omitempty"`
	Labels        map[string]string `json:"labels"`
	Annotations   map[string]string `json:"annotations"`
}

// ruleTests is a file of promtool's.
type ruleTests struct {
	RuleFiles          []string `json:"rule_files"`
	EvaluationInterval string   `json:"evaluation_interval"`
	Tests              []struct {
		Name        string        `json:"name"`
		Interval    string        `json:"interval"`
		InputSeries []inputSeries `json:"input_series"`
		Alerts      []struct {
			EvalTime string `json:"eval_time"`
			Name     string `json:"alertname"`
			Fires    []struct {
				Labels      map[string]string `json:"exp_labels"`
				Annotations map[string]string `json:"exp_annotations"`
			} `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

func decode[T any](t *testing.T, file string) (v T) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

func alerts(t *testing.T) (rules []rule) {
	t.Helper()
	for _, g := range decode[ruleFile](t, rulesFile).Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatalf("%s holds no alert", rulesFile)
	}
	return rules
}

// asked is a query of an annotation's template; what printf puts into it is a label's value.
var asked = regexp.MustCompile(`(?:printf|query) "((?:[^"\\]|\\.)*understudy_(?:[^"\\]|\\.)*)"`)

// queries are the PromQL expressions of a rule.
func (r rule) queries() []string {
	out := []string{r.Expr}
	for _, name := range []string{"summary", "description"} {
		for _, m := range asked.FindAllStringSubmatch(r.Annotations[name], -1) {
			out = append(out, strings.NewReplacer(`%q`, `"x"`, `\"`, `"`).Replace(m[1]))
		}
	}
	return out
}

func TestAlertsUseOnlyMetricsAndLabelsThatExist(t *testing.T) {
	c := known(t)
	for _, r := range alerts(t) {
		for _, expr := range r.queries() {
			for _, fault := range c.faults(expr) {
				t.Errorf("%s: %s", r.Alert, fault)
			}
		}
	}
}

func TestAlertsTellWhatToDo(t *testing.T) {
	runbook, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range alerts(t) {
		names = append(names, r.Alert)
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q, want critical or warning", r.Alert, s)
		}
		if got, want := r.Annotations["runbook_url"], "docs/runbook.md#"+strings.ToLower(r.Alert); got != want {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, got, want)
		}
		section(t, string(runbook), r.Alert)
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Understudy\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("the runbook has a section for %s, which is no alert", m[1])
		}
	}
}

// section checks the runbook's section for an alert: each answers the same questions.
func section(t *testing.T, runbook, alert string) {
	t.Helper()
	_, text, found := strings.Cut(runbook, "\n## "+alert+"\n")
	if !found {
		t.Errorf("docs/runbook.md has no section %q", "## "+alert)
		return
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, question := range []string{"**Means.**", "**See.**", "**Do.**", "**Worry**"} {
		if !strings.Contains(text, question) {
			t.Errorf("docs/runbook.md, %s: %q is missing", alert, question)
		}
	}
}

func TestEveryAlertIsTestedToFireAndToStaySilent(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{}
	labels := map[string]map[string]bool{}
	for _, test := range decode[ruleTests](t, "prometheus/understudy.rules_test.yaml").Tests {
		for _, a := range test.Alerts {
			if len(a.Fires) == 0 && len(test.InputSeries) > 0 { // that nothing comes from nothing is tested for all at once
				silent[a.Name] = true
			}
			for _, f := range a.Fires {
				fires[a.Name] = true
				for name, text := range f.Annotations {
					if name != "runbook_url" && !strings.HasSuffix(text, ".") {
						t.Errorf("%s: the %s is no sentence: %q", a.Name, name, text)
					}
				}
				for l := range f.Labels {
					labels[a.Name] = set(labels[a.Name], l)
				}
			}
		}
	}
	used := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, r := range alerts(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s is tested to fire: %v, to stay silent: %v, want both", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		for _, m := range used.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
			if !labels[r.Alert][m[1]] {
				t.Errorf("%s: its text uses $labels.%s, which it was never seen to have", r.Alert, m[1])
			}
		}
	}
}

func set(m map[string]bool, key string) map[string]bool {
	if m == nil {
		m = map[string]bool{}
	}
	m[key] = true
	return m
}

// promtool runs promtool in a folder.
func promtool(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		missing(t, "promtool is not installed (apt-get install prometheus)")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	if out, err := promtool(t, "prometheus", "check", "rules", "--lint-fatal", "understudy.rules.yaml"); err != nil {
		t.Error(out)
	}
	if out, err := promtool(t, "prometheus", "test", "rules", "understudy.rules_test.yaml"); err != nil {
		t.Error(out)
	}
}

func TestPromtoolParsesTheQueriesOfAnnotations(t *testing.T) {
	var exprs []string
	for _, r := range alerts(t) {
		exprs = append(exprs, r.queries()[1:]...)
	}
	parses(t, exprs)
}

// parses lets promtool parse expressions, each as a recording rule.
func parses(t *testing.T, exprs []string) {
	t.Helper()
	if out, err := checked(t, exprs); err != nil {
		t.Error(out)
	}
	if out, err := checked(t, append(slices.Clone(exprs), "sum by (chain (up)")); err == nil {
		t.Errorf("promtool accepts what is no PromQL: %s", out)
	}
}

func checked(t *testing.T, exprs []string) (string, error) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintln(&b, "groups: [{name: parsed, rules: [")
	for i, expr := range exprs {
		fmt.Fprintf(&b, "{record: \"e:%d\", expr: %q},\n", i, expr)
	}
	fmt.Fprintln(&b, "]}]")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return promtool(t, dir, "check", "rules", "rules.yaml")
}
