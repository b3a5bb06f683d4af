package provider

import (
	"strings"
)

// camel is a member's name as Google documents it: proto JSON takes snake_case too.
func camel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	var out strings.Builder
	for i, word := range strings.Split(name, "_") {
		if i > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		out.WriteString(word)
	}
	return out.String()
}

// geminiTools are the members of a tool (genai/types.go, Tool). Stores and corpora are of one project; a search, a map or
// a sandbox is not, and the Gemini API and Vertex have them alike.
var geminiTools = map[string]trait{
	"functionDeclarations":  {"tools", false},
	"googleSearch":          {"web_search", false},
	"googleSearchRetrieval": {"web_search", false},
	"enterpriseWebSearch":   {"web_search", false},
	"parallelAiSearch":      {"web_search", false},
	"exaAiSearch":           {"web_search", false},
	"urlContext":            {"web_fetch", false},
	"googleMaps":            {"maps", false},
	"codeExecution":         {"code_execution", false},
	"computerUse":           {"computer_use", false},
	"fileSearch":            {"file_search", true},
	"retrieval":             {"file_search", true},
	"mcpServers":            {"mcp", true},
}

// gemini reads a generateContent request (genai/models.go, generateContentParametersToMldev). A cache is of one project
// and region.
func (f *facts) gemini(root value) {
	for key, v := range root.members {
		switch key := camel(key.str()); key {
		case "cachedContent", "continuationToken":
			if present(v) {
				f.bind(key, v.str())
			}
		case "tools":
			for tool := range v.elements {
				f.geminiTool(tool)
			}
		case "generationConfig":
			for name, v := range v.members {
				f.geminiConfig(camel(name.str()), v)
			}
		case "systemInstruction":
			f.geminiParts(v)
		case "contents":
			if v.isObject() { // a single content is taken, too
				f.geminiParts(v)
			}
			for content := range v.elements {
				f.geminiParts(content)
			}
		}
	}
}

func (f *facts) geminiTool(tool value) {
	for key := range tool.members {
		kind := camel(key.str())
		f.take(geminiTools[kind], "tools", kind)
	}
}

func (f *facts) geminiConfig(name string, v value) {
	switch name {
	case "thinkingConfig":
		for name, v := range v.members {
			switch camel(name.str()) {
			case "thinkingBudget":
				if v.num() != 0 {
					f.need("thinking")
				}
			case "thinkingLevel":
				f.need("thinking")
			}
		}
	case "responseSchema", "responseJsonSchema":
		f.structured(v)
	case "responseMimeType":
		if v.str() == "application/json" {
			f.need("structured_outputs")
		}
	case "responseModalities":
		for mode := range v.elements {
			f.need(map[string]string{"AUDIO": "audio", "IMAGE": "image_generation"}[strings.ToUpper(mode.str())])
		}
	}
}

func (f *facts) geminiParts(content value) {
	for part := range content.get("parts").elements {
		for name, v := range part.members {
			switch camel(name.str()) {
			case "inlineData":
				f.media(v)
			case "fileData":
				f.media(v)
				f.file(first(v.get("fileUri").str(), v.get("file_uri").str()))
			case "functionCall", "functionResponse":
				f.need("tools")
			}
		}
	}
}

// media notes what a part is by its MIME type.
func (f *facts) media(v value) {
	kind := strings.ToLower(first(v.get("mimeType").str(), v.get("mime_type").str()))
	for prefix, need := range map[string]string{
		"image/": "images", "audio/": "audio", "video/": "video", "application/pdf": "documents", "text/": "documents",
	} {
		if strings.HasPrefix(kind, prefix) {
			f.need(need)
		}
	}
}

// file binds by a file that an account keeps: gs:// objects and those of the Files API. Other addresses are public.
func (f *facts) file(uri string) {
	public := strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
	if uri != "" && (!public || strings.Contains(uri, "googleapis.com/")) {
		f.bind("contents.parts.fileData.fileUri", uri)
	}
}
