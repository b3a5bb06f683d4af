package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxValues bounds what aliases can blow a small file up to.
const maxValues = 50_000

// reader turns YAML nodes into the structs of the file, strictly, and remembers where everything stood, so that
// later checks can name the line of any path.
//
// yaml's own decoding stops short of this: it reports neither paths nor duplicate keys together with unknown ones.
type reader struct {
	file   string              // that is read now; the main one before and after
	places map[string]place    // of each path that a file sets, the first where several do
	keys   map[string][]string // of each path that is a map of named things, in the order of the file
	wrong  map[string]bool     // paths with a fault
	values int                 // read so far
	faults Faults
}

// place is where something stands.
type place struct {
	file string
	line int // from 1
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

func newReader(file string) *reader {
	return &reader{
		file:   file,
		places: map[string]place{"": {file, 1}},
		keys:   map[string][]string{},
		wrong:  map[string]bool{},
	}
}

func (r *reader) fault(path, format string, args ...any) {
	r.tell(r.place(path), path, format, args...)
}

// faultAt is a fault in the file that is read now.
func (r *reader) faultAt(line int, path, format string, args ...any) {
	r.tell(place{r.file, line}, path, format, args...)
}

func (r *reader) tell(at place, path, format string, args ...any) {
	r.wrong[path] = true
	r.faults = append(r.faults, Fault{File: at.file, Line: at.line, Path: path, Msg: fmt.Sprintf(format, args...)})
}

// has reports whether the file sets the path, rightly or wrongly.
func (r *reader) has(path string) bool {
	_, ok := r.places[path]
	return ok
}

// place is where the path, or the nearest thing around it, stands.
func (r *reader) place(path string) place {
	for !r.has(path) {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return r.places[path]
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_/:@-]+$`)

// at is the path of a key; names that would make it ambiguous are quoted.
func at(path, key string) string {
	switch {
	case !plainName.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// read fills f and reports whether it could read all of it, rightly or wrongly.
func (r *reader) read(data []byte, f *fileRoot) bool {
	doc, ok := r.document(data)
	if doc != nil {
		r.value("", doc, reflect.ValueOf(f).Elem())
	}
	return ok && r.values <= maxValues
}

// document is the one of a file, nil where there is none, and whether it is YAML.
func (r *reader) document(data []byte) (doc *yaml.Node, ok bool) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := dec.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil, false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		r.faultAt(second.Line, "", "a second YAML document starts here: one file holds one document")
	case !errors.Is(err, io.EOF):
		r.syntax(err)
	}
	if len(first.Content) == 1 {
		doc = first.Content[0]
	}
	return doc, true
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax tells of what yaml could not read. Anchor names are left out: a secret pasted after a * would be one.
func (r *reader) syntax(err error) {
	msg, line := err.Error(), 1
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	msg = strings.TrimPrefix(msg, "yaml: ")
	if strings.Contains(msg, "anchor") {
		msg = "an alias names no anchor above it"
	}
	r.faultAt(max(line, 1), "", "not valid YAML: %s", msg)
}

// value reads node n, which stands at path, into v.
func (r *reader) value(path string, n *yaml.Node, v reflect.Value) {
	if r.values++; r.values > maxValues {
		if r.values == maxValues+1 {
			r.fault("", "more than %d values: write a smaller file, with fewer aliases", maxValues)
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch v.Kind() {
	case reflect.Struct:
		r.object(path, n, v)
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Pointer {
			r.named(path, n, v)
			return
		}
		r.table(path, n, v)
	case reflect.Slice:
		r.list(path, n, v)
	default:
		r.scalar(path, n, v)
	}
}

// shorthand is a struct that may be written as one string.
type shorthand interface{ short(string) }

func (r *reader) object(path string, n *yaml.Node, v reflect.Value) {
	if s, ok := v.Addr().Interface().(shorthand); ok && n.Kind == yaml.ScalarNode {
		var name string
		r.scalar(path, n, reflect.ValueOf(&name).Elem())
		s.short(name)
		return
	}
	fields := fieldsOf(v.Type())
	r.entries(path, n, func(key string, line int, val *yaml.Node) {
		i, ok := fields[key]
		if !ok {
			r.faultAt(line, at(path, key), "unknown key%s", didYouMean(key, slices.Collect(maps.Keys(fields))))
			return
		}
		r.value(at(path, key), val, v.Field(i))
	})
}

// named reads a map of named things; each starts as the default's element "*".
func (r *reader) named(path string, n *yaml.Node, v reflect.Value) {
	start := v.MapIndex(reflect.ValueOf("*")).Elem()
	out := reflect.MakeMap(v.Type())
	r.entries(path, n, func(key string, line int, val *yaml.Node) {
		if first := r.places[at(path, key)]; first.file != r.file {
			r.faultAt(line, at(path, key), "set twice, first in %s: no file changes what another says", first)
			return
		}
		elem := reflect.New(start.Type())
		elem.Elem().Set(start)
		r.value(at(path, key), val, elem.Elem())
		out.SetMapIndex(reflect.ValueOf(key), elem)
		r.keys[path] = append(r.keys[path], key)
	})
	v.Set(out)
}

// table reads a map of words to words or numbers.
func (r *reader) table(path string, n *yaml.Node, v reflect.Value) {
	out := reflect.MakeMap(v.Type())
	r.entries(path, n, func(key string, _ int, val *yaml.Node) {
		cell := reflect.New(v.Type().Elem()).Elem()
		r.value(at(path, key), val, cell)
		out.SetMapIndex(reflect.ValueOf(key), cell)
	})
	v.Set(out)
}

func (r *reader) list(path string, n *yaml.Node, v reflect.Value) {
	if isNull(n) {
		n = &yaml.Node{Kind: yaml.SequenceNode}
	}
	if n.Kind != yaml.SequenceNode {
		r.mismatch(path, n, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		r.places[index(path, i)] = place{r.file, item.Line}
		r.value(index(path, i), item, out.Index(i))
	}
	v.Set(out)
}

// entries calls each for every key of mapping n. A key with nothing behind it is an empty mapping.
func (r *reader) entries(path string, n *yaml.Node, each func(key string, line int, val *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.mismatch(path, n, "a mapping (key: value)")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.key(path, n.Content[i])
		if !ok {
			continue
		}
		line := n.Content[i].Line
		if at0, dup := first[key]; dup {
			r.faultAt(line, at(path, key), "set twice, first on line %d: remove one", at0)
			continue
		}
		first[key] = line
		if !r.has(at(path, key)) {
			r.places[at(path, key)] = place{r.file, line}
		}
		each(key, line, n.Content[i+1])
	}
}

func (r *reader) key(path string, n *yaml.Node) (string, bool) {
	line := n.Line
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		r.faultAt(line, path, "a key must be a plain word")
	case n.ShortTag() == "!!merge":
		r.faultAt(line, path, "merge keys (<<) are not supported: alias the whole value, or write the keys out")
	default:
		return n.Value, true
	}
	return "", false
}

// scalar reads the leaf types of the file. Only a duration, a size or a rate repeats what it could not read:
// anything else might be a secret in the wrong place.
func (r *reader) scalar(path string, n *yaml.Node, v reflect.Value) {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch p := v.Addr().Interface().(type) {
	case *string:
		if tag != "!!str" {
			r.mismatch(path, n, "a string")
			return
		}
		*p = n.Value
	case *bool:
		if tag != "!!bool" || n.Decode(p) != nil {
			r.mismatch(path, n, "true or false")
		}
	case *int:
		if tag != "!!int" || n.Decode(p) != nil {
			r.mismatch(path, n, "a whole number")
		}
	case *float64:
		if tag != "!!int" && tag != "!!float" || n.Decode(p) != nil {
			r.mismatch(path, n, "a number")
		}
	case *time.Duration:
		r.duration(path, n, p)
	case *size:
		r.size(path, n, p)
	case *rate:
		r.rate(path, n, p)
	default:
		panic("config: no reader for " + v.Type().String())
	}
}

func (r *reader) duration(path string, n *yaml.Node, p *time.Duration) {
	d, err := time.ParseDuration(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.mismatch(path, n, "a duration such as 30s")
	case err != nil:
		r.fault(path, "expected a duration such as 30s, got %.40q", n.Value)
	case d <= 0:
		r.fault(path, "must be more than 0, got %s", n.Value)
	default:
		*p = d
	}
}

func (r *reader) size(path string, n *yaml.Node, p *size) {
	b, ok := parseSize(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.mismatch(path, n, "a size such as 32MiB")
	case !ok:
		r.fault(path, "expected a size such as 32MiB (KiB, MiB, GiB, or plain bytes), got %.40q", n.Value)
	case b <= 0:
		r.fault(path, "must be more than 0, got %s", n.Value)
	default:
		*p = b
	}
}

func parseSize(s string) (size, bool) {
	unit := int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = strings.TrimSpace(rest), u
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return 0, false
	}
	return size(n * unit), true
}

func (r *reader) rate(path string, n *yaml.Node, p *rate) {
	calls, ok := parseRate(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.mismatch(path, n, "a rate such as 5/s")
	case !ok:
		r.fault(path, "expected a rate such as 5/s (a whole number per s, m or h), got %.40q", n.Value)
	case calls <= 0:
		r.fault(path, "must be more than 0, got %s", n.Value)
	default:
		*p = calls
	}
}

func parseRate(s string) (rate, bool) {
	calls, unit, _ := strings.Cut(s, "/")
	seconds, ok := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseInt(calls, 10, 32)
	return rate(float64(n) / seconds), ok && err == nil
}

func (r *reader) mismatch(path string, n *yaml.Node, want string) {
	hint := ""
	if want == "a string" && n.Kind == yaml.ScalarNode && !isNull(n) && strings.HasPrefix(n.ShortTag(), "!!") {
		hint = ": put it in quotes"
	}
	r.fault(path, "expected %s, got %s%s", want, kindOf(n), hint)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return "a string"
	case "!!bool":
		return "a true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!timestamp":
		return "a date"
	}
	return "a value with a tag of its own"
}

// fieldsOf is the key of each field of a struct of the file.
func fieldsOf(t reflect.Type) map[string]int {
	m := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		m[t.Field(i).Tag.Get("yaml")] = i
	}
	return m
}
