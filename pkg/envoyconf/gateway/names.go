package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"sigs.k8s.io/yaml"

	"understudy/pkg/envoyconf/attach"
)

// What the CustomResourceDefinitions take.
var (
	hostForm = attach.Form(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?$`) // Backend: fqdn.hostname
	pathForm = attach.Form(`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$`)               // HTTPRoute: path.value
	nameForm = attach.Form(`^[a-z0-9]([-a-z0-9]{0,248}[a-z0-9])?$`)                                // of 253, less "-ca"
)

// acceptable tells everything that the API server would refuse.
func (v *view) acceptable() error {
	errs := append(v.taken(), v.misnamed()...)
	if v.Port == 65535 && v.Level != attach.Observe {
		errs = append(errs, errors.New("envoy.listen: the hop's listener has the port after this one, and after 65535 there is none"))
	}
	return errors.Join(errs...)
}

// taken are names of clusters that Kubernetes cannot tell apart, or that are none there.
func (v *view) taken() (errs []error) {
	seen := map[string]string{}
	for _, b := range v.Backends {
		cluster := b.Cluster.Name
		if other, ok := seen[b.Name]; ok {
			errs = append(errs, fmt.Errorf("the clusters %s and %s have one name in Kubernetes, %s: rename one (providers.NAME.cluster)", other, cluster, b.Name))
		}
		if !nameForm().MatchString(b.Name) {
			errs = append(errs, fmt.Errorf("cluster %s: Kubernetes takes no name like %s: write another (providers.NAME.cluster)", cluster, b.Name))
		}
		seen[b.Name] = cluster
	}
	return errs
}

// misnamed are hosts and paths of a form that is none there.
func (v *view) misnamed() (errs []error) {
	for _, b := range v.Backends {
		names := b.hosts()
		if len(names) > 0 && len(names) < len(b.addresses()) {
			errs = append(errs, fmt.Errorf("cluster %s: a Backend has either host names or IP addresses: give all endpoints of one kind", b.Cluster.Name))
		}
		if b.TLS != nil {
			names = append(names, b.TLS.Host)
		}
		for _, host := range names {
			if !hostForm().MatchString(host) {
				errs = append(errs, fmt.Errorf("cluster %s: Kubernetes takes no host name like %s", b.Cluster.Name, host))
			}
		}
	}
	for _, f := range v.Fronts {
		for _, path := range f.paths() {
			if path.Type != "RegularExpression" && !pathForm().MatchString(path.Value) {
				errs = append(errs, fmt.Errorf("path %s: Kubernetes takes none with such characters", path.Value))
			}
		}
	}
	return errs
}

// hosts are b's endpoints that are named.
func (b *backend) hosts() []string {
	var names []string
	for _, a := range b.addresses() {
		host := a.GetSocketAddress().GetAddress()
		if _, err := netip.ParseAddr(host); host != "" && err != nil {
			names = append(names, strings.ToLower(host))
		}
	}
	return names
}

func (f *front) paths() []pathMatch {
	var all []pathMatch
	for _, r := range f.Rules {
		all = append(all, r.Matches...)
	}
	return all
}

func (b *backend) addresses() []*corev3.Address {
	var all []*corev3.Address
	for _, e := range b.Cluster.LoadAssignment.Endpoints[0].LbEndpoints {
		all = append(all, e.GetEndpoint().Address)
	}
	return all
}

// Endpoints are YAML.
func (b *backend) Endpoints() ([]string, error) {
	var all []string
	for _, a := range b.addresses() {
		e, err := endpoint(a)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// endpoint writes an IP address in full: the Backend's pattern for it knows few short forms.
func endpoint(a *corev3.Address) (string, error) {
	if path := a.GetPipe().GetPath(); path != "" {
		js, err := quoted(path)
		return fmt.Sprintf("{unix: {path: %s}}", js), err
	}
	host, port := a.GetSocketAddress().Address, a.GetSocketAddress().GetPortValue()
	if ip, err := netip.ParseAddr(host); err == nil {
		return fmt.Sprintf("{ip: {address: %q, port: %d}}", ip.StringExpanded(), port), nil
	}
	return fmt.Sprintf("{fqdn: {hostname: %q, port: %d}}", strings.ToLower(host), port), nil
}

var notInNames = attach.Form(`[^a-z0-9]+`)

// kubernetesName makes an RFC 1123 name of a cluster's.
func kubernetesName(cluster string) string {
	return "understudy-to-" + strings.Trim(notInNames().ReplaceAllString(strings.ToLower(cluster), "-"), "-")
}

// named is a name as YAML, which takes some for numbers or truths.
func named(s string) (string, error) {
	y, err := yaml.Marshal(s)
	return strings.TrimSpace(string(y)), err
}
