package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// load is clients that call one address, each on a connection of its own, one call after the other.
type load struct {
	addr    string
	request []byte
	clients int
	events  int           // that each answer must have
	lasts   time.Duration // calls begin for so long
	atLeast int           // but so many are made
	stagger time.Duration // between the starts of two clients
	pause   time.Duration // after each call
	hangUp  bool          // at the first content
	allOpen func()        // called once, when every client has had its first content; may be nil
}

// tally is what came of a load.
type tally struct {
	Exchanges int64  `json:"exchanges"`
	Errors    int64  `json:"errors"`
	Error     string `json:"error,omitempty"` // one of them

	Latency hist `json:"latency"`         // from the request's first byte to the answer's last
	First   hist `json:"first,omitempty"` // from the request's first byte to the first content of a stream
	Delay   hist `json:"delay,omitempty"` // of each content event, from when the provider wrote it
}

func newTally() *tally { return &tally{Latency: hist{}, First: hist{}, Delay: hist{}} }

func (t *tally) merge(o *tally) {
	t.Exchanges += o.Exchanges
	t.Errors += o.Errors
	if t.Error == "" {
		t.Error = o.Error
	}
	t.Latency.merge(o.Latency)
	t.First.merge(o.First)
	t.Delay.merge(o.Delay)
}

// run makes the calls and returns when the last has ended.
func (l load) run(ctx context.Context) *tally {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		made  atomic.Int64
		opens atomic.Int64
		total = newTally()
		until = time.Now().Add(l.lasts)
	)
	opened := func() {
		if opens.Add(1) == int64(l.clients) && l.allOpen != nil {
			l.allOpen()
		}
	}
	for i := range l.clients {
		wg.Go(func() {
			c := &client{load: l, t: newTally(), opened: sync.OnceFunc(opened)}
			defer c.close()
			sleep(ctx, time.Duration(i)*l.stagger)
			for ctx.Err() == nil && (made.Add(1) <= int64(l.atLeast) || time.Now().Before(until)) {
				c.call()
				sleep(ctx, l.pause)
			}
			mu.Lock()
			defer mu.Unlock()
			total.merge(c.t)
		})
	}
	wg.Wait()
	return total
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// client is one of a load's clients. Its goroutine alone touches it.
type client struct {
	load
	t      *tally
	opened func()

	conn net.Conn
	in   *bufio.Reader
	body *bufio.Reader
}

// patience bounds one call.
const patience = 2 * time.Minute

// call makes one call and counts it. After a failed one the next is made on a new connection.
func (c *client) call() {
	from := now()
	first, err := c.exchange()
	if c.hangUp && first > 0 {
		c.t.Exchanges++
		c.close()
		return
	}
	if err != nil {
		c.t.Errors++
		c.t.Error = err.Error()
		c.close()
		return
	}
	c.t.Exchanges++
	c.t.Latency.add(now() - from)
	if c.events > 0 {
		c.t.First.add(first - from)
	}
}

// exchange sends the request, reads the answer, and returns when its first content came.
func (c *client) exchange() (first time.Duration, err error) {
	if err := c.connect(); err != nil {
		return 0, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return 0, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if c.events == 0 {
		_, err := io.Copy(io.Discard, resp.Body)
		return 0, errors.Join(err, closing(resp))
	}
	first, err = c.stream(resp.Body)
	return first, errors.Join(err, closing(resp))
}

// closing says that the answer was the connection's last. A gateway that does so is measured as it is, but not silently.
func closing(resp *http.Response) error {
	if resp.Close {
		return errors.New("the connection is not kept")
	}
	return nil
}

func (c *client) stream(body io.Reader) (first time.Duration, err error) {
	c.body.Reset(body)
	events, done := 0, false
	for {
		line, err := c.body.ReadSlice('\n')
		if sent, ok := sentAt(line); ok {
			at := now()
			c.t.Delay.add(at - sent)
			if events++; events == 1 {
				first = at
				if c.opened(); c.hangUp {
					return first, nil
				}
			}
		}
		done = done || string(line) == "data: [DONE]\n"
		switch {
		case err == io.EOF && done && events == c.events:
			return first, nil
		case err == io.EOF:
			return first, fmt.Errorf("the stream ended after %d events of %d, whole: %t", events, c.events, done)
		case err != nil:
			return first, err
		}
	}
}

func (c *client) connect() (err error) {
	if c.conn != nil {
		return nil
	}
	if c.conn, err = net.DialTimeout("tcp", c.addr, 10*time.Second); err != nil {
		return err
	}
	c.in, c.body = bufio.NewReaderSize(c.conn, 4<<10), bufio.NewReaderSize(nil, 4<<10)
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
