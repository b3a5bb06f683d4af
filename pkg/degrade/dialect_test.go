package degrade

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"

	"understudy/pkg/classify"
)

var apis = []classify.API{classify.AnthropicMessages, classify.OpenAIChat, classify.OpenAIResponses, classify.Gemini, classify.APIUnknown}

func TestOurErrorsAreErrorsOfTheOfficialSDKs(t *testing.T) {
	rows := []struct {
		name              string
		status            int
		anthropic, openai string
	}{
		{"a bad request is another error", 400, "invalid_request_error", "invalid_request_error"},
		{"a wrong key is another error", 401, "authentication_error", "invalid_request_error"},
		{"missing money is another error", 402, "billing_error", "invalid_request_error"},
		{"a forbidden request is another error", 403, "permission_error", "invalid_request_error"},
		{"an unknown path is another error", 404, "not_found_error", "invalid_request_error"},
		{"a body too large is another error", 413, "request_too_large", "invalid_request_error"},
		{"an unusual caller's fault is another error", 422, "invalid_request_error", "invalid_request_error"},
		{"a rate limit is another error", 429, "rate_limit_error", "rate_limit_error"},
		{"a server's fault is the caller's", 500, "api_error", "server_error"},
		{"a bad gateway is the caller's fault", 502, "api_error", "server_error"},
		{"no target left is another error", 503, "overloaded_error", "service_unavailable_error"},
		{"a deadline is another error", 504, "timeout_error", "server_error"},
		{"an overload is another error", 529, "overloaded_error", "service_unavailable_error"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, api := range apis {
				a := Error(api, row.status, "a_code", `it "failed" <here>`)
				if a.Status != row.status {
					t.Errorf("Error(%d).Status = %d", row.status, a.Status)
				}
				s := newSDKs(t, a.Status, "application/json", a.Body)
				if api == classify.AnthropicMessages || api == classify.APIUnknown {
					readByAnthropic(t, s, row.status, row.anthropic)
				}
				switch api {
				case classify.OpenAIChat, classify.OpenAIResponses:
					readByOpenAI(t, s, api, row.status, row.openai)
				case classify.APIUnknown:
					readByOpenAI(t, s, api, row.status, row.anthropic)
				}
			}
		})
	}
}

func readByAnthropic(t *testing.T, s *sdks, status int, kind string) {
	t.Helper()
	err := s.ask(classify.AnthropicMessages)
	var e *anthropic.Error
	if !errors.As(err, &e) || e.StatusCode != status || string(e.Type()) != kind || e.Message != `it "failed" <here>` {
		t.Errorf("anthropic reads %v, want %d %s with the message", err, status, kind)
	}
}

func readByOpenAI(t *testing.T, s *sdks, api classify.API, status int, kind string) {
	t.Helper()
	err := s.ask(api)
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Type != kind || e.Code != "a_code" || e.Message != `it "failed" <here>` {
		t.Errorf("openai reads %#v, want %d %s with code and message", err, status, kind)
	}
}

