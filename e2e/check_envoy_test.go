//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// checked is what `extproc check --envoy` says of the stack's Envoy, and how it exits.
func (s *Stack) checked(t *testing.T) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(within(t, patience), binary, "check", "-c", s.services[0].config, "--envoy", "http://"+s.envoyAdmin)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestCheckFindsNothingInARunningEnvoyOfOurs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, level string
		plan        plan
	}{
		{"the bootstrap", "same-request", plan{envoy: envoyMain, tls: true}},
		{"the bootstrap on the oldest Envoy", "same-request", plan{envoy: envoyOldest, tls: true}},
		{"two replicas and a tcp hop", "same-request", plan{envoy: envoyMain, replicas: 2, hop: "tcp"}},
		{"an Envoy that asks", "same-request", asking(plan{envoy: envoyMain})},
		{"an old Envoy that asks", "same-request", asking(plan{envoy: envoyOldest})},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, row.plan)
			said, code := s.checked(t)
			if code != 0 || !strings.Contains(said, "Envoy "+s.plan.envoy+", level "+row.level) || !strings.Contains(said, "\n0 conflicts, 0 pieces of advice\n") {
				t.Errorf("extproc check --envoy = %d\n%s\nwant 0, level %s and nothing found", code, said, row.level)
			}
		})
	}
}

func TestCheckFindsNothingInAnAttachedEnvoy(t *testing.T) {
	t.Parallel()
	for _, r := range []attachRow{{staticFile, envoyMain}, {servedFiles, envoyMain}, {filtered, envoyOldest}} {
		for _, level := range []string{"same-request", "next-request", "observe"} {
			t.Run(r.name()+" for "+level, func(t *testing.T) {
				t.Parallel()
				s, _ := attach(t, r, level, plan{})
				said, code := s.checked(t)
				if code != 0 || !strings.Contains(said, ", level "+level+"\n") || !strings.Contains(said, "\n0 conflicts, ") {
					t.Errorf("extproc check --envoy = %d\n%s\nwant 0, level %s and no conflict", code, said, level)
				}
			})
		}
	}
}

// broken are single settings of a bootstrap that defeat failover, and how they are told.
var broken = []struct {
	name string
	edit func(boot map[string]any)
	want string
}{
	{"outlier detection on the hop", func(b map[string]any) { clusterIn(b, "hop")["outlier_detection"] = map[string]any{} },
		"conflict: cluster hop: outlier_detection is set"},
	{"Envoy's ceiling of retries", func(b map[string]any) { delete(clusterIn(b, "hop"), "circuit_breakers") },
		"conflict: cluster hop: circuit_breakers: max_retries is 3, Envoy's default"},
	{"no keep-alive to the service", func(b map[string]any) {
		delete(dig(clusterIn(b, "understudy"), "typed_extension_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config", "http2_protocol_options"), "connection_keepalive")
	}, "conflict: cluster understudy: it has no connection_keepalive"},
	{"Envoy's idle timeout", func(b map[string]any) { delete(managerIn(b, "front"), "stream_idle_timeout") },
		"conflict: listener front: stream_idle_timeout is 5m0s, Envoy's default"},
	{"Envoy's route timeout", func(b map[string]any) { delete(routeTo(b, "front", messages), "timeout") },
		`conflict: route "/v1/messages" of listener front: timeout is 15s, Envoy's default`},
	{"too few retries", func(b map[string]any) { dig(routeTo(b, "front", messages), "retry_policy")["num_retries"] = 1 },
		`conflict: route "/v1/messages" of listener front: num_retries is 1`},
	{"retries of final answers", func(b map[string]any) {
		dig(routeTo(b, "front", messages), "retry_policy")["retry_on"] = "retriable-headers,reset,connect-failure,refused-stream,5xx"
	}, `conflict: route "/v1/messages" of listener front: retry_on has 5xx`},
	{"mirroring", func(b map[string]any) {
		routeTo(b, "front", messages)["request_mirror_policies"] = []any{map[string]any{"cluster": "hop"}}
	}, `conflict: route "/v1/messages" of listener front: request_mirror_policies are set`},
	{"clients' own x-llm-cluster", func(b map[string]any) { delete(managerIn(b, "front"), "early_header_mutation_extensions") },
		"conflict: listener front: a client's x-llm-cluster, "},
	{"no local replies", func(b map[string]any) { delete(managerIn(b, "hop"), "local_reply_config") },
		"conflict: listener hop: local_reply_config adds no x-llm-failover: next for UF, UC, UR, UPE, UH, NC, UT, SI"},
}

func TestCheckNamesWhatDefeatsFailoverInARunningEnvoy(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run("Envoy "+version, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, plan{envoy: version})
			for _, row := range broken {
				t.Run(row.name, func(t *testing.T) {
					s.plan.bootstrap = row.edit
					view := s.solo(t, 0)
					said, code := view.checked(t)
					if code != 1 || !strings.Contains(said, row.want) {
						t.Errorf("extproc check --envoy = %d\n%s\nwant 1 and %s", code, said, row.want)
					}
					view.envoy.stop(patience)
				})
			}
		})
	}
}

func TestCheckOfNoEnvoyIsASentence(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{})
	s.envoyAdmin = strings.TrimPrefix(s.services[0].admin, "http://") // ours, not Envoy's
	if said, code := s.checked(t); code != 1 || !strings.Contains(said, "is this Envoy's admin interface?") {
		t.Errorf("extproc check --envoy = %d %s, want 1 and a sentence", code, said)
	}
}

// dig follows keys into a bootstrap.
func dig(in map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		in = in[k].(map[string]any)
	}
	return in
}

// named is the member of a list with that name.
func named(list any, name string) map[string]any {
	for _, item := range list.([]any) {
		if m := item.(map[string]any); m["name"] == name {
			return m
		}
	}
	panic("nothing is named " + name)
}

func clusterIn(boot map[string]any, name string) map[string]any {
	return named(dig(boot, "static_resources")["clusters"], name)
}

// managerIn is the connection manager of a listener.
func managerIn(boot map[string]any, listener string) map[string]any {
	chain := named(dig(boot, "static_resources")["listeners"], listener)["filter_chains"].([]any)[0].(map[string]any)
	return dig(chain["filters"].([]any)[0].(map[string]any), "typed_config")
}

// routeTo is the action of a listener's route of a path.
func routeTo(boot map[string]any, listener, path string) map[string]any {
	host := dig(managerIn(boot, listener), "route_config")["virtual_hosts"].([]any)[0].(map[string]any)
	for _, r := range host["routes"].([]any) {
		if r := r.(map[string]any); dig(r, "match")["path"] == path && dig(r, "route") != nil {
			return dig(r, "route")
		}
	}
	panic("no route of " + path)
}
