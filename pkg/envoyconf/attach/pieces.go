package attach

import (
	"google.golang.org/protobuf/proto"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// Piece goes to one place of an Envoy's configuration: fields to set, or a list's items to add.
type Piece struct {
	Place string // path of a field, as Static writes it
	Why   string
	Value []proto.Message
}

// Pieces are what Static prints, for those who do not bring it to Envoy by files.
func Pieces(c *config.Config, l Level) ([]Piece, error) {
	p, err := envoyconf.Build(c, envoyconf.Internal)
	if err != nil {
		return nil, err
	}
	pieces, err := level(c, l, p)
	if err != nil {
		return nil, err
	}
	var all []Piece
	for _, x := range pieces {
		if len(x.value) > 0 {
			all = append(all, Piece{x.place, x.why, x.value})
		}
	}
	return all, nil
}
