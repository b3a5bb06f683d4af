package budget

import (
	"fmt"
	"math"
	"math/bits"
)

// Money is an amount in nano-USD: 1,000,000,000 is a dollar. Sums of it are exact, and 9.2 billion dollars fit. What does
// not fit stays at the largest amount.
type Money int64

// Dollar is one.
const Dollar Money = 1e9

// MaxMoney is the largest amount.
const MaxMoney = Money(math.MaxInt64)

// FromUSD is an amount that a file writes in dollars, to the nearest nano-USD; what is negative or no number is 0.
func FromUSD(usd float64) Money {
	if !(usd > 0) {
		return 0
	}
	if nano := math.Round(usd * float64(Dollar)); nano < math.MaxInt64 {
		return Money(nano)
	}
	return MaxMoney
}

// USD is the amount in dollars, for metrics and pages; sums are to be made before.
func (m Money) USD() float64 { return float64(m) / float64(Dollar) }

// String is the amount in dollars, all nine places.
func (m Money) String() string {
	sign, abs := "", uint64(m)
	if m < 0 {
		sign, abs = "-", -abs
	}
	return fmt.Sprintf("%s$%d.%09d", sign, abs/uint64(Dollar), abs%uint64(Dollar))
}

// plus adds amounts that are not negative.
func (m Money) plus(other Money) Money {
	if m > MaxMoney-other {
		return MaxMoney
	}
	return m + other
}

// micros is a number that a file writes with at most six places behind the point, in millionths.
func micros(v float64) uint64 {
	switch r := math.Round(v * 1e6); {
	case !(r > 0):
		return 0
	case r < 1<<63:
		return uint64(r)
	}
	return 1 << 63
}

// atto is a sum in 10^-18 dollars. Tokens times a price times a factor are whole numbers of it, so that an attempt is
// rounded once, at its end.
type atto struct{ hi, lo uint64 }

// attoPerNano is how many of them are a nano-USD.
const attoPerNano = 1e9

// add adds tokens at a rate of atto-dollars each.
func (a *atto) add(tokens int64, rate uint64) {
	hi, lo := bits.Mul64(uint64(max(tokens, 0)), rate)
	var carry uint64
	a.lo, carry = bits.Add64(a.lo, lo, 0)
	if a.hi, carry = bits.Add64(a.hi, hi, carry); carry > 0 {
		*a = atto{math.MaxUint64, math.MaxUint64}
	}
}

// money rounds to the nearest nano-USD, a half up.
func (a atto) money() Money {
	lo, carry := bits.Add64(a.lo, attoPerNano/2, 0)
	if a.hi >= attoPerNano/2 { // More than a Money holds; the division would also overflow from twice that on.
		return MaxMoney
	}
	nano, _ := bits.Div64(a.hi+carry, lo, attoPerNano)
	return Money(min(nano, math.MaxInt64))
}

// rate is atto-dollars a token: a price in micro-dollars per million tokens times a factor in millionths.
func rate(price, factor uint64) uint64 {
	hi, lo := bits.Mul64(price, factor)
	if hi > 0 {
		return math.MaxUint64
	}
	return lo
}

// exceeds reports whether a is more than factor times b.
func exceeds(a Money, factor float64, b Money) bool {
	ah, al := bits.Mul64(uint64(max(a, 0)), 1e6)
	bh, bl := bits.Mul64(uint64(max(b, 0)), micros(factor))
	return ah > bh || ah == bh && al > bl
}
