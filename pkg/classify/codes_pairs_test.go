package classify

import (
	"fmt"
	"strings"
	"testing"
)

// pairs are the (status, type, code) pairs of wire-formats, one a line: section, API, status, type, code, class, honest
// status; - is none, status 200 is inside a stream. A section goes on until the next.
const pairs = `
1a anthropic 400 invalid_request_error - invalid 400
.  anthropic 401 authentication_error - auth 401
.  anthropic 402 billing_error - quota 402
.  anthropic 403 permission_error - auth 403
.  anthropic 404 not_found_error - invalid 404
.  anthropic 409 conflict_error - invalid 409
.  anthropic 413 request_too_large - invalid 413
.  anthropic 429 rate_limit_error - rate_limited 429
.  anthropic 500 api_error - server_error 500
.  anthropic 504 timeout_error - timeout 504
.  anthropic 529 overloaded_error - overloaded 529
.  anthropic 409 memory_precondition_failed_error - invalid 409
.  anthropic 409 memory_path_conflict_error - invalid 409
.  anthropic 400 invalid_request_error available_tools_limit_exceeded invalid 400
.  anthropic 400 invalid_request_error claude_code_key_creator_not_member auth 400
.  anthropic 400 invalid_request_error claude_code_version_too_old invalid 400
.  anthropic 400 invalid_request_error cmek_key_disabled auth 400
.  anthropic 400 invalid_request_error cmek_key_network_blocked auth 400
.  anthropic 400 invalid_request_error compaction_block_ambiguous invalid 400
.  anthropic 400 invalid_request_error compaction_block_misplaced invalid 400
.  anthropic 400 invalid_request_error compaction_content_mismatch invalid 400
.  anthropic 400 invalid_request_error compaction_incomplete_turn invalid 400
.  anthropic 400 invalid_request_error compaction_nothing_to_summarize invalid 400
.  anthropic 400 invalid_request_error compaction_signature_invalid invalid 400
.  anthropic 400 invalid_request_error compaction_too_many_tool_references invalid 400
.  anthropic 400 invalid_request_error compaction_tool_changes_mismatch invalid 400
.  anthropic 400 invalid_request_error image_dimensions_too_large invalid 400
.  anthropic 400 invalid_request_error organization_on_hold auth 400
.  anthropic 400 invalid_request_error request_body_encoding_invalid invalid 400
.  anthropic 400 invalid_request_error request_body_encoding_unsupported invalid 400
.  anthropic 400 invalid_request_error thread_already_continued invalid 400
.  anthropic 400 invalid_request_error thread_continue_in_flight invalid 400
.  anthropic 400 invalid_request_error thread_fingerprint_mismatch invalid 400
.  anthropic 400 invalid_request_error thread_unsupported_request invalid 400
.  anthropic 400 invalid_request_error tool_name_conflict invalid 400
.  anthropic 400 invalid_request_error tool_reference_unresolved invalid 400
.  anthropic 400 invalid_request_error user_profile_required invalid 400
.  anthropic 402 billing_error linked_organization_billing_unavailable quota 402
.  anthropic 402 billing_error linked_organization_spend_limit_reached quota 402
.  anthropic 403 permission_error user_profile_billing_not_authorized quota 403
.  anthropic 403 permission_error user_profile_not_billable quota 403
.  anthropic 404 not_found_error thread_not_found invalid 404
.  anthropic 409 conflict_error skill_read_blocked_undecryptable invalid 409
.  anthropic 413 request_too_large request_body_too_large_after_decoding invalid 413
.  anthropic 429 rate_limit_error contract_spend_limit_reached quota 429
.  anthropic 429 rate_limit_error enforced_spend_limit_reached quota 429
.  anthropic 429 rate_limit_error ramp_limit_exceeded rate_limited 429
.  anthropic 503 api_error cmek_key_unreachable server_error 503
.  anthropic 503 api_error cmek_context_unavailable server_error 503
.  anthropic 503 api_error change_outcome_unknown server_error 503
.  anthropic 503 api_error authorization_check_unavailable server_error 503
.  anthropic 529 overloaded_error compaction_unavailable overloaded 529
1b anthropic 200 overloaded_error - overloaded 529
.  anthropic 200 api_error - server_error 500
.  anthropic 200 invalid_request_error - invalid 400
.  anthropic 200 request_too_large - invalid 413
.  anthropic 200 conflict_error - invalid 409
.  anthropic 200 conflict_error skill_read_blocked_undecryptable invalid 409
.  anthropic 200 rate_limit_error enforced_spend_limit_reached quota 402
5a chat 400 invalid_request_error - invalid 400
.  chat 400 invalid_request_error context_length_exceeded context_length 400
.  chat 400 invalid_request_error invalid_prompt invalid 400
.  chat 401 invalid_request_error invalid_api_key auth 401
.  chat 401 invalid_request_error - auth 401
.  chat 400 invalid_request_error invalid_api_key auth 400
.  chat 403 invalid_request_error unsupported_country_region_territory auth 403
.  chat 404 invalid_request_error model_not_found invalid 404
.  chat 408 - - timeout 408
.  chat 409 - - invalid 409
.  chat 429 rate_limit_error rate_limit_exceeded rate_limited 429
.  chat 429 tokens rate_limit_exceeded rate_limited 429
.  chat 429 requests rate_limit_exceeded rate_limited 429
.  chat 429 rate_limit_error slow_down rate_limited 429
.  chat 429 insufficient_quota insufficient_quota quota 429
.  chat 429 insufficient_quota credit_balance_exhausted quota 429
.  chat 429 insufficient_quota organization_spend_limit_exceeded quota 429
.  chat 429 insufficient_quota project_spend_limit_exceeded quota 429
.  chat 429 insufficient_quota organization_usage_limit_exceeded quota 429
.  chat 429 insufficient_quota billing_hard_limit_reached quota 429
.  chat 429 - resource_unavailable capacity 429
.  chat 500 server_error - server_error 500
.  chat 503 service_unavailable_error server_is_overloaded overloaded 503
.  chat 503 server_error slow_down rate_limited 503
5b chat 200 server_error - server_error 500
.  chat 200 insufficient_quota insufficient_quota quota 429
.  chat 200 - server_is_overloaded overloaded 503
.  chat 200 - model_not_found invalid 404
6  responses 200 - server_error server_error 500
.  responses 200 - rate_limit_exceeded rate_limited 429
.  responses 200 - invalid_prompt invalid 400
.  responses 200 - data_residency_mismatch invalid 400
.  responses 200 - bio_policy filtered 400
.  responses 200 - cyber_policy filtered 400
.  responses 200 - misalignment_policy_violation filtered 400
.  responses 200 - vector_store_timeout timeout 504
.  responses 200 - invalid_image invalid 400
.  responses 200 - invalid_image_format invalid 400
.  responses 200 - invalid_base64_image invalid 400
.  responses 200 - invalid_image_url invalid 400
.  responses 200 - image_too_large invalid 400
.  responses 200 - image_too_small invalid 400
.  responses 200 - image_parse_error invalid 400
.  responses 200 - image_content_policy_violation filtered 400
.  responses 200 - invalid_image_mode invalid 400
.  responses 200 - image_file_too_large invalid 400
.  responses 200 - unsupported_image_media_type invalid 400
.  responses 200 - empty_image_file invalid 400
.  responses 200 - failed_to_download_image invalid 400
.  responses 200 - image_file_not_found invalid 400
.  responses 200 - context_length_exceeded context_length 400
.  responses 200 - insufficient_quota quota 429
7  chat 400 - content_filter filtered 400
.  chat 403 - content_filter filtered 403
.  chat 401 - 401 auth 401
.  chat 404 - DeploymentNotFound invalid 404
.  chat 429 - 429 rate_limited 429
.  chat 503 - - overloaded 503
.  chat 400 invalid_request_error - invalid 400
.  responses 200 - DeploymentNotFound invalid 404
9  chat 400 BadRequestError 400 invalid 400
.  chat 200 BadRequestError 400 invalid 400
.  chat 200 - 500 server_error 500
.  chat 200 InternalServerError - server_error 500
.  chat 200 NotFoundError - invalid 404
.  chat 429 rate_limited 1300 rate_limited 429
.  chat 429 invalid_request_error 3505 overloaded 429
.  chat 503 invalid_request_error 3505 overloaded 503
.  chat 422 - - invalid 422
.  chat 429 tokens rate_limit_exceeded rate_limited 429
.  chat 498 capacity_exceeded capacity_exceeded capacity 498
.  chat 498 - - capacity 498
.  chat 413 invalid_request_error request_too_large invalid 413
.  chat 424 - - invalid 424
.  chat 499 - - canceled 499
.  chat 502 - - server_error 502
.  chat 402 unknown_error invalid_request_error quota 402
.  chat 503 service_unavailable_error - overloaded 503
.  chat 400 invalid_request 400 invalid 400
.  chat 401 authentication 401 auth 401
.  chat 402 payment_required 402 quota 402
.  chat 403 permission_denied 403 auth 403
.  chat 404 not_found 404 invalid 404
.  chat 408 timeout 408 timeout 408
.  chat 413 payload_too_large 413 invalid 413
.  chat 422 unprocessable 422 invalid 422
.  chat 429 rate_limit_exceeded 429 rate_limited 429
.  chat 502 provider_unavailable 502 server_error 502
.  chat 503 provider_overloaded 503 overloaded 503
.  chat 200 precondition_failed - invalid 412
.  chat 200 max_tokens_exceeded - invalid 400
.  chat 200 token_limit_exceeded - invalid 400
.  chat 200 server - server_error 500
.  chat 200 content_policy_violation - filtered 400
13 chat 502 cf_bad_gateway - server_error 502
.  chat 500 auth_subrequest_error - server_error 500
.  chat 400 None 400 invalid 400
`

