package main

import (
	"math"
	"time"
)

// growth is the width of a histogram's bins: half a percent, below what any two runs differ by.
const growth = 1.005

var logGrowth = math.Log(growth)

// hist counts durations by size. Bin n has those from growth^n nanoseconds on. It is kept whole in the raw data, so that
// quantiles can be taken over any set of rounds.
type hist map[int]int64

func (h hist) add(d time.Duration) { h[int(math.Log(float64(max(d, 1)))/logGrowth)]++ }

func (h hist) merge(other hist) {
	for bin, n := range other {
		h[bin] += n
	}
}

func (h hist) count() (n int64) {
	for _, c := range h {
		n += c
	}
	return n
}

// quantile is the middle of the bin in which the q-th part of all ends; 0 of nothing.
func (h hist) quantile(q float64) time.Duration {
	want := int64(math.Ceil(q * float64(h.count())))
	for _, bin := range sortedKeys(h) {
		if want -= h[bin]; want <= 0 {
			return time.Duration(math.Pow(growth, float64(bin)+0.5))
		}
	}
	return 0
}
