package stage

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Process is one program that runs until the test that started it ends. What it prints goes to a file, whose end is shown
// when the test fails.
type Process struct {
	log     string // path
	cmd     *exec.Cmd
	exited  chan struct{}
	exitErr error // to read after exited
}

// Start runs a program. A log that is there already goes on.
func Start(t testing.TB, log, program string, args ...string) *Process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &Process{log: log, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("--- %s\n%s", filepath.Base(log), p.Tail(16<<10))
		}
	})
	return p
}

// Envoy starts that version of Envoy on the bootstrap in a file, and waits until ready, a URL, answers with 200.
func Envoy(t testing.TB, version, bootstrap, ready string) {
	t.Helper()
	Start(t, bootstrap+".log", Output(t, "../../scripts/envoy.sh", version), "-c", bootstrap,
		"--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning").Ready(t, ready)
}

// Ready waits until url answers with 200, unless the process ends before.
func (p *Process) Ready(t testing.TB, url string) {
	t.Helper()
	Eventually(t, Patience, url, func(ctx context.Context) error {
		select {
		case <-p.exited:
			t.Fatalf("%s has ended: %v", p.cmd.Path, p.exitErr)
		default:
		}
		_, err := Get(ctx, url)
		return err
	})
}

// Tail is the last n bytes of the log.
func (p *Process) Tail(n int) string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-n):])
}

// Kill is kill -9, and waits for the end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an ended process needs none
	<-p.exited
}

// stop asks for the end, and insists after some seconds.
func (p *Process) stop() {
	late := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.exited
}
