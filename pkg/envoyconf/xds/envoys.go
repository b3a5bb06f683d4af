package xds

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"understudy/pkg/envoyconf"
)

const (
	maxStreams = 1000
	maxRequest = 256 << 10 // bytes; Envoy names all its extensions in the first, which takes about 70 KiB
	maxText    = 500       // bytes that are kept of what an Envoy says
)

// envoys are the streams on which Envoys ask, and what they have answered to what they were told.
//
// Concurrency: the server's goroutines call it, one for each stream.
type envoys struct {
	log    *slog.Logger
	nacks  *prometheus.CounterVec
	cannot func(envoyconf.Hop) error // why there is nothing to tell an Envoy with this kind of hop

	mu      sync.Mutex // guards the fields below
	streams map[int64]*stream
	changed chan struct{} // closed, and made anew, when an Envoy has answered or left
}

// stream is one Envoy, or one of its types where it does not use ADS.
type stream struct {
	node, version string
	hop           envoyconf.Hop
	types         map[resource.Type]*exchange
}

// exchange is what is said about one type.
type exchange struct {
	nonce, sent string // of the last response, and its version
	accepted    string // the version that the Envoy uses
	refused     string // the version that the Envoy would not take; "": none since it last accepted one
	why         string // of the last one refused
	counted     string // the nonce that was last refused
}

func newEnvoys(log *slog.Logger, nacks *prometheus.CounterVec, cannot func(envoyconf.Hop) error) *envoys {
	for _, name := range short {
		nacks.WithLabelValues(name)
	}
	return &envoys{log: log, nacks: nacks, cannot: cannot, streams: map[int64]*stream{}, changed: make(chan struct{})}
}

// callbacks are how the server tells what happens on its streams.
func (e *envoys) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc:    func(_ context.Context, id int64, _ string) error { return e.opened(id) },
		StreamClosedFunc:  func(id int64, _ *corev3.Node) { e.closed(id) },
		StreamRequestFunc: e.asked,
		StreamResponseFunc: func(_ context.Context, id int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
			e.told(id, r)
		},
		DeltaStreamOpenFunc: func(context.Context, int64, string) error {
			return status.Error(codes.Unimplemented, "incremental xDS is not served: use api_type GRPC")
		},
	}
}

func (e *envoys) opened(id int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.streams) >= maxStreams {
		return status.Errorf(codes.ResourceExhausted, "%d Envoys are connected already", maxStreams)
	}
	e.streams[id] = &stream{types: map[resource.Type]*exchange{}}
	return nil
}

func (e *envoys) closed(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.streams, id)
	e.tellLocked()
}

// tellLocked wakes those who wait for answers. Caller must hold mu.
func (e *envoys) tellLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *envoys) told(id int64, r *discovery.DiscoveryResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.streams[id].about(r.TypeUrl); x != nil {
		x.nonce, x.sent = r.Nonce, r.VersionInfo
	}
}

// asked sees each request before the server acts on it. What an Envoy has refused is not sent again: to the server it
// looks as if the Envoy had it.
func (e *envoys) asked(id int64, r *discovery.DiscoveryRequest) error {
	name, ok := short[r.TypeUrl]
	switch {
	case !ok:
		return status.Errorf(codes.InvalidArgument, "%s is not served here", clip(r.TypeUrl))
	case proto.Size(r) > maxRequest:
		return status.Errorf(codes.InvalidArgument, "a request is at most %d bytes", maxRequest)
	}
	if err := e.cannot(hopOf(r.Node)); err != nil { // it would wait without a word
		e.log.Error("an Envoy asks for what this config cannot be", "node", clip(r.Node.GetId()), "hop", string(hopOf(r.Node)), "error", err.Error())
		return status.Errorf(codes.FailedPrecondition, "no %s hop: %v", hopOf(r.Node), err)
	}
	if s, why := e.answer(id, r); why != "" {
		e.nacks.WithLabelValues(name).Inc()
		e.log.Error("an Envoy refuses its configuration", "node", s.node, "envoy", s.version, "type", name, "error", why)
	}
	return nil
}