func TestEveryPairOfTheReferenceHasItsClass(t *testing.T) {
	section := ""
	for line := range strings.SplitSeq(strings.TrimSpace(pairs), "\n") {
		var s, api, kind, code, class string
		var status, honest int
		if _, err := fmt.Sscan(line, &s, &api, &status, &kind, &code, &class, &honest); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if s != "." {
			section = s
		}
		v := pairVerdict(t, api, status, none(kind), none(code))
		if v.Class.String() != class || v.Status != honest {
			t.Errorf("%s: %s %d, type %s, code %s = %v, status %d, want %s, %d", section, api, status, kind, code, v.Class, v.Status, class, honest)
		}
	}
}

func none(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// pairVerdict reads an error with this type and code in the API's own shape.
func pairVerdict(t *testing.T, api string, status int, kind, code string) Verdict {
	t.Helper()
	body := fmt.Sprintf(`{"error":{"message":"m","type":%q,"param":null,"code":%q}}`, kind, code)
	switch {
	case api == "anthropic":
		body = fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"m","details":{"error_code":%q}}}`, kind, code)
	case api == "responses" && status == 200:
		body = fmt.Sprintf(`{"type":"response.failed","response":{"status":"failed","error":{"code":%q,"message":"m"}}}`, code)
	}
	get := headers("content-type", "application/json")
	if status == 200 {
		body, get = "data: "+body+"\n\n", eventStream
	}
	r := New(Options{API: fixtureAPIs[api]})
	r.Header(status, get)
	r.Feed([]byte(body))
	return r.End(true)
}

func TestAnUnknownCodeFallsToTheStatus(t *testing.T) {
	for _, api := range []string{"anthropic", "chat", "responses"} {
		for status := 400; status < 600; status++ {
			if status == 498 || status == 499 {
				continue // only one kind of server sends them: they are rows
			}
			if v := pairVerdict(t, api, status, "brand_new_error", "brand_new_code"); v.Class != statusClass(status) || v.Status != status {
				t.Errorf("%s %d with an unknown code = %v, %d, want %v", api, status, v.Class, v.Status, statusClass(status))
			}
		}
		if v := pairVerdict(t, api, 200, "brand_new_error", "brand_new_code"); v.Class != ServerError {
			t.Errorf("%s: an unknown code inside a stream = %v, want %v", api, v.Class, ServerError)
		}
	}
}
