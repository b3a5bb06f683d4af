package jsonscan

import "strings"

// Field names a place in a document that a reader wants to know of; the reader gives the numbers. 0 is none.
type Field uint8

// Paths is a set of places, as a tree of keys. It is not changed after New, and may be shared.
type Paths struct{ nodes []node }

// node is one place: the field told for it, and the places inside it.
type node struct {
	field    Field
	elements uint16 // the place of an array's elements, 0 if none is wanted
	keys     []edge
	first    [64]uint8 // by the sum of a key: one more than its place in keys, 0 for none, as most keys are not wanted
}

type edge struct {
	key  string
	to   uint16
	next uint8 // the next key of the same sum, as in first
}

const (
	dead uint16 = 0 // nothing wanted here nor inside
	root uint16 = 1
)

// NewPaths returns the tree of places given as "error.code" or "choices.*.delta.content", where * is every element of
// an array. Later sets win over earlier ones.
func NewPaths(sets ...map[string]Field) *Paths {
	p := &Paths{nodes: make([]node, 2)}
	for _, set := range sets {
		for path, field := range set {
			p.nodes[p.place(path)].field = field
		}
	}
	return p
}

func (p *Paths) place(path string) uint16 {
	at := root
	for _, key := range strings.Split(path, ".") {
		at = p.step(at, key)
	}
	return at
}

// step returns the place of key inside at, making it if need be.
func (p *Paths) step(at uint16, key string) uint16 {
	n := &p.nodes[at]
	if to := n.find([]byte(key)); to != dead && key != "*" {
		return to
	}
	if key == "*" && n.elements != dead {
		return n.elements
	}
	to := uint16(len(p.nodes))
	if key == "*" {
		n.elements = to
	} else {
		n.add(key, to)
	}
	p.nodes = append(p.nodes, node{})
	return to
}

// sum is a number below 64 that differs for most pairs of keys.
func sum[T string | []byte](key T) uint { return (uint(key[0]) + 7*uint(len(key))) & 63 }

// add adds a key; a node has fewer than 256.
func (n *node) add(key string, to uint16) {
	first := &n.first[sum(key)]
	n.keys = append(n.keys, edge{key, to, *first})
	*first = uint8(len(n.keys))
}

// find is the place of a key inside n.
func (n *node) find(key []byte) uint16 {
	if len(key) == 0 {
		return dead
	}
	for i := n.first[sum(key)]; i != 0; {
		e := &n.keys[i-1]
		if e.key == string(key) {
			return e.to
		}
		i = e.next
	}
	return dead
}
