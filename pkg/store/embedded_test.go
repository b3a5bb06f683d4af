package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestOpenRefuses(t *testing.T) {
	used := t.TempDir()
	openStore(t, Options{Dir: used})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"no place is given":                       {Options{}, "neither a folder nor the URLs"},
		"two places are given":                    {Options{Dir: "x", URLs: []string{"nats://127.0.0.1:1"}}, "choose one"},
		"more replicas than NATS has":             {Options{Dir: "x", Replicas: 6}, "1 to 5, got 6"},
		"the folder is a file":                    {Options{Dir: file}, "not a directory"},
		"the folder cannot be made":               {Options{Dir: "/proc/understudy"}, "/proc/understudy"},
		"another process already uses the folder": {Options{Dir: used}, "another process uses this folder"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(bounded(t), c.o)
			if err == nil {
				closeStore(t, s)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open(%+v) = %v, want an error with %q", c.o, err, c.want)
			}
		})
	}
}

func TestAFolderIsFreeAgainAfterClose(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir})
	b := s.Bucket(BucketOptions{Name: "kept"})
	if _, err := b.Put(bounded(t), "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	closeStore(t, s)
	if _, err := b.Get(bounded(t), "k"); !errors.Is(err, ErrDown) {
		t.Errorf("Get() after Close = %v, want ErrDown", err)
	}
	if err := s.Ready(); !errors.Is(err, ErrDown) {
		t.Errorf("Ready() after Close = %v, want ErrDown", err)
	}
	again := openStore(t, Options{Dir: dir}).Bucket(BucketOptions{Name: "kept"})
	if e, err := again.Get(bounded(t), "k"); err != nil || string(e.Value) != "v" {
		t.Errorf("Get() after opening again = %q, %v, want v", e.Value, err)
	}
}

// crashDir names the folder of a child process that writes until it is killed.
const crashDir = "STORE_TEST_CRASH_DIR"

// writeUntilKilled tells each write on standard output after it was acknowledged, and kills itself among them.
func writeUntilKilled(dir string) {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	b := s.Bucket(BucketOptions{Name: "crash"})
	begin, _ := strconv.Atoi(os.Getenv(crashDir + "_FROM"))
	for writer := range 4 {
		go func() {
			for n := begin; ; n++ {
				key := fmt.Sprintf("%d.%d", writer, n)
				if _, err := b.Put(ctx, key, []byte(key), 0); err != nil {
					fmt.Println("error", err)
				}
				fmt.Println(key)
				if writer == 0 && n == begin+20 {
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
		}()
	}
	select {}
}

func TestWhatWasAcknowledgedIsThereAfterKill9(t *testing.T) {
	dir := t.TempDir()
	var acknowledged []string
	for round := range 3 {
		cmd := exec.CommandContext(bounded(t), os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir, fmt.Sprintf("%s_FROM=%d", crashDir, 1000*round))
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended with %v, want SIGKILL: %s", err, out)
		}
		for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
			acknowledged = append(acknowledged, lines.Text())
		}
	}
	if len(acknowledged) < 60 {
		t.Fatalf("%d writes were acknowledged, want at least 60", len(acknowledged))
	}
	b := openStore(t, Options{Dir: dir}).Bucket(BucketOptions{Name: "crash"})
	for _, key := range acknowledged {
		if e, err := b.Get(bounded(t), key); err != nil || string(e.Value) != key {
			t.Errorf("Get(%q) = %q, %v, want what was acknowledged", key, e.Value, err)
		}
	}
}
