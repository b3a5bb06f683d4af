package classify

import "strings"

// cloudRows are the errors of Google and AWS, who name what is wrong in words of their own beside the status: Google
// in error.status and a detail's reason, AWS in the name of an exception.
var cloudRows = []row{
	// Google: what only the message tells.
	{text: "api key not valid", class: Auth, source: "8: an invalid key is a 400"},
	{text: "credits are depleted", class: Quota, source: "general knowledge: Gemini 429, prepayment"},
	{token: "FAILED_PRECONDITION", text: "billing", class: Quota, source: "8: 400 FAILED_PRECONDITION, billing"},
	{token: "FAILED_PRECONDITION", text: "location is not supported", class: Auth, source: "8: 400 FAILED_PRECONDITION, region"},
	{token: "FAILED_PRECONDITION", text: "not allowed to use publisher model", class: Auth, source: "4: 400 FAILED_PRECONDITION"},
	{text: "exceeds the maximum number of tokens allowed", rank: caller, class: ContextLength, source: "general knowledge: Gemini 400"},

	// Google: reasons.
	{token: "API_KEY_INVALID", class: Auth, source: "8: an invalid key is a 400"},
	{token: "BILLING_DISABLED", class: Quota, honest: 403, source: "general knowledge: google.api.ErrorReason"},

	// Google: statuses.
	{token: "UNAUTHENTICATED", class: Auth, source: "8: 401"},
	{token: "PERMISSION_DENIED", class: Auth, honest: 403, source: "8: 403"},
	{token: "DEADLINE_EXCEEDED", class: Timeout, source: "8: 504"},
	{token: "CANCELLED", class: Canceled, source: "8: 499"},
	{token: "RESOURCE_EXHAUSTED", rank: bare, class: RateLimited, source: "8: 429, and 402 for money"},
	{token: "UNAVAILABLE", rank: bare, class: Overloaded, honest: 503, source: "8: 503"},
	{token: "INTERNAL", rank: bare, class: ServerError, source: "8: 500"},
	{token: "INVALID_ARGUMENT", rank: bare, class: Invalid, source: "8: 400"},
	{token: "FAILED_PRECONDITION", rank: bare, class: Invalid, source: "8: 400"},
	{token: "NOT_FOUND", rank: bare, class: Invalid, honest: 404, source: "8: 404"},
	{token: "quota_exceeded", class: RateLimited, source: "8: 429 per day"},
	{token: "too_many_requests", class: RateLimited, source: "8: 429"},

	// AWS: what only the message tells.
	{token: "ValidationException", text: "input is too long", class: ContextLength, source: "general knowledge: Bedrock 400"},
	{text: "use case details have not been submitted", class: Auth, source: "2a: 404, the use-case form"},

	// AWS: the model. A model error that hides an overload is one.
	{token: "ModelErrorException", origin: 529, class: Overloaded, honest: 424, source: "2a: originalStatusCode; 1a: 529"},
	{token: "ModelErrorException", origin: 503, class: Overloaded, honest: 424, source: "2a: originalStatusCode; 5a: 503"},
	{token: "ModelErrorException", class: ServerError, honest: 424, source: "2a: 424"},
	{token: "ModelStreamErrorException", origin: 529, class: Overloaded, honest: 424, source: "2a: originalStatusCode; 1a: 529"},
	{token: "ModelStreamErrorException", origin: 503, class: Overloaded, honest: 424, source: "2a: originalStatusCode; 5a: 503"},
	{token: "ModelStreamErrorException", class: ServerError, honest: 424, source: "2a: 424"},
	{token: "ModelTimeoutException", class: Timeout, honest: 408, source: "2a: 408"},
	{token: "ModelNotReadyException", class: Overloaded, honest: 429, source: "2a: 429, the model is cold"},

	// AWS: the service.
	{token: "InternalServerException", class: ServerError, source: "2a: 500"},
	{token: "InternalFailure", class: ServerError, source: "2a: 500"},
	{token: "ServiceUnavailableException", class: Overloaded, honest: 503, source: "2a: 503"},
	{token: "ServiceUnavailable", class: Overloaded, honest: 503, source: "2a: 503, the name of AWS's common errors"},
	{token: "ThrottlingException", class: RateLimited, source: "2a: 429"},
	{token: "ServiceQuotaExceededException", class: RateLimited, honest: 400, source: "2a: 400, the account's quota; not money"},

	// AWS: keys and permissions, also as 400.
	{token: "AccessDeniedException", class: Auth, honest: 403, source: "2a: 403; in older copies of the docs 400"},
	{token: "FTUFormNotFilled", class: Auth, honest: 404, source: "2a: 404, the use-case form"},
	{token: "InvalidClientTokenId", class: Auth, honest: 403, source: "2a: 403"},
	{token: "UnrecognizedClientException", class: Auth, honest: 403, source: "general knowledge: AWS 403"},
	{token: "InvalidSignatureException", class: Auth, honest: 403, source: "general knowledge: AWS 403"},
	{token: "ExpiredTokenException", class: Auth, honest: 403, source: "general knowledge: AWS 403"},
	{token: "IncompleteSignature", class: Auth, honest: 400, source: "2a: 400"},
	{token: "IncompleteSignatureException", class: Auth, honest: 400, source: "2a: 400"},
	{token: "NotAuthorized", class: Auth, honest: 400, source: "2a: 400"},
	{token: "RequestExpired", class: Auth, honest: 400, source: "2a: 400"},
	{token: "MPAgreementBeingCreated", class: Auth, honest: 403, source: "2a: 403, the marketplace; passes"},

	// AWS: the request.
	{token: "ValidationException", rank: bare, class: Invalid, source: "2a: 400"},
	{token: "ValidationError", rank: bare, class: Invalid, source: "2a: 400, the name in the docs"},
	{token: "ConflictException", rank: bare, class: Invalid, source: "2a: 400"},
	{token: "InvalidAction", rank: bare, class: Invalid, source: "2a: 400"},
	{token: "ResourceNotFoundException", rank: bare, class: Invalid, honest: 404, source: "2a: 404"},
}

// exceptionName is the plain name of an AWS error: "cut after first ':', keep after '#'" (wire-formats 2a). In the
// headers of a frame it starts with a small letter, in a body with a capital one; it is written as in a body.
func exceptionName(s string) string {
	s, _, _ = strings.Cut(s, ":")
	if _, behind, found := strings.Cut(s, "#"); found {
		s = behind
	}
	if strings.HasSuffix(s, "Exception") {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}
