package eventstream

import "encoding/binary"

// Names of the headers that say what a message is.
const (
	MessageType   = ":message-type"   // event, exception or error
	EventType     = ":event-type"     // the name of an event
	ExceptionType = ":exception-type" // the name of an exception
	ErrorCode     = ":error-code"     // of an error, which has no payload
	ErrorMessage  = ":error-message"
	ContentType   = ":content-type" // of the payload
)

// Type is the type of a header's value, as on the wire.
type Type uint8

// The types of values.
const (
	True      Type = iota // no bytes
	False                 // no bytes
	Int8                  // 1 byte, as all numbers big-endian and signed
	Int16                 // 2
	Int32                 // 4
	Int64                 // 8
	Bytes                 // up to 32,767
	String                // up to 32,767, UTF-8
	Timestamp             // 8, milliseconds since 1970
	UUID                  // 16
)

// sizes are the bytes of the values that have a fixed number.
var sizes = [...]int{True: 0, False: 0, Int8: 1, Int16: 2, Int32: 4, Int64: 8, Timestamp: 8, UUID: 16}

// maxValue is the longest string or run of bytes: "2^15-1 or 32KB - 1" (aes/header_value.go).
const maxValue = 1<<15 - 1

// Value is the value of one header. Raw lies in the frame.
type Value struct {
	Type Type
	Raw  []byte // as on the wire, without a length
}

// Int is the value of a number or timestamp, 0 of another.
func (v Value) Int() int64 {
	switch v.Type {
	case Int8:
		return int64(int8(v.Raw[0]))
	case Int16:
		return int64(int16(binary.BigEndian.Uint16(v.Raw)))
	case Int32:
		return int64(int32(binary.BigEndian.Uint32(v.Raw)))
	case Int64, Timestamp:
		return int64(binary.BigEndian.Uint64(v.Raw))
	}
	return 0
}

// Headers are the headers of one frame, as on the wire.
type Headers []byte

// Get returns the value of a header, and false if it is not there. Of one given twice the last holds, as in AWS's SDK.
func (h Headers) Get(name string) (Value, bool) {
	var found Value
	var ok bool
	for len(h) > 0 {
		n, v, rest, whole := h.next()
		if !whole {
			break
		}
		if string(n) == name {
			found, ok = v, true
		}
		h = rest
	}
	return found, ok
}

// Text returns the value of a string header, nil if it is not there or no string.
func (h Headers) Text(name string) []byte {
	if v, ok := h.Get(name); ok && v.Type == String {
		return v.Raw
	}
	return nil
}

// All goes over the headers in their order, as range does.
func (h Headers) All(yield func(name []byte, v Value) bool) {
	for len(h) > 0 {
		n, v, rest, ok := h.next()
		if !ok || !yield(n, v) {
			return
		}
		h = rest
	}
}

// whole reports whether the headers can be read to their end.
func (h Headers) whole() bool {
	for len(h) > 0 {
		_, _, rest, ok := h.next()
		if !ok {
			return false
		}
		h = rest
	}
	return true
}

// next cuts off the first header: name_len u8 | name | type u8 | value. ok says that it is whole.
func (h Headers) next() (name []byte, v Value, rest Headers, ok bool) {
	n := 1 + int(h[0])
	if len(h) <= n {
		return nil, Value{}, nil, false
	}
	name, v.Type, rest = h[1:n], Type(h[n]), h[n+1:]
	size, rest, ok := v.Type.size(rest)
	if !ok || size > len(rest) {
		return nil, Value{}, nil, false
	}
	v.Raw = rest[:size:size]
	return name, v, rest[size:], true
}

// size is how many bytes the value has that starts at b, and b behind the length that says so.
func (t Type) size(b Headers) (int, Headers, bool) {
	switch {
	case t > UUID:
		return 0, nil, false
	case t != Bytes && t != String:
		return sizes[t], b, true
	case len(b) < 2:
		return 0, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	return n, b[2:], n <= maxValue
}
