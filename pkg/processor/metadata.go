package processor

import (
	"math"
	"strconv"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
)

// metadata is what Envoy is told to keep with a request, under the namespace understudy, in the encoding of a
// google.protobuf.Struct. It is written by hand since every attempt tells some twice: as a message it is a map of maps, which
// took longer to encode than all else that an attempt says.
type metadata []byte

// identityOf names an attempt, with the replica that has it, for the access log: request headers of ours are already removed
// when that is written. Envoy takes a microsecond or so for each entry. The target is for the operator's own log.
func identityOf(replica, exchange string, attempt int, target string) metadata {
	m := make(metadata, 0, 192)
	m.text("exchange", exchange)
	m.text("attempt", strconv.Itoa(attempt)+" "+replica)
	m.text("target", target)
	return m
}

// usageOf is what an attempt used, for Envoy's own rate limits and access logs. No tenant and no key is in it.
func usageOf(target string, rung int, v classify.Verdict, b budget.Bill) metadata {
	u := &v.Usage
	m := make(metadata, 0, 384)
	m.text("target", target)
	m.number("rung", float64(rung))
	m.text("class", v.Class.String())
	m.number("cost_usd", b.Amount.USD())
	m.number("input_tokens", float64(u.Input))
	m.number("output_tokens", float64(u.Output))
	m.number("cache_read_tokens", float64(u.CacheRead))
	m.number("cache_write_tokens", float64(u.CacheWrite))
	m.number("reasoning_tokens", float64(u.Reasoning))
	m.number("total_tokens", float64(u.Input+u.Output+u.CacheRead+u.CacheWrite))
	return m
}

// Numbers of fields in google/protobuf/struct.proto, and of dynamic_metadata in ext_proc's ProcessingResponse.
const (
	structFields  protowire.Number = 1
	entryKey      protowire.Number = 1
	entryValue    protowire.Number = 2
	valueNumber   protowire.Number = 2
	valueString   protowire.Number = 3
	valueStruct   protowire.Number = 5
	replyMetadata protowire.Number = 8
)

// tagSize is what each of these numbers takes, with its type.
const tagSize = 1

func (m *metadata) text(name, value string) {
	m.entry(name, tagSize+protowire.SizeBytes(len(value)))
	m.tag(valueString, protowire.BytesType)
	*m = protowire.AppendString(*m, value)
}

func (m *metadata) number(name string, value float64) {
	m.entry(name, tagSize+protowire.SizeFixed64())
	m.tag(valueNumber, protowire.Fixed64Type)
	*m = protowire.AppendFixed64(*m, math.Float64bits(value))
}

// entry begins a field of a Struct, whose Value of that size follows.
func (m *metadata) entry(name string, value int) {
	m.tag(structFields, protowire.BytesType)
	m.size(tagSize + protowire.SizeBytes(len(name)) + tagSize + protowire.SizeBytes(value))
	m.tag(entryKey, protowire.BytesType)
	*m = protowire.AppendString(*m, name)
	m.tag(entryValue, protowire.BytesType)
	m.size(value)
}

func (m *metadata) tag(n protowire.Number, t protowire.Type) { *m = protowire.AppendTag(*m, n, t) }

func (m *metadata) size(n int) { *m = protowire.AppendVarint(*m, uint64(n)) }

// in puts the metadata into a reply, in place of what was there: a part of the reply's encoding that is there already.
func (m metadata) in(r *extproc.ProcessingResponse) {
	const namespace = "understudy"
	value := tagSize + protowire.SizeBytes(len(m))
	whole := make(metadata, 0, len(m)+64)
	whole.tag(replyMetadata, protowire.BytesType)
	entry := tagSize + protowire.SizeBytes(len(namespace)) + tagSize + protowire.SizeBytes(value)
	whole.size(tagSize + protowire.SizeBytes(entry))
	whole.entry(namespace, value)
	whole.tag(valueStruct, protowire.BytesType)
	r.ProtoReflect().SetUnknown(protowire.AppendBytes(whole, m))
}
