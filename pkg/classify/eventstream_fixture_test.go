package classify

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// A body of AWS's frames is written down as <case>.frames, from which -update makes <case>.http: the head as it is,
// then a line for each frame or fault.
//
//	chunk JSON              an event named chunk, with JSON in base64 (chunk-last, chunk-escaped: written otherwise)
//	event NAME PAYLOAD      an event
//	exception NAME PAYLOAD  an exception; NAME - for none (bare-exception: without a message type)
//	error CODE MESSAGE      an error
//	headers HEX             a frame with these bytes for headers
//	length TOTAL HEADERS    the start of a frame with these lengths
//	text TEXT               no frame at all
//	cut N, keep N           the last N bytes are missing; only the first N are there
//	flip N, flop N          a bit is wrong in the Nth byte from the end; in the Nth of the last frame
func framed(t testing.TB, source []byte) []byte {
	t.Helper()
	head, body, _ := bytes.Cut(source, []byte("\n\n"))
	out := &bytes.Buffer{}
	last := 0
	for line := range strings.Lines(string(body)) {
		at := out.Len()
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !frameLine(t, out, word, rest) {
			fault(t, out, last, word, rest)
		}
		last = at
	}
	return append(append(head, "\n\n"...), out.Bytes()...)
}

// frameLine writes a line's frame, and reports whether it is one.
func frameLine(t testing.TB, out *bytes.Buffer, word, rest string) bool {
	t.Helper()
	name, payload, _ := strings.Cut(rest, " ")
	coded := base64.StdEncoding.EncodeToString([]byte(rest))
	var m aws.Message
	switch word {
	case "chunk":
		m = message("event", aws.Header{Name: ":event-type", Value: aws.StringValue("chunk")}, `{"bytes":"`+coded+`","p":"abcdefgh"}`)
	case "chunk-last":
		m = message("event", aws.Header{Name: ":event-type", Value: aws.StringValue("chunk")}, `{"x":{"bytes":"x"},"p":"bytes", "bytes" : "`+coded+`"}`)
	case "chunk-escaped":
		coded = strings.NewReplacer("/", `\/`, "+", `\u002b`, "=", `\u003d`).Replace(coded)
		m = message("event", aws.Header{Name: ":event-type", Value: aws.StringValue("chunk")}, `{"q":"\"","bytes":"`+coded+`"}`)
	case "event":
		m = message("event", aws.Header{Name: ":event-type", Value: aws.StringValue(name)}, payload)
	case "exception", "bare-exception":
		m = message("exception", aws.Header{Name: ":exception-type", Value: aws.StringValue(name)}, payload)
		if name == "-" {
			m.Headers.Del(":exception-type")
		}
		if word != "exception" {
			m.Headers.Del(":message-type")
		}
	case "error":
		m = message("error", aws.Header{Name: ":error-code", Value: aws.StringValue(name)}, "")
		m.Headers.Del(":content-type")
		m.Headers.Set(":error-message", aws.StringValue(payload))
	default:
		return false
	}
	if err := aws.NewEncoder().Encode(out, m); err != nil {
		t.Fatal(err)
	}
	return true
}

func message(kind string, h aws.Header, payload string) aws.Message {
	return aws.Message{Payload: []byte(payload), Headers: aws.Headers{h,
		{Name: ":content-type", Value: aws.StringValue("application/json")},
		{Name: ":message-type", Value: aws.StringValue(kind)},
	}}
}

// fault does a line's harm.
func fault(t testing.TB, out *bytes.Buffer, last int, word, rest string) {
	t.Helper()
	var n, m uint32
	fmt.Sscan(rest, &n, &m)
	switch b := out.Bytes(); word {
	case "cut":
		out.Truncate(len(b) - int(n))
	case "keep":
		out.Truncate(int(n))
	case "flip":
		b[len(b)-int(n)] ^= 1
	case "flop":
		b[last+int(n)] ^= 1
	case "text":
		out.WriteString(rest)
	case "length":
		out.Write(prelude(n, m))
	case "headers":
		h, err := hex.DecodeString(rest)
		if err != nil {
			t.Fatal(err)
		}
		frame := append(prelude(uint32(16+len(h)), uint32(len(h))), h...)
		out.Write(binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame)))
	default:
		t.Fatalf("line %q %q: want one of those above", word, rest)
	}
}

// prelude starts a frame of these lengths, with the right checksum.
func prelude(total, headers uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, total)
	b = binary.BigEndian.AppendUint32(b, headers)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func TestFramedAnswersAreMadeOfTheirSources(t *testing.T) {
	paths, err := filepath.Glob("testdata/*/*.frames")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, file := framed(t, source), strings.TrimSuffix(path, ".frames")+".http"
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s makes: %v", file, path, err)
		}
	}
}
