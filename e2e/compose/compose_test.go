//go:build compose

package compose

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"understudy/internal/stage"
)

// TestTheComposeStack is one story, as each part goes on from where the one before has left the stack.
func TestTheComposeStack(t *testing.T) {
	up(t)
	for _, part := range []struct {
		name string
		tell func(*testing.T)
	}{
		{"containers run without root, capabilities or a writable root", hardened},
		{"every client is answered by its chain's first account", allIsWell},
		{"north is killed, and nobody notices but Prometheus", northIsKilled},
		{"south fails too, and the owner's sentence is served", southFailsToo},
		{"both are back, and the breakers close", bothAreBack},
		{"every alert rule is evaluated", rulesAreEvaluated},
		{"every panel of the dashboard asks what Prometheus understands", panelsAreUnderstood},
		{"what is ours ends well when it is stopped", endsWell},
	} {
		if !t.Run(part.name, part.tell) {
			return
		}
	}
}

type binding struct{ HostIP string }

func hardened(t *testing.T) {
	for service := range strings.FieldsSeq(compose(t, "config", "--services")) {
		user := inspect[string](t, service, ".Config.User")
		if user == "" || user == "root" || strings.HasPrefix(user, "0") {
			t.Errorf("%s runs as %q, want a user without rights", service, user)
		}
		if !inspect[bool](t, service, ".HostConfig.ReadonlyRootfs") {
			t.Errorf("%s can write to its root file system", service)
		}
		if got := inspect[[]string](t, service, ".HostConfig.CapDrop"); !slices.Equal(got, []string{"ALL"}) {
			t.Errorf("%s drops the capabilities %q, want ALL", service, got)
		}
		for port, bindings := range inspect[map[string][]binding](t, service, ".HostConfig.PortBindings") {
			for _, b := range bindings {
				if b.HostIP != "127.0.0.1" {
					t.Errorf("%s publishes %s on %q, want 127.0.0.1", service, port, b.HostIP)
				}
			}
		}
	}
	t.Logf("extproc version in its container:\n%s", output(t, "docker", "exec", container(t, "understudy"), "/extproc", "version"))
	t.Logf("size of the image: %s bytes", strings.TrimSpace(output(t, "docker", "image", "inspect", "--format", "{{.Size}}", "understudy:demo")))
}

func allIsWell(t *testing.T) {
	act(t, "north", "ok")
	act(t, "south", "ok")
	for name, call := range clients {
		eventually(t, "the first account answers "+name, func(ctx context.Context) error { return by(call.Ask(ctx, "hello"), primary(name), "0") })
	}
}

// primary is who stands first in the chain of a client.
func primary(client string) string {
	if strings.HasPrefix(client, "anthropic") {
		return "north"
	}
	return "south"
}

func northIsKilled(t *testing.T) {
	const serves = `understudy_fallback_serves_total{chain="chat",target="south/claude"}`
	const opened = `understudy_breaker_transitions_total{target="north/claude",to="open"}`
	servesBefore, openedBefore := total(t, serves), total(t, opened)
	output(t, "docker", "kill", container(t, "north"))
	for round := range 10 {
		for name, call := range clients {
			rung := "0"
			if primary(name) == "north" {
				rung = "1"
			}
			if err := by(call.Ask(t.Context(), fmt.Sprintf("round %d", round)), "south", rung); err != nil {
				t.Errorf("%s, round %d: %v", name, round, err)
			}
		}
	}
	eventually(t, "Prometheus sees the failovers", func(ctx context.Context) error {
		return more(ctx, serves, servesBefore)
	})
	eventually(t, "Prometheus sees the breaker open", func(ctx context.Context) error {
		return errors.Join(more(ctx, opened, openedBefore), is(ctx, `understudy_breaker_state{target="north/claude"}`, 2))
	})
}

func southFailsToo(t *testing.T) {
	act(t, "south", "529")
	eventually(t, "the owner's sentence is served", func(ctx context.Context) error {
		err := clients["openai"].Ask(ctx, "is anybody there?").Err
		var served *openai.Error
		if !errors.As(err, &served) || served.Response.Header.Get("x-llm-degraded") != "off" || !strings.HasPrefix(served.Message, "Both accounts are down.") {
			return fmt.Errorf("error = %w, want the sentence of chains.assistant.off", err)
		}
		return nil
	})
	eventually(t, "Prometheus counts it", func(ctx context.Context) error {
		return more(ctx, `understudy_degraded_total{chain="assistant",mode="off"}`, 0)
	})
}

func bothAreBack(t *testing.T) {
	output(t, "docker", "start", container(t, "north"))
	allIsWell(t)
	for _, target := range []string{"north/claude", "south/gpt"} {
		eventually(t, "the breaker of "+target+" closes", func(ctx context.Context) error {
			return is(ctx, fmt.Sprintf("understudy_breaker_state{target=%q}", target), 0)
		})
	}
}

