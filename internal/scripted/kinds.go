package scripted

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// kinds are the behaviours by name; [ParseBehaviour] says what each does.
var kinds = map[string]func(*exchange) error{
	"ok":          (*exchange).ok,
	"status":      (*exchange).status,
	"html502":     (*exchange).html502,
	"cf520":       (*exchange).cf520,
	"reset":       func(x *exchange) error { return x.kill("reset") },
	"hang":        (*exchange).untilGone,
	"error-first": (*exchange).errorFirst,
	"error-start": (*exchange).errorStart,
	"error":       (*exchange).errorLater,
	"failed":      (*exchange).errorLater,
	"error-done":  (*exchange).errorDone,
	"keepalive":   (*exchange).keepalive,
	"empty":       (*exchange).headStream,
	"cut":         (*exchange).cut,
	"stall":       (*exchange).stall,
	"refusal":     (*exchange).ending,
	"filter":      (*exchange).ending,
	"malformed":   (*exchange).malformed,
	"half":        (*exchange).half,
}

func (x *exchange) ok() error { return x.tell(x.message()) }

func (x *exchange) ending() error {
	m := x.message()
	m.ending = x.Kind
	return x.tell(m)
}

// tell sends a whole answer.
func (x *exchange) tell(m message) error {
	if !x.ask.Stream {
		return x.json(http.StatusOK, x.dialect.answer(m))
	}
	after, err := x.upTo(m)
	if err != nil {
		return err
	}
	if err := x.send(after...); err != nil {
		return err
	}
	return x.close()
}

// upTo streams an answer up to its last content event and returns the rest, once the gate is open.
func (x *exchange) upTo(m message) (after []string, err error) {
	before, content, after := x.dialect.stream(m)
	if err := x.begin(before); err != nil {
		return nil, err
	}
	if err := x.pause(x.First); err != nil {
		return nil, err
	}
	for _, event := range content {
		if err := x.pause(x.Delay); err != nil {
			return nil, err
		}
		if err := x.send(event); err != nil {
			return nil, err
		}
	}
	return after, x.pass()
}

// begin sends the headers of a stream and its lifecycle events.
func (x *exchange) begin(before []string) error {
	if err := x.headStream(); err != nil {
		return err
	}
	return x.send(before...)
}

func (x *exchange) status() error {
	return x.json(x.Status, x.dialect.problem(x.w.Header(), x.Status, x.Code))
}

const html502 = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>cloudflare</center>\r\n</body>\r\n</html>\r\n"

func (x *exchange) html502() error {
	x.w.Header().Set("server", "cloudflare")
	return x.whole(http.StatusBadGateway, "text/html", html502)
}

func (x *exchange) cf520() error {
	x.w.Header().Set("server", "cloudflare")
	x.w.Header().Set("content-length", "0")
	x.w.WriteHeader(520)
	return nil
}

func (x *exchange) errorFirst() error {
	if !x.ask.Stream {
		return x.json(http.StatusOK, x.dialect.problem(x.w.Header(), http.StatusOK, x.Code))
	}
	return x.failAfter(nil)
}

func (x *exchange) errorStart() error {
	before, _, _ := x.dialect.stream(x.message())
	return x.failAfter(before)
}

// failAfter streams lifecycle events and then the error.
func (x *exchange) failAfter(before []string) error {
	if err := x.begin(before); err != nil {
		return err
	}
	if err := x.pass(); err != nil {
		return err
	}
	return x.fail()
}

func (x *exchange) errorLater() error {
	if _, err := x.upTo(x.message()); err != nil {
		return err
	}
	return x.fail()
}

func (x *exchange) fail() error {
	if err := x.send(x.dialect.inBand(x.Kind, x.Code)); err != nil {
		return err
	}
	return x.close()
}

// errorDone: vLLM sends an error and then [DONE], which does not mean success.
func (x *exchange) errorDone() error {
	if _, err := x.upTo(x.message()); err != nil {
		return err
	}
	if err := x.send(x.dialect.inBand(x.Kind, x.Code), data("[DONE]")); err != nil {
		return err
	}
	return x.close()
}

// keepalive sends what only keeps the connection alive, every 20 ms or as delay= says.
func (x *exchange) keepalive() error {
	before, _, _ := x.dialect.stream(x.message())
	err := x.begin(before)
	for err == nil {
		if err = x.pause(max(x.Delay, 20*time.Millisecond)); err == nil {
			err = x.send(x.dialect.alive())
		}
	}
	return err
}

func (x *exchange) stall() error {
	if !x.ask.Stream {
		return x.untilGone()
	}
	if _, err := x.upTo(x.message()); err != nil {
		return err
	}
	return x.untilGone()
}

func (x *exchange) cut() error {
	if !x.ask.Stream {
		return x.cutJSON()
	}
	if _, err := x.upTo(x.message()); err != nil {
		return err
	}
	return x.kill(x.How)
}

// cutJSON promises the whole answer and sends half of it; with how=end it promises nothing.
func (x *exchange) cutJSON() error {
	body := x.dialect.answer(x.message())
	if x.How == "end" {
		return x.half()
	}
	x.w.Header().Set("content-length", fmt.Sprint(len(body)))
	if err := x.head(http.StatusOK, "application/json"); err != nil {
		return err
	}
	if err := x.send(body[:len(body)/2]); err != nil {
		return err
	}
	if err := x.pass(); err != nil {
		return err
	}
	return x.kill(x.How)
}

func (x *exchange) half() error {
	body := x.dialect.answer(x.message())
	if err := x.head(http.StatusOK, "application/json"); err != nil {
		return err
	}
	if err := x.send(body[:len(body)/2]); err != nil {
		return err
	}
	return x.close()
}

func (x *exchange) malformed() error {
	if !x.ask.Stream {
		return x.json(http.StatusOK, strings.Repeat("this is not JSON ", 4))
	}
	if x.N == 0 {
		return x.whole(http.StatusOK, "text/event-stream", html502)
	}
	if _, err := x.upTo(x.message()); err != nil {
		return err
	}
	return x.send(data(`{"type":"content_block_delta","delta":{"te`), data("not JSON"))
}

// kill ends the connection: "reset" by RST, "close" by FIN without the end of the body, "end" cleanly. Over HTTP/2
// the first two reset the stream.
func (x *exchange) kill(how string) error {
	if how == "end" {
		return x.close()
	}
	conn, _, err := x.rc.Hijack()
	if err != nil { // HTTP/2 has one connection for all
		panic(http.ErrAbortHandler)
	}
	if how == "reset" {
		linger(conn)
	}
	return conn.Close()
}

// linger makes Close send RST instead of FIN.
func linger(conn net.Conn) {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}
