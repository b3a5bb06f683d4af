package provider

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"understudy/pkg/config"
)

const (
	messages  = "/v1/messages"
	chat      = "/v1/chat/completions"
	responses = "/v1/responses"
	generate  = "/v1beta/models/g:generateContent"
)

// user wraps content into a Messages request.
func user(content string) string {
	return `{"model":"m","messages":[{"role":"user","content":[` + content + `]}]}`
}

func input(item string) string { return `{"model":"m","input":[` + item + `]}` }

func part(p string) string { return `{"contents":[{"parts":[` + p + `]}]}` }

func TestWhatARequestNeeds(t *testing.T) {
	rows := []struct{ path, body, want string }{
		{messages, user(`{"type":"text","text":"x"}`), ""},
		{messages, `{"messages":[{"role":"user","content":"image"}],"tools":[],"thinking":{"type":"disabled"}}`, ""},
		{messages, user(`{"type":"image","source":{"type":"base64"}}`), "images"},
		{messages, user(`{"type":"document","source":{"type":"text"}}`), "documents"},
		{messages, user(`{"type":"tool_result","content":[{"type":"image","source":{"type":"url"}}]}`), "images tools"},
		{messages, `{"tools":[{"name":"a","input_schema":{}}]}`, "tools"},
		{messages, `{"tools":[{"name":"a","strict":true}]}`, "structured_outputs tools"},
		{messages, `{"tools":[{"type":"bash_20250124"},{"type":"memory_20250818"},{"type":"custom"}]}`, "tools"},
		{messages, `{"tools":[{"type":"web_search_20260318"},{"type":"web_fetch_20250910"},{"type":"code_execution_20250825"}]}`, "code_execution web_fetch web_search"},
		{messages, `{"tools":[{"type":"computer_toolset_20260801"},{"type":"browser_toolset_20260801"},{"type":"tool_search_tool_bm25_20251119"}]}`, "browser_use computer_use tool_search"},
		{messages, `{"tools":[{"type":"mcp_toolset"},{"type":"advisor_20260301"}]}`, "advisor mcp"},
		{messages, `{"thinking":{"type":"adaptive"}}`, "thinking"},
		{messages, `{"output_config":{"effort":"low"}}`, ""},
		{messages, `{"output_config":{"format":{"type":"json_schema"}}}`, "structured_outputs"},
		{messages, `{"output_format":{"type":"json_schema"}}`, "structured_outputs"},
		{messages, `{"system":[{"type":"text"}],"mcp_servers":[{"url":"x"}]}`, "mcp"},

		{chat, `{"messages":[{"role":"user","content":"x"}],"tools":[],"reasoning_effort":"none","response_format":{"type":"text"}}`, ""},
		{chat, `{"tools":[{"type":"function"}]}`, "tools"},
		{chat, `{"functions":[{"name":"f"}]}`, "tools"},
		{chat, `{"messages":[{"role":"assistant","tool_calls":[{}]},{"role":"tool"}]}`, "tools"},
		{chat, `{"messages":[{"content":[{"type":"image_url"},{"type":"input_audio"},{"type":"file"},{"type":"text"}]}]}`, "audio documents images"},
		{chat, `{"audio":{"voice":"x"},"reasoning_effort":"low","response_format":{"type":"json_object"},"web_search_options":{}}`, "audio structured_outputs thinking web_search"},

		{responses, `{"input":"x","reasoning":{"effort":null,"summary":"auto"},"text":{"format":{"type":"text"}}}`, ""},
		{responses, `{"reasoning":{"effort":"high"},"text":{"format":{"type":"json_schema"}}}`, "structured_outputs thinking"},
		{responses, `{"tools":[{"type":"function"},{"type":"custom"},{"type":"shell"},{"type":"computer"},{"type":"mcp"}]}`, "computer_use mcp shell tools"},
		{responses, `{"tools":[{"type":"web_search"},{"type":"file_search"},{"type":"code_interpreter"},{"type":"image_generation"}]}`, "code_execution file_search image_generation web_search"},
		{responses, input(`{"role":"user","content":[{"type":"input_image"},{"type":"input_file"},{"type":"input_audio"}]}`), "audio documents images"},
		{responses, input(`{"type":"function_call_output","output":[{"type":"input_image"}]}`), "images tools"},

		{generate, part(`{"text":"x"}`), ""},
		{generate, part(`{"inlineData":{"mimeType":"image/png"}},{"inline_data":{"mime_type":"audio/wav"}},{"fileData":{"mimeType":"video/mp4"}},{"inlineData":{"mimeType":"application/pdf"}}`), "audio documents images video"},
		{generate, `{"tools":[{"functionDeclarations":[{}]},{"google_search":{}},{"codeExecution":{}},{"urlContext":{}},{"googleMaps":{}},{"computerUse":{}}]}`, "code_execution computer_use maps tools web_fetch web_search"},
		{generate, part(`{"functionResponse":{}}`), "tools"},
		{generate, `{"generationConfig":{"thinkingConfig":{"thinkingBudget":0},"responseMimeType":"text/plain","responseModalities":["TEXT"]}}`, ""},
		{generate, `{"generation_config":{"thinking_config":{"thinking_level":"LOW"},"response_mime_type":"application/json","responseModalities":["IMAGE","AUDIO"]}}`, "audio image_generation structured_outputs thinking"},
		{generate, `{"generationConfig":{"responseSchema":{"type":"OBJECT"}},"systemInstruction":{"parts":[{"fileData":{"mimeType":"text/plain"}}]}}`, "documents structured_outputs"},
		{"/v1/embeddings", `{"tools":[{}]}`, ""},
	}
	known := config.Needs()
	for _, row := range rows {
		q := sent(t, row.path, nil, row.body)
		got := slices.Sorted(maps.Keys(q.survey().needs))
		if strings.Join(got, " ") != row.want {
			t.Errorf("needs of %s = %v, want %s", row.body, got, row.want)
		}
		for _, need := range got {
			if !slices.Contains(known, need) {
				t.Errorf("config.Needs() = %v, want %s in it", known, need)
			}
		}
	}
}

