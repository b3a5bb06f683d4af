package config

import (
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxBodyLimit keeps a body within what one gRPC message can carry.
const maxBodyLimit = 1 << 30

func (c *compiler) server() {
	f := &c.f.Server
	s := Server{
		GRPC:            c.address("server.grpc", f.GRPC),
		Admin:           c.address("server.admin", f.Admin),
		TLS:             c.listenerTLS("server.tls", f.TLS),
		AdminTLS:        c.listenerTLS("server.admin_tls", f.AdminTLS),
		SocketMode:      c.socketMode(),
		MaxBody:         int64(f.MaxBody),
		MaxInflightBody: int64(f.MaxInflightBody),
		Drain:           f.Drain,
	}
	if c.has("server.admin_token") {
		s.AdminToken = c.secret("server.admin_token", f.AdminToken)
	}
	if !s.GRPC.Local() && !c.wrong["server.grpc"] && f.TLS.ClientCA == "" && !f.Insecure {
		c.fault("server.grpc", "%s is open to the network and its replies carry credentials: "+
			"set server.tls with client_ca, or insist with server.insecure: true", s.GRPC)
	}
	if s.TLS != nil && !c.has("envoy.tls") {
		c.fault("server.tls", "Envoy would still speak plaintext: set envoy.tls too")
	}
	if s.MaxBody > maxBodyLimit {
		c.fault("server.max_body", "must be at most 1GiB")
	}
	if s.MaxInflightBody < s.MaxBody {
		c.fault("server.max_inflight_body", "is less than server.max_body: no request of that size could be served")
	}
	c.apart("server.admin", s.Admin, "server.grpc", s.GRPC)
	s.AdminNames = c.adminNames()
	c.out.Server = s
}

// adminNames are names as a browser's Host header has them, the port aside.
func (c *compiler) adminNames() []string {
	const key = "server.admin_names"
	c.distinct(key, c.f.Server.AdminNames)
	var names []string
	for i, name := range c.f.Server.AdminNames {
		if name != "" && !c.wrong[index(key, i)] && strings.ContainsFunc(name, notName) {
			c.fault(index(key, i), "must be a host name without a port, such as status.example.com")
		}
		names = append(names, strings.ToLower(name))
	}
	return names
}

func notName(r rune) bool { return notHost(r) || r == ':' || r == '%' }

func (c *compiler) listenerTLS(path string, f fileServerTLS) *ServerTLS {
	if !c.has(path) || c.wrong[path] {
		return nil
	}
	c.required(path+".cert", f.Cert)
	c.required(path+".key", f.Key)
	if f.ClientCA == "" && len(f.ClientNames) > 0 {
		c.fault(path+".client_names", "says nothing without client_ca: set it")
	}
	c.distinct(path+".client_names", f.ClientNames)
	return &ServerTLS{Cert: f.Cert, Key: f.Key, ClientCA: f.ClientCA, ClientNames: f.ClientNames}
}

// socketMode never lets in everybody on the machine: replies over server.grpc carry credentials.
func (c *compiler) socketMode() fs.FileMode {
	f := &c.f.Server
	c.oneOf("server.socket_mode", f.SocketMode, "0600", "0660")
	if c.has("server.socket_mode") && !strings.HasPrefix(f.GRPC, "unix:") && !strings.HasPrefix(f.Admin, "unix:") {
		c.fault("server.socket_mode", "says nothing: neither server.grpc nor server.admin is a socket")
	}
	if f.SocketMode == "0660" {
		return 0o660
	}
	return 0o600
}

func (c *compiler) envoy() {
	f := &c.f.Envoy
	c.oneOf("envoy.when_service_down", f.WhenServiceDown, "closed", "open")
	c.required("envoy.ca_file", f.CAFile)
	e := Envoy{
		Listen:   c.address("envoy.listen", f.Listen),
		Admin:    c.address("envoy.admin", f.Admin),
		FailOpen: f.WhenServiceDown == "open",
		Services: c.replicas("envoy.services", f.Services, "server.grpc", c.out.Server.GRPC),
		TLS:      c.clientTLS(),
		CAFile:   f.CAFile,
		XDS:      f.XDS,
	}
	c.bindable("envoy.listen", e.Listen, false)
	c.bindable("envoy.admin", e.Admin, true)
	c.apart("envoy.admin", e.Admin, "envoy.listen", e.Listen)
	e.Gateway = c.gateway(e.Listen)
	c.out.Envoy = e
}

// bindable checks an address that Envoy itself listens on: its socket_address takes no name without a resolver.
func (c *compiler) bindable(path string, a Address, socket bool) {
	host, _, _ := net.SplitHostPort(a.Addr)
	_, err := netip.ParseAddr(host)
	switch {
	case c.wrong[path] || a.Network == "tcp" && err == nil || a.Network == "unix" && socket:
	case a.Network == "unix":
		c.fault(path, "must be IP:PORT: clients cannot reach a socket file")
	default:
		c.fault(path, "must be IP:PORT, as Envoy listens on no name: write 0.0.0.0 for every address")
	}
}

// services are the replicas as Envoy reaches them; the default is this one.
// replicas are the addresses at which Envoy reaches what each replica serves at own.
func (c *compiler) replicas(path string, f []string, ownPath string, own Address) []Address {
	if len(f) == 0 {
		if c.has(path) && !c.wrong[path] {
			c.fault(path, "is empty: name at least one, or leave it out for %s", ownPath)
		}
		return []Address{reachable(own)}
	}
	c.distinct(path, f)
	out := make([]Address, len(f))
	for i, s := range f {
		p := index(path, i)
		out[i] = c.address(p, s)
		if host, port, _ := net.SplitHostPort(out[i].Addr); !c.wrong[p] && out[i].Network == "tcp" && (host == "" || port == "0") {
			c.fault(p, "is nothing to connect to: write HOST:PORT")
		}
	}
	return out
}

// drill is where faults are played: nothing of value is there, but nobody else needs to reach it.
func (c *compiler) drill() {
	f := &c.f.Drill
	if !c.has("drill") || c.wrong["drill"] {
		return
	}
	c.required("drill.listen", f.Listen)
	listen := c.address("drill.listen", f.Listen)
	c.apart("drill.listen", listen, "server.grpc", c.out.Server.GRPC)
	c.apart("drill.listen", listen, "server.admin", c.out.Server.Admin)
	c.out.Drill = Drill{Listen: listen, Services: c.replicas("drill.services", f.Services, "drill.listen", listen)}
}

func (c *compiler) tracing() {
	f := &c.f.Tracing
	if !c.has("tracing") || c.wrong["tracing"] {
		return
	}
	c.share("tracing.sample", f.Sample)
	form := web("http://127.0.0.1:4318")
	form.login = ": set OTEL_EXPORTER_OTLP_HEADERS for the service"
	u := c.plainURL("tracing.otlp", f.OTLP, form)
	if u != nil && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1/traces") {
		c.fault("tracing.otlp", "is the collector's base: leave /v1/traces out, it is added")
	}
	c.out.Tracing = Tracing{OTLP: u, Share: f.Sample}
}