// TestOurErrorsAreErrorsOfGemini reads by the documented fields: its SDK is not among our modules.
func TestOurErrorsAreErrorsOfGemini(t *testing.T) {
	rows := []struct {
		name   string
		status int
		want   string
		class  classify.Class // what we would read in it
	}{
		{"a bad request is another error", 400, "INVALID_ARGUMENT", classify.Invalid},
		{"a wrong key is another error", 401, "UNAUTHENTICATED", classify.Auth},
		{"missing money is another error", 402, "RESOURCE_EXHAUSTED", classify.Quota},
		{"a forbidden request is another error", 403, "PERMISSION_DENIED", classify.Auth},
		{"an unknown path is another error", 404, "NOT_FOUND", classify.Invalid},
		{"a slow request is another error", 408, "DEADLINE_EXCEEDED", classify.Timeout},
		{"a conflict is another error", 409, "ABORTED", classify.Invalid},
		{"a body too large is another error", 413, "INVALID_ARGUMENT", classify.Invalid},
		{"a rate limit is another error", 429, "RESOURCE_EXHAUSTED", classify.RateLimited},
		{"a canceled request is another error", 499, "CANCELLED", classify.Canceled},
		{"a server's fault is the caller's", 500, "INTERNAL", classify.ServerError},
		{"a missing method is the caller's fault", 501, "UNIMPLEMENTED", classify.ServerError},
		{"a bad gateway is the caller's fault", 502, "INTERNAL", classify.ServerError},
		{"no target left is another error", 503, "UNAVAILABLE", classify.Overloaded},
		{"a deadline is another error", 504, "DEADLINE_EXCEEDED", classify.Timeout},
		{"an overload is another error", 529, "UNAVAILABLE", classify.Overloaded},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			a := Error(classify.Gemini, row.status, "a_code", `it "failed" <here>`)
			e := geminiErrorIn(t, a.Body)
			if a.Status != row.status || e.Code != row.status || e.Status != row.want || e.Message != `it "failed" <here>` {
				t.Errorf("Error(%d) = %d %s, want %s with the message", row.status, a.Status, a.Body, row.want)
			}
			if v := judge(classify.Gemini, a, a.Body); v.Class != row.class || v.Status != row.status {
				t.Errorf("class of %d %s = %s, %d, want %s", a.Status, a.Body, v.Class, v.Status, row.class)
			}
		})
	}
}

type geminiErrorBody struct {
	Code            int
	Message, Status string
}

func geminiErrorIn(t *testing.T, body []byte) geminiErrorBody {
	t.Helper()
	var e struct{ Error geminiErrorBody }
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return e.Error
}

func TestAnErrorWithoutACodeHasNone(t *testing.T) {
	a := Error(classify.OpenAIChat, 500, "", "m")
	if want := `{"error":{"message":"m","type":"server_error","param":null,"code":null}}`; string(a.Body) != want {
		t.Errorf("Error() = %s, want %s", a.Body, want)
	}
}

func TestAFailureBehindAGoodStatus(t *testing.T) {
	overloaded := classify.Verdict{Class: classify.Overloaded, Status: 529, Detail: "overloaded_error"}
	rows := []struct {
		name   string
		api    classify.API
		failed string
		want   string // in the body
	}{
		{"the provider's own error is lost", classify.AnthropicMessages, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, `"Overloaded"`},
		{"an error without its event is not made up", classify.AnthropicMessages, ``, "the provider reported overloaded"},
		{"the provider's own error of Gemini is lost", classify.Gemini, `{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}`, `"busy"`},
		{"the error inside a chunk is lost", classify.OpenAIChat, `{"error":{"message":"busy","code":502},"choices":[]}`, `"busy"`},
		{"an error that is only a text goes out", classify.OpenAIChat, `{"error":"busy"}`, "the provider reported overloaded"},
		{"an empty error goes out", classify.OpenAIChat, `{"error":{}}`, "the provider reported overloaded"},
		{"a null error goes out", classify.OpenAIChat, `{"error":null,"choices":[]}`, "the provider reported overloaded"},
		{"an event that is no error body goes out", classify.OpenAIResponses, `{"type":"response.failed","response":{"error":{"code":"server_error","message":"x"}}}`, "the provider reported overloaded"},
		{"an event that is not JSON goes out", classify.OpenAIChat, `{"error":{"message":`, "the provider reported overloaded"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			a := Whole(row.api, overloaded, []byte(row.failed))
			if a.Status != 529 || !json.Valid(a.Body) || !strings.Contains(string(a.Body), row.want) {
				t.Errorf("Whole(%s) = %d %s, want 529 with %s", row.failed, a.Status, a.Body, row.want)
			}
			if err := newSDKs(t, a.Status, "application/json", a.Body).ask(row.api); err == nil {
				t.Errorf("the SDK reads %s as an answer", a.Body)
			}
		})
	}
}
