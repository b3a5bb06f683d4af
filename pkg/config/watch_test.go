package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// watched writes a config file with one secret file and returns both paths.
func watched(t *testing.T) (file, key string) {
	dir := t.TempDir()
	key = write(t, filepath.Join(dir, "key"), "sk-1")
	file = write(t, filepath.Join(dir, "u.yaml"), `
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {bearer: "file:`+key+`"}}}
targets: {a/x: {provider: a, model: x}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x]}}
`)
	return file, key
}

func load(t *testing.T, file string) *Config {
	t.Helper()
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWatcherSeesTheFileAndItsSecrets(t *testing.T) {
	file, key := watched(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := load(t, file)
	for _, step := range []struct {
		name, path, content string
		want                bool
	}{
		{"the same file written again", file, string(text), false},
		{"a comment", file, string(text) + "# x\n", true},
		{"the first file again", file, string(text), false},
		{"a fault", file, "nonsense: 1", true},
		{"the first file once more", file, string(text), false},
		{"another secret", key, "sk-2", true},
		{"the first secret with a line break", key, "sk-1\n", false},
		{"an empty secret", key, "", true},
	} {
		write(t, step.path, step.content)
		if got := NewWatcher(c).Changed(); got != step.want {
			t.Errorf("Changed() after %s = %t, want %t", step.name, got, step.want)
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if !NewWatcher(c).Changed() {
		t.Error("Changed() without the secret = false, want true")
	}
}

func TestWatcherTellsEachChangeOnce(t *testing.T) {
	file, key := watched(t)
	w := NewWatcher(load(t, file))
	expect := func(after string, want bool) {
		t.Helper()
		if got := w.Changed(); got != want {
			t.Errorf("Changed() after %s = %t, want %t", after, got, want)
		}
	}
	expect("nothing", false)
	write(t, file, "nonsense: 1")
	expect("a fault", true)
	expect("the same fault", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect("the file is gone", true)
	expect("the file is still gone", false)
	write(t, file, "nonsense: 2")
	expect("another fault", true)
	write(t, key, "sk-2")
	expect("another secret", true)
	expect("nothing", false)
}

func TestHashChangesWithTheSecret(t *testing.T) {
	file, key := watched(t)
	first := load(t, file)
	write(t, key, "sk-2")
	second := load(t, file)
	if first.Hash == second.Hash || len(first.Hash) != 64 {
		t.Errorf("Hash = %q then %q, want two hex SHA-256 that differ", first.Hash, second.Hash)
	}
	if same := load(t, file); same.Hash != second.Hash {
		t.Errorf("Hash of the same sources = %q then %q", second.Hash, same.Hash)
	}
}

func TestHashChangesWithEveryLineOfTheKeys(t *testing.T) {
	file, _ := watched(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, second := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	keys := write(t, filepath.Join(t.TempDir(), "keys"), first)
	write(t, file, string(text)+"store: {encrypt: 'file:"+keys+"'}\n")
	w := NewWatcher(load(t, file))
	for _, step := range []struct {
		name, content string
		want          bool
	}{
		{"the same key", first + "\n", false},
		{"a new key before it", second + "\n" + first, true},
		{"the same keys", second + "\n" + first + "\n", false},
		{"the keys in another order", first + "\n" + second, true},
	} {
		write(t, keys, step.content)
		if got := w.Changed(); got != step.want {
			t.Errorf("Changed() after %s = %t, want %t", step.name, got, step.want)
		}
	}
}

func TestWatcherFollowsTheConfigInUse(t *testing.T) {
	file, key := watched(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := load(t, file)
	w := NewWatcher(first)
	other := write(t, filepath.Join(t.TempDir(), "other"), "sk-1")
	write(t, file, strings.Replace(string(text), key, other, 1))
	if !w.Changed() {
		t.Fatal("Changed() after another file of a secret = false, want true")
	}
	w.Follow(first) // it stays in use where the next is refused
	if w.Changed() {
		t.Error("Changed() after a refusal = true, want that it is told once")
	}
	w.Follow(load(t, file))
	if w.Changed() {
		t.Error("Changed() right after a reload = true, want false")
	}
	write(t, other, "sk-2")
	if !w.Changed() {
		t.Error("Changed() after a change of the secret that the reload brought = false, want true")
	}
	write(t, key, "sk-2")
	if w.Changed() {
		t.Error("Changed() after a change of the secret that is named no longer = true, want false")
	}
}
