package provider

import (
	"strings"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
)

// Binding is a member of a request that names something which lives at one account of one provider, so that the request
// means nothing elsewhere.
type Binding struct {
	Field string // its path in the body, without the places in arrays
	Value string // the id, or the type of what is meant; at most 256 bytes
}

// facts are what a request needs of a model, and what binds it.
type facts struct {
	needs map[string]bool
	bound []Binding
}

// Bounds of facts: one binding is enough to bind.
const (
	maxBindings = 32
	maxValue    = 256
)

// trait is what a kind of tool or block says of a request.
type trait struct {
	need  string // one of config.Needs; ""
	bound bool
}

// Bound is what binds the request to the account that its first target is of; nil lets it go anywhere.
func (r *Request) Bound() []Binding { return r.survey().bound }

// survey finds the facts, once: it reads the body several times over.
func (r *Request) survey() *facts {
	if r.facts != nil {
		return r.facts
	}
	f := &facts{needs: map[string]bool{}}
	switch root := r.root(); r.route.api {
	case classify.AnthropicMessages:
		f.anthropic(root)
	case classify.OpenAIChat:
		f.chat(root)
	case classify.OpenAIResponses:
		f.responses(root)
	case classify.Gemini:
		f.gemini(root)
	}
	r.facts = f
	return f
}

func (f *facts) need(name string) {
	if name != "" {
		f.needs[name] = true
	}
}

func (f *facts) bind(field, value string) {
	if len(f.bound) < maxBindings {
		f.bound = append(f.bound, Binding{field, strings.Clone(value[:min(len(value), maxValue)])})
	}
}

// take notes a trait, whose value is said to stand at field.
func (f *facts) take(t trait, field, value string) {
	f.need(t.need)
	if t.bound {
		f.bind(field, value)
	}
}

// id binds by a member of v that is a string, if it is there.
func (f *facts) id(v gjson.Result, name, field string) {
	if s := v.Get(name); s.Type == gjson.String {
		f.bind(field, s.Str)
	}
}

// present reports a value other than null, false, and what is empty.
func present(v gjson.Result) bool {
	switch v.Type {
	case gjson.Null, gjson.False:
		return false
	case gjson.String:
		return v.Str != ""
	case gjson.JSON:
		some := false
		v.ForEach(func(_, _ gjson.Result) bool { some = true; return false })
		return some
	}
	return true
}

// each calls for the elements of an array; what is no array has none.
func each(v gjson.Result, f func(element gjson.Result)) {
	if v.IsArray() {
		v.ForEach(func(_, element gjson.Result) bool { f(element); return true })
	}
}

// members calls for the members of an object, duplicates included.
func members(v gjson.Result, f func(key string, value gjson.Result)) {
	if v.IsObject() {
		v.ForEach(func(key, value gjson.Result) bool { f(key.Str, value); return true })
	}
}
