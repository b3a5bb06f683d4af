//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	modes "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// relay stands between Envoy and the service, passes on what they say, and keeps what kind of message each was.
//
// Ownership: the test that started it.
// Concurrency: one goroutine a direction of each stream; mu guards the fields below it.
type relay struct {
	extproc.UnimplementedExternalProcessorServer
	als.UnimplementedAccessLogServiceServer

	addr    string
	service string // its gRPC address
	// change is the last word on what the service says; nil: it stays.
	change func(*extproc.ProcessingResponse)

	mu      sync.Mutex
	open    int
	streams []*conversation
}

// conversation is what was said on one stream, which is one attempt.
type conversation struct{ asked, told []string }

func (c *conversation) String() string {
	return strings.Join(c.asked, " ") + " > " + strings.Join(c.told, " ")
}

func startRelay(t *testing.T) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: ln.Addr().String()}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	extproc.RegisterExternalProcessorServer(server, r)
	als.RegisterAccessLogServiceServer(server, r)
	go server.Serve(ln)
	t.Cleanup(server.Stop)
	return r
}

// between puts the relay where Envoy finds the service.
func (r *relay) between(f *file) {
	r.service = f.Server.GRPC
	f.Envoy.Services = []string{r.addr}
}

// StreamAccessLogs takes the log to nobody: which side ended an answer is another test's.
func (*relay) StreamAccessLogs(stream als.AccessLogService_StreamAccessLogsServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return nil
		}
	}
}

func (r *relay) Process(envoy extproc.ExternalProcessor_ProcessServer) error {
	c := r.begin()
	defer r.end()
	conn, err := grpc.NewClient(r.service, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(envoy.Context())
	defer cancel()
	service, err := extproc.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		return err
	}
	replies := make(chan error, 1)
	go func() { replies <- r.backward(envoy, service, c) }()
	for {
		m, err := envoy.Recv()
		if err != nil {
			service.CloseSend()
			return <-replies
		}
		r.note(&c.asked, fmt.Sprintf("%T", m.Request))
		if err := service.Send(m); err != nil {
			return <-replies
		}
	}
}

func (r *relay) backward(envoy extproc.ExternalProcessor_ProcessServer, service extproc.ExternalProcessor_ProcessClient, c *conversation) error {
	for {
		m, err := service.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r.note(&c.told, fmt.Sprintf("%T", m.Response))
		if r.change != nil {
			r.change(m)
		}
		if err := envoy.Send(m); err != nil {
			return err
		}
	}
}

func (r *relay) begin() *conversation {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &conversation{}
	r.open++
	r.streams = append(r.streams, c)
	return c
}

func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}

// note keeps a message's kind, which is the end of its type's name: *ext_procv3.ProcessingRequest_RequestBody.
func (r *relay) note(said *[]string, kind string) {
	kind = kind[strings.LastIndex(kind, "_")+1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	*said = append(*said, kind)
}

// heard waits until nothing more is said, and gives what was, a line for each attempt; the next exchange begins anew.
func (r *relay) heard(t *testing.T) []string {
	t.Helper()
	var lines []string
	eventually(t, patience, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open > 0 {
			return fmt.Errorf("%d streams of the service are open", r.open)
		}
		for _, c := range r.streams {
			lines = append(lines, c.String())
		}
		r.streams = nil
		return nil
	})
	return lines
}

