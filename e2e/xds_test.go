//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"understudy/internal/stage"
)

// asking is p with Envoys that know no more than whom to ask.
func asking(p plan) plan {
	edit := p.edit
	p.edit = func(f *file) {
		f.Envoy.XDS = true
		if edit != nil {
			edit(f)
		}
	}
	p.another = func(t testing.TB, s *Stack, config string) (*process, error) {
		out, err := s.asking(config)
		if err != nil {
			return nil, err
		}
		return s.launch(t, "envoy", out)
	}
	return p
}

// asking is the bootstrap with which an Envoy asks.
func (s *Stack) asking(config string) ([]byte, error) {
	args := []string{"envoy", "--xds", "-c", config}
	if s.plan.hop != "" {
		args = append(args, "--hop", s.plan.hop)
	}
	return output(exec.Command(binary, args...))
}

func TestAnEnvoyThatAsksFailsOver(t *testing.T) {
	t.Parallel()
	for _, p := range []plan{
		{envoy: envoyMain},
		{envoy: envoyOldest, tls: true},
		{envoy: envoyOldest, hop: "tcp"},
		{envoy: envoyMain, hop: "uds"},
	} {
		t.Run("Envoy "+p.envoy+" "+p.hop, func(t *testing.T) { failovers(t, asking(p), []call{clientKinds[0], clientKinds[3]}) })
	}
}

// second starts another Envoy of a version on the same listeners, which the kernel shares out between the two.
func (s *Stack) second(t *testing.T, version string) *Stack {
	t.Helper()
	view := *s
	view.plan.envoy, view.envoyAdmin = version, stage.Free(t)
	out, err := s.asking(s.services[0].config)
	if err != nil {
		t.Fatal(err)
	}
	var boot map[string]any
	if err := sigsyaml.Unmarshal(out, &boot); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(view.envoyAdmin, ":")
	boot["admin"] = map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": host, "port_value": port}}}
	boot["node"].(map[string]any)["id"] = "second"
	if out, err = sigsyaml.Marshal(boot); err != nil {
		t.Fatal(err)
	}
	if view.envoy, err = view.launch(t, "second", out); err != nil {
		t.Fatal(err)
	}
	s.solos = append(s.solos, view.envoy)
	return &view
}

// shortLived bounds every exchange, so that clusters go soon.
func shortLived(f *file) {
	for i := 1; i < len(f.Chains.Content); i += 2 {
		body := f.Chains.Content[i]
		for j := 0; j < len(body.Content); j += 2 {
			if body.Content[j].Value == "deadlines" {
				body.Content = append(body.Content[:j], body.Content[j+2:]...)
				break
			}
		}
		var key, value yaml.Node
		key.SetString("deadlines")
		if err := value.Encode(fileDeadlines{FirstContent: 5 * time.Second, Answer: 5 * time.Second, Idle: 5 * time.Second, Total: 5 * time.Second}); err != nil {
			panic(err)
		}
		body.Content = append(body.Content, &key, &value)
	}
}

