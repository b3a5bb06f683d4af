package recovery

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
)

// refusal says why a webhook is not called at all. It is final: only another config changes it.
type refusal string

func (r refusal) Error() string { return string(r) }

// direct is a transport that dials itself and takes no proxy from the environment: behind one, the address that is
// checked would not be the one that is reached. It keeps no connection, so that every call is checked as it dials.
func direct(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		TLSHandshakeTimeout:    tellBound,
		MaxResponseHeaderBytes: 16 << 10,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	}
}

// guard dials public hosts only, so that a webhook's URL reaches nothing that just this machine can reach.
type guard struct{ dialer net.Dialer }

func newGuard(r *net.Resolver) guard {
	return guard{net.Dialer{Timeout: tellBound, Resolver: r, Control: checkDial}}
}

// dial refuses a host if any of its addresses is not public: a mixture is a misconfiguration or an attack. The dialer
// asks for the name again and may hear something else (DNS rebinding); what it really connects to is up to checkDial.
func (g guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := g.dialer.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for _, ip := range ips {
		if err := checkAddr(ip); err != nil {
			return nil, err
		}
	}
	return g.dialer.DialContext(ctx, network, address)
}

// checkDial is a net.Dialer.Control: "called after creating the network connection but before actually dialing", with
// the address that the name came to.
func checkDial(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return refusal("webhook refused: it is at no IP address")
	}
	return checkAddr(a.Addr())
}

func checkAddr(ip netip.Addr) error {
	if public(ip) {
		return nil
	}
	return refusal(fmt.Sprintf("webhook refused: %s is not a public address; if it is meant, set notify.allow_private: true", ip))
}

// notPublic is what no stranger's server can have, by the IANA registries of special-purpose addresses (RFC 6890 and
// its successors), whole blocks where a few addresses are excepted. Of IPv6, all but 2000::/3 is not public anyway.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network; 0.0.0.0 is this host
	netip.MustParsePrefix("10.0.0.0/8"),      // private (RFC 1918)
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT (RFC 6598); clouds put metadata here too
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local; clouds' metadata is at 169.254.169.254
	netip.MustParsePrefix("172.16.0.0/12"),   // private (RFC 1918)
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays (RFC 7526)
	netip.MustParsePrefix("192.168.0.0/16"),  // private (RFC 1918)
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved; 255.255.255.255 is broadcast
	netip.MustParsePrefix("2001::/23"),       // protocol assignments: Teredo, ORCHID, benchmarks
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("3fff::/20"),       // documentation (RFC 9637)
}

var (
	globalV6  = netip.MustParsePrefix("2000::/3")     // "Global Unicast" of the IANA IPv6 address space
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052: an IPv4 address in the last four bytes
	sixToFour = netip.MustParsePrefix("2002::/16")    // RFC 3056: an IPv4 address in bytes 2 to 5
)

// public says whether ip is unicast that the whole Internet can reach. An address that embeds an IPv4 one is as public
// as that.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	switch b := ip.As16(); {
	case nat64.Contains(ip):
		return public(netip.AddrFrom4([4]byte(b[12:])))
	case sixToFour.Contains(ip):
		return public(netip.AddrFrom4([4]byte(b[2:6])))
	case !ip.IsValid(), ip.Zone() != "", ip.Is6() && !globalV6.Contains(ip):
		return false
	}
	for _, p := range notPublic {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}
