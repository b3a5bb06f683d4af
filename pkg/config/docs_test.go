package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// key is a row of the reference: a leaf of the file's structs and its default.
type key struct {
	path string
	def  reflect.Value
}

// keysOf walks the defaults, so that each leaf comes with its own.
func keysOf(path string, v reflect.Value) []key {
	switch {
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Pointer:
		return keysOf(path+".NAME", v.MapIndex(reflect.ValueOf("*")).Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		return keysOf(path+"[]", reflect.New(v.Type().Elem()).Elem())
	case v.Kind() != reflect.Struct:
		return []key{{path, v}}
	}
	var keys []key
	for i := range v.NumField() {
		keys = append(keys, keysOf(strings.TrimPrefix(path+"."+v.Type().Field(i).Tag.Get("yaml"), "."), v.Field(i))...)
	}
	return keys
}

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\| [^|]+ \\|$")

func TestReferenceHasEveryKeyOnceWithItsDefault(t *testing.T) {
	doc, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // key → default cell
	for _, m := range tableRow.FindAllStringSubmatch(string(doc), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("docs/config.md has %s twice", m[1])
		}
		rows[m[1]] = m[2]
	}
	for _, k := range keysOf("", reflect.ValueOf(defaults())) {
		cell, ok := rows[k.path]
		delete(rows, k.path)
		switch {
		case !ok:
			t.Errorf("docs/config.md has no row for %s", k.path)
		case !sameDefault(cell, k.def):
			t.Errorf("docs/config.md: default of %s = %s, want %v", k.path, cell, k.def)
		}
	}
	for path := range rows {
		t.Errorf("docs/config.md has a row for %s, which is no key", path)
	}
}

// sameDefault reads a cell as the file would be read. Where no value is the default, the cell is free to say more.
func sameDefault(cell string, want reflect.Value) bool {
	if want.IsZero() && want.Kind() != reflect.Bool && want.Kind() != reflect.Int {
		return true
	}
	source := strings.ReplaceAll(cell, "`", "")
	if want.Kind() == reflect.Slice {
		source = "[" + source + "]"
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(source), &n); err != nil || len(n.Content) != 1 {
		return false
	}
	got := reflect.New(want.Type()).Elem()
	r := newReader("cell")
	r.value("cell", n.Content[0], got)
	return len(r.faults) == 0 && reflect.DeepEqual(got.Interface(), want.Interface())
}

func TestExamplesInTheReferenceAreValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(examples) == 0 {
		t.Fatal("docs/config.md has no example")
	}
	for _, e := range examples {
		if _, err := Parse("docs/config.md", []byte(e[1])); err != nil {
			t.Errorf("Parse(%q): %v", e[1], err)
		}
	}
}
