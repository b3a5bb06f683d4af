package main

import (
	"cmp"
	"time"
)

// workload is one kind of load, which every variant gets in turn.
type workload struct {
	Name   string
	Says   string // for the results page
	Prompt int    // bytes of the request's prompt
	Script script

	Clients int
	Stagger time.Duration // between the starts of two clients; 0: they are spread over a stream's length
	Open    bool          // all clients' streams are open at once, each client's only one, and memory is what matters
	Peers   bool          // is given to the peers, too
	Rounds  int           // of a full run
	Lasts   time.Duration // how long calls begin in a round of a full run
}

func workloads() []workload {
	const ms, second = time.Millisecond, time.Second
	return []workload{
		{Name: "json-small", Says: "one client, small prompt, whole answer", Prompt: 200, Clients: 1, Peers: true, Rounds: 45, Lasts: 800 * ms},
		{Name: "json-100k", Says: "one client, 100 KB prompt, whole answer", Prompt: 100_000, Clients: 1, Peers: true, Rounds: 45, Lasts: 800 * ms},
		{Name: "json-8m", Says: "one client, 8 MB prompt, whole answer", Prompt: 8_000_000, Clients: 1, Rounds: 4, Lasts: 4 * second},
		{Name: "stream-20", Says: "4 clients, streams of 20 events, 5 ms apart", Prompt: 1000, Script: script{Events: 20, Interval: 5 * ms}, Clients: 4, Rounds: 24, Lasts: second},
		{Name: "stream-200", Says: "10 clients, streams of 200 events, 5 ms apart", Prompt: 1000, Script: script{Events: 200, Interval: 5 * ms}, Clients: 10, Peers: true, Rounds: 10, Lasts: 3 * second},
		{Name: "stream-2000", Says: "4 clients, streams of 2,000 events, 2 ms apart", Prompt: 1000, Script: script{Events: 2000, Interval: 2 * ms}, Clients: 4, Rounds: 3, Lasts: 4 * second},
		{Name: "throughput", Says: "32 clients, small prompt, whole answer, as fast as it goes", Prompt: 200, Clients: 32, Peers: true, Rounds: 6, Lasts: 4 * second},
		{Name: "fail-10", Says: "4 clients, small prompt, 10 % of the primary's answers fail", Prompt: 200, Script: script{Fail: 10}, Clients: 4, Peers: true, Rounds: 4, Lasts: 4 * second},
		{Name: "fail-100", Says: "4 clients, small prompt, every answer of the primary fails", Prompt: 200, Script: script{Fail: 100}, Clients: 4, Peers: true, Rounds: 4, Lasts: 4 * second},
		open(10), open(100), open(500), open(2000),
	}
}

// settling is how long all streams have been open when memory is read.
const settling = 4 * time.Second

// open is so many streams open at once, with prompts of 4 KiB. They open at a pace that every variant can keep, and little
// flows: what is measured is what each of them keeps.
func open(n int) workload {
	const each = 3 * time.Millisecond
	seconds := int((time.Duration(n)*each + settling + 3*time.Second) / time.Second)
	return workload{Name: "open-" + digits(n), Says: digits(n) + " streams open at once, 4 KiB prompts", Prompt: 4096,
		Script: script{Events: seconds, Interval: time.Second}, Clients: n, Stagger: each, Open: true, Rounds: 3}
}

// load makes the load for one stack.
func (w workload) load(s *stack, lasts time.Duration) load {
	if s.variant == "direct" { // without a failover there is no answer to wait for
		w.Script.Fail = 0
	}
	l := load{addr: s.listen, request: request(s.listen, s.header, w.Script, w.Prompt), clients: w.Clients,
		events: w.Script.Events, lasts: lasts, atLeast: w.Clients,
		// Streams of one length would begin together, and wait for each other, for ever.
		stagger: cmp.Or(w.Stagger, w.Script.lasts()/time.Duration(w.Clients))}
	if w.Open {
		l.lasts = 0
	}
	return l
}

// warmUp is the same, smaller.
func (w workload) warmUp() workload {
	if w.Open {
		w.Script.Events, w.Clients = 1, 10
		w.Open = false
	}
	w.Lasts = min(w.Lasts, time.Second)
	return w
}
