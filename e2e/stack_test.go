//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"understudy/internal/scripted"
	"understudy/internal/stage"
)

// plan is what a test wants of its stack.
type plan struct {
	envoy    string   // version; "" is envoyMain
	replicas int      // of the service; 0 is 1
	tls      bool     // the providers speak HTTP/2 over TLS
	hop      string   // how front and hop meet; "" is the default
	socket   bool     // Envoy reaches the service through a socket file
	nats     *cluster // the store that the replicas share; nil: each has its own
	chains   []chain
	idle     bool        // it waits more than it works, and takes no slot
	edit     func(*file) // the last word on the config
	// before stands before a provider; nil: nothing does.
	before func(provider string, h http.Handler) http.Handler
	// bootstrap is the last word on Envoy's; nil: it stays.
	bootstrap func(map[string]any)
	// another starts what serves at Stack.listen, for a config file; nil: an Envoy on `extproc envoy`'s bootstrap.
	another func(t testing.TB, s *Stack, config string) (*process, error)

	places    []string      // accounts on platforms, by their names in the catalogue
	life      time.Duration // of issued credentials; 0 is an hour
	mute      bool          // none is issued before Stack.issuer is mended
	container bool          // AWS's come from the container's endpoint, not by web identity
	skew      time.Duration // how far the platforms' clocks are ahead
}

// Stack is providers, service and a real Envoy, running.
//
// Ownership: the test that started it; its clean-up ends everything.
// Concurrency: requests from any goroutine; the processes belong to one.
type Stack struct {
	plan plan
	dir  string

	providers  map[string]*scripted.Provider // a, b, c, wrong
	endpoints  map[string]string             // also dead, nodns, empty
	places     map[string]place              // of the plan
	issuer     *scripted.Issuer              // of the places' tokens
	issuerURL  string
	env        []string // of the services
	services   []*service
	envoy      *process
	solos      []*process // Envoys that know one replica each
	listen     string     // of the front
	envoyAdmin string
	http       *http.Client
}

// service is one replica.
type service struct {
	*process
	config, grpc, admin string
}

// front is where clients call.
func (s *Stack) front() string { return "http://" + s.listen }

// slots bounds how many stacks run at once: Envoy gives up on a service that does not answer its ping for a second,
// so the machine must have time for each.
var slots = make(chan struct{}, 2)

// startStack starts everything and waits until it serves.
func startStack(t *testing.T, p plan) *Stack {
	t.Helper()
	if !p.idle {
		slots <- struct{}{}
		t.Cleanup(func() { <-slots })
	}
	if p.envoy == "" {
		p.envoy = envoyMain
	}
	p.replicas = max(p.replicas, 1)
	s := &Stack{plan: p, dir: t.TempDir(), http: client(t)}
	s.startProviders(t)
	t.Cleanup(func() { s.stop(t) })
	for try := 1; ; try++ { // a free port may be taken by another before it is used
		err := s.startProcesses(t)
		if err == nil {
			return s
		}
		if try == 3 || !strings.Contains(err.Error(), "ddress already in use") {
			t.Fatal(err)
		}
		s.stopProcesses()
	}
}

func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, ExpectContinueTimeout: time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *Stack) startProviders(t *testing.T) {
	t.Helper()
	ca := newCA(t)
	write(t, filepath.Join(s.dir, "ca.pem"), ca.PEM())
	s.providers = map[string]*scripted.Provider{}
	s.endpoints = map[string]string{
		"dead":  "http://" + stage.Refusing(t),
		"nodns": "http://no-such-host.invalid:8080",
		"empty": "http://127.0.0.1:9", // its endpoints are removed from the bootstrap
	}
	for _, name := range []string{"a", "b", "c"} {
		if s.plan.tls {
			s.serve(t, name, "localhost", leaf(t, ca, "localhost"))
		} else {
			s.serve(t, name, "127.0.0.1", nil)
		}
	}
	s.serve(t, "wrong", "localhost", leaf(t, ca, "elsewhere.test"))
	if len(s.plan.places) > 0 {
		s.startPlaces(t, ca)
	}
}

