package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// script is what a request asks of the provider. It travels in the body's "user", which every gateway passes on.
type script struct {
	Events   int           // content events of a stream; 0: a whole JSON answer
	Interval time.Duration // between them
	Fail     int           // of 100 requests to the primary so many get a 503
}

// lasts is how long an answer takes, at least.
func (s script) lasts() time.Duration { return time.Duration(s.Events) * s.Interval }

const scriptFormat = `"user":"bench events=%d every=%d fail=%d"`

// request is a whole HTTP/1.1 request for s, with a prompt of so many bytes.
func request(host string, header map[string]string, s script, prompt int) []byte {
	text := strings.Repeat("What is past is prologue. ", prompt/26+1)[:prompt]
	body := fmt.Sprintf(`{"model":"%s","stream":%t,`+scriptFormat+`,"messages":[{"role":"user","content":"%s"}]}`,
		model, s.Events > 0, s.Events, s.Interval, s.Fail, text)
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/chat/completions HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n", host, len(body))
	for name, value := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// edge is how much of a body's beginning and end is searched for the script. A gateway that writes bodies anew may put it
// on either side of the prompt.
const edge = 8 << 10

// readScript reads a body to its end and finds the script in it.
func readScript(body io.Reader, buf []byte) (s script, ok bool, err error) {
	n, err := io.ReadFull(body, buf[:edge])
	if s, ok = parseScript(buf[:n]); err != nil {
		return s, ok, notEOF(err)
	}
	tail := buf[edge:edge] // what has come last: at least edge of it
	for {
		if len(tail) > cap(tail)/2 {
			keep := copy(buf[edge:], tail[max(0, len(tail)-edge):])
			tail = buf[edge : edge+keep]
		}
		n, err = body.Read(tail[len(tail):cap(tail)])
		tail = tail[:len(tail)+n]
		if err != nil {
			break
		}
	}
	if !ok {
		s, ok = parseScript(tail)
	}
	return s, ok, notEOF(err)
}

func notEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

func parseScript(p []byte) (s script, ok bool) {
	i := bytes.Index(p, []byte("bench events="))
	if i < 0 {
		return s, false
	}
	_, err := fmt.Sscanf(string(p[i:min(len(p), i+80)]), "bench events=%d every=%d fail=%d", &s.Events, &s.Interval, &s.Fail)
	return s, err == nil
}