// clusters are the names of an Envoy's clusters, as its admin page has them.
func (s *Stack) clusters(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.envoyAdmin+"/clusters", nil)
	if err != nil {
		return "", err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// reconfigure writes the plan, as it is now, for every replica.
func (s *Stack) reconfigure(t *testing.T) {
	t.Helper()
	for i, service := range s.services {
		s.compose(t, i).save(t, service.config)
	}
}

// primary are exchanges that only their chain's first target should serve.
// Every fourth is a stream that lasts; the others are so short that some begin in any moment.
func primary(t *testing.T) func(i int) call {
	return func(i int) call {
		c := call{path: messages, chain: "flow", script: "*=ok", id: fmt.Sprint(t.Name(), i)}
		if i%4 == 0 {
			c.stream, c.script = true, "*=ok n=20 delay=20ms"
		}
		return c
	}
}

// undisturbed checks that every exchange was served by the first target of its chain, at once.
func undisturbed(t *testing.T, answers []answer) {
	t.Helper()
	for _, a := range answers {
		if a.err != nil || a.header.Get("x-llm-rung") != "0" {
			t.Errorf("an exchange got %d, %v, rung %q after %q of %q, want 200 from rung 0", a.status, a.err,
				a.header.Get("x-llm-rung"), a.header.Get("x-llm-fallback-reason"), a.header.Get("x-llm-target"))
		}
	}
	t.Logf("%d exchanges", len(answers))
}

// flows makes a provider the first of the chain that is under load.
func (s *Stack) flows(on ...string) {
	s.plan.chains = []chain{{name: "flow", api: "anthropic", on: on, breaker: sturdy}}
}

// servedBy waits until a chain is served by a target, and by others not before.
func (s *Stack) servedBy(t *testing.T, target string) {
	t.Helper()
	eventually(t, patience, func() error {
		a := s.sdk(within(t, patience), t, call{path: messages, chain: "flow", script: "*=ok", id: "moves"})
		if got := a.header.Get("x-llm-target"); got != target {
			return fmt.Errorf("served by %q, %v, want %s", got, a.err, target)
		}
		return nil
	})
}

// Providers come and go while two Envoys of different versions serve through them. The first has a name that Envoy must
// look up.
func TestProvidersComeAndGoWithoutANewEnvoy(t *testing.T) { // alone: it is heavy
	s := startStack(t, asking(plan{edit: shortLived, chains: []chain{{name: "flow", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}}}))
	old := s.second(t, envoyOldest)
	s.reads(t, is(2), "understudy_xds_streams")

	s.serve(t, "d", "localhost", nil)
	answers := s.underLoad(t, primary(t), func() {
		for _, first := range []string{"d", "e", "f", "g", "h", "b"} { // each while the last change is not over
			if first > "d" {
				s.serve(t, first, "127.0.0.1", nil)
			}
			s.flows(first, "a")
			s.reconfigure(t)
			s.servedBy(t, "flow/"+first)
		}
		for _, gone := range []string{"d", "e", "f", "g", "h"} {
			delete(s.endpoints, gone)
		}
		s.reconfigure(t)
		for _, envoy := range []*Stack{s, old} {
			eventually(t, patience, func() error {
				names, err := envoy.clusters(t.Context())
				if found := regexp.MustCompile("llm-[d-h]-anthropic::").FindString(names); found != "" {
					err = fmt.Errorf("there still is %s", found)
				}
				return err
			})
		}
	})
	undisturbed(t, answers)
	s.reads(t, is(1), "understudy_config_reload_success")
	s.reads(t, is(1), "understudy_xds_accepted")
	s.reads(t, is(0), "understudy_xds_nacks_total")
	s.survives(t)
	old.survives(t)
}

func TestWhatEnvoyRefusesIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run("Envoy "+version, notUsed(version))
	}
}

func notUsed(version string) func(t *testing.T) {
	return func(t *testing.T) {
		absent := ""
		p := asking(plan{envoy: version, tls: true, chains: []chain{{name: "flow", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}}})
		edit := p.edit
		p.edit = func(f *file) {
			edit(f)
			if absent != "" {
				d := f.Providers["d-anthropic"]
				d.CA = absent
				f.Providers["d-anthropic"] = d
			}
		}
		s := startStack(t, p)
		s.endpoints["d"] = s.endpoints["c"]
		absent = filepath.Join(s.dir, "no-such-ca.pem") // the service never reads it
		s.flows("d", "a")
		undisturbed(t, s.underLoad(t, primary(t), func() {
			s.reconfigure(t)
			s.reads(t, is(1), "understudy_xds_nacks_total", "type", "cds")
			s.reads(t, is(0), "understudy_xds_accepted")
			s.reads(t, is(0), "understudy_config_reload_success")
			s.servedBy(t, "flow/a")
		}))
		log := s.services[0].tail(64 << 10)
		for _, want := range []string{"an Envoy refuses its configuration", "no-such-ca.pem", `"node":"understudy-envoy"`, `"envoy":"` + version + `"`} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %s:\n%s", want, log)
			}
		}
		s.reads(t, is(1), "understudy_xds_nacks_total") // it is not asked again and again

		absent = filepath.Join(s.dir, "ca.pem")
		undisturbed(t, s.underLoad(t, primary(t), func() {
			s.reconfigure(t)
			s.reads(t, is(1), "understudy_xds_accepted")
			s.servedBy(t, "flow/d")
		}))
		s.reads(t, is(1), "understudy_config_reload_success")
		s.survives(t)
	}
}

// teacher is the replica that an Envoy asks, and the other.
func (s *Stack) teacher(t *testing.T) (asked, other int) {
	t.Helper()
	eventually(t, patience, func() error {
		for i := range s.services {
			if m, err := s.metrics(t.Context(), i); err == nil && m.sum("understudy_xds_streams") == 1 {
				asked, other = i, 1-i
				return nil
			}
		}
		return errors.New("no replica has been asked")
	})
	return asked, other
}

func TestTheReplicaThatAnEnvoyAsksIsKilled(t *testing.T) { // alone: it is heavy
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run("Envoy "+version, func(t *testing.T) { losesTeacher(t, version) })
	}
}

