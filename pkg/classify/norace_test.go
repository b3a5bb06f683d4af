//go:build !race

package classify

const racing = false