// pieces are a stream of Anthropic's, each written when the client has read what came before.
var pieces = []string{
	sse("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m-a","stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}`) +
		sse("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
		sse("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}`),
	sse("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"two"}}`),
	sse("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		sse("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}`) +
		sse("message_stop", `{"type":"message_stop"}`),
}

func sse(event, data string) string { return "event: " + event + "\ndata: " + data + "\n\n" }

// stepwise makes providers stream pieces, one for each word of next, to who asks with x-stepwise.
func stepwise(next <-chan struct{}) func(string, http.Handler) http.Handler {
	return func(_ string, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("x-stepwise") == "" {
				h.ServeHTTP(w, r)
				return
			}
			w.Header().Set("content-type", "text/event-stream")
			for _, p := range pieces {
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
				io.WriteString(w, p)
				w.(http.Flusher).Flush()
			}
		})
	}
}

// What is said of one attempt, Envoy's messages before the service's. An answer over HTTP/1 ends in a piece of its own.
const (
	headOnly = "RequestHeaders > RequestHeaders"
	served1  = "RequestHeaders RequestBody ResponseHeaders ResponseBody ResponseBody > RequestHeaders RequestBody ResponseHeaders ResponseBody"
	replaced = "RequestHeaders RequestBody ResponseHeaders ResponseBody ResponseBody > RequestHeaders RequestBody ImmediateResponse"
	streamed = "RequestHeaders RequestBody ResponseHeaders ResponseBody ResponseBody ResponseBody ResponseBody > " +
		"RequestHeaders RequestBody ResponseHeaders ResponseBody ResponseBody ResponseBody ResponseBody"
	untouched = "RequestHeaders RequestBody ResponseHeaders ResponseBody ResponseBody > " +
		"RequestHeaders RequestBody ResponseHeaders ResponseBody ResponseBody"
)

// TestWhatTheServiceIsTold holds the messages of an exchange, which are what the mechanism costs: where nothing but the
// request's head is of use to the service, it gets nothing else.
func TestWhatTheServiceIsTold(t *testing.T) {
	t.Parallel()
	big := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 2*mib) + `"}]}`
	rows := []struct {
		name   string
		method string // "": POST
		call   call
		status int
		told   []string // by attempt
	}{
		{"an answer", "", call{path: messages, chain: "named", script: "a=ok"}, 200, []string{served1}},
		{"an answer in three pieces", "", call{path: messages, chain: "named", stream: true, header: map[string]string{"x-stepwise": "yes"}}, 200, []string{streamed}},
		{"a failed attempt, and the next one", "", call{path: messages, chain: "named", script: "a=529"}, 200, []string{replaced, served1}},
		{"a chain that is off", "", call{path: messages, chain: "off"}, 503, []string{"RequestHeaders RequestBody > RequestHeaders ImmediateResponse"}},
		{"a chain that observes", "", call{path: messages, chain: "seen", script: "a=ok"}, 200, []string{untouched}},
		{"a refused word of ours where no chain is named", "", call{path: messages, header: map[string]string{"x-llm-internal": "forged"}}, 403, []string{"RequestHeaders > ImmediateResponse"}},
		{"a path that is passed through", "", call{path: "/v1/files", body: big}, 200, []string{headOnly}},
		{"a stored response", http.MethodGet, call{path: responsed + "/resp_1"}, 404, []string{headOnly}},
	}
	for _, version := range []string{envoyMain, envoyMiddle, envoyOldest} {
		t.Run("Envoy "+version, func(t *testing.T) {
			t.Parallel()
			r, next := startRelay(t), make(chan struct{}, 1)
			s := startStack(t, plan{envoy: version, before: stepwise(next), chains: optedIn, edit: func(f *file) { onlyNamed(f); r.between(f) }})
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					req := s.request(within(t, patience), t, row.call, strings.NewReader(cmp.Or(row.call.body, requestBody(row.call.path, row.call.stream))))
					req.Method = cmp.Or(row.method, req.Method)
					if status := s.readStepwise(t, req, next); status != row.status {
						t.Errorf("%s %s = %d, want %d", req.Method, row.call.path, status, row.status)
					}
					if got := r.heard(t); !slices.Equal(got, row.told) {
						t.Errorf("the service was told, by attempt:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(row.told, "\n"))
					}
				})
			}
			s.survives(t)
		})
	}
}

// optedIn are chains for who names them.
var optedIn = []chain{
	{name: "named", api: "anthropic", on: []string{"a", "b"}},
	{name: "answers", api: "openai", on: []string{"a", "b"}},
	{name: "seen", api: "anthropic", on: []string{"a"}, more: fileChain{Mode: "observe"}},
	{name: "off", api: "anthropic", on: []string{"a"}, more: fileChain{Degrade: []string{"off"}, Off: &fileOff{Force: true}}},
}

// onlyNamed leaves no other chain, and lets all else pass.
func onlyNamed(f *file) {
	f.Chains.Content = f.Chains.Content[:2*len(optedIn)]
	f.Passthrough = append(f.Passthrough, filePassthrough{"/v1", account("a", "anthropic")})
}

// readStepwise makes a request and, where its answer has pieces, lets each go when the one before has arrived.
func (s *Stack) readStepwise(t *testing.T, req *http.Request, next chan<- struct{}) (status int) {
	t.Helper()
	if req.Header.Get("x-stepwise") == "" {
		return s.do(req).status
	}
	next <- struct{}{}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for i, p := range pieces {
		if i > 0 {
			next <- struct{}{}
		}
		got := make([]byte, len(p))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != p {
			t.Fatalf("piece %d = %q, %v, want %q", i, got, err, p)
		}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the last piece: %q, %v", rest, err)
	}
	return resp.StatusCode
}

// TestEnvoyTakesNoModeOverride: no word of a service can take a body out of sight, or out of an answer, for Envoy heeds no
// mode_override where the filter's own mode is FULL_DUPLEX_STREAMED, even if allow_mode_override is set.
func TestEnvoyTakesNoModeOverride(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoyMain, envoyMiddle, envoyOldest} {
		for _, allowed := range []bool{false, true} {
			t.Run(fmt.Sprintf("Envoy %s, allowed: %v", version, allowed), func(t *testing.T) {
				t.Parallel()
				r := startRelay(t)
				r.change = func(m *extproc.ProcessingResponse) {
					m.ModeOverride = &modes.ProcessingMode{
						RequestHeaderMode: modes.ProcessingMode_SEND, RequestTrailerMode: modes.ProcessingMode_SKIP,
						ResponseHeaderMode: modes.ProcessingMode_SKIP, ResponseTrailerMode: modes.ProcessingMode_SKIP,
					}
				}
				s := startStack(t, plan{envoy: version, edit: r.between, bootstrap: func(boot map[string]any) {
					if !allowed {
						return
					}
					if n := eachFilter(boot, func(f map[string]any) { f["allow_mode_override"] = true }); n != 1 {
						t.Fatalf("%d filters of the service, want 1", n)
					}
				}})
				a := s.raw(within(t, patience), t, call{path: messages, script: "a=529"})
				if a.status != 200 || a.header.Get("x-llm-target") != "default-anthropic/b" || !strings.Contains(a.body, `"model":"m-b"`) {
					t.Errorf("the answer = %d %v %s, want that of the second target", a.status, a.header, a.body)
				}
				if got, want := r.heard(t), []string{replaced, served1}; !slices.Equal(got, want) {
					t.Errorf("the service was told, by attempt:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// eachFilter edits the ext_proc filters anywhere in v, and counts them.
func eachFilter(v any, edit func(map[string]any)) (n int) {
	switch v := v.(type) {
	case map[string]any:
		if v["processing_mode"] != nil && v["grpc_service"] != nil {
			edit(v)
			n++
		}
		for _, part := range v {
			n += eachFilter(part, edit)
		}
	case []any:
		for _, part := range v {
			n += eachFilter(part, edit)
		}
	}
	return n
}
