package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// imports says which packages of ours each package may import: arrows go one way. A package that is missing here is
// a fault.
var imports = map[string][]string{
	"cmd/extproc": {"internal/scripted", "pkg/admin", "pkg/chain", "pkg/chain/breaker", "pkg/chain/budget", "pkg/classify", "pkg/config", "pkg/degrade",
		"pkg/degrade/cache", "pkg/degrade/queue", "pkg/drill", "pkg/drill/rehearse", "pkg/envoyconf", "pkg/envoyconf/attach", "pkg/envoyconf/audit", "pkg/envoyconf/gateway",
		"pkg/envoyconf/istio", "pkg/envoyconf/xds", "pkg/fleet", "pkg/once", "pkg/processor", "pkg/provider/credential", "pkg/recovery", "pkg/store",
		"pkg/token", "pkg/tracing"},
	"pkg/once":         {"pkg/store"},
	"pkg/chain/budget": {"pkg/classify", "pkg/config", "pkg/store"},
	"pkg/processor": {"pkg/chain", "pkg/chain/breaker", "pkg/chain/budget", "pkg/classify", "pkg/config", "pkg/degrade", "pkg/drill", "pkg/once",
		"pkg/provider", "pkg/provider/credential", "pkg/token"},
	"pkg/fleet":                   {"pkg/chain/breaker", "pkg/store"},
	"pkg/recovery":                {"pkg/chain/breaker", "pkg/classify", "pkg/config", "pkg/degrade/queue", "pkg/provider", "pkg/token"},
	"pkg/token":                   {},
	"pkg/tracing":                 {"pkg/classify", "pkg/config", "pkg/processor"},
	"pkg/drill":                   {"internal/scripted", "pkg/classify", "pkg/config"},
	"pkg/drill/rehearse":          {"pkg/classify", "pkg/classify/sse", "pkg/config", "pkg/drill"},
	"pkg/chain":                   {"pkg/chain/breaker", "pkg/classify", "pkg/config"},
	"pkg/chain/breaker":           {},
	"pkg/degrade":                 {"pkg/classify", "pkg/config", "pkg/degrade/cache", "pkg/degrade/queue", "pkg/store"},
	"pkg/degrade/cache":           {"pkg/classify", "pkg/classify/sse", "pkg/config", "pkg/store"},
	"pkg/degrade/queue":           {"pkg/config", "pkg/store"},
	"pkg/degrade/queue/queuetest": {"pkg/degrade/queue", "pkg/store"},
	"pkg/provider":                {"pkg/classify", "pkg/classify/eventstream", "pkg/config"},
	"pkg/provider/credential":     {"pkg/config"},
	"pkg/classify":                {"pkg/classify/decode", "pkg/classify/eventstream", "pkg/classify/jsonscan", "pkg/classify/sse"},
	"pkg/classify/decode":         {},
	"pkg/classify/eventstream":    {},
	"pkg/classify/jsonscan":       {},
	"pkg/classify/sse":            {},
	"pkg/envoyconf":               {"pkg/config", "pkg/provider"},
	"pkg/envoyconf/attach":        {"pkg/config", "pkg/envoyconf"},
	"pkg/envoyconf/gateway":       {"pkg/config", "pkg/envoyconf", "pkg/envoyconf/attach"},
	"pkg/envoyconf/istio":         {"pkg/config", "pkg/envoyconf", "pkg/envoyconf/attach"},
	"pkg/envoyconf/audit":         {"pkg/config", "pkg/envoyconf"},
	"pkg/envoyconf/xds":           {"pkg/config", "pkg/envoyconf"},
	"pkg/config":                  {},
	"pkg/admin":                   {},
	"pkg/store":                   {},
	"internal/scripted":           {},
	"internal/stage":              {"internal/scripted"},
}

// owners says which packages alone may import an outside module.
var owners = map[string][]string{
	"github.com/sony/gobreaker/v2":           {"pkg/chain/breaker"},
	"github.com/envoyproxy/go-control-plane": {"cmd/extproc", "pkg/processor", "pkg/envoyconf", "pkg/envoyconf/attach", "pkg/envoyconf/audit", "pkg/envoyconf/gateway", "pkg/envoyconf/istio", "pkg/envoyconf/xds"},
	"google.golang.org/grpc":                 {"cmd/extproc", "pkg/processor", "pkg/envoyconf/xds"},
	"go.yaml.in/yaml/v3":                     {"pkg/config"},
	"github.com/nats-io":                     {"pkg/store"},
	"golang.org/x/time":                      {"pkg/recovery"},
	"go.opentelemetry.io":                    {"pkg/tracing"},
	"golang.org/x/oauth2":                    {"pkg/provider/credential"},
	"github.com/Azure":                       {"pkg/provider/credential"},
	"github.com/aws/aws-sdk-go-v2/config":    {"pkg/provider/credential"},
	"cloud.google.com":                       {"pkg/provider/credential"},
}

func TestImportsGoOneWay(t *testing.T) {
	for _, p := range packages(t) {
		name, ours := strings.CutPrefix(p.ImportPath, "understudy/")
		allowed, known := imports[name]
		if !ours || !known {
			t.Errorf("package %s is not in the table of this test", p.ImportPath)
			continue
		}
		for _, path := range p.Imports {
			if dep, ours := strings.CutPrefix(path, "understudy/"); ours && !slices.Contains(allowed, dep) {
				t.Errorf("%s imports %s, want only %v", name, dep, allowed)
			}
			for module, only := range owners {
				if strings.HasPrefix(path, module) && !slices.Contains(only, name) {
					t.Errorf("%s imports %s, which only %v may", name, path, only)
				}
			}
		}
	}
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "understudy/cmd/...", "understudy/pkg/...", "understudy/internal/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
