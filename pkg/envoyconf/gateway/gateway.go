// Package gateway prints what Envoy Gateway needs of a Config: its own policies where these can say it, an
// EnvoyPatchPolicy for each fact that they cannot.
package gateway

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"text/template"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
	"understudy/pkg/envoyconf/attach"
)

// Options are what a Config does not know.
type Options struct {
	Level     attach.Level // attach.SameRequest by default
	Namespace string       // of all that is printed; "default" by default

	// What is there already, of which Observe adds to a route: "llm" by default, and the listener "http".
	Gateway, Listener, Route string
}

//go:embed *.tmpl
var texts embed.FS

var label = attach.Form(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) // RFC 1123 label

// Manifests is YAML for kubectl, or for a directory that Envoy Gateway's file provider watches. Equal arguments give
// equal bytes. The error joins everything that Envoy Gateway or Envoy could not be told.
func Manifests(c *config.Config, o Options) ([]byte, error) {
	o = o.withDefaults()
	pieces, err := envoyconf.Build(c, envoyconf.UDS)
	if err := errors.Join(err, o.check(), possible(c, o.Level)); err != nil {
		return nil, err
	}
	v, err := newView(c, o, pieces)
	if err != nil {
		return nil, err
	}
	t, err := template.New("").Funcs(template.FuncMap{
		"yaml": indented, "json": quoted, "name": named, "comment": comment, "duration": duration,
	}).ParseFS(texts, "*.tmpl")
	if err != nil {
		return nil, err
	}
	name := "choosing.yaml.tmpl"
	if o.Level == attach.Observe {
		name = "observing.yaml.tmpl"
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (o Options) withDefaults() Options {
	o.Level, o.Namespace = cmp.Or(o.Level, attach.SameRequest), cmp.Or(o.Namespace, "default")
	o.Gateway, o.Listener, o.Route = cmp.Or(o.Gateway, "llm"), cmp.Or(o.Listener, "http"), cmp.Or(o.Route, "llm")
	return o
}

func (o Options) check() error {
	var errs []error
	if _, err := attach.ParseLevel(string(o.Level)); err != nil {
		errs = append(errs, err)
	}
	for what, name := range map[string]string{"namespace": o.Namespace, "gateway": o.Gateway, "listener": o.Listener, "route": o.Route} {
		if !label().MatchString(name) {
			errs = append(errs, fmt.Errorf("%s %q: write a DNS label", what, name))
		}
	}
	return errors.Join(errs...)
}

// possible says what of c Envoy Gateway has no way to do.
func possible(c *config.Config, l attach.Level) error {
	if !c.Envoy.FailOpen || l == attach.Observe {
		return nil
	}
	return errors.New("envoy.when_service_down: open is not to be had with Envoy Gateway: its credential injection is of the route " +
		"that a request begins with, and would send the primary's credential to other providers; use closed")
}

// indented is a message as YAML for a place n columns in, whose first line is there already.
func indented(n int, m proto.Message) (string, error) {
	y, err := envoyconf.YAML(m)
	return strings.ReplaceAll(strings.TrimSpace(string(y)), "\n", "\n"+strings.Repeat(" ", n)), err
}

// quoted is a text as JSON, which is YAML.
func quoted(s string) (string, error) {
	js, err := json.Marshal(s)
	return string(js), err
}

func comment(s string) string { return "# " + strings.ReplaceAll(s, "\n", "\n# ") }

// duration is d as Envoy's JSON has it.
func duration(d *durationpb.Duration) (string, error) {
	js, err := protojson.Marshal(d)
	return strings.Trim(string(js), `"`), err
}

// port is that of an address; config has checked it.
func port(a config.Address) uint32 {
	_, p, _ := net.SplitHostPort(a.Addr)
	n, _ := strconv.ParseUint(p, 10, 16)
	return uint32(n)
}

// filterOf is the service's filter among the hop's.
func filterOf(p *envoyconf.Pieces) (*extprocv3.ExternalProcessor, error) {
	for _, f := range p.HopManager.HttpFilters {
		x := &extprocv3.ExternalProcessor{}
		if f.GetTypedConfig().MessageIs(x) {
			return x, f.GetTypedConfig().UnmarshalTo(x)
		}
	}
	return nil, errors.New("the hop has no ext_proc filter")
}
