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
	Broken bool   // not a JSON object: it goes to the primary as it came, which will say what is wrong

	body    []byte
	decoded bool
	models  []span
}

// span is where a value stands in the body.
type span struct{ from, to int }

// Read reads body, a JSON object, in which every top-level "model" is found: JSON does not say which of two
// equal keys counts, so a request must not be able to show us one and the provider another.
func Read(body []byte, encoding string, limit int64) (Request, error) {
	plain, err := decode(body, encoding, limit)
	if err != nil {
		return Request{}, err
	}
	r := Request{body: plain, decoded: encoding != "" && encoding != "identity"}
	if !gjson.ValidBytes(plain) {
		return Request{Broken: true, body: body}, nil
	}
	root := gjson.ParseBytes(plain)
	if !root.IsObject() {
		return Request{Broken: true, body: body}, nil
	}
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "model":
			r.Model = value.String()
			r.models = append(r.models, span{value.Index, value.Index + len(value.Raw)})
		case "stream":
			r.Stream = value.Bool()
		case "service_tier":
			r.Tier = value.String()
		}
		return true
	})
	return r, nil
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

// Drop lets go of the body once it is on its way.
func (r *Request) Drop() { r.body = nil }

// Errors of Read. Their text may be shown to the client.
var (
	ErrTooLarge = errors.New("the request body is too large once decompressed")
	ErrEncoding = errors.New("the request body does not decompress")
)

// maxRatio bounds how far a request body may unfold. Prompts compress by 3 to 10; repeated ones by some 100.
const maxRatio = 200

func decode(body []byte, encoding string, limit int64) ([]byte, error) {
	var r io.Reader
	var err error
	in := bytes.NewReader(body)
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		r, err = gzip.NewReader(in)
	case "br":
		r = brotli.NewReader(in)
	case "zstd":
		var d *zstd.Decoder
		d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err == nil {
			defer d.Close()
			r = d
		}
	default:
		return nil, fmt.Errorf("%w: content-encoding %q is not gzip, br or zstd", ErrEncoding, encoding)
	}
	if err != nil {
		return nil, ErrEncoding
	}
	limit = min(limit, 64<<10+maxRatio*int64(len(body)))
	plain, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case int64(len(plain)) > limit:
		return nil, ErrTooLarge
	case err != nil:
		return nil, ErrEncoding
	}
	return plain, nil
}