func TestWhatBindsARequest(t *testing.T) {
	rows := []struct{ path, body, field, value string }{ // "": nothing
		{messages, user(`{"type":"image","source":{"type":"url","url":"file_1"}},{"type":"tool_use","id":"t"}`), "", ""},
		{messages, user(`{"type":"image","source":{"type":"file","file_id":"file_1"}}`), "messages.content.source.file_id", "file_1"},
		{messages, user(`{"type":"tool_result","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}`), "messages.content.source.file_id", "f"},
		{messages, user(`{"type":"container_upload","file_id":"f"}`), "messages.content.file_id", "f"},
		{messages, user(`{"type":"server_tool_use","name":"web_search"}`), "messages.content.type", "server_tool_use"},
		{messages, user(`{"type":"server_tool_use","name":"tool_search_tool_regex"}`), "", ""},
		{messages, user(`{"type":"web_search_tool_result"}`), "messages.content.type", "web_search_tool_result"},
		{messages, user(`{"type":"compaction","content":"c"}`), "messages.content.type", "compaction"},
		{messages, user(`{"type":"thinking","signature":"s"}`), "", ""},
		{messages, `{"container":"c_1"}`, "container", "c_1"},
		{messages, `{"container":{"id":"c_1"}}`, "container", "c_1"},
		{messages, `{"container":null,"fallbacks":[],"mcp_servers":[],"fallback_credit_token":null}`, "", ""},
		{messages, `{"fallback_credit_token":"t"}`, "fallback_credit_token", "t"},
		{messages, `{"fallback_credit_token":{"token":"t","mode":"strict"}}`, "fallback_credit_token", "t"},
		{messages, `{"fallbacks":"default"}`, "fallbacks", "default"},
		{messages, `{"fallbacks":[{"model":"x"}]}`, "fallbacks", ""},
		{messages, `{"mcp_servers":[{"url":"x"}]}`, "mcp_servers", ""},
		{messages, `{"thread":{"id":"t_1"}}`, "thread", "t_1"},
		{messages, `{"tools":[{"type":"web_search_20250305"}]}`, "tools.type", "web_search_20250305"},
		{messages, `{"tools":[{"type":"code_execution_20250825"}]}`, "tools.type", "code_execution_20250825"},
		{messages, `{"tools":[{"type":"bash_20250124"},{"type":"computer_20250124"},{"name":"web_search"}]}`, "", ""},
		{messages, `{"metadata":{"container":"c"}}`, "", ""},

		{chat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, "messages.audio.id", "audio_1"},
		{chat, `{"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}`, "messages.content.file.file_id", "f"},
		{chat, `{"messages":[{"content":[{"type":"file","file":{"file_data":"f"}}]}],"audio":{"voice":{"id":"v"}}}`, "", ""},
		{chat, `{"web_search_options":{}}`, "web_search_options", ""},

		{responses, `{"input":"x","store":true,"prompt_cache_key":"k","include":["reasoning.encrypted_content"]}`, "", ""},
		{responses, `{"previous_response_id":"resp_1"}`, "previous_response_id", "resp_1"},
		{responses, `{"previous_response_id":null,"conversation":null,"background":false}`, "", ""},
		{responses, `{"conversation":{"id":"conv_1"}}`, "conversation", "conv_1"},
		{responses, `{"conversation":"conv_1"}`, "conversation", "conv_1"},
		{responses, `{"prompt":{"id":"pmpt_1"}}`, "prompt", "pmpt_1"},
		{responses, `{"background":true}`, "background", "true"},
		{responses, input(`{"type":"reasoning","encrypted_content":"x"}`), "input.type", "reasoning"},
		{responses, input(`{"type":"item_reference","id":"i"}`), "input.type", "item_reference"},
		{responses, input(`{"id":"i"}`), "input.type", "item_reference"},
		{responses, input(`{"id":"i","role":"assistant","content":[]}`), "", ""},
		{responses, input(`{"type":"compaction","encrypted_content":"x"}`), "input.type", "compaction"},
		{responses, input(`{"type":"function_call","id":"fc_1","call_id":"c"},{"type":"function_call_output","output":"x"}`), "", ""},
		{responses, input(`{"role":"user","content":[{"type":"input_file","file_id":"f"}]}`), "input.content.file_id", "f"},
		{responses, input(`{"role":"user","content":[{"type":"input_image","image_url":"u"}]}`), "", ""},
		{responses, input(`{"type":"computer_call_output","output":{"file_id":"f"}}`), "input.output.file_id", "f"},
		{responses, `{"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`, "tools.type", "file_search"},
		{responses, `{"tools":[{"type":"x","vector_store_ids":["vs_1"]}]}`, "tools.vector_store_ids", "vs_1"},
		{responses, `{"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"c"}}]}`, "tools.environment.container_id", "c"},
		{responses, `{"tools":[{"type":"function"}]}`, "", ""},

		{generate, `{"cachedContent":"cachedContents/1"}`, "cachedContent", "cachedContents/1"},
		{generate, `{"cached_content":"cachedContents/1"}`, "cachedContent", "cachedContents/1"},
		{generate, part(`{"fileData":{"fileUri":"gs://b/o"}}`), "contents.parts.fileData.fileUri", "gs://b/o"},
		{generate, part(`{"file_data":{"file_uri":"https://generativelanguage.googleapis.com/v1beta/files/x"}}`), "contents.parts.fileData.fileUri", "https://generativelanguage.googleapis.com/v1beta/files/x"},
		{generate, part(`{"fileData":{"fileUri":"https://www.youtube.com/watch?v=x"}}`), "", ""},
		{generate, `{"tools":[{"googleSearch":{}}]}`, "", ""},
		{generate, `{"tools":[{"fileSearch":{}}]}`, "tools", "fileSearch"},
	}
	for _, row := range rows {
		q := sent(t, row.path, nil, row.body)
		got := append(q.Bound(), Binding{})
		if got[0] != (Binding{row.field, row.value}) {
			t.Errorf("Bound() of %s = %v, want %s %q first", row.body, got, row.field, row.value)
		}
	}
}

