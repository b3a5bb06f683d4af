//go:build unix

package store

import (
	"errors"
	"os"
	"syscall"
)

// flock takes f for this process without waiting; the kernel gives it back when the process ends, however it ends.
func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another process uses this folder: give each replica its own, or all of them one NATS cluster")
	}
	return err
}
