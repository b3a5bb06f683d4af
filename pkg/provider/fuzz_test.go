package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	"understudy/pkg/config"
)

// pair is a member of an object, by means of encoding/json alone.
type pair struct{ key, value string }

// pairs are the members of a JSON object in their order; false when it is none that encoding/json reads.
func pairs(body []byte) ([]pair, bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); !json.Valid(body) || err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []pair
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return nil, false
		}
		out = append(out, pair{key.(string), string(value)})
	}
	return out, true
}

// values are those of the members of one name.
func values(members []pair, key string) []string {
	var out []string
	for _, m := range members {
		if m.key == key {
			out = append(out, m.value)
		}
	}
	return out
}

func others(members []pair, keys ...string) []pair {
	return slices.DeleteFunc(slices.Clone(members), func(m pair) bool { return slices.Contains(keys, m.key) })
}

func FuzzRead(f *testing.F) {
	for _, body := range []string{
		`{"model":"a","stream":true}`, `{"mod\u0065l":"a","model":{"model":1}}`, ` {"a":[{"model":"x"}],"model":null} `,
		`{"model":"a"`, `[]`, ``, `{"":"\ud800","model":"\ud83d\ude00"}`, `{"a":"\"model\":\"b\"","model":1e5}`,
		`{"model":"a","model":"b","messages":[{"role":"assistant","content":[{"type":"thinking"},{"type":"text"},{"type":"redacted_thinking"}]}]}`,
		`{ "stream" : true }`, `{"service_tier":"auto","max_tokens":99999,"temperature":1}`, `{}`, ` { } `,
	} {
		f.Add([]byte(body), "claude-sonnet-5")
	}
	p := account(f, "https://api.example", bearer)
	bedrock := *p
	bedrock.Platform = config.Bedrock
	first := &config.Target{Name: "a", Provider: p, Family: "a"}
	header := http.Header{"Anthropic-Beta": {"b"}}
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		q, err := Read(Incoming{Path: "/v1/messages", Header: header, Body: body}, 1<<20)
		members, object := pairs(body)
		if err != nil {
			if (!errors.Is(err, ErrDeep) || json.Valid(body)) && (!errors.Is(err, ErrMany) || len(members) <= maxMembers) {
				t.Fatalf("Read(%q) = %v", body, err)
			}
			return
		}
		if q.Broken == object {
			t.Fatalf("Read(%q).Broken = %v, want %v", body, q.Broken, !object)
		}
		plain := &config.Target{Provider: p, Model: model, Family: "a"}
		checkModel(t, q, plain, body, members)
		limited := *plain
		limited.Limits = config.Limits{MaxOutput: 7, Drop: []string{"temperature"}}
		limited.Tier, limited.Speed, limited.Family = "auto", "fast", "b"
		checkLimits(t, q, &limited, first, members)
		invoked := *plain
		invoked.Provider = &bedrock
		checkInvoke(t, q, &invoked, members)
		q.Bound()
		_ = Eligible(&limited, first, "", &q)
	})
}

// edited is the body that a target gets, which is a JSON object if the client's is one, and the client's if not.
func edited(t *testing.T, q Request, target, first *config.Target) []pair {
	t.Helper()
	rw, err := ForTarget(target, first, q)
	if err != nil {
		t.Fatalf("ForTarget() = %v", err)
	}
	if rw.Body == nil {
		rw.Body = q.body
	}
	if q.Broken && !bytes.Equal(rw.Body, q.body) {
		t.Fatalf("ForTarget() of %q = %q, want it untouched", q.body, rw.Body)
	}
	out, ok := pairs(rw.Body)
	if ok == q.Broken {
		t.Fatalf("ForTarget() of %q = %q, which is no JSON object", q.body, rw.Body)
	}
	return out
}

func checkModel(t *testing.T, q Request, target *config.Target, body []byte, members []pair) {
	t.Helper()
	got := edited(t, q, target, nil)
	if !slices.Equal(others(got, "model"), others(members, "model")) || len(values(got, "model")) != len(values(members, "model")) {
		t.Fatalf("ForTarget() of %q = %q, want another model alone", body, got)
	}
	for _, v := range values(got, "model") {
		var name, want string
		if json.Unmarshal([]byte(v), &name) != nil || json.Unmarshal([]byte(quoted(target.Model)), &want) != nil || name != want {
			t.Fatalf("ForTarget() of %q has model %s, want %q", body, v, target.Model)
		}
	}
}