func TestBindingsAreFew(t *testing.T) {
	q := sent(t, responses, nil, input(strings.Repeat(`{"id":"`+strings.Repeat("x", 1000)+`"},`, 5000)+`{}`))
	if got := q.Bound(); len(got) != maxBindings {
		t.Errorf("Bound() = %d bindings, want %d", len(got), maxBindings)
	}
	q = sent(t, responses, nil, `{"previous_response_id":"`+strings.Repeat("x", 1000)+`"}`)
	if got := q.Bound(); len(got[0].Value) != maxValue {
		t.Errorf("Bound() = a value of %d bytes, want %d", len(got[0].Value), maxValue)
	}
}

func TestEligibility(t *testing.T) {
	here := native(t)
	here.Provider.Name, here.Family = "here", "a"
	account := func(change func(*config.Target)) *config.Target { // another target of the first one's account
		other := *here
		other.Name = "other"
		change(&other)
		return &other
	}
	there := bedrockTarget(t, config.Invoke)
	there.Name, there.Provider.Name, there.Family = "bedrock/x", "there", "a"
	same := func(*config.Target) {}
	lacks := func(names ...string) func(*config.Target) {
		return func(t *config.Target) { t.Limits.Lacks = names }
	}
	family := func(t *config.Target) { t.Family = "b" }
	most := func(t *config.Target) { t.Limits.MaxOutput = 2000 }
	going := `{"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"assistant","content":[{"type":"thinking"},{"type":"tool_use"}]},{"role":"user","content":[{"type":"tool_result"}]}]}`
	rows := []struct {
		name   string
		target *config.Target
		body   string
		want   string // in the reason; "": eligible
	}{
		{"a plain request stays at the first target", there, `{"messages":[]}`, ""},
		{"a bound request leaves its account", there, `{"container":"c"}`, "container lives at provider here"},
		{"a bound request cannot go to the first target", here, `{"container":"c"}`, ""},
		{"a bound request cannot go to another model of its account", account(same), `{"container":"c"}`, ""},
		{"a need is not seen", account(lacks("audio", "images")), user(`{"type":"image"}`), "the request needs images, which target other lacks"},
		{"a lack of what is not needed counts", account(lacks("audio")), user(`{"type":"image"}`), ""},
		{"broken text goes nowhere", there, `{"container":`, ""},
		{"a geography is forgotten", there, `{"inference_geo":"us"}`, "inference_geo is not known to platform bedrock"},
		{"no geography is one", there, `{"inference_geo":null}`, ""},
		{"a thinking budget beyond the cap is sent", account(most), `{"thinking":{"type":"enabled","budget_tokens":2000}}`, "thinking.budget_tokens does not fit into the 2000 tokens"},
		{"a thinking budget that fits is refused", account(most), `{"thinking":{"type":"enabled","budget_tokens":1999}}`, ""},
		{"the thinking of a going turn is cut out", account(family), going, "the turn that calls tools has thinking of a in it"},
		{"within the family the thinking is cut out", there, going, ""},
		{"adaptive thinking needs its blocks", account(family), strings.Replace(going, `"enabled"`, `"adaptive"`, 1), ""},
		{"a turn that is over is going on", account(family), strings.Replace(going, "tool_result", "text", 1), ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			q := sent(t, messages, nil, row.body)
			err := Eligible(row.target, here, "", &q)
			if row.want == "" && err == nil {
				return
			}
			if row.want == "" || !errors.Is(err, ErrIneligible) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Eligible(%s) of %s = %v, want %q", row.target.Name, row.body, err, row.want)
			}
		})
	}
}

func TestEligibilityOutlivesTheBody(t *testing.T) {
	here, there := native(t), bedrockTarget(t, config.Invoke)
	here.Provider.Name, there.Provider.Name = "here", "there"
	q := sent(t, responses, nil, `{"previous_response_id":"resp_1"}`)
	if err := Eligible(there, here, "", &q); err == nil {
		t.Fatalf("Eligible() = nil, want an error")
	}
	if q.Drop(); Eligible(there, here, "", &q) == nil || q.Bound()[0].Value != "resp_1" {
		t.Errorf("Bound() after Drop() = %v, want resp_1", q.Bound())
	}
}
