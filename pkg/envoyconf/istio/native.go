package istio

import (
	"fmt"
	"slices"

	"understudy/pkg/envoyconf/attach"
)

const (
	networking = "networking.istio.io/v1"
	security   = "security.istio.io/v1"
)

// native are Istio's own resources and the Services that they need.
func (g *generator) native() []resource {
	var rs []resource
	if g.o.Level != attach.Observe {
		rs = append(rs, g.entrance())
	}
	if g.o.Shape == Egress {
		rs = append(rs, g.hopService())
	}
	if g.throughMesh() {
		rs = append(rs, g.serviceIngress(), g.serviceTLS(), g.serviceCallers())
	}
	return rs
}

type service struct {
	ClusterIP string            `json:"clusterIP,omitempty"`
	Selector  map[string]string `json:"selector,omitempty"`
	Ports     []servicePort     `json:"ports"`
}

type servicePort struct {
	Name        string `json:"name"`
	Port        uint32 `json:"port"`
	AppProtocol string `json:"appProtocol"`
}

// entrance makes Istio listen, and answer for Host.
func (g *generator) entrance() resource {
	o := g.o
	if o.Shape == Gateway {
		return native(networking, "Gateway", "understudy", o.Namespace, gatewayWhy, gateway{o.Labels, []server{{
			Port: port{Number: o.Port, Name: "http-understudy", Protocol: "HTTP"}, Hosts: []string{o.host()},
		}}})
	}
	return native("v1", "Service", o.Host, o.Namespace, entranceWhy, service{
		Ports: []servicePort{{Name: "http-llm", Port: o.Port, AppProtocol: "http"}},
	})
}

type gateway struct {
	Selector map[string]string `json:"selector"`
	Servers  []server          `json:"servers"`
}

type server struct {
	Port  port     `json:"port"`
	Hosts []string `json:"hosts"`
}

type port struct {
	Number   uint32 `json:"number"`
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
}

func (g *generator) hopService() resource {
	r := native("v1", "Service", "understudy-hop", g.o.Hop.Namespace, hopServiceWhy, service{
		ClusterIP: "None",
		Selector:  g.o.Hop.Labels,
		Ports:     []servicePort{{Name: "tcp-hop", Port: hopPort, AppProtocol: "tcp"}},
	})
	r.hidden = true
	return r
}

type sidecar struct {
	Selector selector  `json:"workloadSelector"`
	Ingress  []ingress `json:"ingress"`
}

type ingress struct {
	Port            port   `json:"port"`
	DefaultEndpoint string `json:"defaultEndpoint"`
}

// serviceIngress brings the mesh's callers to the service's own address, which is loopback or a socket.
func (g *generator) serviceIngress() resource {
	s := sidecar{Selector: selector{g.o.Service.Labels}}
	for i, p := range g.servicePorts() {
		name := "grpc"
		if i > 0 {
			name += fmt.Sprintf("-%d", i+1)
		}
		s.Ingress = append(s.Ingress, ingress{Port: port{Number: p, Name: name, Protocol: "GRPC"}, DefaultEndpoint: g.c.Server.GRPC.String()})
	}
	if !g.c.Server.Admin.Local() {
		admin := portOf(g.c.Server.Admin)
		s.Ingress = append(s.Ingress, ingress{Port: port{Number: admin, Name: "http-admin", Protocol: "HTTP"}, DefaultEndpoint: fmt.Sprintf("0.0.0.0:%d", admin)})
	}
	return native(networking, "Sidecar", "understudy", g.o.Service.Namespace, ingressWhy, s)
}

// servicePorts are where callers find the service's pods.
func (g *generator) servicePorts() []uint32 {
	var ports []uint32
	for _, a := range g.c.Envoy.Services {
		if p := portOf(a); p != 0 && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// guarded are all ports of the service's pods whose answers carry credentials: also its own, where that is on the network.
func (g *generator) guarded() []string {
	ports := g.servicePorts()
	if own := g.c.Server.GRPC; !own.Local() && !slices.Contains(ports, portOf(own)) {
		ports = append(ports, portOf(own))
	}
	var all []string
	for _, p := range ports {
		all = append(all, fmt.Sprint(p))
	}
	return all
}

type peers struct {
	Selector matchLabels     `json:"selector"`
	MTLS     mtls            `json:"mtls"`
	Ports    map[string]mtls `json:"portLevelMtls,omitempty"`
}

type mtls struct {
	Mode string `json:"mode"`
}

type matchLabels struct {
	Labels map[string]string `json:"matchLabels"`
}

// serviceTLS leaves the admin port to Prometheus, which may be outside the mesh.
func (g *generator) serviceTLS() resource {
	p := peers{Selector: matchLabels{g.o.Service.Labels}, MTLS: mtls{"STRICT"}}
	if admin := g.c.Server.Admin; !admin.Local() {
		p.Ports = map[string]mtls{fmt.Sprint(portOf(admin)): {"PERMISSIVE"}}
	}
	return native(security, "PeerAuthentication", "understudy", g.o.Service.Namespace, strictWhy, p)
}

type policy struct {
	Selector matchLabels `json:"selector"`
	Action   string      `json:"action"`
	Rules    []rule      `json:"rules"`
}

type rule struct {
	From []from `json:"from,omitempty"`
	To   []to   `json:"to"`
}

type from struct {
	Source source `json:"source"`
}

type source struct {
	Principals []string `json:"principals"`
}

type to struct {
	Operation operation `json:"operation"`
}

type operation struct {
	Ports    []string `json:"ports,omitempty"`
	NotPorts []string `json:"notPorts,omitempty"`
}

// serviceCallers lets the gRPC port answer those Envoys only that have the hop.
func (g *generator) serviceCallers() resource {
	var who []string
	for _, caller := range g.o.Callers {
		who = append(who, g.o.principal(caller))
	}
	if g.o.Shape == Egress {
		who = []string{g.o.principal(g.o.Hop.identity())}
	}
	grpc := g.guarded()
	return native(security, "AuthorizationPolicy", "understudy", g.o.Service.Namespace, callersWhy, policy{
		Selector: matchLabels{g.o.Service.Labels},
		Action:   "ALLOW",
		Rules: []rule{
			{From: []from{{source{who}}}, To: []to{{operation{Ports: grpc}}}},
			{To: []to{{operation{NotPorts: grpc}}}},
		},
	})
}
