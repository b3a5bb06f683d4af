package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// dial is one connection to the service of a folder, as Envoy has them.
func dial(t *testing.T, dir string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "service.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ending stops the service in the background, with a drain that no test waits for.
func (s *service) ending() <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- s.stop(time.Hour) }()
	return ended
}

// soon waits for what comes of c.
func soon(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(10 * time.Second):
		return errors.New("nothing after 10 s")
	}
}

func TestAStopTellsEverybodyAndServesWhatIsOpen(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	conn := dial(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	log, err := als.NewAccessLogServiceClient(conn).StreamAccessLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	health, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := health.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("the health service says %v, %v, want SERVING", r, err)
	}
	attempt, err := extproc.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{}}}
	answers := func() {
		t.Helper()
		if _, err := attempt.Recv(); err != nil {
			t.Fatalf("the open attempt got %v, want an answer", err)
		}
	}
	if err := attempt.Send(ask); err != nil {
		t.Fatal(err)
	}
	answers()

	ended := s.ending()
	if r, err := health.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("while it stops, the health service says %v, %v, want NOT_SERVING", r, err)
	}
	if code, _ := s.get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("while it stops, /readyz = %d, want 503", code)
	}
	eventually(t, func(ctx context.Context) error { // it hears GOAWAY, and nobody listens any more
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			return fmt.Errorf("the service still takes new calls")
		}
		return nil
	})
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // as systemd's SendSIGHUP does; unheard, it ends the process
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the service has ended with %v while an attempt was open", err)
	default:
	}
	if err := errors.Join(attempt.CloseSend(), soon(t, ended)); err != nil {
		t.Errorf("stop = %v, want nil: neither an access log nor a watched health holds it up", err)
	}
	if _, err := log.CloseAndRecv(); err == nil {
		t.Error("the access log was answered, want its end")
	}
}
