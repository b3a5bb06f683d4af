package processor

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// BenchmarkAccessLogEntry is what an exchange costs every replica that Envoy tells of it, without gRPC: envoy/sizing.md
// says how many are told.
func BenchmarkAccessLogEntry(b *testing.B) {
	s := &AccessLog{Processor: benchProcessor(b)}
	wire, err := proto.Marshal(usualEntry(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var m als.StreamAccessLogsMessage
		if err := proto.Unmarshal(wire, &m); err != nil {
			b.Fatal(err)
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			s.entry(e.GetCommonProperties(), int(e.GetResponse().GetResponseCode().GetValue()))
		}
	}
}

// usualEntry has the fields that Envoy fills in for an answered call.
func usualEntry(tb testing.TB) *als.StreamAccessLogsMessage {
	tb.Helper()
	ns, ok := kept(tb, identityOf("replica", "0d3fe8a5-3a48-4f6a-9e5f-3f1f5b0f2b5c", 1, "a/sonnet")).Fields["understudy"]
	if !ok {
		tb.Fatal("the metadata of an attempt has no namespace understudy")
	}
	addr := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 10000}}}}
	took := durationpb.New(1500)
	return &als.StreamAccessLogsMessage{LogEntries: &als.StreamAccessLogsMessage_HttpLogs{HttpLogs: &als.StreamAccessLogsMessage_HTTPAccessLogEntries{
		LogEntry: []*dataal.HTTPAccessLogEntry{{
			CommonProperties: &dataal.AccessLogCommon{
				DownstreamRemoteAddress: addr, DownstreamLocalAddress: addr, DownstreamDirectRemoteAddress: addr, UpstreamRemoteAddress: addr, UpstreamLocalAddress: addr,
				StartTime: timestamppb.Now(), TimeToLastRxByte: took, TimeToFirstUpstreamTxByte: took, TimeToLastUpstreamTxByte: took,
				TimeToFirstUpstreamRxByte: took, TimeToLastUpstreamRxByte: took, TimeToFirstDownstreamTxByte: took, TimeToLastDownstreamTxByte: took,
				UpstreamCluster: "llm-a", Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"understudy": ns.GetStructValue()}},
				StreamId: "0d3fe8a5-3a48-4f6a-9e5f-3f1f5b0f2b5c",
			},
			Request: &dataal.HTTPRequestProperties{Scheme: "http", Authority: "127.0.0.1:10000", Path: "/v1/messages", UserAgent: "Anthropic/Python",
				RequestId: "0d3fe8a5-3a48-4f6a-9e5f-3f1f5b0f2b5c", RequestHeadersBytes: 700, RequestBodyBytes: 4096},
			Response: &dataal.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200), ResponseHeadersBytes: 300, ResponseBodyBytes: 1000, ResponseCodeDetails: "via_upstream"},
		}}}}}
}