func losesTeacher(t *testing.T, version string) {
	s := startStack(t, asking(plan{envoy: version, replicas: 2, chains: []chain{{name: "flow", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}}}))
	asked, other := s.teacher(t)
	undisturbed(t, s.underLoad(t, primary(t), func() {
		s.services[asked].kill()
		eventually(t, patience, func() error {
			m, err := s.metrics(t.Context(), other)
			if err == nil && m.sum("understudy_xds_streams") != 1 {
				err = errors.New("the Envoy does not ask the other replica")
			}
			return err
		})
		if err := s.startService(t, asked); err != nil {
			t.Error(err)
		}
	}))
	// What it heard from the other is what it knew, and what comes next it hears from that one.
	undisturbed(t, s.underLoad(t, primary(t), func() {
		s.serve(t, "d", "127.0.0.1", nil)
		s.flows("d", "a")
		s.reconfigure(t)
		s.each(t, is(1), "understudy_breaker_share", "target", "flow/d")
		s.servedBy(t, "flow/d")
	}))
	s.reads(t, is(0), "understudy_xds_nacks_total")
	s.survives(t)
}

// With fail-open, Envoy adds credentials itself: it is told where they are, and not what they are.
func TestWithoutItsControlPlaneAnEnvoyKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run("Envoy "+version, func(t *testing.T) {
			p := asking(plan{envoy: version, edit: func(f *file) { f.Envoy.WhenServiceDown = "open" }})
			s := startStack(t, p)
			s.serve(t, "d", "127.0.0.1", nil)
			s.flows("d", "a")
			s.reconfigure(t)
			s.servedBy(t, "flow/d") // its cluster has its secret, or it would not be used

			s.services[0].kill()
			a := s.sdk(within(t, patience), t, call{path: messages, stream: true, script: "a=ok"})
			if a.err != nil || !strings.HasPrefix(a.text, "[a m ") {
				t.Errorf("the client got %d %q, %v, want the primary's answer", a.status, a.text, a.err)
			}
			s.reachedRight(t, messages)

			if err := s.startService(t, 0); err != nil {
				t.Fatal(err)
			}
			s.reads(t, is(1), "understudy_xds_streams")
			s.servedBy(t, "flow/d")
			if log := s.services[0].tail(1 << 20); strings.Contains(log, "does not answer") {
				t.Errorf("an Envoy has not answered: %s", log)
			}
		})
	}
}

// The fragments of docs/xds.md, put where it says that they belong.
func TestAnEnvoyWithItsOwnListenersAsksForTheRest(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run("Envoy "+version, func(t *testing.T) {
			p := asking(plan{envoy: version, chains: []chain{{name: "flow", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}}})
			p.another = nil
			p.bootstrap = func(boot map[string]any) { askFor(t, boot) }
			s := startStack(t, p)
			c := call{path: messages, stream: true, chain: "flow", script: "a=529; b=ok"}
			served{by: "b", target: "flow/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, c, s.sdk(within(t, patience), t, c))
			s.serve(t, "d", "127.0.0.1", nil)
			s.flows("d", "a")
			undisturbed(t, s.underLoad(t, primary(t), func() {
				s.reconfigure(t)
				s.servedBy(t, "flow/d")
			}))
			s.reads(t, is(4), "understudy_xds_streams") // clusters, the filter, and two route configurations
			s.reads(t, is(0), "understudy_xds_nacks_total")
			s.survives(t)
		})
	}
}

// askFor turns a whole bootstrap into one that asks for what docs/xds.md lets it ask for.
func askFor(t *testing.T, boot map[string]any) {
	static := boot["static_resources"].(map[string]any)
	for _, c := range static["clusters"].([]any) {
		if c := c.(map[string]any); c["name"] == "understudy" {
			c["name"], c["load_assignment"].(map[string]any)["cluster_name"] = "understudy-xds", "understudy-xds"
			static["clusters"] = []any{c}
		}
	}
	maps.Copy(boot, fragment(t, "dynamic_resources"))
	for _, l := range static["listeners"].([]any) {
		chain := l.(map[string]any)["filter_chains"].([]any)[0].(map[string]any)
		manager := chain["filters"].([]any)[0].(map[string]any)["typed_config"].(map[string]any)
		rds := fragment(t, "rds")
		rds["rds"].(map[string]any)["route_config_name"] = l.(map[string]any)["name"]
		delete(manager, "route_config")
		maps.Copy(manager, rds)
		for _, f := range manager["http_filters"].([]any) {
			if f := f.(map[string]any); f["name"] == "understudy" {
				delete(f, "typed_config")
				maps.Copy(f, fragment(t, "config_discovery"))
			}
		}
	}
}

// fragment is the piece of YAML in docs/xds.md that begins with a key.
func fragment(t *testing.T, key string) map[string]any {
	t.Helper()
	doc, err := os.ReadFile("../docs/xds.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(" + key + ":.*?)```").FindSubmatch(doc)
	if found == nil {
		t.Fatalf("docs/xds.md has no piece of YAML for %s", key)
	}
	var piece map[string]any
	if err := sigsyaml.Unmarshal(found[1], &piece); err != nil {
		t.Fatal(err)
	}
	return piece
}
