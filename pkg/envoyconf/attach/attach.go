// Package attach prints what an Envoy that somebody already runs needs to work with the service, and where each piece
// goes.
package attach

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// Level is how much of the service an Envoy takes on.
type Level string

// The levels, each with what its Envoy needs.
const (
	// Observe is one filter in the user's own listener. Envoy waits for nothing it says.
	Observe Level = "observe"
	// NextRequest is the filter, and the choice of the cluster by header, in the user's own listener: a failure is final,
	// and the next request goes elsewhere.
	NextRequest Level = "next-request"
	// SameRequest is a route with retries in the user's own listener, and the hop behind it.
	SameRequest Level = "same-request"
)

// ParseLevel reads the value of `extproc envoy attach --level`; "" is SameRequest.
func ParseLevel(s string) (Level, error) {
	switch l := Level(s); l {
	case "":
		return SameRequest, nil
	case Observe, NextRequest, SameRequest:
		return l, nil
	}
	return "", fmt.Errorf("level %q: write observe, next-request or same-request", s)
}

// Static is what to add to an Envoy configured by files: YAML documents, one for each place. The first comment of each
// names the place and what is to be done there, as "# N. PLACE: DO."; the lines below it say why.
func Static(c *config.Config, l Level) ([]byte, error) {
	pieces, err := Pieces(c, l)
	if err != nil {
		return nil, err
	}
	return render(heading(l), pieces)
}

// Pieces are what Static prints, for those who do not bring it to Envoy by files.
func Pieces(c *config.Config, l Level) ([]Piece, error) {
	p, err := envoyconf.Build(c, envoyconf.Internal)
	if err != nil {
		return nil, err
	}
	all, err := level(c, l, p)
	return slices.DeleteFunc(all, func(p Piece) bool { return len(p.Value) == 0 }), err
}

func level(c *config.Config, l Level, p *envoyconf.Pieces) ([]Piece, error) {
	switch l {
	case Observe:
		return observe(p)
	case NextRequest:
		return nextRequest(c, p)
	case SameRequest:
		return sameRequest(p)
	}
	return nil, fmt.Errorf("level %q is none", l)
}

// What is to be done with a piece at its place.
const (
	add          = "add these"
	putFirst     = "put these before your own"
	beforeRouter = "put these right before envoy.filters.http.router"
	set          = "set these"
)

// Piece goes to one place of Envoy's configuration.
type Piece struct {
	Place string // path of a field, as Envoy writes it
	Do    string // with it, there
	Why   string
	Value []proto.Message // one where fields are set, else a list's items
}

// of makes a list of messages of one kind.
func of[M proto.Message](ms ...M) []proto.Message {
	var all []proto.Message
	for _, m := range ms {
		all = append(all, m)
	}
	return all
}

func heading(l Level) string {
	return fmt.Sprintf(`Understudy, level %s: what to add to your own Envoy, one document for each place.
PLACE: DO says where. "static_resources" and "bootstrap_extensions" are at the top of the bootstrap (or what serves
them: CDS, LDS); "http_connection_manager" is that of the listener where your clients come in, and of every other
listener that uses the same routes; "route_config" and "virtual_host" are what it routes by, inline or by RDS.`, l)
}

// render writes the pieces, keys sorted, so that equal configs give equal bytes.
func render(heading string, pieces []Piece) ([]byte, error) {
	var out bytes.Buffer
	comment(&out, heading)
	for i, p := range pieces {
		body, err := p.yaml()
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", p.Place, err)
		}
		out.WriteString("---\n")
		comment(&out, fmt.Sprintf("%d. %s: %s.\n%s", i+1, p.Place, p.Do, p.Why))
		out.Write(body)
	}
	return out.Bytes(), nil
}

func comment(out *bytes.Buffer, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(out, "# %s\n", line)
	}
}

func (p Piece) yaml() ([]byte, error) {
	var items []json.RawMessage
	for _, m := range p.Value {
		js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return nil, err
		}
		items = append(items, js)
	}
	if p.Do == set {
		return yaml.JSONToYAML(items[0])
	}
	js, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(js)
}
