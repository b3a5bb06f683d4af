package classify

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	heading = regexp.MustCompile(`(?m)^##+ (\d+)([a-z])?(?:-\d*([a-z]))?[.\s]`)
	listed  = regexp.MustCompile(`(?:^|\s)(\d+)\. `)
	cited   = regexp.MustCompile(`(?:^|[;,] )(\d+[a-z]?(?:\.\d+)?)\b`)
)

// sections are the numbers that docs/wire-formats.md has: "5a", "7", "13.6".
func sections(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../docs/wire-formats.md")
	if err != nil {
		t.Fatal(err)
	}
	out, text := map[string]bool{}, string(b)
	places := heading.FindAllStringSubmatchIndex(text, -1)
	for i, at := range places {
		m := heading.FindStringSubmatch(text[at[0]:at[1]])
		out[m[1]+m[2]] = true
		for c := m[2]; m[3] != "" && c <= m[3]; c = string(c[0] + 1) { // "2c-2g" is one section
			out[m[1]+c] = true
		}
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		for _, item := range listed.FindAllStringSubmatch(text[at[1]:end], -1) {
			out[m[1]+"."+item[1]] = true
		}
	}
	return out
}

func TestCitationsResolve(t *testing.T) {
	known := sections(t)
	check := func(what, source string) {
		source = strings.TrimPrefix(source, "wire-formats ")
		for _, m := range cited.FindAllStringSubmatch(source, -1) {
			if !known[m[1]] && strings.HasPrefix(source, m[1]) {
				t.Errorf("%s: source %q: docs/wire-formats.md has no %s", what, source, m[1])
			}
		}
	}
	for _, f := range fixtures(t) { // those of the contract cite none
		check(f.name, f.rec.Get("x-fixture-source"))
	}
	facts := map[string]string{}
	for _, w := range rows {
		facts[fmt.Sprintf("row %q %q %d", w.token, w.text, w.status)] = w.source
	}
	for reason, s := range stops {
		facts["stop reason "+reason] = s.source
	}
	for what, source := range facts {
		if !strings.HasPrefix(source, "general knowledge") && !cited.MatchString(strings.TrimPrefix(source, "wire-formats ")) {
			t.Errorf("%s: source %q cites no section", what, source)
		}
		check(what, source)
	}
}

func TestEverySectionHasItsRecordings(t *testing.T) {
	have := map[string]bool{}
	for _, f := range fixtures(t) {
		for _, m := range cited.FindAllStringSubmatch(f.rec.Get("x-fixture-source"), -1) {
			have[m[1]] = true
		}
	}
	const want = "1a 1b 1c 1d 1e 1f 1g 2a 2b 2c 3 4 5a 5b 5c 5d 5e 5f 5g 6 7 8 9 10 " +
		"12.1 12.2 12.3 12.4 12.5 12.6 12.8 12.9 12.10 13.1 13.2 13.3 13.4 13.5 13.6 13.7 13.8 13.9 13.10 13.11 13.12 13.13"
	for section := range strings.FieldsSeq(want) {
		if !have[section] {
			t.Errorf("no recorded answer cites %s", section)
		}
	}
}
