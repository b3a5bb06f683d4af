package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxIncluded is how many files may be included.
const maxIncluded = 500

// wild is what makes a name a pattern.
const wild = `*?[\`

// source is an included file as it is at some moment.
type source struct {
	file string // its path; relative where the main file's is
	data []byte
	err  error
}

// sources are the files that a pattern stands for, by name. Like a shell, it leaves out those whose name begins with a
// dot: a folder that Kubernetes mounts has its links there. The main file includes itself no more than any other does.
func sources(main, pattern string) ([]source, error) {
	if pattern == "" {
		return nil, nil
	}
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(main), pattern)
	}
	folder, pattern := filepath.Split(pattern)
	entries, err := os.ReadDir(filepath.Clean(folder)) // sorted by name
	if err != nil {
		return nil, err
	}
	self := absolute(main)
	var all []source
	for _, e := range entries {
		fits, err := filepath.Match(pattern, e.Name())
		if err != nil {
			return nil, err
		}
		if file := folder + e.Name(); fits && e.Name()[0] != '.' && absolute(file) != self && len(all) <= maxIncluded {
			all = append(all, readSource(file))
		}
	}
	return all, nil
}

// absolute is a path by which the same file is found from anywhere.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path) // the working directory is gone
}

func readSource(file string) source {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return source{file: file, err: err}
	}
	data, err := readFile(file)
	return source{file, data, err}
}

// patternIn is what a main file includes, "" where that cannot be told.
func patternIn(main []byte) string {
	var f struct {
		Include string `yaml:"include"`
	}
	if yaml.Unmarshal(main, &f) != nil {
		return ""
	}
	return f.Include
}

// included reads what the main file includes.
func (c *compiler) included() []source {
	pattern := c.f.Include
	if c.wrong["include"] || !c.has("include") {
		return nil
	}
	folder, name := filepath.Split(pattern)
	if strings.ContainsAny(folder, wild) {
		c.fault("include", "only the name of a file may hold * ? or [, not that of a folder")
		return nil
	}
	if name == "" {
		c.fault("include", "expected files, such as chains.d/*.yaml")
		return nil
	}
	all, err := sources(c.file, pattern)
	switch {
	case errors.Is(err, filepath.ErrBadPattern):
		c.fault("include", "%.80q is no pattern: a [ has no ]", name)
	case err != nil:
		c.fault("include", "%.200q cannot be read: %v", filepath.Clean(folder), cause(err))
	case len(all) > maxIncluded:
		c.fault("include", "more than %d files", maxIncluded)
		return nil
	case len(all) == 0 && !strings.ContainsAny(name, wild):
		c.fault("include", "there is no such file")
	}
	return all
}

// include adds the chains of other files to those of the main one.
func (c *compiler) include(more []source) {
	main := c.file
	root, chains := c.places[""], c.places["chains"]
	for _, s := range more {
		c.file = s.file
		c.places[""] = place{s.file, 1}
		delete(c.places, "chains") // what is wrong with the whole of it is wrong there
		switch {
		case s.err != nil:
			c.faultAt(1, "", "cannot be read: %v", cause(s.err))
		case len(s.data) > maxFile:
			c.faultAt(1, "", "larger than %d bytes", maxFile)
		default:
			c.chainsOf(s.data, main)
		}
	}
	c.file, c.places[""] = main, root
	if chains.file != "" {
		c.places["chains"] = chains
	}
}

// chainsOf reads an included file.
func (c *compiler) chainsOf(data []byte, main string) {
	doc, _ := c.document(data)
	if doc == nil {
		return
	}
	c.entries("", doc, func(key string, line int, val *yaml.Node) {
		if key != "chains" {
			c.faultAt(line, at("", key), "an included file holds chains and nothing else: write this into %s", main)
			return
		}
		chains := defaults().Chains
		c.value("chains", val, reflect.ValueOf(&chains).Elem())
		for name, ch := range chains {
			c.f.Chains[name] = ch
		}
	})
}

// cause is why a file could not be read, without its path.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
