package classify

// requestRows are the codes that say what exactly is wrong with a request. Their class is that of the status they come
// with; inside a stream, where there is none, they tell it.
var requestRows = []row{
	// Anthropic's error.details.error_code.
	{token: "available_tools_limit_exceeded", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "claude_code_version_too_old", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_block_ambiguous", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_block_misplaced", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_content_mismatch", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_incomplete_turn", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_nothing_to_summarize", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_signature_invalid", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_too_many_tool_references", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "compaction_tool_changes_mismatch", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "image_dimensions_too_large", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "request_body_encoding_invalid", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "request_body_encoding_unsupported", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "thread_already_continued", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "thread_continue_in_flight", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "thread_fingerprint_mismatch", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "thread_unsupported_request", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "tool_name_conflict", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "tool_reference_unresolved", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "user_profile_required", rank: caller, class: Invalid, source: "1a: error_code at 400"},
	{token: "thread_not_found", rank: caller, class: Invalid, honest: 404, source: "1a: error_code at 404"},
	{token: "skill_read_blocked_undecryptable", rank: caller, class: Invalid, honest: 409, source: "1a: error_code at 409"},
	{token: "request_body_too_large_after_decoding", rank: caller, class: Invalid, honest: 413, source: "1a: error_code at 413"},
	{token: "memory_precondition_failed_error", rank: caller, class: Invalid, honest: 409, source: "1a: error.type of the SDK's enum"},
	{token: "memory_path_conflict_error", rank: caller, class: Invalid, honest: 409, source: "1a: error.type of the SDK's enum"},

	// Azure.
	{token: "DeploymentNotFound", rank: caller, class: Invalid, honest: 404, source: "7: 404"},

	// OpenRouter's error.metadata.error_type.
	{token: "invalid_request", rank: caller, class: Invalid, source: "9: OpenRouter metadata.error_type"},
	{token: "not_found", rank: caller, class: Invalid, honest: 404, source: "9: OpenRouter metadata.error_type"},
	{token: "precondition_failed", rank: caller, class: Invalid, honest: 412, source: "9: OpenRouter metadata.error_type"},
	{token: "payload_too_large", rank: caller, class: Invalid, honest: 413, source: "9: OpenRouter metadata.error_type"},
	{token: "unprocessable", rank: caller, class: Invalid, honest: 422, source: "9: OpenRouter metadata.error_type"},
	{token: "max_tokens_exceeded", rank: caller, class: Invalid, source: "9: OpenRouter metadata.error_type"},
	{token: "token_limit_exceeded", rank: caller, class: Invalid, source: "9: OpenRouter metadata.error_type"},
}
