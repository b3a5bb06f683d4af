package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"understudy/pkg/config"
)

var (
	//go:embed understudy.yaml
	understudyYAML string
	//go:embed envoy.yaml
	envoyYAML string
)

// programs are the paths of what is measured.
type programs struct {
	self, envoy, extproc string
	before               string // another build of the service, to compare with
	litellm, portkey     string
}

// stack is one variant, running: what clients call, and the processes whose cost is the variant's.
//
// Ownership: who starts it calls stop once, whatever start said.
type stack struct {
	programs
	variant string
	dir     string
	socket  bool // Envoy and the service meet at a socket file
	listen  string
	more    []string          // addresses for whatever else listens
	header  map[string]string // that clients must send
	env     []string          // of the processes, beside our own

	processes map[string]*process // by what they are: envoy, service
}

// world is the stacks of a run and what they share.
type world struct {
	provider        *process
	primary, backup string // addresses
}

// variants are those that can be measured, by name.
var variants = map[string]func(ctx context.Context, s *stack, w *world) error{
	"direct":     startDirect,
	"envoy":      startEnvoyAlone,
	"floor":      startFloor,
	"floor-h2":   startFloor,
	"understudy": func(ctx context.Context, s *stack, w *world) error { return s.startService(ctx, w, s.extproc) },
	"before":     func(ctx context.Context, s *stack, w *world) error { return s.startService(ctx, w, s.before) },
	"litellm":    startLiteLLM,
	"portkey":    startPortkey,
}

func startWorld(p programs, dir string) (*world, error) {
	addrs := free(2)
	w := &world{primary: addrs[0], backup: addrs[1]}
	var err error
	w.provider, err = start("provider", filepath.Join(dir, "provider.log"), nil, p.self, "provider", "-primary", w.primary, "-backup", w.backup)
	if err != nil {
		return nil, err
	}
	return w, listening(w.provider, w.primary, w.backup)
}

// listening waits until all addresses take connections.
func listening(p *process, addrs ...string) error {
	for _, addr := range addrs {
		for {
			kind, at := network(addr)
			c, err := net.Dial(kind, at)
			if err == nil {
				c.Close()
				break
			}
			select {
			case <-p.exited:
				return fmt.Errorf("%s has ended: %w\n%s", p.name, p.exitErr, p.tail())
			default:
			}
		}
	}
	return nil
}

// startStack starts a variant afresh.
func startStack(ctx context.Context, p programs, w *world, variant, dir string, socket bool) (*stack, error) {
	addrs := free(4)
	s := &stack{programs: p, variant: variant, dir: filepath.Join(dir, variant), socket: socket,
		listen: addrs[0], more: addrs[1:], processes: map[string]*process{}}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	begin, ok := variants[variant]
	if !ok {
		return nil, fmt.Errorf("there is no variant %q; there are %s", variant, strings.Join(sortedKeys(variants), ", "))
	}
	if err := begin(ctx, s, w); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w", variant, err)
	}
	return s, nil
}

// whole says that all processes still run: figures of a variant without one of them are none.
func (s *stack) whole() error {
	for _, p := range s.processes {
		select {
		case <-p.exited:
			return fmt.Errorf("%s has ended: %w\n%s", p.name, cmp.Or(p.exitErr, errors.New("without an error")), p.tail())
		default:
		}
	}
	return nil
}

func (s *stack) stop() {
	for _, p := range s.processes {
		p.stop()
	}
	_ = os.RemoveAll(s.dir) // in a temporary directory anyway
}

// run starts one of the stack's processes.
func (s *stack) run(name string, program string, args ...string) (*process, error) {
	p, err := start(s.variant+"/"+name, filepath.Join(s.dir, name+".log"), s.env, program, args...)
	if err == nil {
		s.processes[name] = p
	}
	return p, err
}

func startDirect(_ context.Context, s *stack, w *world) error {
	s.listen = w.primary
	return nil
}

// fill puts values in the place of ${names}, and writes a file of the stack's.
func (s *stack) fill(name, text string, values map[string]string) (path string, err error) {
	path = filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(os.Expand(text, func(name string) string { return values[name] })), 0o600)
}

func startEnvoyAlone(ctx context.Context, s *stack, w *world) error {
	admin := s.more[0]
	path, err := s.fill("envoy.yaml", envoyYAML, map[string]string{
		"admin": port(admin), "listen": port(s.listen), "primary": port(w.primary), "backup": port(w.backup)})
	if err != nil {
		return err
	}
	return s.runEnvoy(ctx, path, admin)
}

