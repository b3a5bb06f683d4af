//go:build e2e

package e2e

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

// usersAsTenants makes Envoy's front say, in dynamic metadata, whose request it is: it takes x-user for proven, as a
// filter that has checked a token would.
func usersAsTenants(t *testing.T) func(map[string]any) {
	filter := map[string]any{
		"name": "users",
		"typed_config": map[string]any{
			"@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
			"request_rules": []any{map[string]any{
				"header":            "x-user",
				"on_header_present": map[string]any{"metadata_namespace": "users", "key": "tenant", "type": "STRING"},
				"remove":            true,
			}},
		},
	}
	return func(boot map[string]any) {
		manager := managerOf(boot, "front")
		if manager == nil {
			t.Fatal("the bootstrap has no HTTP connection manager named front")
		}
		manager["http_filters"] = append([]any{filter}, manager["http_filters"].([]any)...)
	}
}

// managerOf is the HTTP connection manager with that stat_prefix, somewhere in a bootstrap; nil: there is none.
func managerOf(part any, prefix string) map[string]any {
	switch part := part.(type) {
	case map[string]any:
		if part["stat_prefix"] == prefix && part["http_filters"] != nil {
			return part
		}
		for _, below := range part {
			if m := managerOf(below, prefix); m != nil {
				return m
			}
		}
	case []any:
		for _, below := range part {
			if m := managerOf(below, prefix); m != nil {
				return m
			}
		}
	}
	return nil
}

func TestAJobIsItsTenantsAlone(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, header string
		tenant       map[string]any
		bootstrap    func(map[string]any)
	}{
		{"a trusted header says whose", "x-tenant", map[string]any{"header": "x-tenant", "trusted_header": true}, nil},
		{"Envoy's metadata says whose", "x-user", map[string]any{"metadata": "users:tenant"}, usersAsTenants(t)},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := chain{name: "owned", api: "anthropic", on: []string{"a"}, more: fileChain{Degrade: []string{"queue"}}}
			s := startStack(t, plan{chains: []chain{c}, bootstrap: row.bootstrap, edit: func(f *file) {
				f.Tenant, f.Jobs = row.tenant, map[string]any{"expose": true}
			}})
			job := func(headers map[string]string) string {
				t.Helper()
				all := map[string]string{keyHeader: "same"}
				maps.Copy(all, headers)
				a := s.raw(within(t, patience), t, call{path: messages, chain: "owned", script: "*=529", header: all})
				return strings.TrimPrefix(a.header.Get("location"), "/jobs/")
			}
			show := func(want int, id string, headers map[string]string) {
				t.Helper()
				req := s.get(t, s.front()+"/jobs/"+id)
				for name, value := range headers {
					req.Header.Set(name, value)
				}
				if a := s.do(req); a.status != want || (want == http.StatusNotFound && strings.Contains(a.body, id)) {
					t.Errorf("GET /jobs/ID with %v = %d %s, want %d", headers, a.status, a.body, want)
				}
			}
			first := map[string]string{row.header: "first"}
			second := map[string]string{row.header: "second"}
			id, other := job(first), job(second)
			if id == "" || other == "" || id == other {
				t.Fatalf("two tenants with one key got the jobs %q and %q, want one each", id, other)
			}
			if again := job(first); again != id {
				t.Errorf("the first tenant got the job %s again as %s", id, again)
			}
			show(200, id, first)
			show(200, other, second)
			show(404, id, second)
			show(404, id, nil)
			show(404, id, map[string]string{"x-llm-tenant": "first"})
			show(404, id, map[string]string{row.header: "second", "x-llm-tenant": "first"})
			show(200, id, map[string]string{row.header: "first", "x-llm-tenant": "second"})
			if got := job(nil); got != "" {
				t.Errorf("a request of nobody became job %s", got)
			}
			if got := job(map[string]string{"x-llm-tenant": "first"}); got != "" {
				t.Errorf("a request of nobody who says that it is the first tenant's became job %s", got)
			}
			if got := job(map[string]string{row.header: "second", "x-llm-tenant": "first"}); got != other {
				t.Errorf("a request of the second tenant who says that it is the first's became job %q, want %q", got, other)
			}
			if got := s.do(s.get(t, "http://"+s.services[0].admin+"/jobs/"+id)).status; got != 200 {
				t.Errorf("GET /jobs/ID by the operator = %d, want 200", got)
			}
		})
	}
}
