package envoyconf

import (
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	samplersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"understudy/pkg/config"
)

// tracing gives an exchange one span of Envoy's, from the client's traceparent if it sends one, and every attempt that
// span as its parent. The hop has none: its passes are the service's attempts. nil: no spans are wanted, or they are those
// of an Envoy with tracing of its own.
func (b *builder) tracing() *hcmv3.HttpConnectionManager_Tracing {
	t := b.c.Tracing
	if t.OTLP == nil || b.attached {
		return nil
	}
	return &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling: &typev3.Percent{Value: 0}, // by x-client-trace-id, which is anybody's to send
		Provider: &tracev3.Tracing_Http{
			Name: "envoy.tracers.opentelemetry",
			ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: b.pack(&tracev3.OpenTelemetryConfig{
				ServiceName: "understudy-envoy",
				Sampler:     b.sampler(t.Share),
				HttpService: &corev3.HttpService{HttpUri: &corev3.HttpUri{
					Uri:              t.Spans().String(),
					HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: config.CollectorCluster},
					Timeout:          durationpb.New(time.Second),
				}},
			})},
		},
	}
}

// sampler follows a traceparent, as the service does. The manager's own sampling would overrule the client's: at
// random_sampling 0 nothing of a sampled trace was sent (1.40).
func (b *builder) sampler(share float64) *corev3.TypedExtensionConfig {
	return b.extension("envoy.tracers.opentelemetry.samplers.parent_based", &samplersv3.ParentBasedSamplerConfig{
		WrappedSampler: b.extension("envoy.tracers.opentelemetry.samplers.trace_id_ratio_based", &samplersv3.TraceIdRatioBasedSamplerConfig{
			SamplingPercentage: &typev3.FractionalPercent{
				Numerator: uint32(math.Round(share * 1e6)), Denominator: typev3.FractionalPercent_MILLION,
			},
		}),
	})
}

func (b *builder) collectorClusters() []*clusterv3.Cluster {
	if b.tracing() == nil {
		return nil
	}
	return []*clusterv3.Cluster{b.outside(origin{name: config.CollectorCluster, url: b.c.Tracing.OTLP, key: "tracing.otlp", ca: b.c.Envoy.CAFile})}
}

// untraced takes our trace's ids from what a provider gets. Without tracing they are the client's, whose business they are.
func (b *builder) untraced() []*mutationv3.HeaderMutation {
	if b.c.Tracing.OTLP == nil {
		return nil
	}
	return []*mutationv3.HeaderMutation{remove("traceparent"), remove("tracestate")}
}
