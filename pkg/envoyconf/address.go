package envoyconf

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"understudy/pkg/config"
)

// listenAddress is where Envoy listens; Envoy resolves no names there.
func (b *builder) listenAddress(key string, a config.Address) *corev3.Address {
	if a.Network == "unix" {
		return pipe(a.Addr)
	}
	host, port, err := split(a.Addr)
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	if err == nil && !isIP(host) {
		err = fmt.Errorf("%q is a name; write an IP address", host)
	}
	if err != nil {
		b.fault("%s: %w", key, err)
	}
	return socket(host, port)
}

// remoteAddress is where Envoy connects to.
func (b *builder) remoteAddress(key string, a config.Address) *corev3.Address {
	if a.Network == "unix" {
		return pipe(a.Addr)
	}
	host, port, err := split(a.Addr)
	if err != nil {
		b.fault("%s: %w", key, err)
	}
	return socket(host, port)
}

func split(hostport string) (host string, port uint32, err error) {
	host, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: the port is not a number up to 65535", hostport)
	}
	return host, uint32(n), nil
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func socket(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// pipe is a unix socket; a path that begins with "@" is in Linux's abstract namespace.
func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

func endpoints(cluster string, as ...*corev3.Address) *endpointv3.ClusterLoadAssignment {
	var eps []*endpointv3.LbEndpoint
	for _, a := range as {
		eps = append(eps, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: a},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: eps}},
	}
}
