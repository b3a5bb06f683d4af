package provider

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/pkg/classify"
)

// Incoming is a request as the client sent it.
type Incoming struct {
	Path   string      // with the query
	Header http.Header // at least those of Headers, by their canonical names
	Body   []byte      // not written to, and read until Request.Drop
}

// Headers are the headers that a rewriting reads, lower case.
func Headers() []string {
	return []string{"content-encoding", betaHeader, profileHeader, sharedHeader, dedicatedHeader}
}

// Request is what has to be known of a client's request; every rewriting of it starts from what the client sent. It
// belongs to one goroutine.
type Request struct {
	Model  string
	Stream bool
	Usage  bool // of Chat: stream_options.include_usage
	Array  bool // the stream is one JSON array, as Gemini's is unless events are asked for
	Broken bool // not a JSON object: it goes on as it came, and its provider will say what is wrong

	route    route
	query    string
	header   http.Header
	tier     string // service_tier, or Gemini's serviceTier
	speed    string // Anthropic's
	standard bool   // no tier is asked for, whatever the client and the target say
	body     []byte
	decoded  bool
	facts    *facts // once they were looked for
}

// Read reads a request to an endpoint. Of its body, a JSON object, every top-level "model" is found: JSON does not say
// which of two equal keys counts, so a request must not be able to show us one and the provider another. limit bounds
// the decompressed body in bytes. A form is not read.
func Read(in Incoming, limit int64) (Request, error) {
	path, query, _ := strings.Cut(in.Path, "?")
	r := Request{route: routeOf(path), query: query, header: in.Header, body: in.Body, Broken: true}
	r.Model, r.Stream = r.route.model, r.route.stream
	r.Array = r.route.stream && !asksForEvents(query)
	if r.route.form {
		return r, nil
	}
	encoding := strings.ToLower(strings.TrimSpace(in.Header.Get("content-encoding")))
	plain, err := decode(in.Body, encoding, limit)
	if err != nil {
		return Request{}, err
	}
	if deep(plain) {
		return Request{}, ErrDeep
	}
	if !gjson.ValidBytes(plain) || !gjson.Parse(text(plain)).IsObject() {
		return r, nil
	}
	r.Broken, r.body, r.decoded = false, plain, encoding != "" && encoding != "identity"
	return r, r.readMembers()
}

// asksForEvents says that a query asks Google for server-sent events: "alt=sse".
func asksForEvents(query string) bool {
	values, _ := url.ParseQuery(query) // what is broken asks for nothing
	return values.Get("alt") == "sse" || values.Get("$alt") == "sse"
}

// Asked is the standard path of what is asked for: with the model and the form of a stream, where the path names them.
func (r *Request) Asked() string {
	path := strings.Replace(r.route.path, "{model}", url.PathEscape(r.Model), 1)
	if r.route.stream && !r.Array {
		path += "?alt=sse"
	}
	return path
}

// readMembers reads the top-level members. Str is "" for what is not a string.
func (r *Request) readMembers() error {
	n := 0
	r.root().ForEach(func(key, value gjson.Result) bool {
		r.member(key.Str, value)
		n++
		return n <= maxMembers
	})
	if n > maxMembers {
		return ErrMany
	}
	return nil
}

func (r *Request) member(key string, value gjson.Result) {
	gemini := r.route.api == classify.Gemini
	switch {
	case key == "model" && !gemini:
		r.Model = strings.Clone(value.Str)
	case key == "stream" && !gemini:
		r.Stream = value.Type == gjson.True
	case key == "service_tier", key == "serviceTier" && gemini:
		r.tier = strings.Clone(value.Str)
	case key == "speed":
		r.speed = strings.Clone(value.Str)
	case key == "stream_options":
		r.Usage = value.Get("include_usage").Type == gjson.True
	}
}

// root is the body, a JSON object; a broken one has no members.
func (r *Request) root() gjson.Result {
	if r.Broken {
		return gjson.Result{}
	}
	return gjson.Parse(text(r.body))
}

// maxMembers bounds the top-level members: the APIs know less than 50.
const maxMembers = 256

// maxDepth is the nesting that encoding/json reads, too.
const maxDepth = 10_000

// deep reports nesting beyond maxDepth in JSON text. It has to be known before anything reads the text by
// recursion: a body of brackets would exhaust the stack, which ends the process.
func deep(text []byte) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLen(text[i+1:])
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringLen is the length of the JSON string at the start of text, with its closing quote; its opening one is gone.
func stringLen(text []byte) int {
	for at := 0; ; {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			return len(text)
		}
		inner := text[:at+quote]
		at += quote + 1
		if backslashes := len(inner) - len(bytes.TrimRight(inner, `\`)); backslashes%2 == 0 {
			return at
		}
	}
}

// edited is the body with a plan carried out, and whether it differs from what the client sent.
func (r *Request) edited(p plan) ([]byte, bool) {
	var e editor
	e.object(r.root(), p)
	if len(e.edits) == 0 {
		return r.body, r.decoded
	}
	return e.apply(r.body), true
}

// Size is how many bytes the body has, decoded.
func (r *Request) Size() int64 { return int64(len(r.body)) }

// Tier is the service tier that the client asks for in the body, "" for none.
func (r *Request) Tier() string { return r.tier }

// Plain is the client's body, decoded; nil after Drop.
func (r *Request) Plain() []byte { return r.body }

// Drop lets go of the body once it is on its way.
func (r *Request) Drop() { r.body = nil }

// Errors of Read. Their text may be shown to the client.
var (
	ErrTooLarge = errors.New("the request body is too large once decompressed")
	ErrEncoding = errors.New("the request body does not decompress")
	ErrMany     = fmt.Errorf("the request body has more than %d top-level fields", maxMembers)
	ErrDeep     = fmt.Errorf("the request body nests deeper than %d levels", maxDepth)
)
