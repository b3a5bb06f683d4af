//go:build mesh

package mesh

import (
	"path/filepath"
	"testing"

	"understudy/internal/stage"
)

// The suite itself is right: our own bootstrap passes it. Where a mesh fails a row, the mesh is different.
func TestOurOwnBootstrapPassesTheSuite(t *testing.T) {
	s := newStack(t, nil)
	bootstrap := stage.Output(t, binary, "envoy", "-c", s.config)
	stage.Envoy(t, envoyVersion, stage.Write(t, filepath.Join(s.dir, "bootstrap.yaml"), []byte(bootstrap)), s.frontURL()+"/v1/models")
	rows(t, s.frontURL(), s)
}
