package tracing

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/processor"
)

const failed = codes.Error

// longest is the most that a span says of a word that a provider or a client has said, in bytes.
const longest = 256

// sound cuts what is too long, and leaves out what is no UTF-8: for one such byte, which a header may hold, OTLP's encoding
// would refuse the whole batch.
func sound(all []attribute.KeyValue) []attribute.KeyValue {
	for i, a := range all {
		if a.Value.Type() != attribute.STRING {
			continue
		}
		if s := a.Value.AsString(); len(s) > longest || !utf8.ValidString(s) {
			all[i].Value = attribute.StringValue(strings.ToValidUTF8(s[:min(len(s), longest)], ""))
		}
	}
	return all
}

// about collects attributes, of which those that say nothing are left out.
type about []attribute.KeyValue

func (a *about) text(key, value string) {
	if value != "" {
		*a = append(*a, attribute.String(key, value))
	}
}

func (a *about) number(key attribute.Key, n int64) {
	if n != 0 {
		*a = append(*a, key.Int64(n))
	}
}

func (a *about) truth(key string, is bool) {
	if is {
		*a = append(*a, attribute.Bool(key, true))
	}
}

func exchangeAttributes(r *processor.Record) []attribute.KeyValue {
	a := about{
		attribute.String("understudy.exchange", r.ID),
		attribute.String("understudy.chain", r.Chain),
		attribute.String("understudy.outcome", r.Outcome),
		attribute.Int("understudy.attempts", r.Attempts),
		attribute.String("understudy.class", r.Verdict.Class.String()),
	}
	if r.Target != "" {
		a = append(a, attribute.String("understudy.target", r.Target), attribute.Int("understudy.rung", r.Rung))
	}
	a.text("understudy.fallback_reason", r.Reason)
	a.text("understudy.degraded", r.Label)
	a.text("understudy.drill", r.Drill)
	a.truth("understudy.job", r.Job)
	a.truth("understudy.replayed", r.Replayed)
	a.number(semconv.HTTPResponseStatusCodeKey, int64(r.Status))
	a.number("understudy.client_retry", int64(r.ClientRetry))
	return a
}

// attemptAttributes follow the conventions for a model's inference, as far as the gateway knows; nothing is content.
func attemptAttributes(r *processor.AttemptRecord) []attribute.KeyValue {
	v, u := &r.Verdict, &r.Verdict.Usage
	a := about{
		operation(r.Chain),
		providerName(r.Target.Provider),
		semconv.GenAIRequestModel(r.Target.Model),
		attribute.Bool("gen_ai.request.stream", r.Stream),
		attribute.String("understudy.exchange", r.Exchange),
		attribute.String("understudy.chain", r.Chain.Name),
		attribute.String("understudy.target", r.Target.Name),
		attribute.Int("understudy.rung", r.Rung),
		attribute.Int("understudy.attempt", r.Attempt),
		attribute.String("understudy.class", v.Class.String()),
		attribute.String("understudy.phase", string(v.Phase)),
	}
	a = append(a, server(r.Target.Provider)...)
	a.text("gen_ai.response.model", v.Model)
	// "This value SHOULD include all types of input tokens, including cached tokens".
	a.number(semconv.GenAIUsageInputTokensKey, u.Input+u.CacheRead+u.CacheWrite)
	a.number(semconv.GenAIUsageOutputTokensKey, u.Output)
	a.number(semconv.GenAIUsageCacheReadInputTokensKey, u.CacheRead)
	a.number(semconv.GenAIUsageCacheCreationInputTokensKey, u.CacheWrite)
	a.number(semconv.GenAIUsageReasoningOutputTokensKey, u.Reasoning)
	if !r.Content.IsZero() {
		a = append(a, attribute.Float64("gen_ai.response.time_to_first_chunk", r.Content.Sub(r.Sent).Seconds()))
	}
	a.text("understudy.detail", v.Detail)
	a.number("understudy.status", int64(v.Status))
	a.text("understudy.provider_request_id", v.RequestID)
	a.text("understudy.asked_tier", v.AskedTier)
	a.text("understudy.served_tier", v.ServedTier)
	a.truth("understudy.downgraded", v.Downgraded)
	a.text("understudy.drill", r.Drill)
	a.text("understudy.fault", r.Fault)
	if cost := r.Cost.Amount.USD(); cost > 0 {
		a = append(a, attribute.Float64("understudy.cost_usd", cost))
	}
	return a
}

// operation is what a chain's endpoint does. Where the conventions have no word for it, the path's own is one.
func operation(c *config.Chain) attribute.KeyValue {
	switch {
	case c.Endpoint == "" && c.API == config.Gemini:
		return semconv.GenAIOperationNameGenerateContent
	case c.Endpoint == "":
		return semconv.GenAIOperationNameChat
	}
	return semconv.GenAIOperationNameKey.String(strings.TrimPrefix(c.Endpoint, "/v1/"))
}

// providerName is, as the conventions want it, of the API that is spoken: "openai" also of a server that is compatible.
func providerName(p *config.Provider) attribute.KeyValue {
	switch p.Platform {
	case config.Bedrock:
		return semconv.GenAIProviderNameAWSBedrock
	case config.Vertex:
		return semconv.GenAIProviderNameGCPVertexAI
	case config.Azure:
		return semconv.GenAIProviderNameAzureAIOpenAI
	case config.Foundry:
		return semconv.GenAIProviderNameAzureAIInference
	}
	if p.API == config.Gemini {
		return semconv.GenAIProviderNameGCPGemini
	}
	return semconv.GenAIProviderNameKey.String(string(p.API))
}

func server(p *config.Provider) []attribute.KeyValue {
	port, err := strconv.Atoi(p.Endpoint.Port())
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(p.Endpoint.Hostname())}
	}
	return []attribute.KeyValue{semconv.ServerAddress(p.Endpoint.Hostname()), semconv.ServerPort(port)}
}

// errorOf is the error.type of an attempt, "" for an answer, good or refused, and for a client that left.
func errorOf(c classify.Class) string {
	switch c {
	case classify.None, classify.OK, classify.Refusal, classify.Filtered, classify.Canceled:
		return ""
	}
	return c.String()
}

// failureOf is the error.type of an exchange.
func failureOf(r *processor.Record) string {
	switch {
	case r.Outcome != processor.OutcomeFailed:
		return ""
	case r.Verdict.Class == classify.None:
		return "unavailable" // no target could be asked
	}
	return r.Verdict.Class.String()
}
