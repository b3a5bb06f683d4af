package processor

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"understudy/pkg/chain"
	"understudy/pkg/provider"
)

// head is what is read of a request's headers.
type head struct {
	method, target string            // target is path and query
	chain          string            // x-llm-chain
	degrade        string            // x-llm-degrade
	tenant         string            // x-llm-tenant, by the front
	noStore        bool              // cache-control: no-store
	conversations  map[string]string // by the headers of sticky chains
	header         http.Header       // those that say how the body is to be read, and that a rewriting reads
	idempotencyKey string
	requestID      string
	length         int64  // -1: not said
	clientRetries  int    // an official SDK says that this is its own retry of that number
	internal       string // x-llm-internal
	trace          Trace  // traceparent
	exchange       chain.Exchange
	ours           []string // names of headers of ours that are to be removed
}

func (h *head) path() string {
	p, _, _ := strings.Cut(h.target, "?")
	return p
}

func value(h *corev3.HeaderValue) string {
	if len(h.RawValue) > 0 {
		return string(h.RawValue)
	}
	return h.Value
}

func readHead(m *corev3.HeaderMap) head {
	h := head{length: -1, header: http.Header{}}
	for _, f := range m.GetHeaders() {
		switch f.Key {
		case ":method":
			h.method = value(f)
		case ":path":
			h.target = value(f)
		case "content-length":
			if n, err := strconv.ParseInt(value(f), 10, 64); err == nil {
				h.length = n
			}
		case "idempotency-key":
			h.idempotencyKey = value(f)
		case "cache-control":
			h.noStore = h.noStore || strings.Contains(strings.ToLower(value(f)), "no-store")
		case "x-request-id":
			h.requestID = value(f)
		case "traceparent":
			h.trace = traceOf(f)
		case "x-envoy-attempt-count":
			h.exchange.Attempt, _ = strconv.Atoi(value(f))
		case "x-stainless-retry-count":
			h.clientRetries = retryCount(value(f))
		default:
			if strings.HasPrefix(f.Key, "x-llm-") {
				h.own(f)
			} else if slices.Contains(provider.Headers(), f.Key) || slices.Contains(keptHeaders(), f.Key) {
				h.header.Add(f.Key, value(f))
			}
		}
	}
	if h.exchange.ID == "" {
		h.exchange.ID = h.requestID
	}
	if h.exchange.Start.IsZero() {
		h.exchange.Start = time.Now()
	}
	return h
}

// keptHeaders are those that a queued request keeps, beside the ones that a rewriting reads.
func keptHeaders() []string {
	return []string{"content-type", "anthropic-version", "anthropic-beta", "openai-beta"}
}

// kept is the kept headers as they stand.
func (h *head) kept() map[string]string {
	kept := make(map[string]string, 4)
	for _, name := range keptHeaders() {
		if values := h.header.Values(name); len(values) > 0 {
			kept[name] = strings.Join(values, ",")
		}
	}
	return kept
}

// own reads a header of ours: from the client (chain, degrade) or set once by the front (exchange, start).
func (h *head) own(f *corev3.HeaderValue) {
	h.ours = append(h.ours, f.Key)
	switch f.Key {
	case "x-llm-chain":
		h.chain = value(f)
	case "x-llm-degrade":
		h.degrade = value(f)
	case "x-llm-tenant":
		h.tenant = value(f)
	case "x-llm-internal":
		h.internal = value(f)
	case "x-llm-exchange":
		h.exchange.ID = value(f)
	case "x-llm-start":
		if ms, err := strconv.ParseInt(value(f), 10, 64); err == nil {
			h.exchange.Start = time.UnixMilli(ms)
		}
	}
}
