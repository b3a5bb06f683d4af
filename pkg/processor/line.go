package processor

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Bounds of the line of one exchange: what it says is worth reading in a log.
const (
	lineWord = 200 // bytes of an id, a code or a name
	lineText = 1000
	linePast = 16 // earlier attempts, the latest ones
)

// log writes the one line of the exchange: always the same keys, and those that are about something rare where there is
// something to say. Durations are in milliseconds and, but for an attempt's own, since the exchange's start.
func (r *Record) log(ctx context.Context, log *slog.Logger) {
	level := r.level()
	if !log.Enabled(ctx, level) {
		return
	}
	v := &r.Verdict
	var room [56]slog.Attr
	l := append(line(room[:0]),
		slog.String("id", word(r.ID)),
		slog.String("request_id", word(r.RequestID)),
		slog.String("key", word(r.Key)),
		slog.String("chain", r.Chain),
		slog.String("outcome", r.Outcome),
		slog.String("target", r.Target),
		slog.Int("rung", r.Rung),
		slog.Int("attempts", r.Attempts),
		slog.Int("status", r.Status),
		slog.Bool("streamed", r.Streamed),
		slog.String("class", v.Class.String()),
		slog.String("phase", string(v.Phase)),
		slog.String("detail", word(v.Detail)),
		slog.String("reason", r.Reason),
		slog.String("ineligible", clip(r.Ineligible, lineText)),
		slog.String("mode", r.Mode),
		slog.Bool("job", r.Job),
		slog.String("drill", word(r.Drill)),
		slog.String("provider_request_id", word(v.RequestID)),
		slog.Time("start", r.Start),
		slog.Int64("took_ms", r.End.Sub(r.Start).Milliseconds()),
		slog.Float64("cost_usd", r.Cost.Amount.USD()),
		slog.String("replica", r.Replica),
		slog.String("config", r.Config),
	)
	l = l.since("sent_ms", r.Start, r.Sent)
	l = l.since("first_content_ms", r.Start, r.Content)
	l = l.since("committed_ms", r.Start, r.Committed)
	l = l.number("provider_status", int64(v.Status))
	l = l.number("input_tokens", v.Usage.Input)
	l = l.number("output_tokens", v.Usage.Output)
	l = l.number("cache_read_tokens", v.Usage.CacheRead)
	l = l.number("cache_write_tokens", v.Usage.CacheWrite)
	l = l.number("reasoning_tokens", v.Usage.Reasoning)
	l = l.truth("cost_estimated", r.Cost.Estimated || r.Cost.Assumed)
	l = l.text("model", v.Model)
	l = l.text("asked_tier", v.AskedTier)
	l = l.text("served_tier", v.ServedTier)
	l = l.truth("downgraded", v.Downgraded)
	l = l.text("degraded", r.Label)
	l = l.truth("replayed", r.Replayed)
	l = l.text("fault", r.Fault)
	l = l.number("client_retry", int64(r.ClientRetry))
	l = l.text("trace_id", r.Trace.String())
	l = l.past(r)
	record := slog.NewRecord(time.Now(), level, "exchange", 0) // where in the code it was said is not asked for
	record.AddAttrs(l...)
	_ = log.Handler().Handle(ctx, record) // as the logger itself would
}

// level is that of the exchange's line.
func (r *Record) level() slog.Level {
	if r.Outcome == OutcomeFailed || r.Outcome == OutcomeDegraded {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// line are the parts of a log line.
type line []slog.Attr

func (l line) text(key, value string) line {
	if value != "" {
		l = append(l, slog.String(key, word(value)))
	}
	return l
}

func (l line) number(key string, n int64) line {
	if n != 0 {
		l = append(l, slog.Int64(key, n))
	}
	return l
}

func (l line) truth(key string, is bool) line {
	if is {
		l = append(l, slog.Bool(key, true))
	}
	return l
}

func (l line) since(key string, start, at time.Time) line {
	if !at.IsZero() {
		l = append(l, slog.Int64(key, at.Sub(start).Milliseconds()))
	}
	return l
}

// pastLine is an earlier attempt in the line of its exchange.
type pastLine struct {
	Attempt   int     `json:"attempt"`
	Target    string  `json:"target"`
	Rung      int     `json:"rung"`
	Class     string  `json:"class"`
	Phase     string  `json:"phase"`
	Detail    string  `json:"detail,omitempty"`
	Status    int     `json:"provider_status"`
	RequestID string  `json:"provider_request_id,omitempty"`
	SentMS    int64   `json:"sent_ms"`
	TookMS    int64   `json:"took_ms"`
	CostUSD   float64 `json:"cost_usd,omitempty"`
}

func (l line) past(r *Record) line {
	if len(r.Past) == 0 {
		return l
	}
	from := max(0, len(r.Past)-linePast)
	said := make([]pastLine, 0, linePast)
	for _, p := range r.Past[from:] {
		v := &p.Verdict
		said = append(said, pastLine{
			Attempt: p.Attempt, Target: p.Target, Rung: p.Rung, Class: v.Class.String(), Phase: string(v.Phase), Detail: word(v.Detail),
			Status: v.Status, RequestID: word(v.RequestID), SentMS: p.Sent.Sub(r.Start).Milliseconds(),
			TookMS: p.At.Sub(p.Sent).Milliseconds(), CostUSD: p.CostUSD,
		})
	}
	return append(l, slog.Any("past", said)).number("past_left_out", int64(from))
}

func word(s string) string { return clip(s, lineWord) }

// clip is at most n bytes of s.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
