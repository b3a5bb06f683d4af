package provider

import (
	"strings"
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
func (f *facts) anthropic(root value) {
	for key, v := range root.members {
		switch key := key.str(); key {
		case "fallback_credit_token", "fallbacks", "container", "thread":
			if present(v) {
				f.bind(key, first(v.str(), v.get("id").str(), v.get("token").str()))
			}
		case "mcp_servers":
			if present(v) {
				f.take(trait{"mcp", true}, key, "")
			}
		case "thinking":
			if kind := v.get("type").str(); kind != "" && kind != "disabled" {
				f.need("thinking")
			}
		case "output_format":
			f.structured(v)
		case "output_config":
			f.structured(v.get("format"))
		case "tools":
			for tool := range v.elements {
				f.anthropicTool(tool)
			}
		case "system":
			f.anthropicContent(v)
		case "messages":
			for m := range v.elements {
				f.anthropicContent(m.get("content"))
			}
		}
	}
}

// structured notes a schema for the answer.
func (f *facts) structured(v value) {
	if present(v) {
		f.need("structured_outputs")
	}
}

func (f *facts) anthropicTool(tool value) {
	kind := ""
	for key, v := range tool.members {
		switch {
		case key.is("type"):
			kind = first(kind, v.str())
		case key.is("strict") && v.isTrue():
			f.need("structured_outputs")
		}
	}
	for _, t := range anthropicTools {
		if strings.HasPrefix(kind, t.prefix) {
			f.take(t.trait, "tools.type", kind)
			return
		}
	}
}

// anthropicContent reads blocks; those of a tool's result are one level deeper.
func (f *facts) anthropicContent(content value) {
	for block := range content.elements {
		if f.anthropicBlock(block) == "tool_result" {
			for inner := range block.get("content").elements {
				f.anthropicBlock(inner)
			}
		}
	}
}

// anthropicBlock reads a block, and says of what kind it is.
func (f *facts) anthropicBlock(block value) (kind string) {
	kind = block.get("type").str()
	f.take(anthropicBlocks[kind], "messages.content.type", kind)
	switch kind {
	case "image", "document":
		if source := block.get("source"); source.get("type").str() == "file" {
			f.id(source, "file_id", "messages.content.source.file_id")
		}
	case "container_upload":
		f.id(block, "file_id", "messages.content.file_id")
	case "server_tool_use":
		if name := block.get("name").str(); !strings.HasPrefix(name, "tool_search_") {
			f.bind("messages.content.type", kind)
		}
	}
	return kind
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
