package processor

import (
	"strconv"

	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"

	"understudy/pkg/chain/breaker"
)

// AccessLog receives the hop's access log: after commit it alone tells an upstream's reset from a client's
// hang-up. It is lossy by design; what it says of attempts that have a verdict is not looked at.
type AccessLog struct {
	als.UnimplementedAccessLogServiceServer
	Processor *Processor
}

// StreamAccessLogs reads one Envoy worker's entries until it goes away.
func (s *AccessLog) StreamAccessLogs(stream als.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			s.entry(e.GetCommonProperties())
		}
	}
}

func (s *AccessLog) entry(c *dataal.AccessLogCommon) {
	why := endOf(c.GetResponseFlags())
	if why == endUnknown {
		return
	}
	fields := c.GetMetadata().GetFilterMetadata()["understudy"].GetFields()
	str := func(name string) string { return fields[name].GetStringValue() }
	attempt, err := strconv.Atoi(str("attempt"))
	if err != nil {
		return
	}
	s.Processor.ended(endKey{str("exchange"), attempt}, why, str("target"), str("replica"))
}

// endOf reads Envoy's response flags (UC, UF, UR, UPE against DC).
func endOf(f *dataal.ResponseFlags) end {
	switch {
	case f.GetDownstreamConnectionTermination():
		return endClient
	case f.GetUpstreamConnectionTermination(), f.GetUpstreamConnectionFailure(),
		f.GetUpstreamRemoteReset(), f.GetUpstreamProtocolError():
		return endUpstream
	}
	return endUnknown
}

// ended takes the report of an attempt's end. One Envoy's log goes to one replica, whichever had the attempt: of
// another replica's attempt only this is known, so a death there counts here, where it is known.
func (p *Processor) ended(k endKey, why end, target, replica string) {
	if replica == p.replica {
		p.ends.tell(k, why)
		return
	}
	if b := p.Book().Breaker(target); b != nil && why == endUpstream {
		b.Observe(breaker.Failure)
	}
}
