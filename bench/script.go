package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// script is what a request asks of the provider. It is the beginning of the prompt, which every gateway passes on.
type script struct {
	Events   int           // content events of a stream; 0: a whole JSON answer
	Interval time.Duration // between them
	Fail     int           // of 100 requests to the primary so many get a 503
}

// lasts is how long an answer takes, at least.
func (s script) lasts() time.Duration { return time.Duration(s.Events) * s.Interval }

const scriptFormat = "bench events=%d every=%d fail=%d."

// request is a whole HTTP/1.1 request for s, with a prompt of so many bytes.
func request(host string, header map[string]string, s script, prompt int) []byte {
	text := strings.Repeat("What is past is prologue. ", prompt/26+1)[:prompt]
	body := fmt.Sprintf(`{"model":"%s","stream":%t,"messages":[{"role":"user","content":"`+scriptFormat+` %s"}]}`,
		model, s.Events > 0, s.Events, s.Interval, s.Fail, text)
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/chat/completions HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n", host, len(body))
	for name, value := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// head is how much of a body is searched for the script. A gateway that writes bodies anew puts something before the prompt,
// but not more than that.
const head = 8 << 10

// readScript reads a body to its end and finds the script in it.
func readScript(body io.Reader, buf []byte) (s script, ok bool, err error) {
	n, err := io.ReadFull(body, buf[:head])
	s, ok = parseScript(buf[:n])
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return s, ok, nil
	case err != nil:
		return s, ok, err
	}
	for {
		if _, err := body.Read(buf); err == io.EOF {
			return s, ok, nil
		} else if err != nil {
			return s, ok, err
		}
	}
}

func parseScript(p []byte) (s script, ok bool) {
	i := bytes.Index(p, []byte("bench events="))
	if i < 0 {
		return s, false
	}
	n, err := fmt.Sscanf(string(p[i:min(len(p), i+80)]), scriptFormat, &s.Events, &s.Interval, &s.Fail)
	return s, err == nil && n == 3
}
