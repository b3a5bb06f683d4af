package store

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// buildServer builds NATS's own server; the build cache makes the second time quick.
func buildServer(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "nats-server")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// process is a nats-server of its own, which can be killed, frozen and started again at its address.
type process struct {
	args []string
	url  string
	cmd  *exec.Cmd
	out  logBuffer
}

func (p *process) start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// signal sends sig, if it runs.
func (p *process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Errorf("signal %s: %v", sig, err)
	}
	switch sig {
	case syscall.SIGKILL:
		p.cmd.Wait() // It says that it was killed.
		p.cmd = nil
	case syscall.SIGSTOP: // Sent is not yet stopped.
		if _, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
			t.Errorf("waiting for the stop: %v", err)
		}
	}
}

// startProcesses starts n servers, as a cluster if they are several.
func startProcesses(t testing.TB, n int) []*process {
	t.Helper()
	bin := buildServer(t)
	var all []*process
	var peers []string
	for range n {
		peers = append(peers, "nats://"+freeAddress(t))
	}
	for i := range n {
		address := freeAddress(t)
		p := &process{url: "nats://" + address, args: []string{bin, "-a", "127.0.0.1", "-p", fmt.Sprint(port(t, address)),
			"-n", fmt.Sprintf("n%d", i), "-js", "-sd", t.TempDir()}}
		if n > 1 {
			p.args = append(p.args, "--cluster_name", "test", "--cluster", peers[i], "--routes", strings.Join(peers, ","))
		}
		t.Cleanup(func() { p.signal(t, syscall.SIGKILL) })
		p.start(t)
		all = append(all, p)
	}
	t.Cleanup(func() {
		for _, p := range all {
			if t.Failed() {
				t.Logf("%s:\n%s", p.url, p.out.String())
			}
		}
	})
	return all
}

func TestThreeProcessesKilledOneByOneAndAllAtOnce(t *testing.T) {
	t.Parallel()
	nodes := startProcesses(t, 3)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.url)
	}
	fleet := openFleet(t, addresses)
	b := fleet[0].Bucket(BucketOptions{Name: "b"})
	keep := func(what, key string) {
		t.Helper()
		eventually(t, what, func() error { _, err := b.Put(bounded(t), key, []byte("v"), 0); return err })
	}
	keep("a bucket on three nodes", "k0")
	w := watchAll(t, fleet[2].Bucket(BucketOptions{Name: "b"}))
	w.want(t, "k0=v")

	nodes[0].signal(t, syscall.SIGKILL)
	keep("a write with a node killed", "k1")
	w.untilAll(t, "k1=v")

	nodes[1].signal(t, syscall.SIGKILL)
	nodes[2].signal(t, syscall.SIGKILL)
	for _, s := range fleet {
		eventually(t, "the loss", func() error {
			if s.Ready() == nil {
				return errors.New("still ready")
			}
			return nil
		})
		wantDown(t, s, s.Bucket(BucketOptions{Name: "b"}))
	}
	for _, n := range nodes {
		n.start(t)
	}
	for _, s := range fleet {
		awaitReady(t, s)
	}
	w.untilAll(t, "k0=v", "k1=v")
	keep("a write after the return", "k2")
	w.untilAll(t, "k2=v")
	testNews(t, fleet[1], fleet[2])
}

