package processor

import (
	"strconv"
	"strings"

	dataal "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
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
			s.entry(e.GetCommonProperties(), int(e.GetResponse().GetResponseCode().GetValue()))
		}
	}
}

func (s *AccessLog) entry(c *dataal.AccessLogCommon, status int) {
	by := sideOf(c.GetResponseFlags())
	if by == bySomebody {
		return
	}
	fields := c.GetMetadata().GetFilterMetadata()["understudy"].GetFields()
	number, replica, _ := strings.Cut(fields["attempt"].GetStringValue(), " ")
	attempt, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	s.Processor.ended(endKey{fields["exchange"].GetStringValue(), attempt}, end{by, status}, replica)
}

// sideOf reads Envoy's response flags (UC, UF, UR, UPE against DC).
func sideOf(f *dataal.ResponseFlags) side {
	switch {
	case f.GetDownstreamConnectionTermination():
		return byClient
	case f.GetUpstreamConnectionTermination(), f.GetUpstreamConnectionFailure(),
		f.GetUpstreamRemoteReset(), f.GetUpstreamProtocolError():
		return byProvider
	}
	return bySomebody
}

// ended takes the report of an attempt's end. Every replica gets every entry; only the one that had the attempt
// has a use for it.
func (p *Processor) ended(k endKey, why end, replica string) {
	if replica == p.replica {
		p.ends.tell(k, why)
	}
}
