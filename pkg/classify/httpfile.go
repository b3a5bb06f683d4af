package classify

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"strings"

	"understudy/pkg/classify/decode"
)

// Recording is a recorded HTTP response: status line, headers, blank line, raw body bytes.
type Recording struct {
	Status int
	Header textproto.MIMEHeader
	Body   []byte // as received, still content-encoded
}

// ReadHTTP reads a recording. Lines of the head may end in LF or CRLF; what follows the blank line is the body,
// byte for byte: neither content-length nor transfer-encoding is applied to it. Interim 1xx heads before the head, as
// `curl -i` shows them, are read over. A head without end, or a body of more than 512 MiB, is an error.
func ReadHTTP(in io.Reader) (*Recording, error) {
	limit := &io.LimitedReader{R: in, N: maxHeads}
	br := bufio.NewReader(limit)
	rec := &Recording{}
	for interim := true; interim; {
		if err := rec.readHead(textproto.NewReader(br)); err != nil && limit.N == 0 {
			return nil, fmt.Errorf("headers: more than %d bytes", maxHeads)
		} else if err != nil {
			return nil, err
		}
		next, _ := br.Peek(len("HTTP/"))
		interim = rec.Status < 200 && string(next) == "HTTP/"
	}
	limit.N = maxDecoded
	body, err := io.ReadAll(br)
	switch {
	case err != nil:
		return nil, fmt.Errorf("body: %w", err)
	case limit.N == 0:
		return nil, fmt.Errorf("body: more than %d bytes", maxDecoded)
	}
	rec.Body = body
	return rec, nil
}

// maxHeads is how many bytes a recording may have before its body.
const maxHeads = 1 << 20

// readHead reads a status line and headers, up to the blank line.
func (h *Recording) readHead(r *textproto.Reader) error {
	line, err := r.ReadLine()
	if err != nil {
		return fmt.Errorf("status line: %w", noEOF(err))
	}
	if h.Status, err = parseStatus(line); err != nil {
		return err
	}
	if h.Header, err = r.ReadMIMEHeader(); err != nil {
		return fmt.Errorf("headers: %w", noEOF(err))
	}
	return nil
}

// parseStatus reads `HTTP/1.1 200 OK` or `HTTP/2 200`.
func parseStatus(line string) (int, error) {
	proto, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(code)
	if !strings.HasPrefix(proto, "HTTP/") || err != nil || n < 100 || n > 999 {
		return 0, fmt.Errorf("status line: want \"HTTP/1.1 200 OK\", got %.60q", line)
	}
	return n, nil
}

// noEOF names the end of a head that stops too early.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Get returns a header by any spelling of its name, "" when absent; several values are joined by ", ".
func (h *Recording) Get(name string) string {
	return strings.Join(h.Header.Values(name), ", ")
}

// Start is the body without its content codings; of an encoded one at most the first 64 KiB, enough to know an API by.
func (h *Recording) Start() []byte {
	names := coding(h.Get("content-encoding"))
	if names == "" {
		return h.Body
	}
	var start []byte
	d := decode.New(names, maxErrorBody, func(p []byte) { start = append(start, p...) })
	_ = d.Write(h.Body) // where it is not in its coding, the verdict says so
	return start
}

// Classify reads the recording to its end, chunk bytes of the body at a time; 0 feeds it whole.
// The verdict does not depend on chunk.
func (h *Recording) Classify(o Options, chunk int) Verdict {
	r := New(o)
	r.Header(h.Status, h.Get)
	for body := bytes.NewBuffer(h.Body); body.Len() > 0; {
		n := chunk
		if n <= 0 {
			n = body.Len()
		}
		r.Feed(body.Next(n))
	}
	return r.End(true)
}
