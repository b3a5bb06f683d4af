package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
