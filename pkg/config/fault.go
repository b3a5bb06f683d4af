package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong in the file, where, and what to do about it. It never carries a secret.
type Fault struct {
	File string
	Line int    // from 1; of the nearest thing the file does say, when something is missing
	Path string // such as chains.a.targets[0]; "" is the file as a whole
	Msg  string
}

// Error is FILE:LINE: path: what is wrong and what to do.
func (f Fault) Error() string {
	if f.Path == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Msg)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Path, f.Msg)
}

// Faults is everything that is wrong: of the main file, then of each that it includes, sorted by line. It is never
// empty when it is an error.
type Faults []Fault

// Error is one fault a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each Fault reachable by errors.As.
func (fs Faults) Unwrap() []error {
	errs := make([]error, len(fs))
	for i, f := range fs {
		errs[i] = f
	}
	return errs
}

func (fs Faults) sort(main string) {
	rank := func(f Fault) string { // no file's name sorts before the main one's
		if f.File == main {
			return ""
		}
		return f.File
	}
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Line, b.Line))
	})
}
