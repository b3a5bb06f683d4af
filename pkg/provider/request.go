package provider

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

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

	standard bool // no tier is asked for, whatever the client and the target say
	decoded  bool

	route  route
	query  string
	header http.Header
	tier   string // service_tier, or Gemini's serviceTier
	speed  string // Anthropic's
	body   []byte
	doc    *document // of the body; nil when that is broken, or gone
	facts  *facts    // once they were looked for
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
	doc, err := scan(plain)
	switch {
	case err == errBroken, err == nil && !doc.root().isObject():
		return r, nil
	case err != nil:
		return Request{}, err
	}
	r.Broken, r.body, r.doc, r.decoded = false, plain, doc, encoding != "" && encoding != "identity"
	r.readMembers()
	return r, nil
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

// readMembers reads the top-level members.
func (r *Request) readMembers() {
	gemini := r.route.api == classify.Gemini
	for key, v := range r.root().members {
		switch key := key.str(); {
		case key == "model" && !gemini:
			r.Model = strings.Clone(v.str())
		case key == "stream" && !gemini:
			r.Stream = v.isTrue()
		case key == "service_tier", key == "serviceTier" && gemini:
			r.tier = strings.Clone(v.str())
		case key == "speed":
			r.speed = strings.Clone(v.str())
		case key == "stream_options":
			r.Usage = v.get("include_usage").isTrue()
		}
	}
}

// root is the body, a JSON object; a broken one has no members.
func (r *Request) root() value {
	if r.doc == nil {
		return value{}
	}
	return r.doc.root()
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
func (r *Request) Drop() { r.body, r.doc = nil, nil }

// Forget lets go of all that says nothing of the answer.
func (r *Request) Forget() {
	*r = Request{Model: r.Model, Stream: r.Stream, Usage: r.Usage, Array: r.Array, Broken: r.Broken, tier: r.tier}
}

// Errors of Read, beside ErrMany and ErrDeep. Their text may be shown to the client.
var (
	ErrTooLarge = errors.New("the request body is too large once decompressed")
	ErrEncoding = errors.New("the request body does not decompress")
)
