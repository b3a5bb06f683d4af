package provider

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"
)

// Request is the little that has to be known of a request's body.
type Request struct {
	Model  string
	Stream bool
	Tier   string // service_tier
	Usage  bool   // of Chat: stream_options.include_usage
	Broken bool   // not a JSON object: it goes to the primary as it came, which will say what is wrong

	body    []byte
	decoded bool
	models  []span
}

// span is where a value stands in the body.
type span struct{ from, to int }

// Read reads body, a JSON object, in which every top-level "model" is found: JSON does not say which of two
// equal keys counts, so a request must not be able to show us one and the provider another. limit bounds the
// decompressed body in bytes.
func Read(body []byte, encoding string, limit int64) (Request, error) {
	plain, err := decode(body, encoding, limit)
	if err != nil {
		return Request{}, err
	}
	if deep(plain) {
		return Request{}, ErrDeep
	}
	if !gjson.ValidBytes(plain) {
		return Request{Broken: true, body: body}, nil
	}
	root := gjson.ParseBytes(plain)
	if !root.IsObject() {
		return Request{Broken: true, body: body}, nil
	}
	r := Request{body: plain, decoded: encoding != "" && encoding != "identity"}
	root.ForEach(func(key, value gjson.Result) bool {
		r.read(key.Str, value)
		return true
	})
	return r, nil
}

// read takes one top-level member. Str is "" for what is not a string.
func (r *Request) read(key string, value gjson.Result) {
	switch key {
	case "model":
		r.Model = value.Str
		r.models = append(r.models, span{value.Index, value.Index + len(value.Raw)})
	case "stream":
		r.Stream = value.Type == gjson.True
	case "service_tier":
		r.Tier = value.Str
	case "stream_options":
		r.Usage = value.Get("include_usage").Type == gjson.True
	}
}

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

// withModel is the body that asks for model, and whether it differs from the client's. All else keeps its
// place and bytes. A request that names no model is left to the provider's own complaint.
func (r Request) withModel(model string) ([]byte, bool) {
	if r.Broken || r.Model == model && len(r.models) == 1 || len(r.models) == 0 {
		return r.body, r.decoded
	}
	value, _ := json.Marshal(model) // a string always marshals
	out := make([]byte, 0, len(r.body)+len(r.models)*len(value))
	at := 0
	for _, s := range r.models {
		out = append(append(out, r.body[at:s.from]...), value...)
		at = s.to
	}
	return append(out, r.body[at:]...), true
}

// Size is how many bytes the body has, decoded.
func (r *Request) Size() int64 { return int64(len(r.body)) }

// Plain is the client's body, decoded; nil after Drop.
func (r *Request) Plain() []byte { return r.body }

// Drop lets go of the body once it is on its way.
func (r *Request) Drop() { r.body = nil }

// Errors of Read. Their text may be shown to the client.
var (
	ErrTooLarge = errors.New("the request body is too large once decompressed")
	ErrEncoding = errors.New("the request body does not decompress")
	ErrDeep     = fmt.Errorf("the request body nests deeper than %d levels", maxDepth)
)

// Bounds of decompression.
const (
	// Prompts compress by 3 to 10; repeated ones by some 100. Small bodies may unfold to minPlain in any case.
	maxRatio = 200
	minPlain = 64 << 10
	// RFC 8878, 3.1.1.1.2: "it's recommended for decoders to support values of Window_Size up to 8 MB". A short
	// frame may claim more, and would be given the memory.
	minWindow = 8 << 20
)

func decode(body []byte, encoding string, limit int64) ([]byte, error) {
	if encoding == "" || encoding == "identity" {
		return body, nil
	}
	limit = min(limit, minPlain+maxRatio*int64(len(body)))
	r, err := decoder(bytes.NewReader(body), encoding, max(minWindow, limit))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plain, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case int64(len(plain)) > limit:
		return nil, ErrTooLarge
	case err != nil:
		return nil, ErrEncoding
	}
	return plain, nil
}

func decoder(in io.Reader, encoding string, window int64) (io.ReadCloser, error) {
	switch encoding {
	case "gzip", "x-gzip": // RFC 9110, 8.4.1.3: "x-gzip" is equivalent
		if r, err := gzip.NewReader(in); err == nil {
			return r, nil
		}
	case "br":
		return io.NopCloser(brotli.NewReader(in)), nil
	case "zstd":
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(window)))
		if err == nil {
			return r.IOReadCloser(), nil
		}
	default:
		return nil, fmt.Errorf("%w: content-encoding %.40q is not gzip, br or zstd", ErrEncoding, encoding)
	}
	return nil, ErrEncoding
}
