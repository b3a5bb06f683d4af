package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// edit is a piece of a body, from..to, and what stands in its place.
type edit struct {
	from, to int
	with     string
}

// editor changes well-formed JSON by its pieces, so that all else keeps place and bytes. Its values are of one body,
// and say by Index where in it they stand.
type editor struct{ edits []edit }

// change is what becomes of the members of one name.
type change struct {
	drop   bool
	inside func(e *editor, v value) // edits the value
	add    string                   // JSON to add when no member has the name
}

// plan is what becomes of an object's members, by name; others stay as they are. It has few names.
type plan []planned

type planned struct {
	name string
	change
}

// put has c become of the members of a name, whatever was planned before.
func (p *plan) put(name string, c change) {
	for i := range *p {
		if (*p)[i].name == name {
			(*p)[i].change = c
			return
		}
	}
	*p = append(*p, planned{name, c})
}

func (p plan) has(name string) bool {
	return slices.ContainsFunc(p, func(c planned) bool { return c.name == name })
}

// of is what becomes of the members of a name: nothing, unless something is planned.
func (p plan) of(name string) change {
	for i := range p {
		if p[i].name == name {
			return p[i].change
		}
	}
	return change{}
}

// additions are the JSON of members to add, by name.
func (p plan) additions() (texts map[string]string) {
	for _, c := range p {
		if c.add == "" {
			continue
		}
		if texts == nil {
			texts = map[string]string{}
		}
		texts[c.name] = c.add
	}
	return texts
}

// set makes JSON text the value of a member, which is there or not.
func set(text string) change {
	return change{add: text, inside: func(e *editor, v value) {
		if v.raw() != text {
			e.replace(v, text)
		}
	}}
}

// quoted is s as JSON.
func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always marshals
	return string(text)
}

func (e *editor) replace(v value, with string) {
	e.edits = append(e.edits, edit{v.from, v.to(), with})
}

// object edits the members of an object; what is no object stays. Of equal names each is changed: JSON does not say
// which of them counts.
func (e *editor) object(v value, p plan) {
	if !v.isObject() {
		return
	}
	cut := pruner{kept: -1, from: -1}
	missing := p.additions()
	for key, member := range v.members {
		name := key.str()
		c := p.of(name)
		delete(missing, name)
		if c.inside != nil && !c.drop {
			c.inside(e, member)
		}
		cut.item(key.from, member.to(), !c.drop)
	}
	e.append(v.from, cut.kept, missing)
	e.edits = append(e.edits, cut.end()...)
}

// append adds members behind the last one that is kept, whose end is kept, -1 if there is none.
func (e *editor) append(object, kept int, missing map[string]string) {
	if len(missing) == 0 {
		return
	}
	for i, name := range slices.Sorted(maps.Keys(missing)) {
		text := quoted(name) + ":" + missing[name]
		at := kept
		switch {
		case kept >= 0 || i > 0:
			text = "," + text
			at = max(kept, object+1)
		default:
			at = object + 1
		}
		e.edits = append(e.edits, edit{at, at, text})
	}
}

// array leaves out elements; keep may edit those it keeps.
func (e *editor) array(v value, keep func(element value) bool) {
	if !v.isArray() {
		return
	}
	cut := pruner{kept: -1, from: -1}
	for element := range v.elements {
		cut.item(element.from, element.to(), keep(element))
	}
	e.edits = append(e.edits, cut.end()...)
}

// apply is body with the edits made. The room for it is not zeroed before, as make would do.
func (e *editor) apply(body []byte) []byte {
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	pieces := make([][]byte, 0, 2*len(e.edits)+1)
	at := 0
	for _, d := range e.edits {
		pieces = append(pieces, body[at:d.from], []byte(d.with))
		at = d.to
	}
	return bytes.Join(append(pieces, body[at:]), nil)
}

// pruner finds the edits that leave items out of an object or array, each run of them with one comma.
type pruner struct {
	kept  int // where the last item that is kept ends, -1: there is none
	from  int // where a run that is left out begins, -1: there is none
	to    int // where that run's last item ends
	edits []edit
}

// item takes the next item.
func (p *pruner) item(from, to int, keep bool) {
	switch {
	case !keep && p.from < 0:
		p.from, p.to = from, to
	case !keep:
		p.to = to
	default:
		if p.from >= 0 {
			p.edits = append(p.edits, edit{from: p.from, to: from})
		}
		p.from, p.kept = -1, to
	}
}

// end is the edits, after the last item.
func (p *pruner) end() []edit {
	switch {
	case p.from < 0:
	case p.kept < 0:
		p.edits = append(p.edits, edit{from: p.from, to: p.to})
	default:
		p.edits = append(p.edits, edit{from: p.kept, to: p.to})
	}
	return p.edits
}