// TestNoItemIsLostWithNodesKilled has three replicas push and pull while one node after the other is killed and returns.
func TestNoItemIsLostWithNodesKilled(t *testing.T) {
	t.Parallel()
	nodes := startProcesses(t, 3)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.url)
	}
	fleet := openFleet(t, addresses)
	const lease = time.Hour // Whatever is given out twice was not given out again for its lease.
	queue := func(s *Store) *Queue { return s.Queue(QueueOptions{Name: "q", Lease: lease}) }
	push(t, queue(fleet[0]), "chat", "first")
	done(t, pull(t, queue(fleet[0]), "chat"))

	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	var mu sync.Mutex
	var pushed, got []string
	keep := func(list *[]string, id string) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, id)
	}
	var pulling, pushing sync.WaitGroup
	killing, killed := context.WithCancel(ctx)
	for n, s := range fleet {
		q := queue(s)
		pulling.Go(func() { pullForever(ctx, t, q, func(id string) { keep(&got, id) }) })
		pushing.Go(func() {
			for i := 0; pause(killing, 10*time.Millisecond); i++ {
				id := fmt.Sprintf("%d.%d", n, i)
				push(t, q, "chat", id)
				keep(&pushed, id)
			}
		})
	}
	for _, n := range nodes {
		n.signal(t, syscall.SIGKILL)
		for _, s := range fleet {
			awaitReady(t, s)
		}
		push(t, queue(fleet[0]), "mail", n.url) // with two nodes
		n.start(t)
		eventually(t, "a copy on every node", func() error { return replicated(t, fleet[0], "QUEUE_q") })
	}
	killed()
	pushing.Wait()
	for n := range nodes { // None is lost that nobody pulls either.
		if i := pull(t, queue(fleet[n]), "mail"); string(i.Data) != nodes[n].url {
			t.Errorf("Pull() = %q, want what was pushed with node %d killed", i.Data, n)
		}
	}
	eventually(t, "the last item", func() error {
		stats, err := queue(fleet[0]).Stats(bounded(t), "chat")
		if err == nil && stats.Waiting > 0 {
			err = fmt.Errorf("Stats() = %+v", stats)
		}
		return err
	})
	stats, err := queue(fleet[0]).Stats(bounded(t), "chat")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	pulling.Wait()
	slices.Sort(got)
	once := slices.Compact(slices.Clone(got))
	if len(once) != len(got) {
		t.Errorf("%d items were given out %d times, want each once within its lease", len(once), len(got))
	}
	// What was given out to a session that was just dying waits for its lease.
	if len(once)+int(stats.Running) < len(pushed) {
		t.Errorf("of %d items pushed %d were pulled and %d wait for their lease: the others are lost", len(pushed), len(once), stats.Running)
	}
	t.Logf("%d pushed, %d pulled, %d wait for their lease", len(pushed), len(once), stats.Running)
}

// pullForever settles items until ctx ends, through all outages.
func pullForever(ctx context.Context, t testing.TB, q *Queue, got func(id string)) {
	for ctx.Err() == nil {
		i, err := q.Pull(ctx, "chat")
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		got(string(i.Data))
		eventually(t, "the item's end", func() error { return i.Done(bounded(t)) })
	}
}

// replicated is nil when all copies of a stream are up to date.
func replicated(t testing.TB, s *Store, stream string) error {
	ses := s.state.Load().ses
	if ses == nil {
		return errors.New("no session")
	}
	str, err := ses.js.Stream(bounded(t), stream)
	if err != nil {
		return err
	}
	c := str.CachedInfo().Cluster
	if c == nil || c.Leader == "" || len(c.Replicas) != 2 {
		return fmt.Errorf("the stream's cluster is %+v", c)
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return fmt.Errorf("a copy is %+v", r)
		}
	}
	return nil
}

func TestAFrozenServerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	n := startProcesses(t, 1)[0]
	s := openStore(t, Options{URLs: []string{n.url}})
	b := s.Bucket(BucketOptions{Name: "b"})
	awaitReady(t, s)
	if _, err := b.Put(bounded(t), "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	n.signal(t, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Get(ctx, "k"); !errors.Is(err, ErrDown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get() from a frozen server = %v, want ErrDown and the deadline", err)
	}
	large := make([]byte, newsMost)
	for range 2 * newsBuffered {
		s.Publish("news", large) // More than all buffers take.
	}
	if s.Stats().Dropped == 0 {
		t.Error("no news was dropped, want that which nobody takes")
	}
	eventually(t, "the loss", func() error {
		if s.Ready() == nil {
			return errors.New("still ready")
		}
		return nil
	})
	wantDown(t, s, b)
	n.signal(t, syscall.SIGCONT)
	awaitReady(t, s)
	if e, err := b.Get(bounded(t), "k"); err != nil || string(e.Value) != "v" {
		t.Errorf("Get() after it = %q, %v, want v", e.Value, err)
	}
}
