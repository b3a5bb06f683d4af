package scripted

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Behaviour is what one request gets: a kind and what varies it.
type Behaviour struct {
	Kind   string // one of the kinds, or "status"
	Status int    // with Kind "status"

	N          int           // content events before the end, or before what goes wrong
	Size       int           // bytes of filler in each content event
	After      time.Duration // wait before the answer's headers
	First      time.Duration // wait before the first content event
	Delay      time.Duration // wait before every content event
	Code       string        // the error's code or type, instead of the status's usual one
	RetryAfter string        // the value of a retry-after header
	Tier       string        // the served tier
	How        string        // how a cut ends: "reset" (RST), "close" (FIN) or "end" (a clean HTTP end)
	Usage      *Tokens       // what the answer counts; nil: 11 tokens of input, and one for each content event
	Calls      []Call        // what the provider called of itself, with Usage as the last of them; Anthropic only
	Limits     string        // "REMAINING/LIMIT/RESET" of requests, in the dialect's rate-limit headers

	Bytes bool // every byte is flushed on its own
	Gzip  bool // the body is gzip-encoded, whatever was asked
	Evil  bool // headers that mean something to Envoy, to SDKs or to the service
	Think bool // the answer has a block of thinking, where the dialect shows any
	Tool  bool // the answer ends in a call of the tool [ToolName]
	Gate  bool // what comes after the content (or, with none, after the headers) waits for Provider.Open
}

// ErrScript is a script that means nothing; a request that carries one is answered 501.
var ErrScript = errors.New("bad script")

// ParseBehaviour reads one behaviour: a kind, then parameters in any order, separated by spaces.
//
// Kinds:
//
//	ok                  n events, then the end of the dialect; or a whole JSON answer
//	400 … 599           that status with the dialect's own error body; code= tells another error
//	html502, cf520      an HTML page of a proxy; a 520 without any body
//	reset, hang         RST before headers; nothing until the client leaves
//	error-first         200 whose first event (or JSON) is an error
//	error-start         200, lifecycle events, then an error
//	error, failed       200, n events, then an error in band; "failed" is the Responses API's response.failed
//	error-done          200, n events, an error, and then a clean [DONE]
//	keepalive, empty    200 with keep-alives only, until the client leaves; 200 and nothing at all
//	cut                 200, n events, then the end of the body by how=reset|close|end, without an end marker
//	stall               200, n events, then silence until the client leaves
//	refusal, filter     200, n events, then the dialect's refusal, or its content filter
//	malformed           200 and, after n events, what is not the dialect at all
//	half                200 and half of a JSON answer, ended cleanly
//
// Parameters: n=, size=, after=, first=, delay=, code=, retry-after=, tier=, how=, usage=IN/OUT/READ/WRITE (the last two
// may be missing), call=MODEL:IN/OUT/READ/WRITE (once for each), limits=REMAINING/LIMIT/RESET, and the switches bytes, gzip,
// evil, think, tool, gate: see [Behaviour]. On a platform, code= is a name of the platform's own, such as
// ThrottlingException.
func ParseBehaviour(s string) (Behaviour, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return Behaviour{}, fmt.Errorf("%w: a step is empty", ErrScript)
	}
	b, err := parseKind(words[0])
	if err != nil {
		return Behaviour{}, err
	}
	for _, word := range words[1:] {
		if err := b.set(word); err != nil {
			return Behaviour{}, fmt.Errorf("%w: %q: %w", ErrScript, word, err)
		}
	}
	return b, nil
}

func parseSteps(s string) ([]Behaviour, error) {
	var steps []Behaviour
	for step := range strings.SplitSeq(s, ",") {
		b, err := ParseBehaviour(step)
		if err != nil {
			return nil, err
		}
		steps = append(steps, b)
	}
	return steps, nil
}

func parseKind(word string) (Behaviour, error) {
	b := Behaviour{Kind: word, N: 3, How: "reset"}
	if status, err := strconv.Atoi(word); err == nil && status >= 200 && status <= 599 {
		b.Kind, b.Status = "status", status
		return b, nil
	}
	if _, ok := kinds[word]; !ok || word == "status" {
		return b, fmt.Errorf("%w: no such kind: %q", ErrScript, word)
	}
	return b, nil
}

func (b *Behaviour) set(word string) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "n":
		b.N, err = strconv.Atoi(value)
	case "size":
		b.Size, err = strconv.Atoi(value)
	case "after":
		b.After, err = time.ParseDuration(value)
	case "first":
		b.First, err = time.ParseDuration(value)
	case "delay":
		b.Delay, err = time.ParseDuration(value)
	case "code":
		b.Code = value
	case "retry-after":
		b.RetryAfter = value
	case "tier":
		b.Tier = value
	case "how":
		b.How, err = oneOf(value, "reset", "close", "end")
	case "usage":
		b.Usage, err = parseTokens(value)
	case "call":
		model, counts, _ := strings.Cut(value, ":")
		var used *Tokens
		if used, err = parseTokens(counts); err == nil {
			b.Calls = append(b.Calls, Call{model, *used})
		}
	case "limits":
		b.Limits = value
	default:
		return b.flip(word)
	}
	return err
}

func (b *Behaviour) flip(word string) error {
	switch word {
	case "bytes":
		b.Bytes = true
	case "gzip":
		b.Gzip = true
	case "evil":
		b.Evil = true
	case "think":
		b.Think = true
	case "tool":
		b.Tool = true
	case "gate":
		b.Gate = true
	default:
		return errors.New("no such parameter")
	}
	return nil
}

func oneOf(value string, allowed ...string) (string, error) {
	for _, a := range allowed {
		if value == a {
			return value, nil
		}
	}
	return "", fmt.Errorf("want one of %s", strings.Join(allowed, ", "))
}
