package provider

import (
	"fmt"
	"strings"
	"testing"

	"understudy/pkg/config"
)

// line is one of a prompt, with what JSON escapes in it.
const line = `She said \"what is past is prologue\", and left the stage to her understudy for the evening.\n`

// shapes are what large requests look like; each makes a Messages request of about so many bytes.
var shapes = []struct {
	name string
	make func(size int) string
}{
	{"text", func(size int) string { return user(textOf(size)) }},
	{"plain", func(size int) string {
		return user(`{"type":"text","text":"` + strings.Repeat("What is past is prologue. ", size/26) + `"}`)
	}},
	{"turns", func(size int) string {
		turn := `{"role":"user","content":"` + line + `"},{"role":"assistant","content":[` + textOf(200) + `]},`
		return `{"model":"m","stream":true,"messages":[` + strings.Repeat(turn, size/len(turn)) + `{"role":"user","content":"and?"}],"max_tokens":1024}`
	}},
	{"tools", func(size int) string {
		tool := `{"name":"find","description":"` + line + `","input_schema":{"type":"object","properties":{"query":{"type":"string"},"most":{"type":"integer","minimum":1}}}},`
		return `{"model":"m","tools":[` + strings.Repeat(tool, size/len(tool)) + `{"name":"last"}],"messages":[{"role":"user","content":"x"}]}`
	}},
	{"images", func(size int) string {
		image := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("iVBORw0KGgo", max(1, size/4/11)) + `"}},`
		return user(strings.Repeat(image, 4) + textOf(100))
	}},
}

func textOf(size int) string {
	return `{"type":"text","text":"` + strings.Repeat(line, max(1, size/len(line))) + `"}`
}

// benchBodies runs f for bodies of all shapes and three sizes, as they were read.
func benchBodies(b *testing.B, f func(b *testing.B, body []byte)) {
	for _, shape := range shapes {
		for _, size := range []int{1000, 100_000, 8_000_000} {
			b.Run(fmt.Sprintf("%s-%dk", shape.name, size/1000), func(b *testing.B) {
				body := []byte(shape.make(size))
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				f(b, body)
			})
		}
	}
}

// benchTargets are a first target, and another one of another provider and model.
func benchTargets(b *testing.B) (first, other *config.Target) {
	first, other = native(b), native(b)
	first.Provider.Name, other.Provider.Name, other.Model = "here", "there", "n"
	return first, other
}

func BenchmarkRead(b *testing.B) {
	benchBodies(b, func(b *testing.B, body []byte) {
		for b.Loop() {
			if _, err := Read(Incoming{Path: messages, Body: body}, 32<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEligible(b *testing.B) {
	first, other := benchTargets(b)
	benchBodies(b, func(b *testing.B, body []byte) {
		read := sent(b, messages, nil, string(body))
		for b.Loop() {
			q := read
			if err := Eligible(other, first, "", &q); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkForTarget(b *testing.B) {
	first, other := benchTargets(b)
	benchBodies(b, func(b *testing.B, body []byte) {
		q := sent(b, messages, nil, string(body))
		for b.Loop() {
			if rw, err := ForTarget(other, first, q); err != nil || rw.Body == nil {
				b.Fatal(rw, err)
			}
		}
	})
}

// BenchmarkRequest is all that an attempt at the first target has to do with a request.
func BenchmarkRequest(b *testing.B) {
	first, other := benchTargets(b)
	benchBodies(b, func(b *testing.B, body []byte) {
		for b.Loop() {
			q, err := Read(Incoming{Path: messages, Body: body}, 32<<20)
			if err != nil {
				b.Fatal(err)
			}
			if rw, err := ForTarget(first, first, q); err != nil || rw.Body != nil {
				b.Fatal(rw, err)
			}
			if err := Eligible(other, first, "", &q); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTextBytes(b *testing.B) {
	benchBodies(b, func(b *testing.B, body []byte) {
		q := sent(b, messages, nil, string(body))
		for b.Loop() {
			if q.TextBytes() == 0 {
				b.Fatal("TextBytes() = 0")
			}
		}
	})
}