// vector is Prometheus' answer to an instant query.
type vector struct {
	Status string `json:"status"`
	Data   struct {
		Result []struct {
			Value [2]jsonNumber `json:"value"`
		} `json:"result"`
	} `json:"data"`
}

// jsonNumber is a number that JSON has as one, or as a string.
type jsonNumber float64

func (n *jsonNumber) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = jsonNumber(f)
	return err
}

// query is the sum of what an expression comes to, at the Prometheus API of url.
func query(ctx context.Context, base, expr string) (sum float64, series int, err error) {
	v, err := stage.GetJSON[vector](ctx, base+"/api/v1/query?query="+url.QueryEscape(expr))
	if err == nil {
		err = wants("status of "+expr, v.Status, "success")
	}
	for _, r := range v.Data.Result {
		sum += float64(r.Value[1])
	}
	return sum, len(v.Data.Result), err
}

func total(t *testing.T, expr string) float64 {
	t.Helper()
	sum, _, err := query(t.Context(), prometheus, expr)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func more(ctx context.Context, expr string, before float64) error {
	now, _, err := query(ctx, prometheus, expr)
	if err == nil && now <= before {
		err = fmt.Errorf("%s = %v, want more than %v", expr, now, before)
	}
	return err
}

func is(ctx context.Context, expr string, want float64) error {
	now, series, err := query(ctx, prometheus, expr)
	return errors.Join(err, wants("series of "+expr, series, 1), wants(expr, now, want))
}

type ruleGroups struct {
	Data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string } `json:"rules"`
		} `json:"groups"`
	} `json:"data"`
}

func rulesAreEvaluated(t *testing.T) {
	eventually(t, "every rule is fine", func(ctx context.Context) error {
		got, err := stage.GetJSON[ruleGroups](ctx, prometheus+"/api/v1/rules")
		if err == nil && len(got.Data.Groups) == 0 {
			err = errors.New("there are no rules")
		}
		for _, g := range got.Data.Groups {
			for _, r := range g.Rules {
				err = errors.Join(err, wants("health of "+r.Name+" ("+r.LastError+")", r.Health, "ok"))
			}
		}
		return err
	})
}

// dashboard is one as Grafana gives it out.
type dashboard struct {
	Dashboard struct {
		Panels []panel `json:"panels"`
	} `json:"dashboard"`
}

type panel struct {
	Title   string `json:"title"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	Panels []panel `json:"panels"` // of a collapsed row
}

func (p panel) exprs() []string {
	var all []string
	for _, t := range p.Targets {
		all = append(all, t.Expr)
	}
	for _, inner := range p.Panels {
		all = append(all, inner.exprs()...)
	}
	return all
}

// variables of a dashboard, as Grafana fills them in.
var variables = []struct {
	name  *regexp.Regexp
	value string
}{
	{regexp.MustCompile(`\$(__rate_interval|__range|__interval)\b`), "1m"},
	{regexp.MustCompile(`\$\w+`), ".*"}, // what is chosen by name: all
}

// panelsAreUnderstood asks by the way that Grafana's panels take: its proxy to the data source.
func panelsAreUnderstood(t *testing.T) {
	found, err := stage.GetJSON[[]struct{ UID string }](t.Context(), grafana+"/api/search?type=dash-db")
	if err != nil || len(found) == 0 {
		t.Fatalf("Grafana has %d dashboards: %v", len(found), err)
	}
	asked, empty := 0, 0
	for _, f := range found {
		d, err := stage.GetJSON[dashboard](t.Context(), grafana+"/api/dashboards/uid/"+f.UID)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Dashboard.Panels {
			for _, expr := range p.exprs() {
				for _, v := range variables {
					expr = v.name.ReplaceAllLiteralString(expr, v.value)
				}
				_, series, err := query(t.Context(), grafana+"/api/datasources/proxy/uid/prometheus", expr)
				if err != nil {
					t.Errorf("panel %q: %v", p.Title, err)
				}
				asked++
				if series == 0 {
					empty++
					t.Logf("panel %q has nothing to show: %s", p.Title, expr)
				}
			}
		}
	}
	if asked == 0 || empty > asked/2 {
		t.Errorf("%d of %d queries have nothing to show", empty, asked)
	}
}

func endsWell(t *testing.T) {
	compose(t, "stop")
	for _, service := range []string{"traffic", "understudy", "north", "south"} {
		if code := inspect[int](t, service, ".State.ExitCode"); code != 0 {
			t.Errorf("%s ends with exit code %d, want 0", service, code)
		}
	}
}
