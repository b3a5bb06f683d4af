package classify

import (
	"runtime"
	"testing"
)

// stateLimit is what one open stream may hold, in bytes: thousands are open at once.
const stateLimit = 2 << 10

func TestAnOpenStreamHoldsLittle(t *testing.T) {
	for _, tt := range contentEvents {
		event := []byte(tt.event)
		open := make([]*Response, 1000)
		before := heap()
		for i := range open {
			open[i] = response(tt.api, tt.head)
			open[i].Feed(event)
			open[i].Feed(event[:len(event)/2]) // an event that is not here yet is held
		}
		held := (heap() - before) / uint64(len(open))
		if runtime.KeepAlive(open); held > stateLimit+uint64(len(event)) {
			t.Errorf("%s: an open stream holds %d bytes, want at most %d and half an event", tt.name, held, stateLimit)
		}
	}
}

// heap is how many bytes of the heap are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first leaves what finalizers hold
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