// runEnvoy starts an Envoy with two workers, as all variants have it.
func (s *stack) runEnvoy(ctx context.Context, bootstrap, admin string) error {
	envoy, err := s.run("envoy", s.envoy, "-c", bootstrap, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "error")
	if err != nil {
		return err
	}
	return envoy.ready(ctx, "http://"+admin+"/ready")
}

// config writes the service's config file and reads it back. The floor takes Envoy's side of it.
func (s *stack) config(w *world) (path string, cfg *config.Config, err error) {
	grpc := s.more[0]
	if s.socket {
		grpc = "unix://" + filepath.Join(s.dir, "grpc.sock")
	}
	key := filepath.Join(s.dir, "key")
	if err := os.WriteFile(key, []byte("a-key"), 0o600); err != nil {
		return "", nil, err
	}
	path, err = s.fill("understudy.yaml", understudyYAML, map[string]string{
		"grpc": grpc, "admin": s.more[1], "listen": s.listen, "envoy_admin": s.more[2], "key": key,
		"store": filepath.Join(s.dir, "store"), "primary": w.primary, "backup": w.backup,
		"model": model, "backup_model": backupModel})
	if err != nil {
		return "", nil, err
	}
	cfg, err = config.Load(path)
	return path, cfg, err
}

func (s *stack) startService(ctx context.Context, w *world, program string) error {
	path, cfg, err := s.config(w)
	if err != nil {
		return err
	}
	service, err := s.run("service", program, "serve", "-c", path)
	if err != nil {
		return err
	}
	if err := service.ready(ctx, "http://"+cfg.Server.Admin.Addr+"/readyz"); err != nil {
		return err
	}
	return s.runHop(ctx, program, path, cfg)
}

func startFloor(ctx context.Context, s *stack, w *world) error {
	path, cfg, err := s.config(w)
	if err != nil {
		return err
	}
	service, err := s.run("service", s.self, "floor", "-grpc", cfg.Server.GRPC.String(),
		"-clusters", cfg.Providers["primary"].Cluster+","+cfg.Providers["backup"].Cluster)
	if err != nil {
		return err
	}
	if err := listening(service, cfg.Server.GRPC.String()); err != nil {
		return err
	}
	return s.runHop(ctx, s.extproc, path, cfg)
}

// runHop starts an Envoy with front and hop, as that build's `extproc envoy` writes it.
func (s *stack) runHop(ctx context.Context, program, path string, cfg *config.Config) error {
	yaml, err := exec.CommandContext(ctx, program, "envoy", "-c", path).Output()
	if err != nil {
		return fmt.Errorf("%s envoy: %w", program, err)
	}
	if s.variant == "floor-h2" {
		yaml = overHTTP2(yaml)
	}
	bootstrap := filepath.Join(s.dir, "bootstrap.yaml")
	if err := os.WriteFile(bootstrap, yaml, 0o600); err != nil {
		return err
	}
	return s.runEnvoy(ctx, bootstrap, cfg.Envoy.Admin.Addr)
}

// overHTTP2 has front and hop meet over HTTP/2, on as many connections as Envoy's workers open.
func overHTTP2(bootstrap []byte) []byte {
	front, hop, _ := bytes.Cut(bootstrap, []byte("server_listener_name: hop"))
	hop = bytes.Replace(hop, []byte(" http_protocol_options: {}"), []byte(" http2_protocol_options: {}"), 1)
	return slices.Concat(front, []byte("server_listener_name: hop"), hop)
}

// free are so many loopback addresses that were free a moment ago, no two of them the same. Their ports are even, as the hop
// of an Envoy may listen on the one after the front's, and below those from which the kernel takes the near ends of connections.
func free(n int) (addrs []string) {
	for range 100 * n {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+2*rand.IntN(10_000)))
		if err != nil {
			continue
		}
		defer ln.Close()
		if addrs = append(addrs, ln.Addr().String()); len(addrs) == n {
			return addrs
		}
	}
	panic("no free port") // such a machine runs nothing of this
}

func port(addr string) string {
	_, p, err := net.SplitHostPort(addr)
	if _, bad := strconv.Atoi(p); err != nil || bad != nil {
		panic("not an address with a port: " + addr)
	}
	return p
}
