package scripted

import (
	"fmt"
	"net/http"
)

// embeddings speaks POST /v1/embeddings, which has no streams. Shape: CreateEmbeddingResponse of openai-go v3.
type embeddings struct{ events }

func (e embeddings) stream(m message) (before, content, after []string) {
	return nil, nil, []string{e.answer(m)}
}

func (embeddings) answer(m message) string {
	return fmt.Sprintf(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-0.5,%d]}],"model":%s,"usage":{"prompt_tokens":11,"total_tokens":11}}`,
		len(m.texts), quote(m.model))
}

func (embeddings) inBand(_, code string) string { return openAIProblem(500, code) }

func (embeddings) problem(_ http.Header, status int, code string) string {
	return openAIProblem(status, code)
}
