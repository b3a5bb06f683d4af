//go:build race

package classify

// racing: the race detector has a sync.Pool drop a quarter of what it gets.
const racing = true
