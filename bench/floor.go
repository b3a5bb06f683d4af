package main

import (
	"context"
	"flag"
	"io"
	"net"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// floor is an ext_proc service that does nothing but what the mechanism needs: it names the cluster of each attempt,
// gives a failed one back to the front, and hands every byte on as it comes. What it costs, no service in the same
// place can save.
type floor struct {
	extproc.UnimplementedExternalProcessorServer
	als.UnimplementedAccessLogServiceServer

	clusters []string // by slot
}

// init gives the floor the buffers that the service has (cmd/extproc, init): what they save is gRPC's, not ours.
func init() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err)
	}
	experimental.SetDefaultBufferPool(pool)
}

// serveFloor runs it until ctx ends, on a gRPC server with the options of the service's (cmd/extproc, grpcOptions).
func serveFloor(ctx context.Context, args []string, _, _ io.Writer) error {
	f := flag.NewFlagSet("floor", flag.ContinueOnError)
	addr, clusters := f.String("grpc", "", "address, or unix://PATH"), f.String("clusters", "", "by slot, with commas between")
	if err := parse(f, args); err != nil {
		return err
	}
	ln, err := net.Listen(network(*addr))
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.InitialWindowSize(256<<10),
		grpc.InitialConnWindowSize(16<<20),
		grpc.MaxRecvMsgSize(40<<20),
		grpc.NumStreamWorkers(64),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true}),
	)
	s := &floor{clusters: strings.Split(*clusters, ",")}
	extproc.RegisterExternalProcessorServer(server, s)
	als.RegisterAccessLogServiceServer(server, s)
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(ln)
}

// network takes an address of the config file apart.
func network(addr string) (network, address string) {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// StreamAccessLogs takes the log and looks at nothing.
func (*floor) StreamAccessLogs(stream als.AccessLogService_StreamAccessLogsServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return nil
		}
	}
}

// Process is one attempt.
func (f *floor) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	slot := 0
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		var reply *extproc.ProcessingResponse
		switch r := m.Request.(type) {
		case *extproc.ProcessingRequest_RequestHeaders:
			slot = slotOf(r.RequestHeaders.Headers)
			reply = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{
				RequestHeaders: &extproc.HeadersResponse{}}}
		case *extproc.ProcessingRequest_RequestBody:
			reply = f.route(slot)
		case *extproc.ProcessingRequest_ResponseHeaders:
			reply = f.responseHeaders(r.ResponseHeaders.Headers, slot)
		case *extproc.ProcessingRequest_ResponseBody:
			reply = passed(r.ResponseBody)
		case *extproc.ProcessingRequest_ResponseTrailers:
			reply = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{
				ResponseTrailers: &extproc.TrailersResponse{}}}
		}
		if err := stream.Send(reply); err != nil {
			return nil
		}
	}
}

func slotOf(h *corev3.HeaderMap) int {
	n := header(h, "x-envoy-attempt-count")
	if len(n) == 1 && n[0] > '0' {
		return int(n[0] - '1')
	}
	return 0
}

func header(h *corev3.HeaderMap, name string) []byte {
	for _, f := range h.GetHeaders() {
		if f.Key == name {
			return f.RawValue
		}
	}
	return nil
}

func (f *floor) route(slot int) *extproc.ProcessingResponse {
	cluster := f.clusters[min(slot, len(f.clusters)-1)]
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
		RequestBody: &extproc.BodyResponse{Response: &extproc.CommonResponse{
			ClearRouteCache: true,
			HeaderMutation: &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
				set("x-llm-cluster", cluster),
			}},
		}}}}
}

func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// responseHeaders lets an answer pass, unless it is a failure and there is another slot.
func (f *floor) responseHeaders(h *corev3.HeaderMap, slot int) *extproc.ProcessingResponse {
	if status := header(h, ":status"); len(status) == 3 && status[0] == '5' && slot+1 < len(f.clusters) {
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
			ImmediateResponse: &extproc.ImmediateResponse{
				Status:  &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
				Headers: &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{set("x-llm-failover", "next")}},
			}}}
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extproc.HeadersResponse{}}}
}

func passed(b *extproc.HttpBody) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{
		ResponseBody: &extproc.BodyResponse{Response: &extproc.CommonResponse{
			BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
				StreamedResponse: &extproc.StreamedBodyResponse{Body: b.Body, EndOfStream: b.EndOfStream},
			}}}}}}
}
