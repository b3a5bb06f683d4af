package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"understudy/pkg/classify"
)

// classifyFiles prints the verdict of each recorded answer. A file that cannot be read is told, and the others are
// still read.
func classifyFiles(ctx context.Context, args []string, io std) error {
	j, err := parseJudge(args)
	if err != nil {
		return err
	}
	out := json.NewEncoder(io.out)
	out.SetEscapeHTML(false)
	var bad error
	for _, file := range j.files {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		v, err := j.verdict(file, io.in)
		if err != nil {
			fmt.Fprintf(io.err, "extproc classify: %v\n", err)
			bad = errShown
			continue
		}
		if err := out.Encode(v); err != nil {
			return err
		}
	}
	return bad
}

// judge is what one call of the command asks for.
type judge struct {
	api   string // anthropic, openai, gemini or "": told apart by the body
	tier  string // that the request asked for
	chunk int    // bytes of the body at a time; 0 is all at once
	files []string
}

func parseJudge(args []string) (*judge, error) {
	f := flag.NewFlagSet("classify", flag.ContinueOnError)
	j := &judge{}
	f.StringVar(&j.api, "api", "", "the API that was called")
	f.StringVar(&j.tier, "asked-tier", "", "the service tier that the request asked for")
	f.IntVar(&j.chunk, "chunk", 0, "bytes of the body to read at a time")
	if err := parse(f, args); err != nil {
		return nil, err
	}
	j.files = f.Args()
	return j, j.check()
}

func (j *judge) check() error {
	switch j.api {
	case "", "anthropic", "openai", "gemini":
	default:
		return fmt.Errorf("%w: --api %q: want anthropic, openai or gemini", errUsage, j.api)
	}
	if j.chunk < 0 {
		return fmt.Errorf("%w: --chunk %d: want a number of bytes, or 0 for all at once", errUsage, j.chunk)
	}
	if len(j.files) == 0 {
		return fmt.Errorf("%w: name at least one recorded answer, or - for standard input", errUsage)
	}
	return nil
}

// verdict reads one recording; "-" is in.
func (j *judge) verdict(file string, in io.Reader) (classify.Verdict, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return classify.Verdict{}, err // names the file
		}
		defer f.Close()
		in = f
	}
	rec, err := classify.ReadHTTP(in)
	if err != nil {
		return classify.Verdict{}, fmt.Errorf("%s: %w", file, cmp.Or(inner(err), err))
	}
	return rec.Classify(classify.Options{API: j.dialect(rec), AskedTier: j.tier}, j.chunk), nil
}

// inner is the cause of a failing read, without the name that os repeats; nil when err is none.
func inner(err error) error {
	if fault := (*os.PathError)(nil); errors.As(err, &fault) {
		return fault.Err
	}
	return nil
}

func (j *judge) dialect(rec *classify.Recording) classify.API {
	switch {
	case j.api == "gemini":
		return classify.Gemini
	case j.api == "anthropic" && !isAmazon(rec):
		return classify.AnthropicMessages
	case j.api == "openai" && isResponses(rec):
		return classify.OpenAIResponses
	case j.api == "openai":
		return classify.OpenAIChat
	}
	return classify.APIUnknown
}

// isAmazon reports whether an answer comes from Bedrock, where InvokeModel and Converse are told apart by the body.
func isAmazon(rec *classify.Recording) bool {
	return rec.Get("x-amzn-requestid") != "" || strings.HasPrefix(rec.Get("content-type"), "application/vnd.amazon.eventstream") ||
		bytes.HasPrefix(plain(rec), []byte{0})
}

// isResponses reports whether an answer of OpenAI's is of the Responses API: its object is "response", its events
// are response.* or a bare error event. Text of a model cannot look so, as its quotes and line ends are escaped.
// Error statuses are alike on both APIs.
func isResponses(rec *classify.Recording) bool {
	body := []byte("\n")
	body = append(body, plain(rec)...)
	for _, mark := range []string{
		`"object":"response"`, `"object": "response"`,
		`"type":"response.`, `"type": "response.`,
		"\nevent: response.", "\nevent:response.", "\nevent: error", "\nevent:error",
	} {
		if bytes.Contains(body, []byte(mark)) {
			return true
		}
	}
	return false
}

// plain is the start of the body without its gzip encoding, enough to know an API by.
func plain(rec *classify.Recording) []byte {
	if rec.Get("content-encoding") != "gzip" {
		return rec.Body
	}
	zip, err := gzip.NewReader(bytes.NewReader(rec.Body))
	if err != nil {
		return nil // no API's answer; the verdict says so
	}
	start, _ := io.ReadAll(io.LimitReader(zip, 64<<10)) // a cut body still has its start
	return start
}
