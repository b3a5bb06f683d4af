//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"understudy/internal/scripted"
)

// What must not be read in the files of an encrypted store.
const (
	callersWords = "the-words-of-the-caller"
	modelsWords  = "the-words-of-the-model"
)

func TestAnEncryptedStoreShowsNoWords(t *testing.T) {
	t.Parallel()
	for name, encrypted := range map[string]bool{"in the clear": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			found := wordsAtRest(t, encrypted)
			for _, word := range []string{callersWords, modelsWords} {
				if found[word] == encrypted {
					t.Errorf("the store's files contain %q: %v, want %v", word, found[word], !encrypted)
				}
			}
			for _, word := range []string{clientKey, "key-of-"} {
				if found[word] {
					t.Errorf("the store's files contain the credential %q", word)
				}
			}
		})
	}
}

// wordsAtRest runs a service with a cache, a job that is done and one that waits, and looks for words in what is left.
func wordsAtRest(t *testing.T, encrypted bool) map[string]bool {
	t.Helper()
	quick := fileBreaker{Failures: 1, OpenFor: time.Second, MaxOpenFor: time.Second}
	s := startStack(t, plan{
		chains: []chain{
			{name: "kept", api: "anthropic", on: []string{"a"}, breaker: sturdy, more: fileChain{Degrade: []string{"cache", "off"}, Cache: map[string]any{"ttl": "1h", "near": 0.9}}},
			{name: "later", api: "anthropic", on: []string{"a"}, breaker: quick, more: fileChain{Degrade: []string{"queue"}}},
			{name: "never", api: "anthropic", on: []string{"b"}, breaker: quick, more: fileChain{Degrade: []string{"queue"}}},
		},
		before: func(_ string, h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set(scripted.IDHeader, modelsWords)
				h.ServeHTTP(w, r)
			})
		},
		edit: func(f *file) {
			if encrypted {
				keys := filepath.Join(filepath.Dir(f.Store.Embedded.Dir), "store.keys")
				write(t, keys, []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))+"\n"))
				f.Store.Encrypt = "file:" + keys
			}
		},
	})
	ask := func(chain string) answer {
		c := call{path: messages, chain: chain, header: map[string]string{"authorization": "Bearer " + clientKey, "x-api-key": clientKey}}
		body := strings.Replace(requestBody(messages, false), "hello", "I say "+callersWords, 1)
		return s.do(s.request(within(t, patience), t, c, strings.NewReader(body)))
	}
	ask("kept")
	s.set(t, "a", "529")
	s.set(t, "b", "529")
	eventually(t, patience, func() error {
		if a := ask("kept"); !strings.HasPrefix(a.header.Get("x-llm-degraded"), "cache") || !strings.Contains(a.body, modelsWords) {
			return fmt.Errorf("a client got %d %s, want the kept answer", a.status, a.body)
		}
		return nil
	})
	later, never := ask("later"), ask("never")
	if later.status != 202 || never.status != 202 {
		t.Fatalf("the clients got %d %s and %d %s, want jobs", later.status, later.body, never.status, never.body)
	}
	s.set(t, "a", "ok")
	id := strings.TrimPrefix(later.header.Get("location"), "/jobs/")
	eventually(t, patience, func() error {
		if j := s.job(t, id); j.State != "done" || !strings.Contains(string(j.Result.Body), modelsWords) {
			return fmt.Errorf("the job is %+v", j)
		}
		return nil
	})
	s.services[0].kill() // it tidies nothing away
	return wordsIn(t, filepath.Join(s.dir, "store0"), callersWords, modelsWords, clientKey, "key-of-")
}

// unpacked is what the zstd frames in a file stand for: large values are compressed, which hides them from nobody.
func unpacked(t *testing.T, content []byte) (plain []byte) {
	t.Helper()
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd} // RFC 8878, 3.1.1
	for rest := content; ; rest = rest[len(magic):] {
		at := bytes.Index(rest, magic)
		if at < 0 {
			return plain
		}
		rest = rest[at:]
		if r.Reset(bytes.NewReader(rest)) != nil {
			continue
		}
		frame, _ := io.ReadAll(io.LimitReader(r, 1<<20)) // an error tells of what follows the frame
		plain = append(plain, frame...)
	}
}

// wordsIn says which of the words are in any file under a folder.
func wordsIn(t *testing.T, dir string, words ...string) map[string]bool {
	t.Helper()
	found, files := map[string]bool{}, 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		content = append(unpacked(t, content), content...)
		for _, word := range words {
			if bytes.Contains(content, []byte(word)) || strings.Contains(path, word) {
				found[word] = true
			}
		}
		return nil
	})
	if files == 0 {
		err = errors.Join(err, errors.New("there are no files"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}