func checkLimits(t *testing.T, q Request, target, first *config.Target, members []pair) {
	t.Helper()
	changed := []string{"model", "service_tier", "speed", "max_tokens", "temperature", "messages"}
	got := edited(t, q, target, first)
	if q.Broken {
		return
	}
	if !slices.Equal(others(got, changed...), others(members, changed...)) {
		t.Fatalf("ForTarget() of %q = %q, want only %v to change", q.body, got, changed)
	}
	for key, want := range map[string]string{"service_tier": `"auto"`, "speed": `"fast"`} {
		for _, v := range values(got, key) {
			if v != want {
				t.Fatalf("ForTarget() of %q has %s %s, want %s", q.body, key, v, want)
			}
		}
	}
	if len(values(got, "temperature")) > 0 || len(values(got, "max_tokens")) == 0 || len(values(got, "speed")) == 0 {
		t.Fatalf("ForTarget() of %q = %q, want no temperature, and max_tokens and speed", q.body, got)
	}
	for _, v := range values(got, "messages") {
		var e editor
		unthink(&e, parsed(t, v))
		if len(e.edits) > 0 {
			t.Fatalf("ForTarget() of %q leaves thinking in %s", q.body, v)
		}
	}
}

func checkInvoke(t *testing.T, q Request, target *config.Target, members []pair) {
	t.Helper()
	gone := []string{"model", "stream", "service_tier", "speed"}
	added := []string{"anthropic_version", "anthropic_beta"}
	got := edited(t, q, target, nil)
	if q.Broken {
		return
	}
	all := append(slices.Clone(gone), added...)
	if !slices.Equal(others(got, all...), others(members, all...)) {
		t.Fatalf("ForTarget() of %q = %q, want only %v to change", q.body, got, all)
	}
	if len(others(got, gone...)) != len(got) || len(values(got, "anthropic_version")) == 0 || !slices.Contains(values(got, "anthropic_beta"), `["b"]`) {
		t.Fatalf("ForTarget() of %q = %q, want none of %v, and %v", q.body, got, gone, added)
	}
}

// FuzzPlatforms holds what another family's model on another platform gets of the other dialects.
func FuzzPlatforms(f *testing.F) {
	for _, body := range []string{
		`{"contents":[{"parts":[{"thoughtSignature":"x","text":""},{"fileData":{"fileUri":"gs://x"}}]}],"generation_config":{"maxOutputTokens":9,"temperature":1},"service_tier":"flex"}`,
		`{"generationConfig":{"temperature":1},"generationConfig":{},"contents":{"parts":[]}}`,
		`{"model":"m","input":[{"id":"x"},{"type":"reasoning"}],"max_output_tokens":1e9,"tools":[{"type":"file_search","vector_store_ids":["a"]}]}`,
		`{"model":"m","messages":[{"audio":{"id":"a"}}],"max_tokens":99}`, `{}`, `[]`, `{"tools":[[{}]],"prompt":[1]}`,
	} {
		for i := range 3 {
			f.Add([]byte(body), uint8(i))
		}
	}
	paths := []string{generate, responses, chat}
	first := &config.Target{Name: "a", Provider: account(f, "https://api.example", bearer), Family: "a"}
	google, microsoft := vertexTarget(f), azureTarget(f, "https://a.example", "v")
	f.Fuzz(func(t *testing.T, body []byte, path uint8) {
		target := *microsoft
		if int(path)%len(paths) == 0 {
			target = *google
		}
		target.Family, target.Tier, target.Limits = "b", "flex", config.Limits{MaxOutput: 7, Drop: []string{"temperature"}, Lacks: config.Needs()[:3]}
		q, err := Read(Incoming{Path: paths[int(path)%len(paths)], Body: body}, 1<<20)
		if err != nil {
			return
		}
		members, _ := pairs(body)
		changed := []string{"model", "service_tier", "serviceTier", "temperature", "contents", "generationConfig", "generation_config",
			"max_tokens", "max_completion_tokens", "max_output_tokens"}
		if got := edited(t, q, &target, first); !slices.Equal(others(got, changed...), others(members, changed...)) {
			t.Fatalf("ForTarget() of %q = %q, want only %v to change", body, got, changed)
		}
		err = Eligible(&target, first, "", &q)
		if !q.Broken && target.Provider.Name != first.Provider.Name && err == nil && len(q.Bound()) > 0 {
			t.Fatalf("Eligible() of %q, bound by %v, = nil, want an error", body, q.Bound())
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
