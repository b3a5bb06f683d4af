package envoyconf

import (
	"encoding/json"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// serviceFailed is status_on_error: no status that a provider's answer keeps on its way through the service's own
// replies, and it reaches no client.
const serviceFailed = 507

// lastTry is the attempt from which on a failure of the service is final.
const lastTry = 5

// hopReplies makes Envoy's own replies part of failover, and readable. The first mapper that matches counts.
//
// An ImmediateResponse of the service is such a reply too, with its own body, and may answer one that Envoy was about
// to give, whose response flags it then carries: so what is meant are Envoy's reasons, not flags or statuses alone.
// Flags alone turned the service's final answers into one more attempt on 1.40.
func (b *builder) hopReplies() *hcmv3.LocalReplyConfig {
	service := unavailable("the failover service is unavailable").format()
	provider := unavailable("the provider could not be reached").format()
	tooLarge := problem("request_too_large", "request_too_large", "the request body is too large").format()
	failed := status(accesslogv3.ComparisonFilter_EQ, serviceFailed)
	lost := all(
		flags("UF", "UC", "UR", "UPE", "UH", "NC", "UT", "SI"),
		b.reason("response.code_details.startsWith('upstream_') || response.code_details in "+
			"['no_healthy_upstream', 'cluster_not_found', 'stream_idle_timeout']"),
	)
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{
		{Filter: all(failed, fromAttempt(lastTry)), StatusCode: wrapperspb.UInt32(503), BodyFormatOverride: service},
		{Filter: failed, StatusCode: wrapperspb.UInt32(503), BodyFormatOverride: service, HeadersToAdd: tryNext()},
		{Filter: b.reason("response.code_details == 'request_payload_too_large'"), BodyFormatOverride: tooLarge},
		{Filter: all(ofExchange(), lost), BodyFormatOverride: provider, HeadersToAdd: tryNext()},
		// No chain: passed through, or without the service. The next attempt would go to the same provider, which must
		// not be asked, and paid, again.
		{Filter: lost, BodyFormatOverride: provider},
	}}
}

// whenHopIsLost words what the front itself has to say.
func whenHopIsLost() *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter:             status(accesslogv3.ComparisonFilter_GE, 500),
		BodyFormatOverride: unavailable("the gateway cannot serve this request now").format(),
	}
}

// body is an error that the SDKs of Anthropic and OpenAI can read. genai takes one whose code is no number for a text
// (api_client.go, newAPIError), and shows it with its status.
type body struct{ kind, code, message string }

func problem(kind, code, message string) body { return body{kind, code, message} }

func unavailable(message string) body {
	return problem("service_unavailable", "service_unavailable", message)
}

func (p body) fields() *structpb.Struct {
	text := structpb.NewStringValue
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"type": text("error"),
		"error": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"type": text(p.kind), "code": text(p.code), "message": text(p.message),
		}}),
	}}
}

func (p body) json() string {
	js, _ := json.Marshal(p.fields().AsMap()) // strings only
	return string(js)
}

func (p body) format() *corev3.SubstitutionFormatString {
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: p.fields()}}
}

func tryNext() []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{overwrite("x-llm-failover", "next")}
}

func status(op accesslogv3.ComparisonFilter_Op, code uint32) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
		StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
			Op:    op,
			Value: &corev3.RuntimeUInt32{DefaultValue: code, RuntimeKey: "none"},
		}},
	}}
}

func fromAttempt(n int64) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{
		HeaderFilter: &accesslogv3.HeaderFilter{Header: &routev3.HeaderMatcher{
			Name: "x-envoy-attempt-count",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{
				RangeMatch: &typev3.Int64Range{Start: n, End: 1 << 20},
			},
		}},
	}}
}

func flags(fs ...string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: fs},
	}}
}

// reason matches a reply by a CEL expression.
func (b *builder) reason(expression string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
				TypedConfig: b.pack(&celv3.ExpressionFilter{Expression: expression}),
			},
		},
	}}
}

func all(fs ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: fs},
	}}
}
