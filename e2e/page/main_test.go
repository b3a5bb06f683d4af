//go:build page

package page

import (
	"os"
	"testing"

	"understudy/internal/stage"
)

// binary is the path of the built service. TestMain sets it.
var binary string

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &binary)) }
