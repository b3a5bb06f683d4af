package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Load reads and parses the file at path.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, data)
}

// Parse compiles data; file is its name in messages, for a Watcher, and where what it includes is looked for. An error is
// Faults: everything that is wrong, at once.
//
// The files that it includes and the secrets that they name are read here. One that is absent is not a fault: its targets cannot be used, and
// Secret.Value says why.
func Parse(file string, data []byte) (*Config, error) {
	c := &compiler{reader: newReader(file), f: defaults(), secrets: map[string]Secret{}}
	var more []source
	if len(data) > maxFile {
		c.fault("", "larger than %d bytes", maxFile)
	} else if c.read(data, &c.f) {
		more = c.included()
		c.include(more)
		c.compile()
	}
	if len(c.faults) > 0 {
		c.faults.sort(file)
		return nil, c.faults
	}
	c.out.File, c.out.Hash = file, hash(data, more, c.secrets)
	c.out.refs = slices.Sorted(maps.Keys(c.secrets))
	return &c.out, nil
}

// compiler makes a Config of the file's structs. It goes on after a fault, so that one run tells all of them; what a
// fault leaves half-made is never handed out.
type compiler struct {
	*reader
	f       fileRoot
	out     Config
	secrets map[string]Secret // by reference: each is read once
}

func (c *compiler) compile() {
	c.out.MaxRetryAfter = c.f.MaxRetryAfter
	c.mode("mode", c.f.Mode)
	c.store()
	c.recovery()
	c.server()
	c.envoy()
	c.providers()
	c.tenant()
	c.targets()
	c.chains()
	c.jobs()
	c.drill()
	c.tracing()
	c.passthrough()
	c.rules()
}

func (c *compiler) mode(path, got string) {
	c.oneOf(path, got, "enforce", "observe")
}

// oneOf checks a word of the file.
func (c *compiler) oneOf(path, got string, words ...string) {
	if !slices.Contains(words, got) && !c.wrong[path] {
		c.fault(path, "expected %s, got %.40q%s", either(words), got, didYouMean(got, words))
	}
}

// either is a list as a sentence has it: a, b or c.
func either[S ~string](words []S) string {
	var b strings.Builder
	for i, w := range words {
		switch i {
		case 0:
		case len(words) - 1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// present checks that the file sets what has no default.
func (c *compiler) present(path string) bool {
	if !c.has(path) {
		c.fault(path, "required, but missing")
	}
	return !c.wrong[path]
}

// required checks that a string is there.
func (c *compiler) required(path, got string) bool {
	switch {
	case got != "":
		return true
	case c.present(path):
		c.fault(path, "must not be empty")
	}
	return false
}

// share checks a part of a whole.
func (c *compiler) share(path string, got float64) {
	if !(got >= 0 && got <= 1) && !c.wrong[path] { // NaN is neither
		c.fault(path, "must be 0 to 1, got %v", got)
	}
}

// someShare checks a part that may not be nothing.
func (c *compiler) someShare(path string, got float64) {
	if !(got > 0 && got <= 1) && !c.wrong[path] {
		c.fault(path, "must be more than 0 and at most 1, got %v", got)
	}
}

// positive checks a number of things.
func (c *compiler) positive(path string, got int) {
	if got < 1 {
		c.fault(path, "must be at least 1, got %d", got)
	}
}

// name checks a name that goes into headers (x-llm-chain, x-llm-cluster) and metric labels.
func (c *compiler) name(path, name string) {
	if !plainName.MatchString(strings.ReplaceAll(name, ".", "")) || len(name) > 128 {
		c.fault(path, "a name is 1 to 128 letters, digits or . _ - / : @")
	}
}
