package config

import (
	"bytes"
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

	main    []byte // the main file, as it was there last
	pattern string // what it includes, whether or not it is valid otherwise
}

// NewWatcher watches the sources of c.
func NewWatcher(c *Config) *Watcher { return &Watcher{c: c, seen: c.Hash} }

// Follow watches the sources of c from now on, where c has taken the place of the Config before.
func (w *Watcher) Follow(c *Config) {
	if c != w.c {
		w.c, w.seen = c, c.Hash
	}
}

// Changed reports whether the sources hold something else than at the last call (or than c was read from).
// A file that cannot be read is a change too: Load says why.
func (w *Watcher) Changed() bool {
	data, err := readFile(w.c.File)
	now := "unreadable"
	if err == nil {
		now = w.hashNow(data)
	}
	changed := now != w.seen
	w.seen = now
	return changed
}

// hashNow is the Hash that the Config would have with this main file, and what else there is at this moment.
func (w *Watcher) hashNow(data []byte) string {
	if !bytes.Equal(data, w.main) {
		w.main, w.pattern = data, patternIn(data)
	}
	more, err := sources(w.c.File, w.pattern)
	if err != nil {
		more = []source{{err: err}}
	}
	secrets := map[string]Secret{}
	for _, ref := range w.c.refs {
		secrets[ref], _ = ReadSecret(ref) // its form was checked when c was read
	}
	return hash(data, more, secrets)
}

func hash(main []byte, more []source, secrets map[string]Secret) string {
	h := sha256.New()
	part := func(s string) { // with its length, so that no two lists of parts look alike
		fmt.Fprintf(h, "%d:", len(s))
		io.WriteString(h, s)
	}
	part(string(main))
	for _, s := range more {
		part(s.file)
		part(string(s.data))
		part(fmt.Sprint(s.err))
	}
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
