package classify

import (
	"slices"
	"strconv"
	"strings"
)

// trouble is an error as a provider told it.
type trouble struct {
	status     int    // the HTTP status it came with
	code, kind string // error.code and error.type, or what stands for them
	inner      string // what is behind the code
	origin     int    // the status behind a model's error
	text       string // the message, in lower case; never shown
	tier       string // the tier that was asked for
}

// troubleOf gathers what the current body or event says of its error.
func troubleOf(f *facts, status int, tier string) trouble {
	t := trouble{
		status: status,
		code:   first(exceptionName(f.text(factErrorName)), f.text(factErrorCode), f.text(factFlatCode)),
		kind:   exceptionName(f.text(factErrorType)), // SDKs and gateways put Bedrock's there (2b)
		inner:  f.text(factErrorInner),
		text:   strings.ToLower(first(f.text(factErrorText), f.text(factFlatText))),
		tier:   tier,
	}
	// A flat error has its type at the top: Mistral's; on the Responses API that type is only "error".
	if flat := f.text(factType); t.kind == "" && flat != "error" && !strings.HasPrefix(flat, "response.") {
		t.kind = flat
	}
	// Google's status is a word, and the code a number.
	if word := f.text(factErrorStatus); t.kind == "" && inBand(word) == 0 {
		t.kind = word
	}
	t.origin, _ = strconv.Atoi(f.text(factOrigin))
	if answer(status) {
		t.status = inBand(t.code, f.text(factErrorCode), f.text(factErrorStatus), f.text(factStatus))
	}
	return t
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// inBand finds the HTTP status that an error on a success status would have had: OpenRouter, vLLM and Gemini give it
// as the code. 0 if none says.
func inBand(texts ...string) int {
	for _, s := range texts {
		if n, err := strconv.Atoi(s); err == nil && n >= 400 && n <= 599 {
			return n
		}
	}
	return 0
}

// rank is when a row holds against the status.
type rank uint8

const (
	always rank = iota // the code beats the status
	caller             // where the status blames the caller, or there is none: what exactly is wrong with the request
	bare               // where there is no status: the type is coarse, and its status says more
)

// row is one fact: an error with this code or type (token), with these words in its message (text), at this status
// and for this asked tier is of this class. What a row leaves empty is not looked at. The first row that fits decides.
type row struct {
	token, text string
	status      int
	tier        string
	origin      int
	rank        rank
	class       Class
	honest      int    // the status, where the class's own does not fit
	source      string // section of wire-formats
}

// rows are the facts known of errors, in the order they are looked at: those that beat a status, then what exactly is
// wrong with a request.
var rows = slices.Concat(codeRows, cloudRows, requestRows)

// codeRows are the facts that beat a status, and the types that say less than one.
var codeRows = []row{
	// What only the message tells.
	{text: "reached your specified", class: Quota, source: "1a: 400 and 429, a spend limit you set"},
	{text: "credit balance is too low", class: Quota, source: "general knowledge: Anthropic 400"},
	{text: "insufficient balance", class: Quota, source: "9: DeepSeek 402; others as error string"},
	{token: "authentication_error", text: "cors requests are not allowed", class: Invalid, source: "1a: an Origin header, not the key"},
	{token: "server_error", text: "overloaded", class: Overloaded, source: "6: servers are currently overloaded"},
	{text: "service tier capacity exceeded", class: Overloaded, source: "9: Mistral 429 and 503, not your quota"},
	{text: "resource unavailable", status: 429, class: Capacity, source: "5a: 429 Resource Unavailable, flex"},
	{text: "experiencing high demand", status: 429, class: Overloaded, source: "7: Azure 429, the provider's capacity"},
	{text: "temporarily unable to process", status: 429, class: Overloaded, source: "7: Azure 429, the provider's capacity"},
	{text: "flagged", status: 403, class: Filtered, source: "9: OpenRouter 403 moderation"},
	{token: "invalid_prompt", text: "usage polic", class: Filtered, source: "6: invalid_prompt; general knowledge: flagged as against the usage policy"},
	{text: "prompt is too long", rank: caller, class: ContextLength, source: "general knowledge: Anthropic 400; 4: Vertex 413"},
	{text: "exceed context limit", rank: caller, class: ContextLength, source: "general knowledge: Anthropic 400, input and max_tokens"},
	{text: "maximum context length", rank: caller, class: ContextLength, source: "general knowledge: OpenAI, vLLM 400"},

	// Money.
	{token: "insufficient_quota", class: Quota, source: "5a"},
	{token: "credit_balance_exhausted", class: Quota, source: "5a"},
	{token: "organization_spend_limit_exceeded", class: Quota, source: "5a"},
	{token: "project_spend_limit_exceeded", class: Quota, source: "5a"},
	{token: "organization_usage_limit_exceeded", class: Quota, source: "5a"},
	{token: "billing_hard_limit_reached", class: Quota, source: "5a"},
	{token: "contract_spend_limit_reached", class: Quota, source: "1a: error_code at 429"},
	{token: "enforced_spend_limit_reached", class: Quota, source: "1a: error_code at 429"},
	{token: "linked_organization_billing_unavailable", class: Quota, source: "1a: error_code at 402"},
	{token: "linked_organization_spend_limit_reached", class: Quota, source: "1a: error_code at 402"},
	{token: "user_profile_billing_not_authorized", class: Quota, source: "1a: error_code at 403"},
	{token: "user_profile_not_billable", class: Quota, source: "1a: error_code at 403"},
	{token: "openrouter_in_flight_budget", class: RateLimited, source: "9: OpenRouter 402 in_flight_budget, with a Retry-After: it passes"},
	{token: "payment_required", class: Quota, source: "9: OpenRouter metadata.error_type"},

	// Capacity of a discounted tier.
	{token: "resource_unavailable", class: Capacity, source: "5a: flex 429, not charged"},
	{token: "capacity_exceeded", class: Capacity, source: "9: Groq 498, flex full"},
	{status: 498, class: Capacity, honest: 498, source: "9: Groq 498, flex full"},
	{status: 408, tier: "flex", class: Capacity, source: "5d: flex may also end in 408"},

	// Overload.
	{token: "overloaded_error", class: Overloaded, source: "1a"},
	{token: "server_is_overloaded", class: Overloaded, source: "5a"},
	{token: "service_unavailable_error", class: Overloaded, source: "5a"},
	{token: "compaction_unavailable", class: Overloaded, source: "1a: error_code at 529"},
	{token: "3505", class: Overloaded, source: "9: Mistral service tier capacity"},
	{token: "insufficient_system_resource", class: Overloaded, source: "9: DeepSeek"},
	{token: "provider_overloaded", class: Overloaded, source: "9: OpenRouter metadata.error_type"},

	// Rate limits.
	{token: "rate_limit_exceeded", class: RateLimited, source: "5a, 6"},
	{token: "slow_down", class: RateLimited, source: "5a: 429 and 503, ramped too fast"},
	{token: "ramp_limit_exceeded", class: RateLimited, source: "1a: error_code at 429"},
	{token: "1300", class: RateLimited, source: "9: Mistral"},
	{token: "rate_limited", class: RateLimited, source: "9: Mistral"},

	// Filters.
	{token: "ResponsibleAIPolicyViolation", class: Filtered, source: "7: innererror of a prompt filter's 400"},
	{token: "content_filter", class: Filtered, source: "5c; 7: 400"},
	{token: "content_policy_violation", class: Filtered, source: "general knowledge: OpenAI 400"},
	{token: "image_content_policy_violation", class: Filtered, source: "6"},
	{token: "bio_policy", class: Filtered, source: "6"},
	{token: "cyber_policy", class: Filtered, source: "6"},
	{token: "misalignment_policy_violation", class: Filtered, source: "6"},

	// Keys and permissions, also as 400.
	{token: "claude_code_key_creator_not_member", class: Auth, source: "1a: error_code at 400, the key's owner has left"},
	{token: "authentication", class: Auth, source: "9: OpenRouter metadata.error_type"},
	{token: "permission_denied", class: Auth, honest: 403, source: "9: OpenRouter metadata.error_type"},
	{token: "invalid_api_key", class: Auth, source: "5a"},
	{token: "organization_on_hold", class: Auth, source: "1a: error_code at 400, organisation disabled"},
	{token: "cmek_key_disabled", class: Auth, source: "1a: error_code at 400, the organisation's own key"},
	{token: "cmek_key_network_blocked", class: Auth, source: "1a: error_code at 400, the organisation's own key"},

	// The request.
	{token: "context_length_exceeded", class: ContextLength, source: "5a, 6"},
	{token: "invalid_prompt", class: Invalid, source: "5a, 6"},
	{token: "model_not_found", class: Invalid, honest: 404, source: "5a"},
	{token: "data_residency_mismatch", class: Invalid, source: "6"},
	{token: "invalid_image", class: Invalid, source: "6"},
	{token: "invalid_image_format", class: Invalid, source: "6"},
	{token: "invalid_base64_image", class: Invalid, source: "6"},
	{token: "invalid_image_url", class: Invalid, source: "6"},
	{token: "image_too_large", class: Invalid, source: "6"},
	{token: "image_too_small", class: Invalid, source: "6"},
	{token: "image_parse_error", class: Invalid, source: "6"},
	{token: "invalid_image_mode", class: Invalid, source: "6"},
	{token: "image_file_too_large", class: Invalid, source: "6"},
	{token: "unsupported_image_media_type", class: Invalid, source: "6"},
	{token: "empty_image_file", class: Invalid, source: "6"},
	{token: "failed_to_download_image", class: Invalid, source: "6"},
	{token: "image_file_not_found", class: Invalid, source: "6"},

	// The provider.
	{token: "vector_store_timeout", class: Timeout, source: "6"},
	{token: "cmek_key_unreachable", class: ServerError, source: "1a: error_code at 503"},
	{token: "cmek_context_unavailable", class: ServerError, honest: 503, source: "1a: error_code at 503, other endpoints"},
	{token: "authorization_check_unavailable", class: ServerError, honest: 503, source: "1a: error_code at 503, other endpoints"},
	{token: "change_outcome_unknown", class: ServerError, honest: 503, source: "1a: error_code at 503, other endpoints"},
	{token: "provider_unavailable", class: ServerError, honest: 502, source: "9: OpenRouter metadata.error_type"},
	{token: "timeout", class: Timeout, source: "9: OpenRouter metadata.error_type"},
	{token: "cf_bad_gateway", class: ServerError, honest: 502, source: "13.3"},
	{token: "auth_subrequest_error", class: ServerError, source: "13.3"},

	// Types that say what they are at any status.
	{token: "billing_error", class: Quota, source: "1a"},
	{token: "rate_limit_error", class: RateLimited, source: "1a, 5a"},
	{token: "authentication_error", class: Auth, source: "1a"},
	{token: "permission_error", class: Auth, honest: 403, source: "1a"},
	{token: "timeout_error", class: Timeout, source: "1a"},

	// Types that say less than a status.
	{token: "api_error", rank: bare, class: ServerError, source: "1a"},
	{token: "server_error", rank: bare, class: ServerError, source: "5a, 6"},
	{token: "invalid_request_error", rank: bare, class: Invalid, source: "1a, 5a"},
	{token: "not_found_error", rank: bare, class: Invalid, honest: 404, source: "1a"},
	{token: "request_too_large", rank: bare, class: Invalid, honest: 413, source: "1a"},
	{token: "conflict_error", rank: bare, class: Invalid, honest: 409, source: "1a"},
	{token: "BadRequestError", rank: bare, class: Invalid, source: "9: vLLM"},
	{token: "NotFoundError", rank: bare, class: Invalid, honest: 404, source: "general knowledge: vLLM"},
	{token: "InternalServerError", rank: bare, class: ServerError, source: "general knowledge: vLLM"},
	{token: "server", rank: bare, class: ServerError, source: "9: OpenRouter metadata.error_type"},

	// A status that only one kind of server sends.
	{status: 499, class: Canceled, source: "9: Groq 499, cancelled by the caller (general knowledge)"},
}

// fits reports whether the row holds for t.
func (w *row) fits(t trouble) bool {
	return (w.token == "" || w.token == t.code || w.token == t.kind || w.token == t.inner) &&
		(w.text == "" || strings.Contains(t.text, w.text)) &&
		(w.status == 0 || w.status == t.status) &&
		(w.tier == "" || w.tier == t.tier) &&
		(w.origin == 0 || w.origin == t.origin) &&
		(w.rank == always || t.status == 0 || w.rank == caller && statusClass(t.status) == Invalid)
}

// classify finds the class of an error and the status it would honestly have. told says that the error itself told
// the class, not only its status.
func (d *dialect) classify(t trouble) (c Class, status int, told bool) {
	for i := range rows {
		if w := &rows[i]; w.fits(t) {
			return w.class, firstStatus(t.status, w.honest, d.honest(w.class)), w.token != "" || w.text != ""
		}
	}
	c = statusClass(t.status)
	return c, firstStatus(t.status, d.honest(c)), false
}

func firstStatus(statuses ...int) int {
	for _, s := range statuses {
		if s != 0 {
			return s
		}
	}
	return 0
}

// statusClass is what a status says by itself. 0 is an error in a success answer that says nothing of itself.
func statusClass(status int) Class {
	switch {
	case status == 0:
		return ServerError
	case status == 529, status == 503:
		return Overloaded
	case status == 408:
		return Timeout
	case status == 429:
		return RateLimited
	case status == 402:
		return Quota
	case status == 401, status == 403:
		return Auth
	case status >= 400 && status < 500:
		return Invalid
	case status >= 500 && status < 600:
		return ServerError
	}
	return Malformed
}

// honest is the status of an answer of class c that has none of its own.
func (d *dialect) honest(c Class) int {
	switch c {
	case Overloaded:
		return d.overloaded
	case Quota:
		return d.money
	case ServerError:
		return 500
	case Timeout:
		return 504
	case Transport:
		return 503
	case Truncated, Malformed:
		return 502
	case RateLimited, Capacity:
		return 429
	case Auth:
		return 401
	case Invalid, ContextLength, Filtered:
		return 400
	case Canceled:
		return 499 // nginx's "client closed request"
	}
	return 200
}

// detail is the error's own name for itself: its code, else its type, else what is behind them.
func (t trouble) detail() string {
	for _, s := range []string{t.code, t.kind, t.inner} {
		if _, err := strconv.Atoi(s); err != nil && plainName(s) {
			return s
		}
	}
	if plainName(t.code) {
		return t.code
	}
	if t.status == 0 {
		return "error"
	}
	return "status " + strconv.Itoa(t.status)
}

// plainName reports whether s is a name rather than a text, which might hold content.
func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_-.:", c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
