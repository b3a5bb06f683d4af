package attach

import (
	"regexp"
	"sync"
)

// Form compiles an expression when it is first used: a service that serves uses none of those that manifests are checked by.
func Form(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
