package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"understudy/internal/scripted"
)

// seen is one answer as the client got it.
type seen struct {
	status int
	header http.Header
	lines  []string // of the body, without blank ones
	err    error    // what reading the body to its end gave
}

// ask makes one call at Envoy's front. The primary's gate opens once the client has content.
func (s *stage) ask(ctx context.Context, stream bool) (seen, error) {
	s.asked++
	id := fmt.Sprintf("demo-%d", s.asked)
	body := fmt.Sprintf(`{"model":"claude-sonnet-5","max_tokens":100,"stream":%t,"messages":[{"role":"user","content":"hello"}]}`, stream)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.front+"/v1/messages", strings.NewReader(body))
	if err != nil {
		return seen{}, err
	}
	req.Header.Set("content-type", "application/json")
	req.Header.Set(scripted.IDHeader, id)
	resp, err := s.http.Do(req)
	if err != nil {
		return seen{}, err
	}
	defer resp.Body.Close()
	got := seen{status: resp.StatusCode, header: resp.Header}
	scan := bufio.NewScanner(resp.Body)
	for scan.Scan() {
		if scan.Text() != "" {
			got.lines = append(got.lines, scan.Text())
		}
		if scan.Text() == "event: content_block_delta" {
			s.primary.Open(id)
		}
	}
	got.err = scan.Err()
	return got, nil
}

// get reads what an admin listener has at url.
func (s *stage) get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return string(text), err
}

// ending is how an answer ended, as a client can tell.
type ending string

const (
	wholeEnd   ending = "a whole answer"
	errorEnd   ending = "an error"
	abortedEnd ending = "an aborted transfer"
	otherEnd   ending = "a clean end of half an answer"
)

func (g seen) ending() ending {
	if g.err != nil {
		return abortedEnd
	}
	if len(g.lines) == 0 {
		return otherEnd
	}
	var last struct {
		Type       string `json:"type"`
		StopReason string `json:"stop_reason"`
	}
	text, streamed := strings.CutPrefix(g.lines[len(g.lines)-1], "data: ")
	err := json.Unmarshal([]byte(text), &last)
	switch {
	case err != nil:
	case last.Type == "error":
		return errorEnd
	case streamed && last.Type == "message_stop", !streamed && last.StopReason != "":
		return wholeEnd
	}
	return otherEnd
}

// starts is how often the stream begins.
func (g seen) starts() int {
	n := 0
	for _, line := range g.lines {
		if line == "event: message_start" {
			n++
		}
	}
	return n
}

// has reports whether the body holds text.
func (g seen) has(text string) bool { return strings.Contains(strings.Join(g.lines, "\n"), text) }
