package store

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// dialBound ends an attempt to connect to one server, DNS and handshake each.
	dialBound = 2 * time.Second
	// pingEvery and pingsOut end a connection whose server has frozen.
	pingEvery = 2 * time.Second
	pingsOut  = 2
	// writeBound ends a connection whose server does not read; an embedded one does not read while the disk syncs. A
	// write holds the client's lock, so it is also the most that a call can outlast its context.
	writeBound = 4 * time.Second
)

// linker makes a connection with the given client options. hangUp ends what the connection needs, after it is closed.
type linker func(ctx context.Context, o ...nats.Option) (nc *nats.Conn, hangUp func(), err error)

// session is one connection, from dialling to its loss. It never reconnects: the next one is a new session, so that
// nothing of an old connection (buffers, half-made subscriptions, answers on their way) lives on.
//
// Ownership: run makes and closes it. ctx ends with the session, its cause says why.
type session struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	hangUp func()

	ctx context.Context
	end context.CancelCauseFunc
	wg  sync.WaitGroup // its goroutines: news and subscriptions
}

func (s *Store) newSession(life context.Context) (*session, error) {
	ses := &session{hangUp: func() {}}
	ses.ctx, ses.end = context.WithCancelCause(life)
	nc, hangUp, err := s.link(ses.ctx, s.clientOptions(ses)...)
	if err != nil {
		ses.end(err)
		return nil, err
	}
	ses.nc, ses.hangUp = nc, hangUp
	if ses.js, err = jetstream.New(nc); err != nil {
		ses.end(err)
		ses.close()
		return nil, err
	}
	return ses, nil
}

func (s *Store) clientOptions(ses *session) []nats.Option {
	return []nats.Option{
		nats.Name("understudy"),
		nats.NoReconnect(),
		nats.Timeout(dialBound),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pingsOut),
		nats.FlusherTimeout(writeBound),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { ses.end(connectionLost(err)) }),
		nats.ClosedHandler(func(*nats.Conn) { ses.end(connectionLost(nil)) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.log.note("store client", "err", err) }),
	}
}

func connectionLost(err error) error {
	if err == nil {
		return fmt.Errorf("the connection was closed")
	}
	return fmt.Errorf("the connection was lost: %w", err)
}

// close waits for the session's goroutines. Call end first, or it is a plain close.
func (ses *session) close() {
	ses.end(errClosed)
	ses.nc.Close()
	ses.wg.Wait()
	ses.hangUp()
}

// dialCluster connects to one of the URLs, tried in random order.
func (s *Store) dialCluster(ctx context.Context, o ...nats.Option) (*nats.Conn, func(), error) {
	// The dialler resolves names itself, under ctx.
	o = append(o, nats.SetCustomDialer(contextDialer{ctx}), nats.SkipHostLookup())
	switch {
	case strings.Contains(s.opt.Creds, "-----BEGIN"):
		o = append(o, nats.UserCredentialBytes([]byte(s.opt.Creds)))
	case s.opt.Creds != "":
		o = append(o, nats.UserCredentials(s.opt.Creds))
	}
	nc, err := nats.Connect(strings.Join(s.opt.URLs, ","), o...)
	if err != nil {
		return nil, nil, fmt.Errorf("no server reached: %w", err)
	}
	return nc, func() {}, nil
}

// contextDialer gives up when its context ends.
type contextDialer struct{ ctx context.Context }

func (d contextDialer) Dial(network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialBound}).DialContext(d.ctx, network, address)
}
