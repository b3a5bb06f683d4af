//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// pasted is one document that `extproc envoy attach` prints.
type pasted struct {
	place, do string
	value     any // a list's items, or the fields to be set
}

var placed = regexp.MustCompile(`(?m)^# \d+\. ([a-z_.]+): (.*)\.$`)

// attachment runs the command.
func attachment(t testing.TB, level, config string) []pasted {
	t.Helper()
	out, err := output(exec.Command(binary, "envoy", "attach", "--for", "static", "--level", level, "-c", config))
	if err != nil {
		t.Fatal(err)
	}
	var all []pasted
	for _, doc := range bytes.Split(out, []byte("\n---\n"))[1:] {
		m := placed.FindSubmatch(doc)
		if m == nil {
			t.Fatalf("a document does not say where it goes:\n%.500s", doc)
		}
		p := pasted{place: string(m[1]), do: string(m[2])}
		if err := sigsyaml.Unmarshal(doc, &p.value); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// theirs is somebody's Envoy: the files in testdata/attach that its name begins, the bootstrap first.
type theirs struct {
	name  string
	files []string
	first bool // our filters are put before theirs, against the advice

	dir  string
	docs []map[string]any
}

var (
	staticFile  = theirs{name: "one static file", files: []string{"static.yaml"}}
	servedFiles = theirs{name: "routes and clusters that are served", files: []string{"rds.yaml", "rds-routes.yaml", "rds-clusters.yaml"}}
	filtered    = theirs{name: "filters of its own", files: []string{"filters.yaml"}}
	reversed    = theirs{name: "filters of its own after ours", files: []string{"filters.yaml"}, first: true}
)

// attached starts that Envoy with what a level adds.
func (th theirs) attached(level, app string) func(testing.TB, *Stack, string) (*process, error) {
	return func(t testing.TB, s *Stack, config string) (*process, error) {
		th.read(t, s, app)
		for _, p := range attachment(t, level, config) {
			th.paste(t, p)
		}
		return s.launch(t, "envoy", th.write(t))
	}
}

// read fills in the ports.
func (th *theirs) read(t testing.TB, s *Stack, app string) {
	t.Helper()
	th.dir, th.docs = s.dir, nil
	values := map[string]string{"DIR": s.dir, "APP": portOf(t, app), "ADMIN": portOf(t, s.envoyAdmin), "LISTEN": portOf(t, s.listen),
		"PROVIDER": portOf(t, strings.TrimPrefix(s.endpoints["a"], "http://"))}
	for _, name := range th.files {
		text, err := os.ReadFile(filepath.Join("testdata", "attach", name))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := sigsyaml.Unmarshal([]byte(os.Expand(string(text), func(k string) string { return values[k] })), &doc); err != nil {
			t.Fatal(err)
		}
		th.docs = append(th.docs, doc)
	}
}

func portOf(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// write writes what is served, and gives the bootstrap.
func (th theirs) write(t testing.TB) []byte {
	t.Helper()
	var texts [][]byte
	for i, doc := range th.docs {
		text, err := sigsyaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(th.dir, th.files[i]), text)
		texts = append(texts, text)
	}
	return texts[0]
}

// paste does what a document says.
func (th theirs) paste(t testing.TB, p pasted) {
	t.Helper()
	root, path, _ := strings.Cut(p.place, ".")
	for _, at := range th.find(t, root) {
		if p.place == "static_resources.clusters" && len(th.docs) > 1 {
			at, path = th.docs[2], "resources"
			for _, c := range p.value.([]any) {
				c.(map[string]any)["@type"] = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
			}
		}
		if p.do == "set these" {
			for field, value := range p.value.(map[string]any) {
				at[field] = value
			}
			continue
		}
		if path == "" { // the place is the list itself
			path = root
		}
		fields := strings.Split(path, ".")
		for _, field := range fields[:len(fields)-1] {
			if at[field] == nil {
				at[field] = map[string]any{}
			}
			at = at[field].(map[string]any)
		}
		last := fields[len(fields)-1]
		list, _ := at[last].([]any)
		at[last] = th.insert(t, p, list)
	}
}

func (th theirs) insert(t testing.TB, p pasted, list []any) []any {
	t.Helper()
	items := p.value.([]any)
	switch p.do {
	case "add these":
		return append(list, items...)
	case "put these before your own":
		return append(items, list...)
	case "put these right before envoy.filters.http.router":
		if th.first {
			return append(items, list...)
		}
		return slices.Insert(list, len(list)-1, items...)
	}
	t.Fatalf("%s: nobody knows how to %q", p.place, p.do)
	return nil
}

// find is the objects that the first word of a place means.
func (th theirs) find(t testing.TB, root string) []map[string]any {
	t.Helper()
	boot := th.docs[0]
	listeners := boot["static_resources"].(map[string]any)["listeners"].([]any)
	chain := listeners[0].(map[string]any)["filter_chains"].([]any)[0].(map[string]any)
	manager := chain["filters"].([]any)[0].(map[string]any)["typed_config"].(map[string]any)
	routes, inline := manager["route_config"].(map[string]any)
	if !inline {
		routes = th.docs[1]["resources"].([]any)[0].(map[string]any)
	}
	host := routes["virtual_hosts"].([]any)[0].(map[string]any)
	switch root {
	case "static_resources":
		return []map[string]any{boot["static_resources"].(map[string]any)}
	case "bootstrap_extensions":
		return []map[string]any{boot}
	case "http_connection_manager":
		return []map[string]any{manager}
	case "route_config":
		return []map[string]any{routes}
	case "virtual_host":
		return []map[string]any{host}
	case "route":
		var all []map[string]any
		for _, r := range host["routes"].([]any) {
			if route := r.(map[string]any); fmt.Sprint(route["name"]) == "provider" {
				all = append(all, route)
			}
		}
		return all
	}
	t.Fatalf("nobody knows where %q is", root)
	return nil
}
