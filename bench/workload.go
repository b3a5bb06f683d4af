package main

import "time"

// workload is one kind of load, which every variant gets in turn.
type workload struct {
	Name   string `json:"name"`
	Says   string `json:"says"`   // for the results page
	Prompt int    `json:"prompt"` // bytes of the request's prompt
	Script script `json:"script"`

	Clients int  `json:"clients"`
	Peers   bool `json:"-"` // is given to the peers, too
	Open    bool `json:"-"` // all clients' streams are open at once, and memory is what matters
	Rounds  int  `json:"-"` // of a full run
	// Lasts is how long calls begin in a round of a full run.
	Lasts time.Duration `json:"-"`
}

func workloads() []workload {
	const ms, second = time.Millisecond, time.Second
	return []workload{
		{Name: "json-small", Says: "one client, small prompt, whole answer", Prompt: 200, Clients: 1, Peers: true, Rounds: 8, Lasts: 4 * second},
		{Name: "json-100k", Says: "one client, 100 KB prompt, whole answer", Prompt: 100_000, Clients: 1, Peers: true, Rounds: 8, Lasts: 4 * second},
		{Name: "json-8m", Says: "one client, 8 MB prompt, whole answer", Prompt: 8_000_000, Clients: 1, Rounds: 4, Lasts: 4 * second},
		{Name: "stream-20", Says: "4 clients, streams of 20 events, 5 ms apart", Prompt: 1000, Script: script{Events: 20, Interval: 5 * ms}, Clients: 4, Rounds: 6, Lasts: 4 * second},
		{Name: "stream-200", Says: "10 clients, streams of 200 events, 5 ms apart", Prompt: 1000, Script: script{Events: 200, Interval: 5 * ms}, Clients: 10, Peers: true, Rounds: 6, Lasts: 4 * second},
		{Name: "stream-2000", Says: "4 clients, streams of 2,000 events, 2 ms apart", Prompt: 1000, Script: script{Events: 2000, Interval: 2 * ms}, Clients: 4, Rounds: 3, Lasts: 4 * second},
		{Name: "throughput", Says: "32 clients, small prompt, whole answer, as fast as it goes", Prompt: 200, Clients: 32, Peers: true, Rounds: 6, Lasts: 4 * second},
		{Name: "fail-10", Says: "4 clients, small prompt, 10 % of the primary's answers fail", Prompt: 200, Script: script{Fail: 10}, Clients: 4, Peers: true, Rounds: 4, Lasts: 4 * second},
		{Name: "fail-100", Says: "4 clients, small prompt, every answer of the primary fails", Prompt: 200, Script: script{Fail: 100}, Clients: 4, Peers: true, Rounds: 4, Lasts: 4 * second},
		open(10), open(100), open(500), open(2000),
	}
}

// open is so many streams open at once, with prompts of 4 KiB. Little flows: what is measured is what each of them keeps.
func open(n int) workload {
	return workload{Name: "open-" + digits(n), Says: digits(n) + " streams open at once, 4 KiB prompts", Prompt: 4096,
		Script: script{Events: 5, Interval: time.Second}, Clients: n, Open: true, Rounds: 3}
}
