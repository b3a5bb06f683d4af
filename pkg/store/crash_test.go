package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A child process works on the folder in crashDir until it kills itself: the work is named in crashWork, and begins at
// the number in crashFrom. It tells what was done on standard output, a line each.
const (
	crashDir  = "STORE_TEST_CRASH_DIR"
	crashWork = "STORE_TEST_CRASH_WORK"
	crashFrom = "STORE_TEST_CRASH_FROM"
)

// workUntilKilled is the child.
func workUntilKilled(dir string) {
	s, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	begin, _ := strconv.Atoi(os.Getenv(crashFrom))
	map[string]func(*Store, int){"put": putForever, "queue": queueForever, "blob": blobForever}[os.Getenv(crashWork)](s, begin)
	select {}
}

func killMyself() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// crash runs a child until its death and returns the lines that it wrote.
func crash(t testing.TB, dir, work string, from int) []string {
	t.Helper()
	cmd := exec.CommandContext(bounded(t), os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashWork+"="+work, fmt.Sprintf("%s=%d", crashFrom, from))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v, want SIGKILL: %s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func putForever(s *Store, begin int) {
	b := s.Bucket(BucketOptions{Name: "crash"})
	for writer := range 4 {
		go func() {
			for n := begin; ; n++ {
				key := fmt.Sprintf("%d.%d", writer, n)
				if _, err := b.Put(context.Background(), key, []byte(key), 0); err != nil {
					fmt.Println("error", err)
				}
				fmt.Println(key)
				if writer == 0 && n == begin+20 {
					killMyself()
				}
			}
		}()
	}
}

func TestWhatWasAcknowledgedIsThereAfterKill9(t *testing.T) {
	dir := t.TempDir()
	var acknowledged []string
	for round := range 3 {
		acknowledged = append(acknowledged, crash(t, dir, "put", 1000*round)...)
	}
	if len(acknowledged) < 60 {
		t.Fatalf("%d writes were acknowledged, want at least 60", len(acknowledged))
	}
	b := openStore(t, Options{Dir: dir}).Bucket(BucketOptions{Name: "crash"})
	for _, key := range acknowledged {
		wantValue(t, b, key, key)
	}
}

func crashQueue(s *Store) *Queue { return s.Queue(QueueOptions{Name: "crash", Lease: time.Second}) }

// queueForever pushes with several hands and settles about half as many items with others.
func queueForever(s *Store, begin int) {
	q, ctx := crashQueue(s), context.Background()
	told := func(err error, what, id string) {
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println(what, id)
	}
	for hand := range 4 {
		go func() {
			for n := begin; ; n++ {
				id := fmt.Sprintf("%d.%d", hand, n)
				told(q.Push(ctx, "chat", id, []byte(id)), "pushed", id)
				if hand == 0 && n == begin+40 {
					killMyself()
				}
			}
		}()
	}
	for range 2 {
		go func() {
			for {
				i, err := q.Pull(ctx, "chat")
				if err != nil {
					fmt.Println("error", err)
					continue
				}
				fmt.Println("settling", string(i.Data))
				told(i.Done(ctx), "settled", string(i.Data))
			}
		}()
	}
}

// ledger is what children told of items.
type ledger map[string][]string

func (l ledger) add(t testing.TB, lines []string) {
	t.Helper()
	for _, line := range lines {
		what, id, _ := strings.Cut(line, " ")
		if what == "error" {
			t.Errorf("the child says: %s", line)
		}
		l[what] = append(l[what], id)
	}
}

// check drains the queue: every item pushed is in it, or was about to be settled; and none that was settled is.
func (l ledger) check(t testing.TB, q *Queue, topic string) {
	t.Helper()
	left := map[string]bool{}
	for {
		stats, err := q.Stats(bounded(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		if stats == (QueueStats{}) {
			break
		}
		i := pull(t, q, topic)
		if left[string(i.Data)] {
			t.Errorf("%s was given out twice, want once", i.Data)
		}
		left[string(i.Data)] = true
		done(t, i)
	}
	for _, id := range l["pushed"] {
		if !left[id] && !slices.Contains(l["settling"], id) {
			t.Errorf("%s was pushed and is lost", id)
		}
	}
	for _, id := range l["settled"] {
		if left[id] {
			t.Errorf("%s was settled and is given out again", id)
		}
	}
	t.Logf("%d items pushed, %d settled, %d left", len(l["pushed"]), len(l["settled"]), len(left))
}

func TestNoItemIsLostAndNoneComesBackAfterKill9(t *testing.T) {
	dir := t.TempDir()
	told := ledger{}
	for round := range 5 {
		told.add(t, crash(t, dir, "queue", 1000*round))
	}
	if len(told["pushed"]) < 200 || len(told["settled"]) < 20 {
		t.Fatalf("%d items were pushed and %d settled, want at least 200 and 20", len(told["pushed"]), len(told["settled"]))
	}
	told.check(t, crashQueue(openStore(t, Options{Dir: dir})), "chat")
}

// blobForever replaces one blob, and dies somewhere in a write.
func blobForever(s *Store, begin int) {
	b, ctx := s.Bucket(BucketOptions{Name: "crash", TTL: time.Hour}), context.Background()
	for n := begin; ; n++ {
		if n == begin+3 {
			time.AfterFunc(time.Duration(begin%7)*time.Millisecond, killMyself)
		}
		if err := b.PutBlob(ctx, "k", sample(2*n+1, 4*chunkMost), 0); err != nil {
			fmt.Println("error", err)
		}
		fmt.Println(n)
	}
}

func TestABlobIsOldOrNewAfterKill9(t *testing.T) {
	dir := t.TempDir()
	for round := range 6 {
		told := crash(t, dir, "blob", 101*round)
		last, err := strconv.Atoi(told[len(told)-1])
		if err != nil {
			t.Fatalf("the child says: %s", told)
		}
		s := openStore(t, Options{Dir: dir})
		value, err := s.Bucket(BucketOptions{Name: "crash", TTL: time.Hour}).GetBlob(bounded(t), "k")
		if err != nil {
			t.Fatalf("GetBlob() = %v, want a blob", err)
		}
		if n := seedOf(t, value) / 2; n != last && n != last+1 || !bytes.Equal(value, sample(2*n+1, 4*chunkMost)) {
			t.Errorf("GetBlob() is write %d, want the last acknowledged, %d, or the next", n, last)
		}
		closeStore(t, s)
	}
}
