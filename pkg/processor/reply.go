package processor

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"understudy/pkg/degrade"
)

// maxChunk is the largest body chunk put into one message.
const maxChunk = 64 << 10

// mutation builds a header mutation.
type mutation struct {
	m    extproc.HeaderMutation
	raw  []byte  // of the values
	some *[4]set // the next few headers, in one piece of memory
	used int
}

type set struct {
	option corev3.HeaderValueOption
	header corev3.HeaderValue
}

func (b *mutation) set(name, value string) {
	if b.some == nil || b.used == len(b.some) {
		b.some, b.used = &[4]set{}, 0
		b.m.SetHeaders = slices.Grow(b.m.SetHeaders, len(b.some))
	}
	s := &b.some[b.used]
	b.used++
	from := len(b.raw)
	b.raw = append(b.raw, value...)
	s.header.Key, s.header.RawValue = name, b.raw[from:len(b.raw):len(b.raw)]
	s.option.Header, s.option.AppendAction = &s.header, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	b.m.SetHeaders = append(b.m.SetHeaders, &s.option)
}

func (b *mutation) remove(names ...string) {
	b.m.RemoveHeaders = append(b.m.RemoveHeaders, names...)
}

// common is the message that sends a request where the mutation says.
func (b *mutation) common() *extproc.CommonResponse {
	return &extproc.CommonResponse{HeaderMutation: &b.m, ClearRouteCache: true}
}

// goOn lets Envoy ask for what comes next.
func goOn() *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extproc.HeadersResponse{},
	}}
}

func requestHeaders(c *extproc.CommonResponse) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extproc.HeadersResponse{Response: c},
	}}
}

func requestBody(c *extproc.CommonResponse) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
		RequestBody: &extproc.BodyResponse{Response: c},
	}}
}

func responseHeaders(m *mutation) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{HeaderMutation: &m.m}},
	}}
}

// bodyMessage is a response body message in one piece of memory, which is used again once it is sent: gRPC has encoded it by
// the time Send returns.
type bodyMessage struct {
	resp     extproc.ProcessingResponse
	oneof    extproc.ProcessingResponse_ResponseBody
	body     extproc.BodyResponse
	common   extproc.CommonResponse
	mutation extproc.BodyMutation
	choice   extproc.BodyMutation_StreamedResponse
	streamed extproc.StreamedBodyResponse
}

func newBodyMessage() any { // *bodyMessage, for a pool
	m := &bodyMessage{}
	m.resp.Response = &m.oneof
	m.oneof.ResponseBody = &m.body
	m.body.Response = &m.common
	m.common.BodyMutation = &m.mutation
	m.mutation.Mutation = &m.choice
	m.choice.StreamedResponse = &m.streamed
	return m
}

func responseTrailers() *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extproc.TrailersResponse{},
	}}
}

// immediate replaces whatever there is by an answer of ours. After commit it cuts the transfer.
func immediate(a degrade.Answer, m *mutation, details string) *extproc.ProcessingResponse {
	if a.Headers["content-type"] == "" {
		m.set("content-type", "application/json")
	}
	for name, value := range a.Headers {
		m.set(name, value)
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extproc.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(a.Status)},
			Headers: &m.m,
			Body:    a.Body,
			Details: details,
		},
	}}
}
