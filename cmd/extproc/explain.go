package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Bounds of what is read of a log and kept of it, whatever is in it.
const (
	longestLine = 1 << 20 // bytes; the service's own have at most some 50 KiB
	mostTold    = 20      // exchanges that an id may name
	mostQueued  = 20_000  // lines of queued requests and their runs
)

// explain tells the story of one exchange by the lines that replicas have logged.
func explain(ctx context.Context, args []string, io std) error {
	f := flag.NewFlagSet("explain", flag.ContinueOnError)
	id := f.String("id", "", "of the exchange, its request, its trace or its job")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return fmt.Errorf("%w: a log is needed: FILE, or - for stdin", errUsage)
	}
	l := &logs{id: *id}
	for _, name := range f.Args() {
		if err := l.open(ctx, name, io.in); err != nil {
			return err
		}
	}
	lines, err := l.chosen()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(io.out)
	if *id == "" && l.seen > 1 {
		fmt.Fprintf(out, "Of %d exchanges in the log, the last is told; --id names another.\n\n", l.seen)
	}
	tell(out, lines)
	if l.unread > 0 {
		fmt.Fprintf(out, "\n%d lines of the log could not be read.\n", l.unread)
	}
	return out.Flush()
}

// exchangeLine is the line of one exchange: see processor.Record.
type exchangeLine struct {
	Time             time.Time     `json:"time"`
	Msg              string        `json:"msg"`
	ID               string        `json:"id"`
	RequestID        string        `json:"request_id"`
	Key              string        `json:"key"`
	Chain            string        `json:"chain"`
	Outcome          string        `json:"outcome"`
	Attempts         int           `json:"attempts"`
	Status           int           `json:"status"`
	Streamed         bool          `json:"streamed"`
	Reason           string        `json:"reason"`
	Ineligible       string        `json:"ineligible"`
	Mode             string        `json:"mode"`
	Degraded         string        `json:"degraded"`
	Replayed         bool          `json:"replayed"`
	Job              bool          `json:"job"`
	Drill            string        `json:"drill"`
	Fault            string        `json:"fault"`
	ClientRetry      int           `json:"client_retry"`
	Start            time.Time     `json:"start"`
	FirstContentMS   *int64        `json:"first_content_ms"`
	CommittedMS      *int64        `json:"committed_ms"`
	InputTokens      int64         `json:"input_tokens"`
	OutputTokens     int64         `json:"output_tokens"`
	CacheReadTokens  int64         `json:"cache_read_tokens"`
	CacheWriteTokens int64         `json:"cache_write_tokens"`
	CostEstimated    bool          `json:"cost_estimated"`
	Model            string        `json:"model"`
	AskedTier        string        `json:"asked_tier"`
	ServedTier       string        `json:"served_tier"`
	Downgraded       bool          `json:"downgraded"`
	TraceID          string        `json:"trace_id"`
	Replica          string        `json:"replica"`
	Config           string        `json:"config"`
	Past             []attemptLine `json:"past"`
	PastLeftOut      int           `json:"past_left_out"`
	attemptLine                    // the one that ended it; of no target where none was asked
	TookMS           int64         `json:"took_ms"` // all of the exchange
}

// attemptLine is what a line says of one attempt.
type attemptLine struct {
	Attempt        int     `json:"attempt"`
	Target         string  `json:"target"`
	Rung           int     `json:"rung"`
	Class          string  `json:"class"`
	Phase          string  `json:"phase"`
	Detail         string  `json:"detail"`
	ProviderStatus int     `json:"provider_status"`
	ProviderID     string  `json:"provider_request_id"`
	SentMS         *int64  `json:"sent_ms"`
	TookMS         int64   `json:"took_ms"`
	CostUSD        float64 `json:"cost_usd"`
}

// jobID is the job that the request was queued as, "" for none.
func (x *exchangeLine) jobID() string {
	id, _ := strings.CutPrefix(x.Degraded, "queue; job=")
	if id == x.Degraded {
		return ""
	}
	return id
}

func (x *exchangeLine) is(id string) bool {
	return slices.Contains([]string{x.ID, x.RequestID, x.TraceID, x.jobID()}, id)
}

// logs is what is kept of logs while they are read: what was asked for, and what may belong to it.
type logs struct {
	id     string // "": the last exchange
	told   []*exchangeLine
	queued []*exchangeLine // requests that were queued, and their runs: a key joins them
	seen   int             // exchanges
	unread int             // lines that should have been one
}

func (l *logs) open(ctx context.Context, name string, in io.Reader) error {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	if err := l.read(ctx, in); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// read takes the lines of one log, of which most are about other things.
func (l *logs) read(ctx context.Context, in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	for ctx.Err() == nil {
		piece, err := r.ReadSlice('\n')
		if len(line) <= longestLine { // of a longer one, enough is kept to know it by
			line = append(line, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		l.line(line)
		line = line[:0]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// line takes one line. Whoever collects logs may have put something before the JSON.
func (l *logs) line(text []byte) {
	from := bytes.IndexByte(text, '{')
	if from < 0 || !bytes.Contains(text, []byte(`"exchange"`)) {
		return
	}
	x := &exchangeLine{}
	err := error(nil)
	if len(text) <= longestLine {
		err = json.Unmarshal(bytes.TrimSpace(text[from:]), x)
	}
	switch {
	case len(text) > longestLine || err != nil:
		l.unread++
	case x.Msg == "exchange" && x.Chain != "":
		l.keep(x)
	}
}

func (l *logs) keep(x *exchangeLine) {
	l.seen++
	switch {
	case l.id != "" && x.is(l.id):
		l.told = append(l.told, x)
		l.told = l.told[max(0, len(l.told)-mostTold):]
	case l.id == "" && (len(l.told) == 0 || !x.Time.Before(l.told[0].Time)):
		l.told = []*exchangeLine{x}
	}
	if x.Job || x.jobID() != "" {
		l.queued = append(l.queued, x)
		if len(l.queued) > 2*mostQueued {
			l.queued = slices.Clone(l.queued[mostQueued:])
		}
	}
}

// chosen is what is to be told, a queued request together with its runs.
func (l *logs) chosen() ([]*exchangeLine, error) {
	switch {
	case len(l.told) == 0 && l.id != "":
		return nil, fmt.Errorf("none of %d exchanges in the log has the id %s", l.seen, plain(l.id))
	case len(l.told) == 0:
		return nil, errors.New(`no line of an exchange is in the log: they have "msg":"exchange"`)
	}
	all := slices.Clone(l.told)
	for _, x := range l.told {
		if !x.Job && x.jobID() == "" {
			continue
		}
		for _, q := range l.queued {
			if q.Key == x.Key && q.Chain == x.Chain && !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *exchangeLine) int { return a.Start.Compare(b.Start) })
	return all, nil
}
