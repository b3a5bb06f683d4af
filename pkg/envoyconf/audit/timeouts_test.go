package audit

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"understudy/pkg/envoyconf"
)

// inForce are the timeouts of docs/timeouts.md as they really are.
func inForce(t *testing.T) map[string]time.Duration {
	c := parsed(t, "local: {api: anthropic,", "local: {api: anthropic, shape: {},")
	e := built(t, c, envoyconf.Internal)
	w := wanted{e.Pieces}
	chain, provider := c.Chains[0], c.Providers["local"]
	filter, service, llm, hop := w.filter(), e.cluster("understudy"), e.cluster("llm-local"), e.cluster("hop")
	retry, keepalive := filter.GrpcService.RetryPolicy.RetryBackOff, http2(service).ConnectionKeepalive
	log := unpacked[grpclogv3.HttpGrpcAccessLogConfig](e.HopManager.AccessLog[0].GetTypedConfig()).CommonConfig
	tcp := llm.UpstreamConnectionOptions.TcpKeepalive
	d := func(d *durationpb.Duration) time.Duration {
		if d == nil {
			t.Error("a timeout of the table is not set, and so Envoy's default")
		}
		return d.AsDuration()
	}
	return map[string]time.Duration{
		"deadlines.first_content": chain.Deadlines.FirstContent,
		"deadlines.answer":        chain.Deadlines.Answer,
		"deadlines.idle":          chain.Deadlines.Idle,
		"deadlines.total":         chain.Deadlines.Total,
		"hold.time":               chain.Hold.Time,
		"on.max_wait":             chain.On.MaxWait,
		"shape.max_wait":          provider.Shape.MaxWait,
		"server.drain":            c.Server.Drain,

		"front route: timeout":                d(e.front(chat).Timeout),
		"front: stream_idle_timeout":          d(e.FrontManager.StreamIdleTimeout),
		"front: retry_back_off.base_interval": d(e.retry().RetryBackOff.BaseInterval),
		"front: retry_back_off.max_interval":  d(e.retry().RetryBackOff.MaxInterval),
		"front: delayed_close_timeout":        d(e.FrontManager.DelayedCloseTimeout),
		"hop cluster: connect_timeout":        d(hop.ConnectTimeout),
		"hop cluster: idle_timeout":           d(httpOptions(hop).CommonHttpProtocolOptions.IdleTimeout),
		"hop route: timeout":                  d(e.hop(choice).GetRoute().Timeout),
		"hop: stream_idle_timeout":            d(e.HopManager.StreamIdleTimeout),
		"hop: delayed_close_timeout":          d(e.HopManager.DelayedCloseTimeout),

		"filter: message_timeout":                 d(filter.MessageTimeout),
		"filter: max_message_timeout":             d(filter.MaxMessageTimeout),
		"filter: grpc retry base_interval":        d(retry.BaseInterval),
		"filter: grpc retry max_interval":         d(retry.MaxInterval),
		"service cluster: connect_timeout":        d(service.ConnectTimeout),
		"service cluster: keepalive interval":     d(keepalive.Interval),
		"service cluster: keepalive timeout":      d(keepalive.Timeout),
		"service cluster: health_checks interval": d(service.HealthChecks[0].Interval),
		"service cluster: health_checks timeout":  d(service.HealthChecks[0].Timeout),
		"access log: buffer_flush_interval":       d(log.BufferFlushInterval),

		"provider cluster: connect_timeout":        d(llm.ConnectTimeout),
		"provider cluster: idle_timeout":           d(httpOptions(llm).CommonHttpProtocolOptions.IdleTimeout),
		"provider cluster: tcp keepalive_time":     time.Duration(tcp.KeepaliveTime.Value) * time.Second,
		"provider cluster: tcp keepalive_interval": time.Duration(tcp.KeepaliveInterval.Value) * time.Second,
	}
}

var timeoutRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\|([^|]*)\\| [^|]+ \\|[^|]*\\|$")

func TestTheTableOfTimeoutsIsTrue(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/timeouts.md")
	if err != nil {
		t.Fatal(err)
	}
	actual := inForce(t)
	envoys := map[string]time.Duration{
		"front route: timeout": defaultRouteTimeout, "hop route: timeout": defaultRouteTimeout,
		"front: stream_idle_timeout": idleTimeout(&hcmv3.HttpConnectionManager{}), "hop: stream_idle_timeout": idleTimeout(&hcmv3.HttpConnectionManager{}),
		"front: retry_back_off.base_interval": defaultBackOff, "filter: message_timeout": defaultMessageTimeout,
	}
	for _, m := range timeoutRow.FindAllStringSubmatch(string(doc), -1) {
		want, known := actual[m[1]]
		delete(actual, m[1])
		if !known || parsedDuration(t, m[2]) != want {
			t.Errorf("docs/timeouts.md: %s is %s, want %s", m[1], m[2], want)
		}
		if other, known := envoys[m[1]]; known && parsedDuration(t, m[3]) != other {
			t.Errorf("docs/timeouts.md: Envoy's %s is %s, want %s", m[1], m[3], other)
		}
	}
	for name := range actual {
		t.Errorf("docs/timeouts.md has no row for %s", name)
	}
}

func parsedDuration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		t.Error(err)
	}
	return d
}
