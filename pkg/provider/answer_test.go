package provider

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
)

func TestErrorsInTheClientsDialect(t *testing.T) {
	throttled := http.Header{"X-Amzn-Errortype": {"ThrottlingException:http://internal.amazon.com/x"}, "X-Amzn-Requestid": {"r-1"}}
	google := `{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}`
	long := strings.Repeat("x", maxErrorBody)
	rows := []struct {
		name   string
		api    classify.API
		status int
		header http.Header
		body   string
		want   string // "": unchanged
	}{
		{"Anthropic's own is touched", classify.AnthropicMessages, 529, nil, ` {"type":"error","error":{"type":"overloaded_error","message":"x"}}`, ""},
		{"AWS's header is not read", classify.AnthropicMessages, 429, throttled, `{"message":"Too many"}`,
			`{"type":"error","error":{"type":"rate_limit_error","message":"Too many","details":{"original":{"message":"Too many"}}},"request_id":"r-1"}`},
		{"AWS's type in the body is not read", classify.AnthropicMessages, 400, nil, `{"__type":"com.amazon#ThrottlingException","Message":"a"}`,
			`{"type":"error","error":{"type":"rate_limit_error","message":"a","details":{"original":{"__type":"com.amazon#ThrottlingException","Message":"a"}}}}`},
		{"a name that is not known has no type", classify.AnthropicMessages, 424, http.Header{"X-Amzn-Errortype": {"ModelErrorException"}}, `{"message":"a"}`,
			`{"type":"error","error":{"type":"api_error","message":"a","details":{"original":{"message":"a"}}}}`},
		{"Google's array is not read", classify.AnthropicMessages, 429, nil, `[` + google + `]`,
			`{"type":"error","error":{"type":"rate_limit_error","message":"Quota exceeded","details":{"original":[` + google + `]}}}`},
		{"Google's object is not read", classify.AnthropicMessages, 429, nil, google,
			`{"type":"error","error":{"type":"rate_limit_error","message":"Quota exceeded","details":{"original":` + google + `}}}`},
		{"a page has no message", classify.AnthropicMessages, 502, nil, "<html>\xff</html>",
			`{"type":"error","error":{"type":"api_error","message":"the provider answered with status 502","details":{"original":"\u003chtml\u003e\u003c/html\u003e"}}}`},
		{"nothing has no message", classify.OpenAIChat, 503, nil, "",
			`{"error":{"message":"the provider answered with status 503","type":"service_unavailable_error","param":null,"code":null,"details":{"original":""}}}`},
		{"Azure's own is touched", classify.OpenAIChat, 429, nil, `{"error":{"code":"429","message":"Please retry after 37 seconds","innererror":{}}}`, ""},
		{"a flat error of Azure's gateway is not read", classify.OpenAIResponses, 401, nil, `{"statusCode":401,"message":"Access denied"}`,
			`{"error":{"message":"Access denied","type":"invalid_request_error","param":null,"code":null,"details":{"original":{"statusCode":401,"message":"Access denied"}}}}`},
		{"an error that is a text is not read", classify.OpenAIChat, 402, nil, `{"error":"Insufficient balance"}`,
			`{"error":{"message":"Insufficient balance","type":"insufficient_quota","param":null,"code":null,"details":{"original":{"error":"Insufficient balance"}}}}`},
		{"Gemini's own is touched", classify.Gemini, 429, nil, google, ""},
		{"Gemini's array stays one", classify.Gemini, 429, nil, "[ " + google + "\n]", google},
		{"Gemini has another shape", classify.Gemini, 503, nil, `{"message":"a"}`,
			`{"error":{"code":503,"message":"a","status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.DebugInfo","detail":"{\"message\":\"a\"}"}]}}`},
		{"a long body is told in full", classify.OpenAIChat, 500, nil, `{"message":"` + long + `"}`,
			`{"error":{"message":"the provider answered with status 500","type":"server_error","param":null,"code":null,"details":{"original":"{\"message\":\"` + long[:maxErrorText-len(`{"message":"`)] + `"}}}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			want := row.want
			if want == "" {
				want = row.body
			}
			if got := ErrorIn(row.api, row.status, row.header, []byte(row.body)); string(got) != want {
				t.Errorf("ErrorIn() = %.300s, want %.300s", got, want)
			}
		})
	}
}

func TestAnErrorInACodingNobodyAskedForIsRead(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}`))
	_ = w.Close()
	for coding, body := range map[string][]byte{"gzip": packed.Bytes(), " GZIP": packed.Bytes()} {
		got := ErrorIn(classify.AnthropicMessages, 429, http.Header{"Content-Encoding": {coding}}, body)
		if e := gjson.GetBytes(got, "error"); e.Get("type").Str != "rate_limit_error" || e.Get("message").Str != "Quota exceeded" {
			t.Errorf("ErrorIn() of %s = %s, want what is in it", coding, got)
		}
	}
	if got := ErrorIn(classify.AnthropicMessages, 429, http.Header{"Content-Encoding": {"br"}}, packed.Bytes()); !json.Valid(got) {
		t.Errorf("ErrorIn() of what does not decode = %q, want JSON", got)
	}
}

func FuzzErrorIn(f *testing.F) {
	for _, body := range []string{`{"message":"a"}`, `[{"error":{"code":1,"status":"x"}}]`, "<html>", "\xff", `{"error":null}`, strings.Repeat("[", 20000)} {
		f.Add([]byte(body), uint8(0), 429, "ThrottlingException:x#y")
	}
	apis := []classify.API{classify.AnthropicMessages, classify.OpenAIChat, classify.OpenAIResponses, classify.Gemini, classify.APIUnknown}
	f.Fuzz(func(t *testing.T, body []byte, api uint8, status int, kind string) {
		a := apis[int(api)%len(apis)]
		got := ErrorIn(a, status, http.Header{"X-Amzn-Errortype": {kind}}, body)
		if !json.Valid(got) || len(got) > 8*(len(body)+len(kind))+1000 {
			t.Fatalf("ErrorIn() of %q = %q, want JSON of about its size", body, got)
		}
		if again := ErrorIn(a, status, nil, got); string(again) != string(got) {
			t.Fatalf("ErrorIn() of %q = %q, then %q, want it settled", body, got, again)
		}
	})
}
