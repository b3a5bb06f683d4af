package scripted

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/andybalholm/brotli"
	"github.com/coder/websocket"
	"github.com/klauspost/compress/zstd"
)

// maxDecoded bounds what a compressed request may become, in bytes.
const maxDecoded = 64 << 20

// decoded is a body without its content-encoding; one that cannot be decoded stays as it is.
func decoded(encoding string, body []byte) []byte {
	var plain io.Reader
	var err error
	switch encoding {
	case "gzip":
		plain, err = gzip.NewReader(bytes.NewReader(body))
	case "br":
		plain = brotli.NewReader(bytes.NewReader(body))
	case "zstd":
		var dec *zstd.Decoder
		if dec, err = zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1)); err == nil {
			defer dec.Close()
			plain = dec
		}
	default:
		return body
	}
	if err != nil {
		return body
	}
	out, err := io.ReadAll(io.LimitReader(plain, maxDecoded))
	if err != nil {
		return body
	}
	return out
}

// recorded wraps the paths that no script rules. The body is hashed as the handler reads it, never kept.
func (p *Provider) recorded(handle func(http.ResponseWriter, *http.Request, *Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req := newRequest(r)
		p.log.add(req)
		defer p.finish(req, r)
		if script := r.Header.Get(ScriptHeader); script != "" {
			if b, err := p.behaviour(script, 0); err == nil && b.Kind == "reset" {
				p.take(req, r)
				_ = (&exchange{p: p, r: r, w: w, rc: http.NewResponseController(w)}).kill("reset")
				return
			}
		}
		if r.Header.Get("upgrade") == "" {
			p.take(req, r)
		}
		handle(w, r, req)
	}
}

// take reads the body into its hash.
func (p *Provider) take(req *Request, r *http.Request) {
	hash := sha256.New()
	size, _ := io.Copy(hash, r.Body) // a client that left is on record, by finish
	p.log.update(func() { req.Size, req.SHA256 = size, hex.EncodeToString(hash.Sum(nil)) })
}

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (p *Provider) listModels(w http.ResponseWriter, _ *http.Request, _ *Request) {
	type model struct {
		ID     string `json:"id"`
		Object string `json:"object"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list", Data: []model{}}
	p.mu.Lock()
	for _, id := range p.models {
		list.Data = append(list.Data, model{id, "model"})
	}
	p.mu.Unlock()
	body, _ := json.Marshal(list)
	reply(w, http.StatusOK, string(body))
}

func countTokens(w http.ResponseWriter, _ *http.Request, _ *Request) {
	reply(w, http.StatusOK, `{"input_tokens":11}`)
}

func upload(w http.ResponseWriter, _ *http.Request, req *Request) {
	reply(w, http.StatusOK, fmt.Sprintf(`{"id":"file-scripted","object":"file","bytes":%d,"sha256":%s}`, req.Size, quote(req.SHA256)))
}

// download sends ?size= bytes of [Noise].
func download(w http.ResponseWriter, r *http.Request, _ *Request) {
	size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	if err != nil {
		reply(w, http.StatusBadRequest, openAIProblem(http.StatusBadRequest, ""))
		return
	}
	w.Header().Set("content-type", "application/octet-stream")
	w.Header().Set("content-length", strconv.FormatInt(size, 10))
	_, _ = io.Copy(w, Noise(size))
}

func notFound(w http.ResponseWriter, _ *http.Request, _ *Request) {
	reply(w, http.StatusNotFound, openAIProblem(http.StatusNotFound, "unknown_url"))
}

// echo answers every WebSocket message with itself, until either side closes.
func echo(w http.ResponseWriter, r *http.Request, _ *Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	for echoOne(r.Context(), conn) == nil {
	}
}

func echoOne(ctx context.Context, conn *websocket.Conn) error {
	kind, message, err := conn.Read(ctx)
	if err != nil {
		return err
	}
	return conn.Write(ctx, kind, message)
}

// Noise is size bytes that do not compress or repeat visibly, the same at every call.
func Noise(size int64) io.Reader { return io.LimitReader(&noise{x: 1}, size) }

// noise is xorshift64.
type noise struct{ x uint64 }

func (n *noise) Read(b []byte) (int, error) {
	for i := range b {
		n.x ^= n.x << 13
		n.x ^= n.x >> 7
		n.x ^= n.x << 17
		b[i] = byte(n.x)
	}
	return len(b), nil
}
