package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lints are patterns that must not stand in the sources, each with its reason.
var lints = []struct {
	pattern, reason string
	in              func(path string) bool
}{
	{`\btime\.(After|Sleep)\(`, "a wait that nothing can end: use a timer and a context", production},
	{`\blog\.Fatal|\bos\.Exit\(`, "only main ends the process", func(p string) bool { return production(p) && !strings.HasSuffix(p, "/main.go") }},
	{`interface\{\}`, "say any, or better a type", goFile},
	{`\.\(\*?[a-zA-Z.]*Error\)`, "wrapped errors are found by errors.As only", goFile},
	{`context\.Background\(\)`, "a context comes from the caller", func(p string) bool {
		return production(p) && !strings.Contains(p, "cmd/extproc/") && !strings.Contains(p, "internal/scripted/")
	}},
	{`\btime\.Sleep\(`, "tests wait for events, or sleep in a synctest bubble", func(p string) bool {
		return goFile(p) && !production(p) && !bubbles(p) && !mentions(p, "//go:build e2e")
	}},
}

func goFile(p string) bool {
	return strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "lint_test.go")
}

func production(p string) bool {
	return goFile(p) && !strings.HasSuffix(p, "_test.go") && !strings.Contains(p, "/e2e/")
}

// bubbles says that tests of path's package run in synctest bubbles: a helper in another file may open them.
func bubbles(path string) bool {
	tests, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*_test.go"))
	return err == nil && slices.ContainsFunc(tests, func(p string) bool { return !strings.HasSuffix(p, "lint_test.go") && mentions(p, "synctest") })
}

func mentions(path, text string) bool {
	data, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(data), text)
}

func TestSourcesKeepTheHouseRules(t *testing.T) {
	for _, dir := range []string{"cmd", "pkg", "internal", "e2e"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return lint(t, path)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func lint(t *testing.T, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, l := range lints {
		if !l.in(path) {
			continue
		}
		for _, at := range regexp.MustCompile(l.pattern).FindAllIndex(data, -1) {
			line := strings.Count(string(data[:at[0]]), "\n") + 1
			t.Errorf("%s:%d: %s: %s", path, line, data[at[0]:at[1]], l.reason)
		}
	}
	return nil
}
