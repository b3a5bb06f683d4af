package processor

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// readRecorded reads what a real Envoy sent; see TestRecord.
func readRecorded(t testing.TB, name string) []*extproc.ProcessingRequest {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "recorded", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []*extproc.ProcessingRequest
	for s := bufio.NewScanner(f); s.Scan(); {
		m := &extproc.ProcessingRequest{}
		if err := protojson.Unmarshal(s.Bytes(), m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// fakeStream is Envoy's end of one stream, in memory.
type fakeStream struct {
	grpc.ServerStream
	ctx  context.Context
	addr *connAddr
	in   chan *extproc.ProcessingRequest
	out  chan string   // described when sent: a message may be used again after that
	done chan struct{} // Process has returned
	each func(*extproc.ProcessingResponse)
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) Recv() (*extproc.ProcessingRequest, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *fakeStream) Send(m *extproc.ProcessingResponse) error {
	if s.each != nil {
		s.each(m)
	}
	select {
	case s.out <- describe(m):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
