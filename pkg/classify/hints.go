package classify

import (
	"strings"
	"time"
)

// hints is what the headers of one response say.
//
// Read are content-type and content-encoding; request-id, x-request-id, x-generation-id (OpenRouter), apim-request-id
// (Azure), x-amzn-requestid, x-amz-request-id; x-amzn-errortype; retry-after, retry-after-ms, x-ms-retry-after-ms, x-should-retry; the reset and remaining times of the rate
// limits; x-amzn-bedrock-service-tier, x-gemini-service-tier, x-ms-is-spilled-over and x-ms-spillover-from-deployment (Azure); date, where the caller has no clock.
type hints struct {
	eventStream  bool // what the content type says
	amazonStream bool // it says AWS's framing
	encoding     string
	requestID    string

	retryMS     int64 // the pause that is asked for
	retryTold   bool  // it is, even if it is 0
	resetMS     int64 // until the rate limits are full again, 0 if not told
	shouldRetry string
	servedTier  string // "same-named response header = served tier" (wire-formats 2c), Gemini's (8)
	errorName   string // AWS's name of an error
	spilled     bool   // provisioned throughput was full: the standard deployment answered
}

// readHints reads them. now is when they came; if zero, the Date header's time.
func readHints(get func(string) string, now time.Time) hints {
	if now.IsZero() {
		now, _ = parseDate(get("date"))
	}
	kind, _, _ := strings.Cut(get("content-type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	h := hints{
		eventStream:  kind == "text/event-stream",
		amazonStream: kind == "application/vnd.amazon.eventstream",
		encoding:     coding(get("content-encoding")),
		requestID: first(get("request-id"), get("x-request-id"), get("x-generation-id"), get("apim-request-id"),
			get("x-amzn-requestid"), get("x-amz-request-id")),
		servedTier:  first(get("x-amzn-bedrock-service-tier"), get("x-gemini-service-tier")),
		errorName:   get("x-amzn-errortype"),
		resetMS:     resetAfter(get, now),
		shouldRetry: strings.ToLower(get("x-should-retry")),
		spilled:     get("x-ms-spillover-from-deployment") != "" || strings.EqualFold(get("x-ms-is-spilled-over"), "true"),
	}
	h.retryMS, h.retryTold = retryAfter(get, now)
	return h
}

// coding is the content codings that have to be undone, "" for none, in the order they were applied.
func coding(header string) string {
	var names []string
	for name := range strings.SplitSeq(strings.ToLower(header), ",") {
		if name = strings.TrimSpace(name); name != "" && name != "identity" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// retry is x-should-retry, nil if it was not there or made no sense.
func (h *hints) retry() *bool {
	yes := h.shouldRetry == "true"
	if !yes && h.shouldRetry != "false" {
		return nil
	}
	return &yes
}

// pause is how long to keep away after an answer of class c, in milliseconds: what the headers ask for; if they do
// not, and it is a rate limit, until that is full again; if that is not told either, what the message says.
func (h *hints) pause(c Class, spokenMS int64) int64 {
	switch {
	case c == None, c == OK:
		return 0
	case h.retryTold:
		return h.retryMS
	case c == RateLimited && h.resetMS > 0:
		return h.resetMS
	case c == RateLimited, c == Overloaded, c == Capacity:
		return spokenMS
	}
	return 0
}
