package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// Watcher tells each change of a Config's sources once, also when what is there now is not a valid file.
//
// Concurrency: one goroutine.
type Watcher struct {
	c    *Config
	seen string // hash of what was there last
}

// NewWatcher watches the sources of c.
func NewWatcher(c *Config) *Watcher { return &Watcher{c: c, seen: c.Hash} }

// Changed reports whether the sources hold something else than at the last call (or than c was read from).
// A file that cannot be read is a change too: Load says why.
func (w *Watcher) Changed() bool {
	data, err := readFile(w.c.File)
	now := "unreadable"
	if err == nil {
		now = w.c.hashNow(data)
	}
	changed := now != w.seen
	w.seen = now
	return changed
}

// hashNow is the Hash that c would have with this file and the secrets of this moment.
func (c *Config) hashNow(data []byte) string {
	secrets := map[string]Secret{}
	for _, ref := range c.refs {
		secrets[ref], _ = ReadSecret(ref) // its form was checked when c was read
	}
	return hash(data, secrets)
}

func hash(file []byte, secrets map[string]Secret) string {
	h := sha256.New()
	part := func(s string) { // with its length, so that no two lists of parts look alike
		fmt.Fprintf(h, "%d:", len(s))
		io.WriteString(h, s)
	}
	part(string(file))
	for _, ref := range slices.Sorted(maps.Keys(secrets)) {
		text, err := secrets[ref].read()
		part(ref)
		part(text)
		part(fmt.Sprint(err))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// maxFile is the longest config file, in bytes.
const maxFile = 4 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
