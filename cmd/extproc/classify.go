package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
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
	kind := strings.ToLower(rec.Get("content-type"))
	return rec.Get("x-amzn-requestid") != "" || strings.HasPrefix(kind, "application/vnd.amazon.eventstream") ||
		bytes.HasPrefix(rec.Start(), []byte{0})
}

// isResponses reports whether an answer of OpenAI's is of the Responses API: its object is "response", its events
// are response.* or, without a choice before it, an error event. Text of a model cannot look so, as its quotes and
// line ends are escaped. Error statuses are alike on both APIs.
func isResponses(rec *classify.Recording) bool {
	body := rec.Start()
	return has(body, `"object":"response"`, `"object": "response"`, `"type":"response.`, `"type": "response.`) ||
		begins(body, "event: response.", "event:response.") ||
		begins(body, "event: error", "event:error") && !has(body, `"choices":`)
}

// has reports whether one of the marks stands in the body.
func has(body []byte, marks ...string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool { return bytes.Contains(body, []byte(mark)) })
}

// begins reports whether a line of the body begins with one of the marks.
func begins(body []byte, marks ...string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool {
		return bytes.HasPrefix(body, []byte(mark)) || has(body, "\n"+mark, "\r"+mark)
	})
}
