package provider

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Bounds of decompression.
const (
	// Prompts compress by 3 to 10; repeated ones by some 100. Small bodies may unfold to minPlain in any case.
	maxRatio = 200
	minPlain = 64 << 10
	// RFC 8878, 3.1.1.1.2: "it's recommended for decoders to support values of Window_Size up to 8 MB". A short
	// frame may claim more, and would be given the memory.
	minWindow = 8 << 20
)

func decode(body []byte, encoding string, limit int64) ([]byte, error) {
	if encoding == "" || encoding == "identity" {
		return body, nil
	}
	limit = min(limit, minPlain+maxRatio*int64(len(body)))
	r, err := decoder(bytes.NewReader(body), encoding, max(minWindow, limit))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plain, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case int64(len(plain)) > limit:
		return nil, ErrTooLarge
	case err != nil:
		return nil, ErrEncoding
	}
	return plain, nil
}

func decoder(in io.Reader, encoding string, window int64) (io.ReadCloser, error) {
	switch encoding {
	case "gzip", "x-gzip": // RFC 9110, 8.4.1.3: "x-gzip" is equivalent
		if r, err := gzip.NewReader(in); err == nil {
			return r, nil
		}
	case "br":
		return io.NopCloser(brotli.NewReader(in)), nil
	case "zstd":
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(window)))
		if err == nil {
			return r.IOReadCloser(), nil
		}
	default:
		return nil, fmt.Errorf("%w: content-encoding %.40q is not gzip, br or zstd", ErrEncoding, encoding)
	}
	return nil, ErrEncoding
}
