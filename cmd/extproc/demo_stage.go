package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"understudy/internal/scripted"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

//go:embed demo.yaml
var demoConfig string

// actor is one scripted provider and its server.
type actor struct {
	*scripted.Provider
	server *scripted.Server
}

// stage is all that the demo runs: two providers, the service, an Envoy, and the folder of their files.
//
// Ownership: demo, which calls start once and stop once, whatever start said.
type stage struct {
	fail func(error) // ends the demo

	dir               string
	primary, fallback actor
	cfg               *config.Config
	service           *app
	front, admin      string // http://host:port of Envoy's listener, of the service's admin listener
	http              *http.Client
	asked             int // calls so far

	undo    []func() error // what stop does, last first
	running sync.WaitGroup
}

func (s *stage) start(ctx context.Context, program string) (err error) {
	if err := s.open("understudy-demo-"); err != nil {
		return err
	}
	if s.primary, err = s.hire("primary"); err != nil {
		return err
	}
	if s.fallback, err = s.hire("fallback"); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return fmt.Errorf("the demo's config: %w", err)
	}
	if err := s.serve(); err != nil {
		return err
	}
	return s.startEnvoy(ctx, program)
}

// open makes the folder of the stage's files, and the client that calls it.
func (s *stage) open(prefix string) (err error) {
	if s.dir, err = os.MkdirTemp("", prefix); err != nil {
		return err
	}
	s.later(func() error { return os.RemoveAll(s.dir) })
	transport := &http.Transport{DisableCompression: true}
	s.http = &http.Client{Transport: transport}
	s.later(func() error { transport.CloseIdleConnections(); return nil })
	return nil
}

func (s *stage) later(f func() error) { s.undo = append(s.undo, f) }

// stop ends everything that start began, in reverse order, and waits for it.
func (s *stage) stop() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	s.running.Wait()
	return errors.Join(errs...)
}

// hire starts a provider and writes its credential.
func (s *stage) hire(name string) (actor, error) {
	p := scripted.New(name, scripted.Options{})
	server, err := scripted.Serve(p, "127.0.0.1:0", nil)
	if err != nil {
		return actor{}, err
	}
	s.later(server.Close)
	return actor{p, server}, os.WriteFile(s.path(name+".key"), []byte("key-of-"+name), 0o600)
}

func (s *stage) path(file string) string { return filepath.Join(s.dir, file) }

func (s *stage) configure() (err error) {
	text := os.Expand(demoConfig, func(name string) string {
		switch name {
		case "dir":
			return s.dir
		case "primary":
			return s.primary.server.URL("127.0.0.1")
		case "fallback":
			return s.fallback.server.URL("127.0.0.1")
		}
		return "${" + name + "}"
	})
	file := s.path("understudy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	s.cfg, err = config.Load(file)
	return err
}

// serve runs the service in this process, just as `extproc serve` does.
func (s *stage) serve() error {
	logs, err := os.Create(s.path("service.log"))
	if err != nil {
		return err
	}
	s.later(logs.Close)
	a, err := newApp(s.cfg, slog.New(slog.NewJSONHandler(logs, nil)))
	if err != nil {
		return err
	}
	a.start()
	s.service = a
	over := make(chan struct{})
	s.later(func() error { defer close(over); return a.stop(s.cfg.Server.Drain) })
	s.running.Go(func() {
		select {
		case err := <-a.failed:
			s.fail(fmt.Errorf("the service has ended: %w", err))
		case <-over:
		}
	})
	s.admin = "http://" + a.adminListener.Addr().String()
	return nil
}

func (s *stage) startEnvoy(ctx context.Context, program string) error {
	boot, err := envoyconf.Bootstrap(s.cfg, envoyconf.Internal)
	if err != nil {
		return err
	}
	yaml, err := envoyconf.YAML(boot)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("envoy.yaml"), yaml, 0o600); err != nil {
		return err
	}
	if err := s.runEnvoy(ctx, program); err != nil {
		return err
	}
	if err := poll(ctx, s.findFront); err != nil {
		return fmt.Errorf("envoy does not get ready: %w", err)
	}
	return nil
}

// runEnvoy starts Envoy; an end that stop did not ask for is the end of the demo.
func (s *stage) runEnvoy(ctx context.Context, program string) error {
	logs, err := os.Create(s.path("envoy.log"))
	if err != nil {
		return err
	}
	s.later(logs.Close)
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, "-c", s.path("envoy.yaml"), "--admin-address-path", s.path("envoy.admin"),
		"--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second // then it is killed
	if err := cmd.Start(); err != nil {
		cancel()
		return fmt.Errorf("start Envoy: %w", err)
	}
	ended := make(chan struct{})
	s.running.Go(func() {
		defer close(ended)
		err := cmd.Wait()
		if ctx.Err() == nil {
			s.fail(fmt.Errorf("envoy has ended by itself: %w", err))
		}
	})
	s.later(func() error { cancel(); <-ended; return nil })
	return nil
}

// findFront asks Envoy, once it is ready, which port it took for clients.
func (s *stage) findFront(ctx context.Context) error {
	admin, err := os.ReadFile(s.path("envoy.admin"))
	if err != nil {
		return err
	}
	url := "http://" + strings.TrimSpace(string(admin))
	if _, err := s.get(ctx, url+"/ready"); err != nil {
		return err
	}
	listeners, err := s.get(ctx, url+"/listeners")
	if err != nil {
		return err
	}
	for line := range strings.Lines(listeners) {
		if addr, ok := strings.CutPrefix(strings.TrimSpace(line), "front::"); ok {
			s.front = "http://" + addr
			return nil
		}
	}
	return errors.New("it has no listener named front")
}

// lastWords are the ends of the logs.
func (s *stage) lastWords() string {
	var words strings.Builder
	for _, file := range []string{"service.log", "envoy.log"} {
		log, err := os.ReadFile(s.path(file))
		if err != nil || len(log) == 0 {
			continue
		}
		lines := strings.SplitAfter(string(log), "\n")
		fmt.Fprintf(&words, "--- end of %s\n%s", file, strings.Join(lines[max(0, len(lines)-10):], ""))
	}
	return words.String()
}

// poll asks until ok gives no error, or ctx ends; then it says what was wrong last.
func poll(ctx context.Context, ok func(context.Context) error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
