package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mainFile includes what is in chains.d; %s is more of it.
const mainFile = `include: chains.d/*.yaml
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {none: true}}}
targets: {a/x: {provider: a, model: x}}
chains: {own: {match: [{path: /v1/messages}], targets: [a/x]}}
`

func teamChain(name string) string {
	return "chains:\n  " + name + ": {match: [{path: /" + name + "/v1/messages}], targets: [a/x]}\n"
}

// tree writes files under a new folder, of which it is in meanwhile, so that messages are the same everywhere.
func tree(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("chains.d", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, name, text)
	}
}

func names(c *Config) string {
	var all []string
	for _, ch := range c.Chains {
		all = append(all, ch.Name)
	}
	return strings.Join(all, " ")
}

func TestChainsOfOtherFilesComeAfterTheMainOnes(t *testing.T) {
	if got := names(load(t, "testdata/included/main.yaml")); got != "own a b1 b2" {
		t.Errorf("chains of Load() = %s, want own a b1 b2", got)
	}
	for _, tt := range []struct {
		name, include string
		files         map[string]string
		want          string
	}{
		{"no file fits", "chains.d/*.yaml", map[string]string{"chains.d/notes.txt": "not YAML: ["}, "own"},
		{"one file by its name", "chains.d/b.yaml", map[string]string{"chains.d/a.yaml": teamChain("a"), "chains.d/b.yaml": teamChain("b")}, "own b"},
		{"files beside the main one", "*.yaml", map[string]string{"a.yaml": teamChain("a")}, "own a"},
		{"everything in a folder", "chains.d/*", map[string]string{"chains.d/a": teamChain("a"), "chains.d/.hidden": "not YAML: ["}, "own a"},
		{"a file with nothing in it", "chains.d/*", map[string]string{"chains.d/a": "", "chains.d/b": "# later\n", "chains.d/c": "chains:\n"}, "own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree(t, tt.files)
			write(t, "u.yaml", strings.Replace(mainFile, "chains.d/*.yaml", `"`+tt.include+`"`, 1))
			if got := names(load(t, "u.yaml")); got != tt.want {
				t.Errorf("chains of Load() = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestIncludeIsFoundBesideTheMainFileFromAnywhere(t *testing.T) {
	tree(t, map[string]string{"u.yaml": mainFile, "chains.d/a.yaml": teamChain("a")})
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if got := names(load(t, filepath.Join(dir, "u.yaml"))); got != "own a" {
		t.Errorf("chains of Load() = %s, want own a", got)
	}
}

func TestTheMainFileIsNotIncludedHoweverItIsNamed(t *testing.T) {
	tree(t, map[string]string{"a.yaml": teamChain("a")})
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.yaml", filepath.Join(dir, "*.yaml"), filepath.Join("..", filepath.Base(dir), "*.yaml")} {
		write(t, "u.yaml", strings.Replace(mainFile, "chains.d/*.yaml", `"`+pattern+`"`, 1))
		for _, main := range []string{"u.yaml", "./u.yaml", filepath.Join(dir, "u.yaml")} {
			if got := names(load(t, main)); got != "own a" {
				t.Errorf("chains of Load(%s) with include: %s = %s, want own a", main, pattern, got)
			}
		}
	}
}

func TestFaultsOfIncludedFilesAreNamedByFileAndLine(t *testing.T) {
	for _, tt := range []struct {
		name  string
		main  string // "" is mainFile
		files map[string]string
		want  []string
	}{
		{"a chain is in two files", "", map[string]string{"chains.d/a.yaml": teamChain("a"), "chains.d/b.yaml": "# b\n" + teamChain("a")},
			[]string{"chains.d/b.yaml:3: chains.a: set twice, first in chains.d/a.yaml:2: no file changes what another says"}},
		{"a chain is in the main file, too", "", map[string]string{"chains.d/a.yaml": teamChain("own")},
			[]string{"chains.d/a.yaml:2: chains.own: set twice, first in u.yaml:4: no file changes what another says"}},
		{"a chain is twice in one file", "", map[string]string{"chains.d/a.yaml": teamChain("a") + strings.TrimPrefix(teamChain("a"), "chains:\n")},
			[]string{"chains.d/a.yaml:3: chains.a: set twice, first on line 2: remove one"}},
		{"a team brings a provider", "", map[string]string{"chains.d/a.yaml": "providers: {b: {api: openai}}\n" + teamChain("a")},
			[]string{"chains.d/a.yaml:1: providers: an included file holds chains and nothing else: write this into u.yaml"}},
		{"an included file includes another", "", map[string]string{"chains.d/a.yaml": teamChain("a") + "include: more/*.yaml\n"},
			[]string{"chains.d/a.yaml:3: include: an included file holds chains and nothing else: write this into u.yaml"}},
		{"faults of several files", strings.Replace(mainFile, "model: x", "model: x, modell: y", 1), map[string]string{
			"chains.d/a.yaml": "chains:\n  a: {match: [{path: /a/v1/messages}],\n    targets: [a/y]}\n",
			"chains.d/b.yaml": "chains:\n  b: {match: [{path: /b/v1/messages}], targets: [a/x], comit: headers}\n",
		}, []string{
			"u.yaml:3: targets.a/x.modell: unknown key: did you mean model?",
			"chains.d/a.yaml:3: chains.a.targets[0]: no target is named \"a/y\": did you mean a/x?",
			"chains.d/b.yaml:2: chains.b.comit: unknown key: did you mean commit?",
		}},
		{"two rules of two files fit the same", "", map[string]string{"chains.d/a.yaml": strings.Replace(teamChain("a"), "/a/v1", "/v1", 1)},
			[]string{"chains.d/a.yaml:2: chains.a.match[0]: the same rule as chains.own.match[0]: remove one"}},
		{"no YAML", "", map[string]string{"chains.d/a.yaml": "chains: [\n"},
			[]string{"chains.d/a.yaml:1: not valid YAML: did not find expected node content"}},
		{"a list", "", map[string]string{"chains.d/a.yaml": "- chains\n"}, []string{"chains.d/a.yaml:1: expected a mapping (key: value), got a list"}},
		{"chains that are none", "", map[string]string{"chains.d/a.yaml": "chains: [a]\n"},
			[]string{"chains.d/a.yaml:1: chains: expected a mapping (key: value), got a list"}},
		{"two documents", "", map[string]string{"chains.d/a.yaml": teamChain("a") + "---\n" + teamChain("b")},
			[]string{"chains.d/a.yaml:3: a second YAML document starts here: one file holds one document"}},
		{"a pattern for folders", strings.Replace(mainFile, "chains.d/*.yaml", "'*/a.yaml'", 1), nil,
			[]string{"u.yaml:1: include: only the name of a file may hold * ? or [, not that of a folder"}},
		{"no such folder", strings.Replace(mainFile, "chains.d", "nowhere", 1), nil, []string{`u.yaml:1: include: "nowhere" cannot be read: no such file or directory`}},
		{"no such file", strings.Replace(mainFile, "*.yaml", "a.yaml", 1), nil, []string{"u.yaml:1: include: there is no such file"}},
		{"a broken pattern", strings.Replace(mainFile, "*.yaml", "a[b", 1), map[string]string{"chains.d/x": ""}, []string{`u.yaml:1: include: "a[b" is no pattern: a [ has no ]`}},
		{"a folder", strings.Replace(mainFile, "*.yaml", "", 1), nil, []string{"u.yaml:1: include: expected files, such as chains.d/*.yaml"}},
		{"a list of patterns", strings.Replace(mainFile, "chains.d/*.yaml", "[a.yaml]", 1), nil, []string{"u.yaml:1: include: expected a string, got a list"}},
		{"too much", "", map[string]string{"chains.d/a.yaml": strings.Repeat("#", maxFile+1)}, []string{fmt.Sprintf("chains.d/a.yaml:1: larger than %d bytes", maxFile)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree(t, tt.files)
			if tt.main == "" {
				tt.main = mainFile
			}
			write(t, "u.yaml", tt.main)
			_, err := Load("u.yaml")
			if got, want := fmt.Sprint(err), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("Load() =\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestWhatCannotBeReadIsAFault(t *testing.T) {
	tree(t, map[string]string{"u.yaml": mainFile})
	if err := os.Mkdir("chains.d/b.yaml", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", "chains.d/c.yaml"); err != nil {
		t.Fatal(err)
	}
	want := "chains.d/b.yaml:1: cannot be read: not a regular file\nchains.d/c.yaml:1: cannot be read: no such file or directory"
	if _, err := Load("u.yaml"); fmt.Sprint(err) != want {
		t.Errorf("Load() =\n%v\nwant\n%s", err, want)
	}
}

func TestThereIsABoundOnIncludedFiles(t *testing.T) {
	tree(t, map[string]string{"u.yaml": mainFile})
	for i := range maxIncluded + 1 {
		write(t, fmt.Sprintf("chains.d/%d.yaml", i), "")
	}
	if _, err := Load("u.yaml"); fmt.Sprint(err) != "u.yaml:1: include: more than 500 files" {
		t.Errorf("Load() = %v, want a fault of u.yaml:1", err)
	}
}

func TestWatcherSeesIncludedFilesComeChangeAndGo(t *testing.T) {
	tree(t, map[string]string{"u.yaml": mainFile, "chains.d/a.yaml": teamChain("a")})
	first := load(t, "u.yaml")
	w := NewWatcher(first)
	expect := func(after string, want bool) {
		t.Helper()
		if got := w.Changed(); got != want {
			t.Errorf("Changed() after %s = %t, want %t", after, got, want)
		}
	}
	expect("nothing", false)
	write(t, "chains.d/b.yaml", teamChain("b"))
	expect("a new file", true)
	expect("nothing more", false)
	if got := load(t, "u.yaml"); names(got) != "own a b" || got.Hash == first.Hash || got.Hash != w.seen {
		t.Errorf("Load() = %s with hash %s, want own a b with that of the watcher, %s", names(got), got.Hash, w.seen)
	}
	write(t, "chains.d/notes.txt", "x")
	expect("a file that does not fit", false)
	write(t, "chains.d/b.yaml", "nonsense: 1")
	expect("a fault in it", true)
	if err := os.Rename("chains.d/b.yaml", "chains.d/c.yaml"); err != nil {
		t.Fatal(err)
	}
	expect("another name", true)
	if err := os.Remove("chains.d/c.yaml"); err != nil {
		t.Fatal(err)
	}
	expect("its end", true)
	if got := load(t, "u.yaml"); got.Hash != first.Hash {
		t.Error("Hash without the file differs from that before it came")
	}
	if err := os.RemoveAll("chains.d"); err != nil {
		t.Fatal(err)
	}
	expect("the folder's end", true)
	expect("nothing more", false)
}

// A main file may begin to include while it has a fault, and be mended by a change of the other file.
func TestWatcherSeesWhatAFaultyMainFileIncludes(t *testing.T) {
	tree(t, map[string]string{"u.yaml": strings.TrimPrefix(mainFile, "include: chains.d/*.yaml\n")})
	w := NewWatcher(load(t, "u.yaml"))
	write(t, "chains.d/a.yaml", "nonsense: 1")
	write(t, "u.yaml", mainFile)
	if _, err := Load("u.yaml"); !w.Changed() || err == nil {
		t.Fatalf("Load() = %v, want a fault and a change", err)
	}
	write(t, "chains.d/a.yaml", teamChain("a"))
	if !w.Changed() {
		t.Error("Changed() after the included file is mended = false, want true")
	}
}

// Kubernetes mounts a ConfigMap as links into a folder of links, which it exchanges at once.
func TestAMountedConfigMapIsRead(t *testing.T) {
	tree(t, map[string]string{"u.yaml": mainFile})
	mount := func(stamp, text string) {
		t.Helper()
		if err := os.Mkdir("chains.d/.."+stamp, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, "chains.d/.."+stamp+"/team.yaml", text)
		if err := os.Symlink(".."+stamp, "chains.d/..tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename("chains.d/..tmp", "chains.d/..data"); err != nil {
			t.Fatal(err)
		}
	}
	mount("1", teamChain("a"))
	if err := os.Symlink("..data/team.yaml", "chains.d/team.yaml"); err != nil {
		t.Fatal(err)
	}
	c := load(t, "u.yaml")
	if names(c) != "own a" {
		t.Errorf("chains of Load() = %s, want own a", names(c))
	}
	w := NewWatcher(c)
	mount("2", teamChain("b"))
	if !w.Changed() || names(load(t, "u.yaml")) != "own b" {
		t.Errorf("after another mount: chains %s, want own b and a change", names(load(t, "u.yaml")))
	}
}
