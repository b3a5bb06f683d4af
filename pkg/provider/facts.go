package provider

import (
	"strings"

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

// survey finds the facts, once.
func (r *Request) survey() *facts {
	if r.facts != nil {
		return r.facts
	}
	f := &facts{}
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
	if name == "" {
		return
	}
	if f.needs == nil {
		f.needs = map[string]bool{}
	}
	f.needs[name] = true
}

func (f *facts) bind(field, value string) {
	if len(f.bound) < maxBindings { // neither text may keep the body in memory
		f.bound = append(f.bound, Binding{strings.Clone(field), strings.Clone(value[:min(len(value), maxValue)])})
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
func (f *facts) id(v value, name, field string) {
	if s := v.get(name); s.isString() {
		f.bind(field, s.str())
	}
}

// present reports a value other than null, false, and what is empty.
func present(v value) bool {
	switch v.first() {
	case 0, 'n', 'f':
		return false
	case '"':
		return v.doc.text[v.from+1] != '"'
	case '{', '[':
		next := v.doc.text[v.doc.item(v.from+1)]
		return next != '}' && next != ']'
	}
	return true
}
