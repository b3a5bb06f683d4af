//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one program that runs until it is told to stop. Its output goes to a file.
//
// Ownership: who starts it stops it, by its own id. Concurrency: signals from any goroutine.
type process struct {
	name    string
	log     string // path
	cmd     *exec.Cmd
	exited  chan struct{} // closed when it has ended
	exitErr error         // to read after exited
}

// start runs a program, adding to its log.
func start(name, log, program string, args ...string) (*process, error) {
	return startIn(nil, name, log, program, args...)
}

// startIn runs a program with more in its environment.
func startIn(env []string, name, log, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{name: name, log: log, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // an ended process needs none

// freeze and thaw stop and continue the whole process.
func (p *process) freeze() { p.signal(syscall.SIGSTOP) }
func (p *process) thaw()   { p.signal(syscall.SIGCONT) }

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// stop asks for the end, waits for it up to d, and insists.
func (p *process) stop(d time.Duration) {
	p.thaw()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(d):
		p.kill()
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ready asks until ok gives no error, unless the process ends before.
func (p *process) ready(ctx context.Context, ok func(context.Context) error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("%s has ended: %w\n%s", p.name, p.exitErr, p.tail(4<<10))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		}
	}
}

// tail is the last n bytes of the log.
func (p *process) tail(n int) string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-n):])
}

// faulty reports a panic or a data race.
func (p *process) faulty() bool {
	log := p.tail(16 << 20)
	return strings.Contains(log, "panic: ") || strings.Contains(log, "WARNING: DATA RACE")
}

// flat checks that a process's peak memory has grown by less than bound since it was before, all in bytes.
func (p *process) flat(t testing.TB, before, bound int64) {
	t.Helper()
	if grown := p.peakMemory(t) - before; grown > bound && !racing {
		t.Errorf("the memory of %s grew by %d MiB, want at most %d", p.name, grown>>20, bound>>20)
	}
}

// peakMemory is the most that the process has had resident, in bytes (VmHWM of proc(5)).
func (p *process) peakMemory(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM in /proc/PID/status")
	return 0
}
