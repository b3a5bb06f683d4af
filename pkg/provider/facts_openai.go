package provider

// chatParts are the kinds of content parts (openai-go/chatcompletion.go, ChatCompletionContentPartUnionParam).
var chatParts = map[string]trait{
	"image_url":   {"images", false},
	"input_audio": {"audio", false},
	"file":        {"documents", false},
}

// chat reads a Chat Completions request (ChatCompletionNewParams). An assistant's audio and a file may be named by an
// id of the account; the provider runs web_search_options.
func (f *facts) chat(root value) {
	for key, v := range root.members {
		switch key := key.str(); key {
		case "tools", "functions":
			if present(v) {
				f.need("tools")
			}
		case "web_search_options":
			if v.isObject() {
				f.take(trait{"web_search", true}, key, "")
			}
		case "audio":
			if present(v) {
				f.need("audio")
			}
		case "reasoning_effort":
			f.effort(v)
		case "response_format":
			f.format(v)
		case "messages":
			for m := range v.elements {
				f.chatMessage(m)
			}
		}
	}
}

func (f *facts) chatMessage(m value) {
	if present(m.get("tool_calls")) || m.get("role").str() == "tool" {
		f.need("tools")
	}
	f.id(m.get("audio"), "id", "messages.audio.id")
	for part := range m.get("content").elements {
		f.take(chatParts[part.get("type").str()], "", "")
		f.id(part.get("file"), "file_id", "messages.content.file.file_id")
	}
}

// effort notes that the model is to reason.
func (f *facts) effort(v value) {
	if v.str() != "" && v.str() != "none" {
		f.need("thinking")
	}
}

// format notes that the answer is to be JSON.
func (f *facts) format(v value) {
	if kind := v.get("type").str(); kind == "json_schema" || kind == "json_object" {
		f.need("structured_outputs")
	}
}

// responsesTools are the kinds of tools (openai-go/responses/response.go, ToolUnionParam). OpenAI runs the bound ones,
// with stores, containers and connectors of the account.
var responsesTools = map[string]trait{
	"function":                      {"tools", false},
	"custom":                        {"tools", false},
	"namespace":                     {"tools", false},
	"apply_patch":                   {"tools", false},
	"local_shell":                   {"shell", false},
	"shell":                         {"shell", false},
	"tool_search":                   {"tool_search", false},
	"computer":                      {"computer_use", false},
	"computer_use_preview":          {"computer_use", false},
	"file_search":                   {"file_search", true},
	"web_search":                    {"web_search", true},
	"web_search_2025_08_26":         {"web_search", true},
	"web_search_preview":            {"web_search", true},
	"web_search_preview_2025_03_11": {"web_search", true},
	"mcp":                           {"mcp", true},
	"code_interpreter":              {"code_execution", true},
	"programmatic_tool_calling":     {"code_execution", true},
	"image_generation":              {"image_generation", true},
}

// responsesItems are the kinds of input items (ResponseInputItemUnionParam). Reasoning and compaction come back
// encrypted for the account, or by an id that it keeps; so do the calls of tools that OpenAI ran.
var responsesItems = map[string]trait{
	"function_call":           {"tools", false},
	"function_call_output":    {"tools", false},
	"custom_tool_call":        {"tools", false},
	"custom_tool_call_output": {"tools", false},
	"computer_call":           {"computer_use", false},
	"computer_call_output":    {"computer_use", false},
	"item_reference":          {"", true},
	"reasoning":               {"", true},
	"compaction":              {"", true},
	"file_search_call":        {"file_search", true},
	"web_search_call":         {"web_search", true},
	"code_interpreter_call":   {"code_execution", true},
	"program":                 {"code_execution", true},
	"program_output":          {"code_execution", true},
	"image_generation_call":   {"image_generation", true},
	"mcp_list_tools":          {"mcp", true},
	"mcp_approval_request":    {"mcp", true},
	"mcp_approval_response":   {"mcp", true},
	"mcp_call":                {"mcp", true},
}

// responsesParts are the kinds of content (ResponseInputContentUnionParam).
var responsesParts = map[string]trait{
	"input_image": {"images", false},
	"input_file":  {"documents", false},
	"input_audio": {"audio", false},
}

// responses reads a Responses request (ResponseNewParams).
func (f *facts) responses(root value) {
	for key, v := range root.members {
		switch key := key.str(); key {
		case "previous_response_id", "conversation", "prompt":
			if present(v) {
				f.bind(key, first(v.str(), v.get("id").str()))
			}
		case "background":
			if v.isTrue() {
				f.bind(key, "true")
			}
		case "reasoning":
			f.effort(v.get("effort"))
		case "text":
			f.format(v.get("format"))
		case "tools":
			for tool := range v.elements {
				f.responsesTool(tool)
			}
		case "input":
			for item := range v.elements {
				f.responsesItem(item)
			}
		}
	}
}

func (f *facts) responsesTool(tool value) {
	kind := tool.get("type").str()
	f.take(responsesTools[kind], "tools.type", kind)
	f.id(tool, "container", "tools.container")
	f.id(tool.get("environment"), "container_id", "tools.environment.container_id")
	for id := range tool.get("vector_store_ids").elements {
		f.bind("tools.vector_store_ids", id.str())
	}
}

// responsesItem reads an item of the input; one without type and role is a reference ("type" is optional there).
func (f *facts) responsesItem(item value) {
	kind := item.get("type").str()
	if kind == "" && item.get("id").isString() && !item.get("role").exists() {
		kind = "item_reference"
	}
	f.take(responsesItems[kind], "input.type", kind)
	f.responsesContent(item.get("content"))
	output := item.get("output")
	f.responsesContent(output)
	f.id(output, "file_id", "input.output.file_id")
}

func (f *facts) responsesContent(content value) {
	for part := range content.elements {
		f.take(responsesParts[part.get("type").str()], "", "")
		f.id(part, "file_id", "input.content.file_id")
	}
}
