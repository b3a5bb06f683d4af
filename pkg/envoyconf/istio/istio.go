// Package istio prints what Istio needs of a Config: its own resources where these can say it, EnvoyFilters for the
// rest.
package istio

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
	"understudy/pkg/envoyconf/attach"
)

// Shape is where front and hop are.
type Shape string

// The shapes.
const (
	// Sidecar puts both into the sidecar of the application that calls.
	Sidecar Shape = "sidecar"
	// Gateway puts both into an ingress or egress gateway.
	Gateway Shape = "gateway"
	// Egress puts the front into the application's sidecar, and the hop into a gateway that all of them share.
	Egress Shape = "egress"
)

// Options are what a Config does not know: where in the mesh everybody is. The zero value of each field but Callers has
// a default.
type Options struct {
	Shape Shape        // Sidecar
	Level attach.Level // attach.SameRequest

	Namespace string            // of the Envoys that clients meet: the applications', or the gateway's ("default", "istio-ingress")
	Labels    map[string]string // that their pods carry; a pod without them is left alone (understudy: "on", istio: ingressgateway)
	Host      string            // that clients call: a Service's name in Namespace ("llm"), a gateway's domain ("llm.example.com"); to observe, one they call already
	Port      uint32            // of Host (that of envoy.listen); no other HTTP service of the mesh may have it
	Listens   uint32            // where a gateway's Envoy listens for Port: its Service's targetPort (Port)

	// Callers are the identities of those Envoys, as NAMESPACE/SERVICEACCOUNT. Nobody else may ask the service, whose
	// answers carry credentials, or meet a shared hop, which believes what a front says.
	Callers     []string
	Service     Workload // Understudy ("understudy", app.kubernetes.io/name: understudy, as envoy/kubernetes has it)
	Hop         Workload // the gateway of Egress ("understudy-hop", istio: understudy-hop)
	TrustDomain string   // of the mesh ("cluster.local")
}

// Workload is a set of pods.
type Workload struct {
	Namespace, Account string
	Labels             map[string]string
}

// hopPort is where a shared hop listens.
const hopPort = 15480

