//go:build mesh

// Package mesh proves that Understudy works as a policy of a mesh: control planes write Envoy's configuration from our
// manifests, and a real Envoy, the built service, scripted providers and the official SDKs do the rest.
package mesh

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"understudy/internal/scripted"
)

const (
	envoyVersion = "1.40.0"
	patience     = 30 * time.Second // bounds what is expected to happen soon
)

// binary is the path of the built service. TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "mesh")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "extproc")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/extproc")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the service: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// script is the last line of what one of our scripts prints: a path.
func script(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command("../../scripts/"+name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("scripts/%s: %v\n%s", name, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// stage is providers and the service, running, and an address for the front that a test is to bring.
//
// Providers a and b are accounts of Anthropic's dialect, c and d of OpenAI's; dead and gone refuse connections. Every row has a
// chain of its own, so that a breaker that one row opens is no other's.
//
// Ownership: the test that made it; its clean-up ends everything. Concurrency: requests from any goroutine.
type stage struct {
	dir         string
	providers   map[string]*scripted.Provider
	accounts    map[string]account
	chains      map[string]chain
	failOpen    bool
	tls         *links // between Envoy and the service; nil: none
	service     *process
	config      string // path of the service's config file
	grpc, admin string // of the service
	listen      string // of the front, host:port; config's envoy.listen
	envoyAdmin  string // config's envoy.admin
	http        *http.Client
}

// account is a provider in the config.
type account struct {
	api, endpoint string
	ca            string // path of the authority of a provider with TLS; "": it has none
}

// links is TLS between Envoy and the service, both ways: paths of PEM files.
type links struct{ ca, serviceCert, serviceKey, envoyCert, envoyKey string }

// chain is a product feature in the config.
type chain struct {
	on     []string // accounts
	commit string   // "": the default
	paths  []string // that it serves; none: picked by x-llm-chain
}

// frontURL is where clients call when the front listens where the config says.
func (s *stage) frontURL() string { return "http://" + s.listen }

// newStage starts the providers and the service. edit has the last word on the stage before its config is written; nil:
// it stays.
func newStage(t *testing.T, edit func(*stage)) *stage {
	t.Helper()
	s := &stage{
		dir: t.TempDir(), grpc: free(t), admin: free(t), listen: free(t), envoyAdmin: free(t), http: client(t),
		providers: map[string]*scripted.Provider{},
		accounts: map[string]account{
			"dead": {api: "anthropic", endpoint: "http://" + refusing(t)}, "gone": {api: "anthropic", endpoint: "http://" + refusing(t)},
		},
		chains: map[string]chain{
			"claude": {on: []string{"a", "b"}, paths: []string{messages}},
			"gpt":    {on: []string{"c", "d"}, paths: []string{chats, responsed}},
		},
	}
	s.config = filepath.Join(s.dir, "understudy.yaml")
	for name, api := range map[string]string{"a": "anthropic", "b": "anthropic", "c": "openai", "d": "openai"} {
		s.hire(t, name, api)
	}
	for _, r := range failoverRows {
		s.chains[r.chain] = chain{on: r.on, commit: r.commit}
	}
	if edit != nil {
		edit(s)
	}
	s.save(t)
	s.startService(t)
	return s
}

// hire starts a provider and gives the config an account with it; save tells the service.
func (s *stage) hire(t testing.TB, name, api string) {
	t.Helper()
	p := scripted.New(name, scripted.Options{Models: []string{model(name)}})
	server, err := scripted.Serve(p, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s.providers[name], s.accounts[name] = p, account{api: api, endpoint: server.URL("127.0.0.1")}
}

// link gives Envoy and the service certificates for each other.
func (s *stage) link(t testing.TB) {
	t.Helper()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	s.tls = &links{ca: filepath.Join(s.dir, "links.ca.pem")}
	write(t, s.tls.ca, ca.PEM())
	s.tls.serviceCert, s.tls.serviceKey = s.leaf(t, ca, "understudy.test")
	s.tls.envoyCert, s.tls.envoyKey = s.leaf(t, ca, "envoy.test")
}

// leaf writes a certificate for a name, and its key.
func (s *stage) leaf(t testing.TB, ca *scripted.CA, name string) (certFile, keyFile string) {
	t.Helper()
	leaf, err := ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(s.dir, name+".crt"), filepath.Join(s.dir, name+".key")
	write(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	return certFile, keyFile
}

// hireTLS is hire of a provider of Anthropic's dialect that is called as localhost and shows a certificate for
// certified.
func (s *stage) hireTLS(t testing.TB, name, certified string, ca *scripted.CA) {
	t.Helper()
	cert, err := ca.Leaf(certified)
	if err != nil {
		t.Fatal(err)
	}
	p := scripted.New(name, scripted.Options{Models: []string{model(name)}})
	server, err := scripted.Serve(p, "127.0.0.1:0", cert)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	path := filepath.Join(s.dir, name+".ca.pem")
	write(t, path, ca.PEM())
	s.providers[name], s.accounts[name] = p, account{api: "anthropic", endpoint: server.URL("localhost"), ca: path}
}

// model is what an account's model is called, so that a rewritten model shows.
func model(account string) string { return "m-" + account }

// save writes the config file in one step, as a reload must not see half of it.
func (s *stage) save(t testing.TB) {
	t.Helper()
	out, err := yaml.Marshal(s.compose(t))
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.config+".new", out)
	if err := os.Rename(s.config+".new", s.config); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) compose(t testing.TB) map[string]any {
	providers, targets, chains := map[string]any{}, map[string]any{}, map[string]any{}
	for name, a := range s.accounts {
		providers[name] = s.provider(t, name, a)
	}
	for name, c := range s.chains {
		chains[name] = c.compose(name, targets)
	}
	down := "closed"
	if s.failOpen {
		down = "open"
	}
	return map[string]any{
		"server":    map[string]any{"grpc": s.grpc, "admin": s.admin},
		"envoy":     map[string]any{"listen": s.listen, "admin": s.envoyAdmin, "when_service_down": down},
		"store":     map[string]any{"embedded": map[string]any{"dir": filepath.Join(s.dir, "store")}},
		"providers": providers,
		"passthrough": []any{
			map[string]any{"path": "/v1/models", "provider": "c"}, map[string]any{"path": "/v1/realtime", "provider": "c"},
		},
		"targets": targets,
		"chains":  chains,
	}
}

func (s *stage) provider(t testing.TB, name string, a account) map[string]any {
	keyFile := filepath.Join(s.dir, name+".key")
	if _, err := os.Stat(keyFile); err != nil { // the service must not see it half written again
		write(t, keyFile, []byte(key(name)))
	}
	auth := map[string]any{"bearer": "file:" + keyFile}
	if a.api == "anthropic" {
		auth = map[string]any{"header": "x-api-key", "secret": "file:" + keyFile}
	}
	form := map[string]any{"api": a.api, "endpoint": a.endpoint, "auth": auth}
	if a.ca == "" {
		form["insecure"] = true
	} else {
		form["ca"] = a.ca
	}
	return form
}

// key is the credential of an account.
func key(account string) string { return "key-of-" + account }

// compose is the chain in the config; its targets, named chain/account, go to targets.
func (c chain) compose(name string, targets map[string]any) map[string]any {
	var rungs []string
	for _, on := range c.on {
		rungs = append(rungs, name+"/"+on)
		targets[name+"/"+on] = map[string]any{"provider": on, "model": model(on), "model_family": "m"}
	}
	form := map[string]any{"targets": rungs, "degrade": []string{"off"},
		"deadlines": map[string]any{"idle": "10m", "total": "10m"}} // on a busy machine a control plane takes a minute, and streams wait for it
	if c.commit != "" {
		form["commit"] = c.commit
	}
	if len(c.paths) == 0 {
		form["select"] = "header"
		return form
	}
	var match []any
	for _, path := range c.paths {
		match = append(match, map[string]any{"path": path})
	}
	form["match"] = match
	return form
}

// startService starts, or starts again, the service.
func (s *stage) startService(t *testing.T) {
	t.Helper()
	s.service = start(t, "service", filepath.Join(s.dir, "service.log"), nil, binary, "serve", "-c", s.config)
	s.service.ready(t, func(ctx context.Context) error { return s.is(ctx, "http://"+s.admin+"/readyz", http.StatusOK) })
}

// is asks for a status.
func (s *stage) is(ctx context.Context, url string, status int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != status {
		return fmt.Errorf("GET %s = %d %.200s, want %d", url, resp.StatusCode, body, status)
	}
	return nil
}

// process is one program that runs until the test that started it ends. Its output goes to a file, shown when the test
// fails.
type process struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{}
	exitErr   error // to read after exited
}

// start runs a program, adding env to its environment.
func start(t *testing.T, name, log string, env []string, program string, args ...string) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &process{name: name, log: log, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("--- %s\n%s", name, p.tail(16<<10))
		}
	})
	return p
}

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an ended process needs none
	<-p.exited
}

// stop asks for the end, and insists after some seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// ready asks until ok gives no error, unless the process ends before.
func (p *process) ready(t testing.TB, ok func(context.Context) error) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		select {
		case <-p.exited:
			t.Fatalf("%s has ended: %v\n%s", p.name, p.exitErr, p.tail(4<<10))
		default:
		}
		return ok(ctx)
	})
}

// tail is the last n bytes of the log.
func (p *process) tail(n int) string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-n):])
}

// eventually asks until ok gives no error.
func eventually(t testing.TB, d time.Duration, ok func(context.Context) error) {
	t.Helper()
	ctx := within(t, d)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s still: %v", d, err)
		}
	}
}

// within is a context of the test that also ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// free is a loopback address that was free a moment ago.
func free(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// refusing is an address that refuses connections: bound, so that nobody takes it, and never listening.
func refusing(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
