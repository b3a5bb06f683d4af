//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"understudy/internal/stage"
)

// cluster is one or more NATS servers, each a process of its own that can be killed and started again.
//
// Ownership: the test that started it. Concurrency: one goroutine.
type cluster struct {
	dir   string
	nodes []*node
}

type node struct {
	*process
	client, peer, monitor string // addresses
}

// natsServer builds NATS's own server beside the service.
var natsServer = sync.OnceValues(func() (string, error) {
	to := filepath.Join(filepath.Dir(binary), "nats-server")
	cmd := exec.Command("go", "build", "-o", to, "github.com/nats-io/nats-server/v2")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the NATS server: %w\n%s", err, out)
	}
	return to, nil
})

// startNATS starts n servers, as a cluster if they are several, and waits until they are ready. Stacks must be started
// after it, so that they end before.
func startNATS(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir()}
	for range n {
		c.nodes = append(c.nodes, &node{client: stage.Free(t), peer: stage.Free(t), monitor: stage.Free(t)})
	}
	t.Cleanup(func() { c.stop(t) })
	c.start(t)
	return c
}

func (c *cluster) urls() (urls []string) {
	for _, n := range c.nodes {
		urls = append(urls, "nats://"+n.client)
	}
	return urls
}

// start starts, or starts again, those that do not run.
func (c *cluster) start(t testing.TB) {
	t.Helper()
	for i, n := range c.nodes {
		if n.process == nil || !n.alive() {
			c.run(t, i)
		}
	}
	for _, n := range c.nodes {
		eventually(t, patience, func() error { return n.healthy(t) })
	}
}

func (c *cluster) run(t testing.TB, i int) {
	t.Helper()
	program, err := natsServer()
	if err != nil {
		t.Fatal(err)
	}
	n, name := c.nodes[i], fmt.Sprintf("nats%d", i)
	args := []string{"-a", "127.0.0.1", "-p", port(t, n.client), "-m", port(t, n.monitor), "-n", name,
		"-js", "-sd", filepath.Join(c.dir, name)}
	if len(c.nodes) > 1 {
		var peers []string
		for _, n := range c.nodes {
			peers = append(peers, "nats://"+n.peer)
		}
		args = append(args, "--cluster_name", "fleet", "--cluster", "nats://"+n.peer, "--routes", strings.Join(peers, ","))
	}
	if n.process, err = start(name, filepath.Join(c.dir, name+".log"), program, args...); err != nil {
		t.Fatal(err)
	}
}

// healthy asks the server itself, JetStream included: a cluster is healthy once it has a leader.
func (n *node) healthy(t testing.TB) error {
	if !n.alive() {
		t.Fatalf("%s has ended: %v\n%s", n.name, n.exitErr, n.tail(4<<10))
	}
	resp, err := http.Get("http://" + n.monitor + "/healthz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: /healthz = %d", n.name, resp.StatusCode)
	}
	return nil
}

func (c *cluster) stop(t testing.TB) {
	for _, n := range c.nodes {
		if n.process == nil {
			continue
		}
		n.process.stop(5 * time.Second)
		if t.Failed() {
			t.Logf("--- %s\n%s", n.name, n.tail(4<<10))
		}
	}
}

func port(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// leader is the number of the server that leads a bucket's stream.
func (c *cluster) leader(t testing.TB, bucket string) (leader int) {
	t.Helper()
	eventually(t, patience, func() error {
		resp, err := http.Get("http://" + c.nodes[0].monitor + "/jsz?streams=true")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var status struct {
			Accounts []struct {
				Streams []struct {
					Name    string `json:"name"`
					Cluster struct {
						Leader string `json:"leader"`
					} `json:"cluster"`
				} `json:"stream_detail"`
			} `json:"account_details"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
			return err
		}
		for _, account := range status.Accounts {
			for _, stream := range account.Streams {
				if n, _ := fmt.Sscanf(stream.Cluster.Leader, "nats%d", &leader); n == 1 && strings.Contains(stream.Name, bucket) {
					return nil
				}
			}
		}
		return fmt.Errorf("no leader of %s in %+v", bucket, status)
	})
	return leader
}
