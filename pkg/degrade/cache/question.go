package cache

import (
	"bytes"
	"crypto/sha256"

	"github.com/tidwall/gjson"
)

// question is a request whose last text may be worded a little differently: alike are those whose question has the same
// id, and how much, their shingles say.
type question struct {
	id       digest   // of the whole request, with the last text as gist says it
	shingles []uint64 // of the last text
}

// question is nil where only the same request may hit.
func (r *Request) question(d *dialect, envelope []byte) *question {
	hole := d.lastText(r.Body)
	if hole == noHole {
		return nil
	}
	form := append(bytes.Clone(envelope), "near\n"...)
	form, text, _, err := canonical(form, r.Body, d, hole)
	if err != nil {
		return nil
	}
	said, shingles, ok := gist(string(text))
	if !ok {
		return nil
	}
	return &question{id: sha256.Sum256(append(form, said...)), shingles: shingles}
}

// lastText is where in a well-formed body the string literal of the last text begins, if the last turn is the user's.
// Of several parts with text it is the last one's.
func (d *dialect) lastText(body []byte) int {
	turn := gjson.GetBytes(body, d.turns)
	if turn.IsArray() {
		if turn = last(turn, func(gjson.Result) bool { return true }); !d.users(turn) {
			return noHole
		}
		turn = turn.Get(d.parts)
	}
	if turn.IsArray() {
		turn = last(turn, d.hasText).Get("text")
	}
	return literal(body, turn)
}

func (d *dialect) users(turn gjson.Result) bool {
	role, kind := turn.Get("role"), turn.Get("type")
	gemini := d.partType == ""
	return (role.Str == "user" || gemini && !role.Exists()) && (kind.Str == "message" || !kind.Exists())
}

func (d *dialect) hasText(part gjson.Result) bool {
	return part.Get("type").Str == d.partType && part.Get("text").Type == gjson.String
}

// last is the last element of an array that is wanted.
func last(array gjson.Result, wanted func(gjson.Result) bool) gjson.Result {
	var found gjson.Result
	array.ForEach(func(_, e gjson.Result) bool {
		if wanted(e) {
			found = e
		}
		return true
	})
	return found
}

// literal is where in body the string s stands. gjson's word for it is checked, as it is vague about some results.
func literal(body []byte, s gjson.Result) int {
	if s.Type != gjson.String || s.Index <= 0 || !bytes.HasPrefix(body[min(s.Index, len(body)):], []byte(s.Raw)) {
		return noHole
	}
	return s.Index
}
