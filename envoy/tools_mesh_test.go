//go:build mesh

package envoy_test

import "testing"

func missing(t *testing.T, what string) {
	t.Helper()
	t.Fatal(what)
}
