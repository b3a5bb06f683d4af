package classify

import "fmt"

// classes holds what the outside contract says of each class, in the order of the constants.
var classes = [...]struct {
	name            string
	trips, advances bool
}{
	None:          {name: ""},
	OK:            {name: "ok"},
	Overloaded:    {name: "overloaded", trips: true, advances: true},
	ServerError:   {name: "server_error", trips: true, advances: true},
	Timeout:       {name: "timeout", trips: true, advances: true},
	Transport:     {name: "transport", trips: true, advances: true},
	Truncated:     {name: "truncated", trips: true, advances: true},
	Malformed:     {name: "malformed", trips: true, advances: true},
	RateLimited:   {name: "rate_limited", advances: true},
	Capacity:      {name: "capacity", advances: true},
	Quota:         {name: "quota", advances: true},
	Auth:          {name: "auth", advances: true},
	Invalid:       {name: "invalid"},
	ContextLength: {name: "context_length"},
	Refusal:       {name: "refusal"},
	Filtered:      {name: "filtered"},
	Canceled:      {name: "canceled"},
}

// String is the class's name in the outside contract, "" for None.
func (c Class) String() string {
	if int(c) < len(classes) {
		return classes[c].name
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Trips reports whether the class counts as a failure of the target in its breaker.
func (c Class) Trips() bool { return int(c) < len(classes) && classes[c].trips }

// Advances reports whether, by default and before commit, the chain moves on after this class.
func (c Class) Advances() bool { return int(c) < len(classes) && classes[c].advances }

// MarshalText writes the contract's name, so that JSON and metrics show it.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the contract's name; any other is an error.
func (c *Class) UnmarshalText(b []byte) error {
	got, ok := ParseClass(string(b))
	if !ok {
		return fmt.Errorf("class %q: not one of the verdict classes", b)
	}
	*c = got
	return nil
}

// ParseClass finds the class of a contract name; "" is None. It reports whether there is one.
func ParseClass(name string) (Class, bool) {
	for c := range classes {
		if classes[c].name == name {
			return Class(c), true
		}
	}
	return None, false
}
