package provider

import (
	"strings"

	"github.com/tidwall/gjson"
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
func (f *facts) gemini(root gjson.Result) {
	members(root, func(key string, v gjson.Result) {
		switch key = camel(key); key {
		case "cachedContent", "continuationToken":
			if present(v) {
				f.bind(key, v.Str)
			}
		case "tools":
			each(v, func(tool gjson.Result) {
				members(tool, func(kind string, _ gjson.Result) { f.take(geminiTools[camel(kind)], "tools", camel(kind)) })
			})
		case "generationConfig":
			members(v, func(name string, v gjson.Result) { f.geminiConfig(camel(name), v) })
		case "systemInstruction":
			f.geminiParts(v)
		case "contents":
			if v.IsObject() { // a single content is taken, too
				f.geminiParts(v)
			}
			each(v, f.geminiParts)
		}
	})
}

func (f *facts) geminiConfig(name string, v gjson.Result) {
	switch name {
	case "thinkingConfig":
		members(v, func(name string, v gjson.Result) {
			switch camel(name) {
			case "thinkingBudget":
				if v.Num != 0 {
					f.need("thinking")
				}
			case "thinkingLevel":
				f.need("thinking")
			}
		})
	case "responseSchema", "responseJsonSchema":
		f.structured(v)
	case "responseMimeType":
		if v.Str == "application/json" {
			f.need("structured_outputs")
		}
	case "responseModalities":
		each(v, func(mode gjson.Result) {
			f.need(map[string]string{"AUDIO": "audio", "IMAGE": "image_generation"}[strings.ToUpper(mode.Str)])
		})
	}
}

func (f *facts) geminiParts(content gjson.Result) {
	each(content.Get("parts"), func(part gjson.Result) {
		members(part, func(name string, v gjson.Result) {
			switch camel(name) {
			case "inlineData":
				f.media(v)
			case "fileData":
				f.media(v)
				f.file(first(v.Get("fileUri").Str, v.Get("file_uri").Str))
			case "functionCall", "functionResponse":
				f.need("tools")
			}
		})
	})
}

// media notes what a part is by its MIME type.
func (f *facts) media(v gjson.Result) {
	kind := strings.ToLower(first(v.Get("mimeType").Str, v.Get("mime_type").Str))
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
