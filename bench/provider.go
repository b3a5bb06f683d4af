package main

import (
	"bufio"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// provider answers as scripts say, from memory, with as little work as can be: it must not be what is measured.
type provider struct {
	primary bool // obeys fail
	asked   atomic.Int64
}

// serveProvider serves two accounts until ctx ends: a primary, and a backup that never fails.
func serveProvider(ctx context.Context, args []string, _, _ io.Writer) error {
	f := flag.NewFlagSet("provider", flag.ContinueOnError)
	primary, backup := f.String("primary", "127.0.0.1:0", "address"), f.String("backup", "127.0.0.1:0", "address")
	if err := parse(f, args); err != nil {
		return err
	}
	failed := make(chan error, 2)
	for p, addr := range map[*provider]string{{primary: true}: *primary, {}: *backup} {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		defer ln.Close()
		go func() { failed <- p.serve(ln) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func (p *provider) serve(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go p.talk(c)
	}
}

// talk serves one connection. Whatever goes wrong ends it, and the client counts that.
func (p *provider) talk(c net.Conn) {
	defer c.Close()
	in, buf := bufio.NewReaderSize(c, 16<<10), make([]byte, 64<<10)
	event := []byte(contentEvent)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		s, ok, err := readScript(req.Body, buf)
		switch {
		case err != nil:
			return
		case !ok || p.primary && p.fails(s.Fail):
			_, err = c.Write(failure)
		case s.Events == 0:
			_, err = c.Write(wholeAnswer)
		default:
			err = s.stream(c, event)
		}
		if err != nil || req.Close {
			return
		}
	}
}

// fails spreads the failures evenly: an even share never makes a row that would open a breaker by chance.
func (p *provider) fails(share int) bool {
	n := p.asked.Add(1)
	return n*int64(share)/100 != (n-1)*int64(share)/100
}

// stream sends each event by itself, as providers do. event is this connection's to write into.
func (s script) stream(w io.Writer, event []byte) error {
	if _, err := io.WriteString(w, streamHead+firstEvent); err != nil {
		return err
	}
	due := time.Now()
	for range s.Events {
		putTime(event, stampAt, now())
		if _, err := w.Write(event); err != nil {
			return err
		}
		due = due.Add(s.Interval)
		if s.Interval > 0 {
			sleepUntil(due)
		}
	}
	_, err := io.WriteString(w, lastEvents)
	return err
}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
