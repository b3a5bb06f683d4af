package provider

import (
	"strings"

	"github.com/tidwall/gjson"
)

// anthropicTools are the kinds of tools by the start of their type, which ends in a date (anthropic-sdk-go/betamessage.go,
// BetaToolUnionParam). Anthropic runs the bound ones, whose results are encrypted, or in a container of the account.
var anthropicTools = []struct {
	prefix string
	trait
}{
	{"web_search_", trait{"web_search", true}},
	{"web_fetch_", trait{"web_fetch", true}},
	{"code_execution_", trait{"code_execution", true}},
	{"advisor_", trait{"advisor", true}},
	{"mcp_toolset", trait{"mcp", true}},
	{"computer_", trait{"computer_use", false}},
	{"browser_", trait{"browser_use", false}},
	{"tool_search_", trait{"tool_search", false}}, // it searches the request's own tools
	{"", trait{"tools", false}},
}

// anthropicBlocks are the kinds of content blocks (BetaContentBlockParamUnion). What a server tool has found or made is
// encrypted, or names a container; a compaction block is signed; a fallback block tells of the provider's own fallback.
var anthropicBlocks = map[string]trait{
	"image":       {"images", false},
	"document":    {"documents", false},
	"tool_use":    {"tools", false},
	"tool_result": {"tools", false},

	"web_search_tool_result":                 {"web_search", true},
	"web_fetch_tool_result":                  {"web_fetch", true},
	"code_execution_tool_result":             {"code_execution", true},
	"bash_code_execution_tool_result":        {"code_execution", true},
	"text_editor_code_execution_tool_result": {"code_execution", true},
	"advisor_tool_result":                    {"advisor", true},
	"mcp_tool_use":                           {"mcp", true},
	"mcp_tool_result":                        {"mcp", true},
	"mcp_tool_listing":                       {"mcp", true},
	"tool_search_tool_result":                {"tool_search", false},
	"compaction":                             {"", true},
	"fallback":                               {"", true},
}

// anthropic reads a Messages request (BetaMessageNewParams). "Token is bound to same workspace + same platform"
// (wire-formats 1c); fallbacks are the provider's own; container, thread and mcp_servers are the account's.
func (f *facts) anthropic(root gjson.Result) {
	members(root, func(key string, v gjson.Result) {
		switch key {
		case "fallback_credit_token", "fallbacks", "container", "thread":
			if present(v) {
				f.bind(key, first(v.Str, v.Get("id").Str, v.Get("token").Str))
			}
		case "mcp_servers":
			if present(v) {
				f.take(trait{"mcp", true}, key, "")
			}
		case "thinking":
			if kind := v.Get("type").Str; kind != "" && kind != "disabled" {
				f.need("thinking")
			}
		case "output_format":
			f.structured(v)
		case "output_config":
			f.structured(v.Get("format"))
		case "tools":
			each(v, f.anthropicTool)
		case "system":
			f.anthropicContent(v)
		case "messages":
			each(v, func(m gjson.Result) { f.anthropicContent(m.Get("content")) })
		}
	})
}

// structured notes a schema for the answer.
func (f *facts) structured(v gjson.Result) {
	if present(v) {
		f.need("structured_outputs")
	}
}

func (f *facts) anthropicTool(tool gjson.Result) {
	kind := tool.Get("type").Str
	if tool.Get("strict").Type == gjson.True {
		f.need("structured_outputs")
	}
	for _, t := range anthropicTools {
		if strings.HasPrefix(kind, t.prefix) {
			f.take(t.trait, "tools.type", kind)
			return
		}
	}
}

// anthropicContent reads blocks; those of a tool's result are one level deeper.
func (f *facts) anthropicContent(content gjson.Result) {
	each(content, func(block gjson.Result) {
		f.anthropicBlock(block)
		if block.Get("type").Str == "tool_result" {
			each(block.Get("content"), f.anthropicBlock)
		}
	})
}

func (f *facts) anthropicBlock(block gjson.Result) {
	kind := block.Get("type").Str
	f.take(anthropicBlocks[kind], "messages.content.type", kind)
	switch kind {
	case "image", "document":
		if source := block.Get("source"); source.Get("type").Str == "file" {
			f.id(source, "file_id", "messages.content.source.file_id")
		}
	case "container_upload":
		f.id(block, "file_id", "messages.content.file_id")
	case "server_tool_use":
		if name := block.Get("name").Str; !strings.HasPrefix(name, "tool_search_") {
			f.bind("messages.content.type", kind)
		}
	}
}

// first is the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