// Manifests is YAML for kubectl: documents for Istio, each patch with the fact that forces it. Equal arguments give equal
// bytes. The error joins everything that Istio or Envoy could not be told.
func Manifests(c *config.Config, o Options) ([]byte, error) {
	pieces, err := envoyconf.Build(c, envoyconf.Internal)
	o = o.withDefaults(c)
	err = errors.Join(err, o.check())
	if err == nil && len(pieces.Secrets) > 0 {
		err = errors.New("envoy.when_service_down: open needs credentials in Envoy's bootstrap, which no EnvoyFilter reaches: write closed")
	}
	if err != nil {
		return nil, err
	}
	g := &generator{c: c, o: o, p: pieces}
	if o.Level != attach.SameRequest {
		if g.pieces, err = attach.Pieces(c, o.Level); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	for _, r := range append(g.native(), g.filters()...) {
		doc, err := r.yaml()
		if err != nil {
			g.fault("write %s %s: %w", r.kind, r.name, err)
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	if len(g.errs) > 0 {
		return nil, errors.Join(g.errs...)
	}
	return out.Bytes(), nil
}

// generator makes the resources for one Config. Faults are collected in errs, so that all are told at once.
type generator struct {
	c      *config.Config
	o      Options
	p      *envoyconf.Pieces
	pieces []attach.Piece // of the levels without a hop
	errs   []error
}

func (g *generator) fault(format string, args ...any) {
	g.errs = append(g.errs, fmt.Errorf(format, args...))
}

func (o Options) withDefaults(c *config.Config) Options {
	o.Shape, o.Level = cmp.Or(o.Shape, Sidecar), cmp.Or(o.Level, attach.SameRequest)
	namespace, host, labels := "default", "llm", map[string]string{"understudy": "on"}
	if o.Shape == Gateway {
		namespace, host, labels = "istio-ingress", "llm.example.com", map[string]string{"istio": "ingressgateway"}
	}
	o.Namespace, o.Host = cmp.Or(o.Namespace, namespace), cmp.Or(o.Host, host)
	if o.Labels == nil {
		o.Labels = labels
	}
	o.Port = cmp.Or(o.Port, portOf(c.Envoy.Listen))
	o.Listens = cmp.Or(o.Listens, o.Port)
	o.Service = o.Service.or("understudy", map[string]string{"app.kubernetes.io/name": "understudy"})
	o.Hop = o.Hop.or("understudy-hop", map[string]string{"istio": "understudy-hop"})
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	return o
}

// or fills in what is missing; name is the namespace's and the account's.
func (w Workload) or(name string, labels map[string]string) Workload {
	w.Namespace, w.Account = cmp.Or(w.Namespace, name), cmp.Or(w.Account, name)
	if w.Labels == nil {
		w.Labels = labels
	}
	return w
}

// portOf is 0 where the address has none.
func portOf(a config.Address) uint32 {
	_, port, _ := net.SplitHostPort(a.Addr)
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint32(n)
}

// RFC 1123 names, and two of them as an identity.
var (
	labelForm    = attach.Form(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) // a namespace
	serviceForm  = attach.Form(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)    // RFC 1035: a Service
	nameForm     = attach.Form(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	identityForm = attach.Form(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

func (o Options) check() error {
	return errors.Join(append(append(o.checkKind(), o.checkNames()...), o.checkCallers()...)...)
}

func (o Options) checkKind() (errs []error) {
	if o.Shape != Sidecar && o.Shape != Gateway && o.Shape != Egress {
		errs = append(errs, fmt.Errorf("shape %q: write %s, %s or %s", o.Shape, Sidecar, Gateway, Egress))
	}
	if _, err := attach.ParseLevel(string(o.Level)); err != nil {
		errs = append(errs, err)
	}
	if o.Shape == Egress && o.Level != attach.SameRequest {
		errs = append(errs, fmt.Errorf("level %q: a shared hop is only for %s", o.Level, attach.SameRequest))
	}
	return errs
}

func (o Options) checkNames() (errs []error) {
	for _, n := range []struct{ what, name string }{
		{"host", o.Host}, {"trust domain", o.TrustDomain}, {"the service's account", o.Service.Account}, {"the hop's account", o.Hop.Account},
	} {
		if !nameForm().MatchString(n.name) {
			errs = append(errs, fmt.Errorf("%s %q: write a DNS name", n.what, n.name))
		}
	}
	for what, name := range map[string]string{"namespace": o.Namespace, "the service's namespace": o.Service.Namespace, "the hop's namespace": o.Hop.Namespace} {
		if !labelForm().MatchString(name) {
			errs = append(errs, fmt.Errorf("%s %q: write a DNS label", what, name))
		}
	}
	if o.Shape != Gateway && o.Level != attach.Observe && !serviceForm().MatchString(o.Host) {
		errs = append(errs, fmt.Errorf("host %q: write the name of a Service of %s: a letter first, and no dots", o.Host, o.Namespace))
	}
	if len(o.Labels) == 0 {
		errs = append(errs, fmt.Errorf("labels: write at least one, or every pod of %s is changed", o.Namespace))
	}
	if o.Port == 0 || o.Port > 65535 || o.Listens > 65535 {
		errs = append(errs, fmt.Errorf("port %d: write 1 to 65535", o.Port))
	}
	return errs
}

func (o Options) checkCallers() (errs []error) {
	if len(o.Callers) == 0 {
		errs = append(errs, errors.New("callers: name the service accounts of the Envoys that may ask the service, as NAMESPACE/SERVICEACCOUNT"))
	}
	for _, caller := range o.Callers {
		if !identityForm().MatchString(caller) {
			errs = append(errs, fmt.Errorf("caller %q: write NAMESPACE/SERVICEACCOUNT", caller))
		}
	}
	return errs
}

// host is Host with its domain.
func (o Options) host() string {
	if o.Shape == Gateway || strings.Contains(o.Host, ".") {
		return o.Host
	}
	return fmt.Sprintf("%s.%s.svc.cluster.local", o.Host, o.Namespace)
}

// vhost is how Istio names the host's virtual host in a sidecar.
func (o Options) vhost() string { return fmt.Sprintf("%s:%d", o.host(), o.Port) }

// hopHost names the pods of the shared hop.
func (o Options) hopHost() string {
	return fmt.Sprintf("understudy-hop.%s.svc.cluster.local", o.Hop.Namespace)
}

// principal is a workload as Istio's policies name it.
func (o Options) principal(identity string) string {
	namespace, account, _ := strings.Cut(identity, "/")
	return fmt.Sprintf("%s/ns/%s/sa/%s", o.TrustDomain, namespace, account)
}

func (w Workload) identity() string { return w.Namespace + "/" + w.Account }
