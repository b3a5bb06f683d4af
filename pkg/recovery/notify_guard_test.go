package recovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"understudy/pkg/config"
)

func TestOnlyAddressesThatTheWholeInternetReachesArePublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"8.8.8.8":                  true,
		"93.184.216.34":            true,
		"100.63.255.255":           true,
		"100.128.0.0":              true,
		"172.15.255.255":           true,
		"172.32.0.0":               true,
		"223.255.255.255":          true,
		"2606:4700::1111":          true,
		"::ffff:8.8.8.8":           true, // IPv4-mapped
		"64:ff9b::8.8.8.8":         true, // NAT64, as DNS64 makes of a public address
		"2002:808:808::1":          true, // 6to4
		"0.0.0.0":                  false,
		"0.1.2.3":                  false,
		"10.0.0.1":                 false,
		"100.64.0.1":               false, // CGNAT
		"100.100.100.200":          false, // metadata of a cloud
		"100.127.255.255":          false,
		"127.0.0.1":                false,
		"127.255.255.254":          false,
		"169.254.169.254":          false, // metadata of most clouds
		"172.16.0.1":               false,
		"172.31.255.255":           false,
		"192.0.0.192":              false, // metadata of a cloud
		"192.0.2.1":                false, // documentation
		"192.88.99.1":              false,
		"192.168.1.1":              false,
		"198.18.0.1":               false, // benchmarks
		"198.19.255.255":           false,
		"198.51.100.1":             false, // documentation
		"203.0.113.1":              false, // documentation
		"224.0.0.1":                false, // multicast
		"239.255.255.250":          false,
		"240.0.0.1":                false,
		"255.255.255.255":          false,
		"::":                       false,
		"::1":                      false,
		"::127.0.0.1":              false, // IPv4-compatible
		"::8.8.8.8":                false,
		"::ffff:127.0.0.1":         false, // IPv4-mapped
		"::ffff:7f00:1":            false,
		"::ffff:10.0.0.1":          false,
		"::ffff:169.254.169.254":   false,
		"::ffff:0:127.0.0.1":       false, // IPv4-translated
		"64:ff9b::127.0.0.1":       false, // NAT64
		"64:ff9b::10.0.0.1":        false,
		"64:ff9b::169.254.169.254": false,
		"64:ff9b:1::8.8.8.8":       false, // local NAT64
		"100::1":                   false, // discard
		"2001::1":                  false, // Teredo
		"2001:2::1":                false, // benchmarks
		"2001:20::1":               false, // ORCHID
		"2001:db8::1":              false, // documentation
		"2002:7f00:1::1":           false, // 6to4
		"2002:a00:1::":             false,
		"2002:c0a8:101::1":         false,
		"2002:a9fe:a9fe::1":        false,
		"3fff::1":                  false, // documentation
		"5f00::1":                  false, // segment routing
		"fc00::1":                  false, // unique local (RFC 4193)
		"fd00:ec2::254":            false, // metadata of a cloud
		"fe80::1":                  false,
		"fe80::1%eth0":             false,
		"2606:4700::1111%eth0":     false,
		"fec0::1":                  false, // site-local
		"ff02::1":                  false, // multicast
	} {
		if got := public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("public(%s) = %t, want %t", addr, got, want)
		}
	}
	if public(netip.Addr{}) {
		t.Error("public(no address) = true, want false")
	}
}

// zone is a name server without sockets: what a name's n-th look-up of A and AAAA records says. The last says it again.
type zone struct {
	mu    sync.Mutex
	names map[string][]string // lists of addresses, with spaces between
	asked map[string]int
	wg    sync.WaitGroup
}

func (z *zone) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		z.wg.Go(func() { z.serve(theirs) })
		return ours, nil
	}}
}

// serve answers on a stream, where each message has its length before it (RFC 1035, 4.2.2).
func (z *zone) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		reply := z.reply(query)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