func (c *compiler) clientTLS() *ClientTLS {
	f := &c.f.Envoy.TLS
	if !c.has("envoy.tls") || c.wrong["envoy.tls"] {
		return nil
	}
	c.required("envoy.tls.ca", f.CA)
	c.required("envoy.tls.server_name", f.ServerName)
	if c.f.Server.TLS.ClientCA != "" || f.Cert != "" || f.Key != "" {
		c.required("envoy.tls.cert", f.Cert)
		c.required("envoy.tls.key", f.Key)
	}
	if !c.has("server.tls") {
		c.fault("envoy.tls", "the service would speak plaintext: set server.tls too")
	}
	if f.SDS != "" && !path.IsAbs(f.SDS) || f.SDS == "" && c.has("envoy.tls.sds") && !c.wrong["envoy.tls.sds"] {
		c.fault("envoy.tls.sds", "must be the absolute path of a folder on Envoy's machine")
	}
	return &ClientTLS{Cert: f.Cert, Key: f.Key, CA: f.CA, ServerName: f.ServerName, SDS: f.SDS}
}

func (c *compiler) gateway(listen Address) *url.URL {
	if c.f.Envoy.Gateway == "" && !c.has("envoy.gateway") {
		return &url.URL{Scheme: "http", Host: reachable(listen).Addr}
	}
	return c.baseURL("envoy.gateway", c.f.Envoy.Gateway)
}

