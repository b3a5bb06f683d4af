// Package stage is what tests of several suites run on: the built service, processes, ports, polling and clients.
package stage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// Patience bounds what is expected to happen soon, on a busy machine.
const Patience = time.Minute

// Run builds the service, whose path binary then is, and runs the tests. What it returns is for os.Exit.
func Run(m *testing.M, binary *string) (code int) {
	dir, err := os.MkdirTemp("", "stage")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*binary = filepath.Join(dir, "extproc")
	if out, err := exec.Command("go", "build", "-o", *binary, "understudy/cmd/extproc").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the service: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// Output is what a command that works prints, without the space around it.
func Output(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s %q: %v\n%s%s", program, args, err, out, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Write writes a file, and is its path.
func Write(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// given are the ports that Free has given in this process, each held against other processes that use Free.
var given sync.Map

// Free is a loopback address that was free a moment ago, and is given once, on the whole machine, while this process lives:
// its port of UDP, which nothing here uses, stays bound. Its port is below those from which the kernel takes the near ends
// of connections (32768 and up), one of which would soon have taken a port of :0 for itself. It is even: the hop of an Envoy
// listens on the port after the front's.
func Free(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12_000+2*rand.IntN(10_000))
		held, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		given.Store(addr, held)
		if ln, err := net.Listen("tcp", addr); err == nil {
			ln.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// Refusing is an address that refuses connections: bound, so that nobody takes it, and never listening.
func Refusing(t testing.TB) string {
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

// Serve serves h on loopback until the end of the test; with a certificate it speaks TLS.
func Serve(t testing.TB, h http.Handler, cert *tls.Certificate) *scripted.Server {
	t.Helper()
	server, err := scripted.Serve(h, "127.0.0.1:0", cert)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

// Eventually asks until ok gives no error, for at most d.
func Eventually(t testing.TB, d time.Duration, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: after %s still: %v", what, d, err)
		}
	}
}
