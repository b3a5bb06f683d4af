package istio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// resource is one document.
type resource struct {
	why             string // a sentence or more, written above it
	version, kind   string
	name, namespace string
	hidden          bool   // from the registries of all sidecars
	spec            []byte // YAML
	err             error  // of making spec
}

// native is a resource whose spec is one of this package's structs.
func native[T any](version, kind, name, namespace, why string, spec T) resource {
	r := resource{why: why, version: version, kind: kind, name: name, namespace: namespace}
	r.spec, r.err = yaml.Marshal(spec)
	return r
}

type metadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
}

func (r resource) yaml() ([]byte, error) {
	var out bytes.Buffer
	comment(&out, "", r.why)
	fmt.Fprintf(&out, "apiVersion: %s\nkind: %s\nmetadata:\n", r.version, r.kind)
	m := metadata{Name: r.name, Namespace: r.namespace}
	if r.hidden {
		m.Annotations = map[string]string{"networking.istio.io/exportTo": "~"}
	}
	head, err := yaml.Marshal(m)
	indent(&out, "  ", head)
	out.WriteString("spec:\n")
	indent(&out, "  ", r.spec)
	return out.Bytes(), errors.Join(err, r.err)
}

// patch is one change that an EnvoyFilter makes.
type patch struct {
	why       string
	applyTo   string
	match     match
	operation string
	value     proto.Message
}

// match says what is changed.
type match struct {
	Context  string         `json:"context"`
	Listener *listenerMatch `json:"listener,omitempty"`
	Routes   *routesMatch   `json:"routeConfiguration,omitempty"`
}

type listenerMatch struct {
	Port  uint32     `json:"portNumber"`
	Chain chainMatch `json:"filterChain"`
}

type chainMatch struct {
	Filter filterMatch `json:"filter"`
}

type filterMatch struct {
	Name      string     `json:"name"`
	SubFilter *nameMatch `json:"subFilter,omitempty"`
}

type routesMatch struct {
	Port  uint32     `json:"portNumber"`
	Vhost *nameMatch `json:"vhost,omitempty"`
}

type nameMatch struct {
	Name string `json:"name"`
}

// envoyFilter is a resource for the pods of a namespace that carry labels.
func envoyFilter(name, namespace, why string, labels map[string]string, patches []patch) resource {
	r := resource{why: why, version: "networking.istio.io/v1alpha3", kind: "EnvoyFilter", name: name, namespace: namespace}
	var out bytes.Buffer
	out.WriteString("workloadSelector:\n")
	selector, err := yaml.Marshal(selector{labels})
	indent(&out, "  ", selector)
	out.WriteString("configPatches:\n")
	for _, p := range patches {
		body, perr := p.yaml()
		if perr != nil {
			err = perr
		}
		comment(&out, "", p.why)
		out.WriteString("- ")
		out.Write(bytes.TrimPrefix(indented("  ", body), []byte("  ")))
	}
	r.spec, r.err = out.Bytes(), err
	return r
}

type selector struct {
	Labels map[string]string `json:"labels"`
}

func (p patch) yaml() ([]byte, error) {
	value, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.value)
	if err != nil {
		return nil, err
	}
	type change struct {
		Operation string          `json:"operation"`
		Value     json.RawMessage `json:"value"`
	}
	return yaml.Marshal(struct {
		ApplyTo string `json:"applyTo"`
		Match   match  `json:"match"`
		Patch   change `json:"patch"`
	}{p.applyTo, p.match, change{p.operation, value}})
}

// comment writes text as comment lines.
func comment(out *bytes.Buffer, before, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(out, "%s# %s\n", before, line)
	}
}

func indent(out *bytes.Buffer, by string, text []byte) { out.Write(indented(by, text)) }

func indented(by string, text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		out.WriteString(by)
		out.Write(line)
	}
	return out.Bytes()
}
