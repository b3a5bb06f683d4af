package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

// rewritten is what a request must look like for model, by means of encoding/json alone; nil when it is not a JSON
// object that encoding/json reads.
func rewritten(body []byte, model string) (want []byte, models int) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); !json.Valid(body) || err != nil || t != json.Delim('{') {
		return nil, 0
	}
	at := int64(0)
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, 0
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, 0
		}
		if key == "model" {
			name, _ := json.Marshal(model)
			from := dec.InputOffset() - int64(len(value))
			want = append(append(want, body[at:from]...), name...)
			at = dec.InputOffset()
			models++
		}
	}
	return append(want, body[at:]...), models
}

func FuzzRead(f *testing.F) {
	for _, body := range []string{
		`{"model":"a","stream":true}`, `{"mod\u0065l":"a","model":{"model":1}}`, ` {"a":[{"model":"x"}],"model":null} `,
		`{"model":"a"`, `[]`, ``, `{"":"\ud800","model":"\ud83d\ude00"}`, `{"a":"\"model\":\"b\"","model":1e5}`,
	} {
		f.Add([]byte(body), "claude-sonnet-5")
	}
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		q, err := Read(body, "", 1<<20)
		if err != nil {
			if !errors.Is(err, ErrDeep) || json.Valid(body) {
				t.Fatalf("Read(%q) = %v", body, err)
			}
			return
		}
		want, models := rewritten(body, model)
		if q.Broken != (want == nil) {
			t.Fatalf("Read(%q).Broken = %v, want %v", body, q.Broken, want == nil)
		}
		out, changed := q.withModel(model)
		switch {
		case q.Broken || models == 0 || !changed:
			if changed || !bytes.Equal(out, body) {
				t.Fatalf("withModel(%q) of %q = %q, %v, want it untouched", model, body, out, changed)
			}
			if !q.Broken && models > 0 && (models > 1 || q.Model != model) {
				t.Fatalf("withModel(%q) of %q leaves it untouched", model, body)
			}
		case !bytes.Equal(out, want) || !json.Valid(out):
			t.Fatalf("withModel(%q) of %q = %q, want %q", model, body, out, want)
		}
	})
}

func FuzzDecode(f *testing.F) {
	encodings := []string{"gzip", "br", "zstd"}
	for i, encoding := range encodings {
		f.Add(pack(f, encoding, []byte(`{"model":"a"}`)), uint8(i))
		f.Add(pack(f, encoding, make([]byte, 1<<17)), uint8(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, i uint8) {
		const limit = 1 << 16
		plain, err := decode(body, encodings[int(i)%len(encodings)], limit)
		if len(plain) > limit || err != nil && plain != nil {
			t.Fatalf("decode() = %d bytes, %v, want at most %d and none with an error", len(plain), err, limit)
		}
		if err != nil && !errors.Is(err, ErrEncoding) && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("decode() = %v, want one of this package's errors", err)
		}
	})
}