// answer keeps what a request says about what was sent before. A refusal is told once: by whom, and why.
func (e *envoys) answer(id int64, r *discovery.DiscoveryRequest) (by stream, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.streams[id]
	if s == nil {
		return
	}
	s.node, s.version, s.hop = clip(r.Node.GetId()), versionOf(r.Node), hopOf(r.Node)
	x := s.about(r.TypeUrl)
	if r.ResponseNonce != x.nonce {
		return // an answer to what is overtaken
	}
	refusal := r.ErrorDetail
	switch {
	case x.nonce == "": // a first request: what another replica has told it, if anything
		x.accepted = r.VersionInfo
	case refusal != nil && x.counted != x.nonce:
		x.refused, x.why, x.counted = x.sent, clip(refusal.Message), x.nonce
		why = cmp.Or(x.why, "no reason given")
	case refusal == nil && r.VersionInfo == x.sent:
		x.accepted, x.refused = x.sent, ""
	}
	if x.refused != "" {
		r.VersionInfo = x.refused
	}
	e.tellLocked()
	return *s, why
}

// about is nil for a stream that is closed.
func (s *stream) about(kind resource.Type) *exchange {
	if s == nil {
		return nil
	}
	if s.types[kind] == nil {
		s.types[kind] = &exchange{}
	}
	return s.types[kind]
}

func versionOf(n *corev3.Node) string {
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.MajorNumber, v.MinorNumber, v.Patch)
	}
	return clip(n.GetUserAgentVersion())
}

func clip(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), maxText)], ""))
}

// wanted are versions by kind of hop and type.
type wanted map[envoyconf.Hop]map[resource.Type]string

// await waits until every Envoy that asks for what is wanted has it, but for those in deaf. The error is the first
// refusal, or of ctx.
func (e *envoys) await(ctx context.Context, w wanted, deaf map[int64]bool) error {
	for {
		open, changed, refusal := e.missing(w, deaf)
		if refusal != nil || !open {
			return refusal
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// refusing are the streams on which an Envoy would not take what it was last told.
func (e *envoys) refusing() map[int64]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := map[int64]bool{}
	for id, s := range e.streams {
		for _, x := range s.types {
			found[id] = found[id] || x.refused != ""
		}
	}
	maps.DeleteFunc(found, func(_ int64, refuses bool) bool { return !refuses })
	return found
}

func (e *envoys) missing(w wanted, deaf map[int64]bool) (open bool, changed <-chan struct{}, refusal error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, s := range e.streams {
		if deaf[id] {
			continue
		}
		for kind, version := range w[s.hop] {
			switch x := s.types[kind]; {
			case x == nil || x.accepted == version: // it does not ask, or has it
			case x.refused == version:
				return false, e.changed, &Refusal{Node: s.node, Envoy: s.version, Type: short[kind], Why: x.why}
			default:
				open = true
			}
		}
	}
	return open, e.changed, nil
}

// list is what is known about each stream, by node.
func (e *envoys) list() []Envoy {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Envoy
	for _, s := range e.streams {
		one := Envoy{Node: s.node, Version: s.version, Hop: string(s.hop), Accepted: map[string]string{}, Refused: map[string]string{}}
		for kind, x := range s.types {
			if x.accepted != "" {
				one.Accepted[short[kind]] = x.accepted
			}
			if x.why != "" {
				one.Refused[short[kind]] = x.why
			}
			one.Refusing = one.Refusing || x.refused != ""
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Envoy) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(len(a.Accepted), len(b.Accepted)))
	})
	return all
}

func (e *envoys) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.streams)
}

// have says whether an Envoy with this kind of hop is connected.
func (e *envoys) have(hop envoyconf.Hop) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.streams {
		if len(s.types) > 0 && s.hop == hop {
			return true
		}
	}
	return false
}