func leaf(t *testing.T, ca *scripted.CA, name string) *tls.Certificate {
	t.Helper()
	cert, err := ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (s *Stack) serve(t *testing.T, name, host string, cert *tls.Certificate) {
	t.Helper()
	p := scripted.New(name, scripted.Options{Models: []string{model(name)}})
	var h http.Handler = p
	if s.plan.before != nil {
		h = s.plan.before(name, p)
	}
	s.providers[name], s.endpoints[name] = p, serveAt(t, h, host, cert)
}

// serveAt serves h on a free port and says where.
func serveAt(t *testing.T, h http.Handler, host string, cert *tls.Certificate) string {
	t.Helper()
	server, err := scripted.Serve(h, "127.0.0.1:0", cert)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server.URL(host)
}

func (s *Stack) startProcesses(t *testing.T) error {
	s.listen, s.envoyAdmin, s.services = stage.Free(t), stage.Free(t), nil
	for i := range s.plan.replicas {
		config := filepath.Join(s.dir, fmt.Sprintf("replica%d.yaml", i))
		s.services = append(s.services, &service{config: config, grpc: s.grpc(t), admin: stage.Free(t)})
	}
	for i, service := range s.services {
		s.compose(t, i).save(t, service.config)
		if err := s.startService(t, i); err != nil {
			return err
		}
	}
	return s.startEnvoy(t)
}

// grpc is an address for a replica's gRPC port.
func (s *Stack) grpc(t *testing.T) string {
	t.Helper()
	if !s.plan.socket {
		return stage.Free(t)
	}
	dir, err := os.MkdirTemp("", "e2e") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return "unix://" + filepath.Join(dir, "grpc.sock")
}

// startService starts, or starts again, replica i.
func (s *Stack) startService(t testing.TB, i int) (err error) {
	service := s.services[i]
	name := fmt.Sprintf("service%d", i)
	if service.process, err = startIn(s.env, name, filepath.Join(s.dir, name+".log"), binary, "serve", "-c", service.config); err != nil {
		return err
	}
	return service.ready(within(t, patience), func(ctx context.Context) error {
		return s.is(ctx, "http://"+service.admin+"/readyz", http.StatusOK)
	})
}

func (s *Stack) startEnvoy(t testing.TB) (err error) {
	run := func(t testing.TB, s *Stack, config string) (*process, error) { return s.runEnvoy(t, "envoy", config) }
	if s.plan.another != nil {
		run = s.plan.another
	}
	s.envoy, err = run(t, s, s.services[0].config)
	return err
}

// solo starts an Envoy that knows replica i alone, and is the stack as it is seen through that one.
func (s *Stack) solo(t testing.TB, i int) *Stack {
	t.Helper()
	name := fmt.Sprintf("solo%d", i)
	view := *s
	view.listen, view.envoyAdmin = stage.Free(t), stage.Free(t)
	view.services = s.services[i : i+1]
	f := view.compose(t, 0)
	f.Store = s.store(i)
	f.Envoy.Services = []string{s.services[i].grpc}
	config := filepath.Join(s.dir, name+".yaml")
	f.save(t, config)
	envoy, err := view.runEnvoy(t, name, config)
	if err != nil {
		t.Fatal(err)
	}
	s.solos = append(s.solos, envoy)
	view.envoy, view.solos = envoy, nil
	return &view
}

// runEnvoy starts an Envoy on the bootstrap of a config file.
func (s *Stack) runEnvoy(t testing.TB, name, config string) (*process, error) {
	if out, err := exec.Command(binary, "check", "-c", config).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("extproc check: %w\n%s", err, out)
	}
	args := []string{"envoy", "-c", config}
	if s.plan.hop != "" {
		args = append(args, "--hop", s.plan.hop)
	}
	out, err := output(exec.Command(binary, args...))
	if err != nil {
		return nil, fmt.Errorf("extproc envoy: %w", err)
	}
	return s.launch(t, name, s.edited(t, out))
}

// launch starts an Envoy on a whole bootstrap.
func (s *Stack) launch(t testing.TB, name string, yaml []byte) (*process, error) {
	bootstrap := filepath.Join(s.dir, name+".bootstrap.yaml")
	write(t, bootstrap, yaml)
	program, err := envoys[s.plan.envoy]()
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command(program, "--mode", "validate", "-c", bootstrap).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("envoy --mode validate: %w\n%s", err, out)
	}
	bound := filepath.Join(t.TempDir(), "admin") // written once its admin port is this Envoy's: until then another may answer there
	envoy, err := start(name, filepath.Join(s.dir, name+".log"), program, "-c", bootstrap,
		"--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning", "--admin-address-path", bound)
	if err != nil {
		return nil, err
	}
	return envoy, envoy.ready(within(t, patience), func(ctx context.Context) error {
		if _, err := os.Stat(bound); err != nil {
			return err
		}
		return s.is(ctx, "http://"+s.envoyAdmin+"/ready", http.StatusOK)
	})
}

// output is what a command prints; its error tells what it complained of.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return out, err
}

// is asks for a status.
func (s *Stack) is(ctx context.Context, url string, status int) error {
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

func (s *Stack) stopProcesses() {
	for _, envoy := range append(s.solos, s.envoy) {
		if envoy != nil {
			envoy.stop(5 * time.Second)
		}
	}
	s.solos = nil
	for _, service := range s.services {
		if service.process != nil {
			service.stop(5 * time.Second)
		}
	}
}

// stop ends the processes and, where the test has failed, prints what they said.
func (s *Stack) stop(t *testing.T) {
	s.stopProcesses()
	for _, service := range s.services {
		if service.process != nil && service.faulty() {
			t.Errorf("%s has said what it must never say", service.name)
		}
	}
	if !t.Failed() {
		return
	}
	for _, service := range s.services {
		if service.process != nil {
			t.Logf("--- %s\n%s", service.name, service.tail(16<<10))
		}
	}
	if s.envoy != nil {
		t.Logf("--- envoy\n%s", s.envoy.tail(16<<10))
	}
	for name, p := range s.providers {
		t.Logf("--- provider %s: %d requests", name, p.Count(""))
	}
}

// survives checks at the end of a test that Envoy is still the process it was.
func (s *Stack) survives(t *testing.T) {
	t.Helper()
	if !s.envoy.alive() {
		t.Fatalf("envoy has ended: %v\n%s", s.envoy.exitErr, s.envoy.tail(8<<10))
	}
}
