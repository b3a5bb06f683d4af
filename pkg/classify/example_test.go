package classify_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"understudy/pkg/classify"
)

// An overload behind a 200, after events that carry no content: another target can answer unseen.
func ExampleNew() {
	r := classify.New(classify.Options{API: classify.AnthropicMessages, Stream: true})
	r.Header(200, func(name string) string {
		return map[string]string{"content-type": "text/event-stream"}[name]
	})
	for _, chunk := range []string{
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5\"}}\n\nevent: pi",
		"ng\ndata: {\"type\":\"ping\"}\n\n",
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
	} {
		if r.Feed([]byte(chunk)) == classify.Decided {
			fmt.Println("decided; safe to pass on:", r.Safe(), "bytes")
		}
	}
	v := r.End(true)
	fmt.Println(v.Class, v.Phase, v.Status, v.Trips, v.Model)
	// Output:
	// decided; safe to pass on: 126 bytes
	// overloaded first 529 true claude-sonnet-5
}

// Gemini streams a JSON array unless it is asked for server-sent events. Its elements are told as they end.
func ExampleNew_gemini() {
	r := classify.New(classify.Options{API: classify.Gemini})
	r.Header(200, func(string) string { return "" })
	fmt.Println(r.Feed([]byte(`[{"candidates":[{"content":{"parts":[{"text":"Hel`)) == classify.Waiting)
	fmt.Println(r.Feed([]byte(`lo"}]}}],"modelVersion":"gemini-3.1-pro"}`)) == classify.Started)
	fmt.Println(r.Feed([]byte(`,{"error":{"code":503,"status":"UNAVAILABLE"}}]`)) == classify.Decided)
	v := r.End(true)
	fmt.Println(v.Class, v.Detail, v.Phase, v.Partial, r.Safe())
	// Output:
	// true
	// true
	// true
	// overloaded UNAVAILABLE stream true 90
}

// A hang-up keeps what was seen until then.
func ExampleResponse_Abort() {
	r := classify.New(classify.Options{API: classify.OpenAIChat})
	r.Header(200, func(string) string { return "" })
	r.Feed([]byte("data: {\"model\":\"gpt-5.5\",\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n"))
	v := r.Abort(classify.Canceled, "client went away")
	fmt.Println(v.Class, v.Phase, v.Partial, v.Model)
	// Output: canceled stream true gpt-5.5
}

// A recorded answer, fed three bytes at a time.
func ExampleRecording_Classify() {
	rec, err := classify.ReadHTTP(strings.NewReader("HTTP/1.1 429 Too Many Requests\nretry-after: 2\n\n" +
		`{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	v := rec.Classify(classify.Options{API: classify.OpenAIChat}, 3)
	b, _ := json.Marshal(v.Class)
	fmt.Println(string(b), v.Phase, v.RetryAfterMS)
	// Output: "quota" body 2000
}

// A refusal that the provider mended itself: the model is the one that served, and each of its calls has its price.
func ExampleVerdict() {
	r := classify.New(classify.Options{API: classify.AnthropicMessages})
	r.Header(200, func(string) string { return "" })
	r.Feed([]byte(`{"type":"message","model":"claude-opus-5","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn",
		"usage":{"input_tokens":31,"output_tokens":37,"iterations":[
			{"type":"message","model":"claude-fable-5","input_tokens":28,"output_tokens":3},
			{"type":"fallback_message","model":"claude-opus-5","input_tokens":31,"output_tokens":37}]}}`))
	v := r.End(true)
	fmt.Println(v.Class, v.Model)
	for _, call := range v.Iterations {
		fmt.Println(call.Type, call.Model, call.Input, call.Output)
	}
	// Output:
	// ok claude-opus-5
	// message claude-fable-5 28 3
	// fallback_message claude-opus-5 31 37
}
