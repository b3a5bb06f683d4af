//go:build !mesh

package envoy_test

import "testing"

// missing skips what needs a tool that this machine lacks; scripts/manifests.sh installs them all and skips nothing.
func missing(t *testing.T, what string) {
	t.Helper()
	t.Skip("NOT CHECKED HERE: " + what + "; scripts/manifests.sh checks it")
}
