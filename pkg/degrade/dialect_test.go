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

var apis = []classify.API{classify.AnthropicMessages, classify.OpenAIChat, classify.OpenAIResponses, classify.APIUnknown}

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