// reachable is how a listener is called from its own machine: "all addresses" is nothing to connect to.
func reachable(a Address) Address {
	host, port, err := net.SplitHostPort(a.Addr)
	if a.Network != "tcp" || err != nil {
		return a
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip.IsUnspecified() && ip.Is4():
		a.Addr = net.JoinHostPort("127.0.0.1", port)
	case err == nil && ip.IsUnspecified():
		a.Addr = net.JoinHostPort("::1", port)
	}
	return a
}

// maxSocketPath is sun_path of sockaddr_un on Linux (unix(7): 108 bytes with the final NUL).
const maxSocketPath = 107

func (c *compiler) address(p, s string) Address {
	if socket, ok := strings.CutPrefix(s, "unix://"); ok {
		if !path.IsAbs(socket) || len(socket) > maxSocketPath {
			c.fault(p, "a socket is unix:///PATH, absolute and at most %d bytes", maxSocketPath)
		}
		return Address{Network: "unix", Addr: socket}
	}
	host, port, err := net.SplitHostPort(s)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if c.wrong[p] {
		return Address{Network: "tcp", Addr: s}
	}
	if err != nil || portErr != nil || strconv.FormatUint(n, 10) != port || strings.ContainsFunc(host, notHost) {
		c.fault(p, "expected HOST:PORT or unix:///PATH, got %.80q", s)
	}
	return Address{Network: "tcp", Addr: s}
}

func notHost(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(".-_:%", r))
}

func (c *compiler) apart(p string, a Address, otherPath string, other Address) {
	_, port, _ := net.SplitHostPort(a.Addr)
	if a == other && port != "0" {
		c.fault(p, "is the address of %s: choose another", otherPath)
	}
}

// distinct checks a list of words for empty and repeated ones.
func (c *compiler) distinct(p string, list []string) {
	for i, s := range list {
		switch j := slices.Index(list, s); {
		case c.wrong[index(p, i)]:
		case s == "":
			c.fault(index(p, i), "must not be empty")
		case j < i:
			c.fault(index(p, i), "is there already, at %s: remove one", index(p, j))
		}
	}
}

// baseURL is what requests are sent to, without a trailing slash.
func (c *compiler) baseURL(p, s string) *url.URL {
	form := web("https://api.example.com")
	form.login = ": use auth"
	u := c.plainURL(p, s, form)
	if u != nil {
		u.Path = strings.TrimSuffix(u.Path, "/")
	}
	return u
}

// urlForm is what the URL of a key looks like.
type urlForm struct {
	schemes []string
	example string
	login   string // ends the fault of a URL with a user or password
}

func web(example string) urlForm {
	return urlForm{schemes: []string{"http", "https"}, example: example}
}

// plainURL is scheme, host and perhaps port and path. Nothing of a refused one is repeated: it may carry a password.
// It is nil after a fault.
func (c *compiler) plainURL(p, s string, form urlForm) *url.URL {
	u := c.url(p, s, form)
	switch {
	case u == nil:
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#"):
		c.fault(p, "must have neither a query nor a fragment")
	case u.Path != "" && u.Path != "/" && path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/"), u.RawPath != "":
		c.fault(p, "its path must be plain, without //, .. or escapes")
	default:
		return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	}
	return nil
}

// url is a whole URL without a login. Nothing of a refused one is repeated. It is nil after a fault.
func (c *compiler) url(p, s string, form urlForm) *url.URL {
	if c.wrong[p] || !c.required(p, s) {
		return nil
	}
	u, err := url.Parse(s)
	port := ""
	if err == nil {
		port = u.Port()
	}
	_, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil, !slices.Contains(form.schemes, u.Scheme), u.Hostname() == "", strings.ContainsFunc(u.Hostname(), notHost):
		c.fault(p, "expected a URL such as %s", form.example)
	case port != "" && portErr != nil, port == "0", strings.HasSuffix(u.Host, ":"):
		c.fault(p, "has no port of 1 to 65535 after the colon")
	case u.User != nil:
		c.fault(p, "must not carry a user or password%s", form.login)
	default:
		u.Host = strings.ToLower(u.Host)
		return u
	}
	return nil
}
