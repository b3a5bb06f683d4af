//go:build !unix

package store

import (
	"errors"
	"os"
)

// flock refuses: without a lock that dies with its process, two processes could write one folder.
func flock(*os.File) error {
	return errors.New("an embedded store needs file locks, which this system lacks: use a NATS cluster")
}
