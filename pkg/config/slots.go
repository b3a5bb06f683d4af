package config

// spare is how many retries the front may spend beyond a chain's slots: a fault of the service consumes an attempt
// number, and four of them in a row are answered with a final 503.
const spare = 4

// Slots is how many attempts a chain has when nothing goes wrong with the service: one for each target, and one more
// for each that may be tried again (retry.same_target, or on.rate_limited: wait).
func Slots(ch *Chain) int {
	again := ch.Retry.SameTarget
	if again == 0 && ch.On.RateLimited == "wait" {
		again = 1
	}
	targets := 0
	for _, r := range ch.Rungs {
		targets += max(1, len(r.Members))
	}
	return targets * (1 + again)
}

// Retries is num_retries of the front's retry policy: enough for the longest chain. An attempt number above
// Retries+1 never arrives.
func Retries(c *Config) int {
	longest := 0
	for _, ch := range c.Chains {
		longest = max(longest, Slots(ch))
	}
	return longest + spare
}
