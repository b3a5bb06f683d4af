package processor

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// Listener wraps the gRPC server's listener, so that an attempt whose stream ends can tell Envoy's doing from a lost
// connection: gRPC says "canceled" to both, and only the former says something about the provider or the client.
func Listener(l net.Listener) net.Listener { return &listener{Listener: l} }

type listener struct{ net.Listener }

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, addr: &connAddr{Addr: c.RemoteAddr()}}, nil
}

type conn struct {
	net.Conn
	addr *connAddr
}

func (c *conn) RemoteAddr() net.Addr { return c.addr }

func (c *conn) Close() error {
	c.addr.lost.Store(true)
	return c.Conn.Close()
}

// connAddr is a connection's remote address, by which its streams find it.
type connAddr struct {
	net.Addr
	lost atomic.Bool
}

// connOf is the connection of a stream, nil where the server does not listen through Listener.
func connOf(stream context.Context) *connAddr {
	p, ok := peer.FromContext(stream)
	if !ok {
		return nil
	}
	addr, _ := p.Addr.(*connAddr)
	return addr
}

// gone says whether the connection is lost. c may be nil.
func (c *connAddr) gone() bool { return c != nil && c.lost.Load() }
