package scripted

import (
	"fmt"
	"net/http"
	"strings"
)

// responses speaks POST /v1/responses. Shapes: the types of openai-go v3; there is no [DONE].
type responses struct{ events }

// numbered makes events of bodies, with their sequence numbers from first on.
func numbered(first int, bodies ...[2]string) []string {
	var events []string
	for i, b := range bodies {
		events = append(events, named(b[0], fmt.Sprintf(`{"type":%s,"sequence_number":%d,%s}`, quote(b[0]), first+i, b[1])))
	}
	return events
}

const itemAt = `"item_id":"item_1","output_index":0,"content_index":0`

func (r responses) stream(m message) (before, content, after []string) {
	before = numbered(0,
		[2]string{"response.created", `"response":` + r.object(m, "in_progress", false)},
		[2]string{"response.in_progress", `"response":` + r.object(m, "in_progress", false)},
		[2]string{"response.output_item.added", `"output_index":0,"item":{"id":"item_1","type":"message","status":"in_progress","role":"assistant","content":[]}`},
		[2]string{"response.content_part.added", itemAt + `,"part":{"type":"output_text","text":"","annotations":[]}`},
	)
	for i, text := range m.texts {
		content = append(content, numbered(4+i, [2]string{"response.output_text.delta", itemAt + `,"delta":` + quote(text)})...)
	}
	return before, content, numbered(4+len(m.texts), r.end(m)...)
}

func (r responses) end(m message) [][2]string {
	switch m.ending {
	case "refusal":
		return [][2]string{
			{"response.refusal.delta", itemAt + `,"delta":"I can't help with that."`},
			{"response.refusal.done", itemAt + `,"refusal":"I can't help with that."`},
			{"response.completed", `"response":` + r.object(m, "completed", true)},
		}
	case "filter":
		return [][2]string{{"response.incomplete", `"response":` + r.object(m, "incomplete", true)}}
	}
	list := [][2]string{
		{"response.output_text.done", itemAt + `,"text":` + quote(m.text())},
		{"response.output_item.done", `"output_index":0,"item":` + r.item(m)},
	}
	if m.tool {
		at := `"item_id":"item_2","output_index":1`
		list = append(list,
			[2]string{"response.output_item.added", `"output_index":1,"item":` + r.call(m, "in_progress", "")},
			[2]string{"response.function_call_arguments.delta", at + `,"delta":` + quote(toolInput)},
			[2]string{"response.function_call_arguments.done", at + `,"arguments":` + quote(toolInput)},
			[2]string{"response.output_item.done", `"output_index":1,"item":` + r.call(m, "completed", toolInput)})
	}
	return append(list, [2]string{"response.completed", `"response":` + r.object(m, "completed", true)})
}

func (responses) call(m message, status, arguments string) string {
	return fmt.Sprintf(`{"id":"item_2","type":"function_call","status":%s,"call_id":%s,"name":%s,"arguments":%s}`,
		quote(status), quote("call_"+m.id), quote(ToolName), quote(arguments))
}

func (responses) item(m message) string {
	part := fmt.Sprintf(`{"type":"output_text","text":%s,"annotations":[]}`, quote(m.text()))
	if m.ending == "refusal" {
		part = `{"type":"refusal","refusal":"I can't help with that."}`
	}
	return fmt.Sprintf(`{"id":"item_1","type":"message","status":"completed","role":"assistant","content":[%s]}`, part)
}

// object is the Response object; done says whether it has its output.
func (r responses) object(m message, status string, done bool) string {
	output, usage, incomplete := "[]", "null", "null"
	if done {
		items := []string{r.item(m)}
		if m.tool {
			items = append(items, r.call(m, "completed", toolInput))
		}
		output = "[" + strings.Join(items, ",") + "]"
		usage = m.used().openAIUsage("input", "output")
	}
	if status == "incomplete" {
		incomplete = `{"reason":"content_filter"}`
	}
	return fmt.Sprintf(`{"id":%s,"object":"response","created_at":1790000000,"status":%s,"error":null,"incomplete_details":%s,"model":%s,"service_tier":%s,"output":%s,"usage":%s}`,
		quote("resp_"+m.id), quote(status), incomplete, quote(m.model), quote(orElse(m.tier, "default")), output, usage)
}

func (r responses) answer(m message) string {
	if m.ending == "filter" {
		return r.object(m, "incomplete", true)
	}
	return r.object(m, "completed", true)
}

// inBand: real traffic carries the error nested, against the schema; "failed" is what SDKs understand.
func (responses) inBand(kind, code string) string {
	code = quote(orElse(code, "server_error"))
	if kind == "failed" {
		return named("response.failed", fmt.Sprintf(`{"type":"response.failed","sequence_number":99,"response":%s}`, failedResponse(code)))
	}
	return named("error", fmt.Sprintf(`{"type":"error","sequence_number":99,"error":{"type":"server_error","code":%s,"message":"Our servers are currently overloaded.","param":null}}`, code))
}

func failedResponse(quotedCode string) string {
	return fmt.Sprintf(`{"id":"resp_failed","object":"response","created_at":1790000000,"status":"failed","error":{"code":%s,"message":"Our servers are currently overloaded."},"incomplete_details":null,"model":"","output":[],"usage":null}`, quotedCode)
}

func (responses) problem(_ http.Header, status int, code string) string {
	if status == 200 {
		return failedResponse(quote(orElse(code, "server_error")))
	}
	return openAIProblem(status, code)
}