func (z *zone) reply(query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		panic(fmt.Sprint("no query: ", query, err))
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	addrs, known := z.next(strings.TrimSuffix(q.Name.String(), "."), q.Type)
	switch {
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	case addrs == "broken":
		reply.RCode = dnsmessage.RCodeServerFailure
	default:
		for a := range strings.FieldsSeq(addrs) {
			reply.Answers = appendRecord(reply.Answers, q, netip.MustParseAddr(a))
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func (z *zone) next(name string, kind dnsmessage.Type) (addrs string, known bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	answers := z.names[name]
	if len(answers) == 0 {
		return "", false
	}
	key := name + kind.String()
	addrs = answers[min(z.asked[key], len(answers)-1)]
	z.asked[key]++
	return addrs, true
}

func appendRecord(to []dnsmessage.Resource, q dnsmessage.Question, a netip.Addr) []dnsmessage.Resource {
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	switch {
	case a.Is4() && q.Type == dnsmessage.TypeA:
		return append(to, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
	case a.Is6() && q.Type == dnsmessage.TypeAAAA:
		return append(to, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
	}
	return to
}

// innermost counts who reaches what only this machine should.
type innermost struct {
	net.Listener
	mu sync.Mutex
	n  int
}

func listen(t *testing.T, address string) *innermost {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("no %s here: %v", address, err)
	}
	in := &innermost{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in.mu.Lock()
			in.n++
			in.mu.Unlock()
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return in
}

func (in *innermost) reached() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.n
}

// try makes one call of a webhook whose names are in z, and says what came of it.
func (z *zone) try(t *testing.T, to string) error {
	t.Helper()
	z.asked = map[string]int{}
	t.Setenv("HOOK_SECRET", hookSecret)
	w := newTown(t, &config.Config{Chains: []*config.Chain{chainTo(t, to, false)}, Jobs: config.Jobs{Keep: time.Hour}})
	w.public = direct(newGuard(z.resolver()).dial)
	chain := w.conf.Load().Chains[0]
	ended(t, w.queue, chain.Name, "k")
	notice, err := w.queue.Notices().Next(t.Context(), chain.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.wg.Wait()
	err = w.post(t.Context(), chain.Queue.Notify, notice)
	w.tell(t.Context(), notice)
	if dead := w.counted(chain.Name+" dead") == 1; dead != final(err) {
		t.Errorf("the notice is dead: %t, want %t after %v", dead, final(err), err)
	}
	if strings.Contains(w.log.String(), urlToken) {
		t.Errorf("the log shows the URL's query: %s", w.log.String())
	}
	return err
}

func TestWebhookReachesNothingThatOnlyThisMachineCan(t *testing.T) {
	in, in6 := listen(t, "127.0.0.1:0"), listen(t, "[::1]:0")
	_, port, _ := net.SplitHostPort(in.Addr().String())
	_, port6, _ := net.SplitHostPort(in6.Addr().String())
	z := &zone{names: map[string][]string{
		"plain.example":    {"127.0.0.1"},
		"v6.example":       {"::1"},
		"mapped.example":   {"::ffff:127.0.0.1"},
		"mixed.example":    {"93.184.216.34 127.0.0.1"},
		"family.example":   {"93.184.216.34 ::1"},
		"rebinds.example":  {"93.184.216.34", "127.0.0.1"},
		"metadata.example": {"169.254.169.254"},
	}}
	for name, to := range map[string]string{
		"by its address":                        "https://127.0.0.1:" + port,
		"by another address of loopback":        "https://127.1.2.3:" + port,
		"by the address of any host":            "https://0.0.0.0:" + port,
		"by IPv6":                               "https://[::1]:" + port6,
		"by IPv6's any host":                    "https://[::]:" + port6,
		"by a mapped address":                   "https://[::ffff:127.0.0.1]:" + port,
		"by a mapped address in hex":            "https://[::ffff:7f00:1]:" + port,
		"by NAT64":                              "https://[64:ff9b::7f00:1]:" + port,
		"by a link-local address with a zone":   "https://[fe80::1%25lo]:" + port6,
		"by localhost":                          "https://localhost:" + port,
		"by a name":                             "https://plain.example:" + port,
		"by a name of IPv6":                     "https://v6.example:" + port6,
		"by a name of a mapped address":         "https://mapped.example:" + port,
		"by a name of a public host, too":       "https://mixed.example:" + port,
		"by a name that is public in IPv4 only": "https://family.example:" + port6,
		"by a name that changes between looks":  "https://rebinds.example:" + port,
		"by plain HTTP":                         "http://93.184.216.34:" + port,
		"metadata":                              "https://metadata.example/latest/meta-data",
	} {
		t.Run(name, func(t *testing.T) {
			err := z.try(t, to+"/?token="+urlToken)
			var r refusal
			if !errors.As(err, &r) || !strings.Contains(err.Error(), "allow_private") || strings.Contains(err.Error(), urlToken) {
				t.Errorf("post(%s) = %v, want a refusal that names allow_private and not the query", to, err)
			}
			if in.reached()+in6.reached() > 0 {
				t.Errorf("post(%s) connected", to)
			}
		})
	}
}

func TestNameThatRebindsIsAskedForTwice(t *testing.T) {
	in := listen(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(in.Addr().String())
	z := &zone{names: map[string][]string{"rebinds.example": {"93.184.216.34", "127.0.0.1"}}, asked: map[string]int{}}
	defer z.wg.Wait()
	g := newGuard(z.resolver())
	_, err := g.dial(t.Context(), "tcp", "rebinds.example:"+port)
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || !errors.As(err, new(refusal)) {
		t.Errorf("dial = %v, want the refusal of the dialer's Control", err)
	}
	if z.asked["rebinds.exampleTypeA"] != 2 || in.reached() > 0 {
		t.Errorf("looked up %d times and connected %d times, want 2 and 0", z.asked["rebinds.exampleTypeA"], in.reached())
	}
}

func TestNameThatCannotBeResolvedIsTriedAgain(t *testing.T) {
	z := &zone{names: map[string][]string{"broken.example": {"broken"}, "empty.example": {" "}}}
	for _, host := range []string{"unknown.example", "broken.example", "empty.example"} {
		err := z.try(t, "https://"+host+"/?token="+urlToken)
		if err == nil || final(err) || !strings.Contains(err.Error(), "cannot be resolved") || strings.Contains(err.Error(), urlToken) {
			t.Errorf("post(%s) = %v, want a failure to resolve that is not final", host, err)
		}
	}
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	in := listen(t, "127.0.0.1:0")
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"} {
		t.Setenv(name, "http://"+in.Addr().String())
	}
	z := &zone{names: map[string][]string{"unknown.example": nil}}
	if err := z.try(t, "https://unknown.example/"); err == nil || in.reached() > 0 {
		t.Errorf("post = %v by %d calls of the proxy, want none", err, in.reached())
	}
}

// As libraries in C read numbers, these are addresses of this machine.
func TestNumbersAsHostsReachNothing(t *testing.T) {
	in := listen(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(in.Addr().String())
	g := newGuard(net.DefaultResolver)
	for _, host := range []string{"2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "0", "localhost", "localhost."} {
		if _, err := g.dial(t.Context(), "tcp", host+":"+port); err == nil || in.reached() > 0 {
			t.Errorf("dial(%s) = %v by %d connections, want an error and none", host, err, in.reached())
		}
	}
}

func startTLS(t *testing.T, address string, receive http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(receive)
	server.Listener.Close()
	var err error
	if server.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// TestRealReceiver goes over real sockets: to a port where nobody listens yet, then to a server that redirects, fails
// and takes it, over TLS that is verified.
func TestRealReceiver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	t.Setenv("HOOK_SECRET", hookSecret)
	w := newTown(t, &config.Config{
		Chains: []*config.Chain{chainTo(t, "https://"+address+"/hook?token="+urlToken, true)}, Jobs: config.Jobs{Keep: time.Hour},
	})
	chain := "127.0.0.1"
	w.outbox.hurry = true
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()

	job := ended(t, w.queue, chain, "key-1")
	w.run(func() { w.await(chain+" retried", 0) })
	server := startTLS(t, address, w.receive(script(status(307, "Location", elsewhere.URL), status(500), status(200))))
	was := w.counted(chain + " retried")
	w.run(func() { w.await(chain+" retried", was) }) // its certificate is of nobody we trust
	if n := len(w.called()); n != 0 {
		t.Errorf("a server without a valid certificate got %d calls, want 0", n)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	trusting := direct(new(net.Dialer).DialContext)
	trusting.TLSClientConfig = &tls.Config{RootCAs: roots}
	w.private = trusting
	w.run(func() { w.await(chain+" delivered", 0) })
	calls := w.called()
	if len(calls) != 3 {
		t.Fatalf("calls = %v, want three", calls)
	}
	for _, c := range calls {
		if got := c.header.Get("webhook-id"); got != job.ID+"-done" {
			t.Errorf("webhook-id = %s, want %s-done every time", got, job.ID)
		}
	}
	for _, why := range []string{"cannot be connected to", "certificate is not valid", "answered 307", "answered 500"} {
		if !strings.Contains(w.log.String(), why) {
			t.Errorf("log = %s, want %q", w.log.String(), why)
		}
	}
	if strings.Contains(w.log.String(), urlToken) {
		t.Errorf("the log shows the URL's query: %s", w.log.String())
	}
}
