package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// embeddedMemory bounds the server's memory store. Buckets are on disk: only watches' cursors live in it.
	embeddedMemory = 64 << 20
	// embeddedPayload is the largest message: NATS advises against more than 8 MiB.
	embeddedPayload = 8 << 20
	// probeSize is what the folder must take before the server starts on it: enough to need a free block.
	probeSize = 64 << 10
)

// startEmbedded starts a server inside this process and connects to it without a socket. The server lives as long as
// its session: JetStream keeps refusing after a failed write, so a new session gets a new server.
func (s *Store) startEmbedded(_ context.Context, o ...nats.Option) (*nats.Conn, func(), error) {
	if err := probeDir(s.opt.Dir); err != nil {
		return nil, nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "understudy", DontListen: true, NoSigs: true, MaxPayload: embeddedPayload,
		JetStream: true, StoreDir: s.opt.Dir, SyncAlways: true, JetStreamMaxMemory: embeddedMemory,
	})
	if err != nil {
		return nil, nil, err
	}
	s.erred.Store(false)
	l := &serverLog{store: s}
	srv.SetLoggerV2(l, false, false, false)
	stop := func() { srv.Shutdown(); srv.WaitForShutdown() }
	if srv.Start(); !srv.JetStreamEnabled() {
		stop()
		return nil, nil, fmt.Errorf("the embedded server does not start: %w", l.lastError())
	}
	s.room.Store(srv.JetStreamConfig().MaxStore)
	nc, err := nats.Connect("", append(o, nats.InProcessServer(srv))...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return nc, stop, nil
}

// probeDir writes and syncs a file in dir: a server on a full or read-only disk would start, and then never answer a
// write.
func probeDir(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("the folder takes no files: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, probeSize))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("the folder takes no writes: %w", err)
	}
	return nil
}

// lockDir makes dir and takes it for this process, until the file is closed or the process dies.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("store: %s: %w", dir, err)
	}
	// What a killed process left behind.
	stale, _ := filepath.Glob(filepath.Join(dir, ".probe-*"))
	for _, name := range stale {
		os.Remove(name)
	}
	return f, nil
}

// serverLog passes the embedded server's warnings on. An error of the server puts every bucket in doubt: JetStream
// leaves a write that failed on disk without an answer.
type serverLog struct {
	store *Store
	last  atomic.Pointer[error]
}

func (l *serverLog) lastError() error {
	if err := l.last.Load(); err != nil {
		return *err
	}
	return errors.New("it gave no reason")
}

func (l *serverLog) keep(format string, v []any) {
	err := fmt.Errorf(format, v...)
	l.last.Store(&err)
	l.store.log.note("store server", "err", err)
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.keep(format, v)
	l.store.erred.Store(true)
	l.store.doubt()
}

func (l *serverLog) Fatalf(format string, v ...any) { l.keep(format, v) }
func (l *serverLog) Warnf(format string, v ...any) {
	l.store.log.note("store server", "warning", fmt.Sprintf(format, v...))
}
func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}
