package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one program that runs until it is told to stop. Its output goes to a file.
//
// Ownership: who starts it stops it, by its own id.
type process struct {
	name    string
	log     string // path
	cmd     *exec.Cmd
	exited  chan struct{} // closed when it has ended
	exitErr error         // to read after exited
}

func start(name, log string, env []string, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{name: name, log: log, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is ours to pass on
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// paged copies a program to dir, so that each page of its file is cached by itself. Of a file that was just written the kernel
// caches larger pieces, and that of today maps a whole piece around each page that is needed: megabytes of resident memory
// that tell how the file came about, and not what the program needs. No program, no copy.
func paged(program, dir string) (string, error) {
	if program == "" {
		return "", nil
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, filepath.Base(program)+"-")
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.Write(text)
	if err := cmp.Or(err, f.Chmod(0o700), f.Sync()); err != nil { // what is not on the disk stays cached
		return "", err
	}
	for _, advice := range []int{unix.FADV_DONTNEED, unix.FADV_RANDOM} {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, advice); err != nil {
			return "", fmt.Errorf("fadvise %s: %w", f.Name(), err)
		}
	}
	page := make([]byte, os.Getpagesize())
	for at := 0; at < len(text); at += len(page) {
		if _, err := f.ReadAt(page, int64(at)); err != nil && err != io.EOF {
			return "", err
		}
	}
	return f.Name(), f.Close()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks for the end, and after five seconds insists.
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		p.kill()
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// signal goes to the process and to those that it has started. Where all have ended, none is needed.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.pid(), s) }

// ready asks until url answers 200, unless the process ends before.
func (p *process) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := answers(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("%s has ended: %w\n%s", p.name, p.exitErr, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, err, p.tail())
		}
	}
}

func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s = %s", url, resp.Status)
	}
	return nil
}

// tail is the end of the log.
func (p *process) tail() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4<<10):])
}

// all are the ids of the process and of those that it has started: its process group.
func (p *process) all() []int {
	ids := []int{p.pid()}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil || id == p.pid() {
			continue
		}
		if group, err := syscall.Getpgid(id); err == nil && group == p.pid() {
			ids = append(ids, id)
		}
	}
	return ids
}

// cpu is the processor time that the process has had, with all its threads, also ended ones.
func (p *process) cpu() (sum time.Duration) {
	for _, id := range p.all() {
		sum += cpuOf(id)
	}
	return sum
}

// cpuOf reads clock_getcpuclockid(3), which is /proc/PID/stat's utime and stime at the resolution of a nanosecond instead of
// ten milliseconds.
func cpuOf(pid int) time.Duration {
	const perProcess = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|perProcess), &ts); err != nil {
		return 0 // it has ended; the load's errors tell of that
	}
	return time.Duration(ts.Nano())
}

// rss is the memory that the process has resident, in bytes.
func (p *process) rss() (sum int64) {
	for _, id := range p.all() {
		sum += rssOfID(id)
	}
	return sum
}

func rssOfID(pid int) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// files is how many file handles the process has open.
func (p *process) files() int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid()))
	return len(entries)
}

// firstLine is the first line of a program's output, for the notes on the machine.
func firstLine(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
