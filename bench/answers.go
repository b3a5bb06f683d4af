package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The answers are Chat Completions of OpenAI: of the dialects the one that every peer speaks, too. Shapes: the types of
// openai-go v3. All is made once; of a stream only the times in it differ.

// model is asked for by clients and is what the primary target is called, so that no request needs another body.
const (
	model       = "m-bench"
	backupModel = "m-bench-elsewhere"
)

const envelope = `"id":"chatcmpl-bench","created":1790000000,"model":"` + model + `","service_tier":"default"`

// stamp is where an event says when it was sent: nanoseconds of the machine's monotonic clock, always 19 digits.
const (
	stamp       = `"content":"@`
	stampDigits = 19
)

// now is the clock that all processes of a machine share, and nobody sets.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // no Linux is without it
	}
	return time.Duration(ts.Nano())
}

// sentAt is the time in an event, if it has one.
func sentAt(event []byte) (time.Duration, bool) {
	i := bytes.Index(event, []byte(stamp))
	if i < 0 || len(event) < i+len(stamp)+stampDigits {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(event[i+len(stamp):i+len(stamp)+stampDigits]), 10, 64)
	return time.Duration(ns), err == nil
}

func putTime(event []byte, at int, t time.Duration) {
	for i := at + stampDigits - 1; i >= at; i-- {
		event[i] = byte('0' + t%10)
		t /= 10
	}
}

var wholeAnswer = framed("200 OK", `{`+envelope+`,"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"`+
	strings.Repeat("All the world's a stage. ", 16)+`","refusal":null},"logprobs":null,"finish_reason":"stop"}],`+
	`"usage":{"prompt_tokens":12,"completion_tokens":96,"total_tokens":108}}`)

var failure = framed("503 Service Unavailable", `{"error":{"message":"The server is overloaded","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}`)

// framed is a whole HTTP/1.1 response.
func framed(status, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", status, len(body), body)
}

const streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

var (
	firstEvent   = chunked(delta(`{"role":"assistant","content":"","refusal":null}`, "null"))
	contentEvent = chunked(delta(`{"content":"@`+strings.Repeat("0", stampDigits)+` tokens"}`, "null"))
	lastEvents   = chunked(delta("{}", `"stop"`)+"data: [DONE]\n\n") + "0\r\n\r\n"
	stampAt      = strings.Index(contentEvent, stamp) + len(stamp)
)

func delta(d, finish string) string {
	return `data: {` + envelope + `,"object":"chat.completion.chunk","choices":[{"index":0,"delta":` + d + `,"logprobs":null,"finish_reason":` + finish + "}]}\n\n"
}

func chunked(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
