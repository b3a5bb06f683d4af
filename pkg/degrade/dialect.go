// Package degrade writes the answers that are ours, not a provider's, in the caller's dialect, so that its official
// SDK reads them: errors (Error, Whole), the honest end of a stream that died (StreamEnd), a sentence as a good answer,
// streamed or not (Say), and with them the degraded modes (Ladder).
package degrade

import (
	"encoding/json"
	"net/http"

	"understudy/pkg/classify"
)

// Answer is a whole HTTP answer of ours.
type Answer struct {
	Status  int
	Body    []byte // application/json, unless the headers have a content-type
	Headers map[string]string
}

// Error is an error answer in the dialect of api. message is a sentence for people; it must not quote secrets
// or content. code is a stable word for programs.
func Error(api classify.API, status int, code, message string) Answer {
	return Answer{Status: status, Body: errorBody(api, status, code, message)}
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

type openAIError struct {
	Type  string          `json:"type,omitempty"` // "error" where the dialect is not known: both read it then
	Error openAIErrorBody `json:"error"`
}

type openAIErrorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// geminiError is what google.rpc.Status looks like over HTTP (wire-formats 8).
type geminiError struct {
	Error struct {
		Code    int    `json:"code"` // the HTTP status
		Message string `json:"message"`
		Status  string `json:"status"`
	} `json:"error"`
}

func errorBody(api classify.API, status int, code, message string) []byte {
	switch api {
	case classify.AnthropicMessages:
		e := anthropicError{Type: "error"}
		e.Error.Type, e.Error.Message = anthropicType(status), message
		return encode(e)
	case classify.Gemini:
		return encode(geminiErrorOf(status, message))
	}
	e := openAIError{Error: openAIErrorOf(status, code, message)}
	if api == classify.APIUnknown {
		e.Type, e.Error.Type = "error", anthropicType(status)
	}
	return encode(e)
}

func openAIErrorOf(status int, code, message string) openAIErrorBody {
	e := openAIErrorBody{Message: message, Type: openAIType(status)}
	if code != "" {
		e.Code = &code
	}
	return e
}

// geminiErrorOf has no place for a code of ours. A good status, behind which an answer failed, would be no error.
func geminiErrorOf(status int, message string) (e geminiError) {
	if status < 400 {
		status = http.StatusInternalServerError
	}
	e.Error.Code, e.Error.Message, e.Error.Status = status, message, geminiStatus(status)
	return e
}

// anthropicType is the error.type that Anthropic pairs with a status (docs api/errors).
func anthropicType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	case http.StatusServiceUnavailable, 529:
		return "overloaded_error"
	}
	if callersFault(status) {
		return "invalid_request_error"
	}
	return "api_error"
}

// geminiStatus is the google.rpc.Code that Google pairs with a status (its code.proto; wire-formats 8).
func geminiStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusConflict:
		return "ABORTED"
	case http.StatusPaymentRequired, http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case 499:
		return "CANCELLED"
	case http.StatusNotImplemented:
		return "UNIMPLEMENTED"
	case http.StatusServiceUnavailable, 529:
		return "UNAVAILABLE"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	if callersFault(status) {
		return "INVALID_ARGUMENT"
	}
	return "INTERNAL"
}

func openAIType(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusServiceUnavailable || status == 529:
		return "service_unavailable_error"
	case callersFault(status):
		return "invalid_request_error"
	}
	return "server_error"
}

// callersFault is false for a good status, too: an answer that fails behind one is not the caller's doing.
func callersFault(status int) bool { return status >= 400 && status < 500 }

// ours is what we write: structs of strings, numbers and the like, which cannot fail to be JSON.
type ours interface {
	anthropicError | openAIError | responseError | responseFailed | geminiError |
		anthropicMessage | anthropicEvent | anthropicDelta | chatCompletion | responseObject | responseEvent |
		geminiAnswer | plainAnswer | jobView
}

func encode[T ours](v T) []byte {
	b, _ := json.Marshal(v)
	return b
}
