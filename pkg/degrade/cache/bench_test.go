package cache

import (
	"fmt"
	"strings"
	"testing"
)

// The figures that documents quote come from here: go test -run '^$' -bench . ./pkg/degrade/cache

var sizes = []struct {
	name  string
	bytes int
}{{"4KiB", 4 << 10}, {"100KiB", 100 << 10}, {"1MiB", 1 << 20}}

// conversation is a request of about n bytes: a system prompt, and turns of 400 bytes with an escape each.
func conversation(n int) Request {
	var b strings.Builder
	for b.Len() < n-700 {
		fmt.Fprintf(&b, `{"role":"user","content":[{"type":"text","text":"%s\n%s"}]},{"role":"assistant","content":"ok"},`,
			strings.Repeat("word ", 40), strings.Repeat("more ", 40))
	}
	return Request{Chain: "c", Tenant: "t", API: chat, Path: "/v1/chat/completions", Body: fmt.Appendf(nil,
		`{"model":"m","temperature":0.7,"messages":[{"role":"system","content":"s"},%s{"role":"user","content":"What is the capital of France?"}],"stream":false}`, b.String())}
}

func BenchmarkKeyOf(b *testing.B) {
	for _, near := range []bool{false, true} {
		for _, size := range sizes {
			r := conversation(size.bytes)
			b.Run(fmt.Sprintf("near=%v/%s", near, size.name), func(b *testing.B) {
				b.SetBytes(int64(len(r.Body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := KeyOf(r, near); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFind is the whole cost of a hit: the key, and the answer of 2 KiB out of an embedded store.
func BenchmarkFind(b *testing.B) {
	c := New(openStore(b))
	for _, size := range sizes {
		r := conversation(size.bytes)
		near := r
		near.Body = []byte(strings.Replace(string(r.Body), "What is the", "what is the", 1))
		keep(b, c, r, saying(strings.Repeat("x", 2<<10)), nearly)
		for name, ask := range map[string]Request{"exact": r, "near": near} {
			b.Run(name+"/"+size.name, func(b *testing.B) {
				for b.Loop() {
					k, err := KeyOf(ask, true)
					if err != nil {
						b.Fatal(err)
					}
					if e, ok, err := c.Find(b.Context(), k, nearly); !ok || err != nil || e.Near != (name == "near") {
						b.Fatalf("Find() = %+v, %v, %v, want a hit", e, ok, err)
					}
				}
			})
		}
	}
}
