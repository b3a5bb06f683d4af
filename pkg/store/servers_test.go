package store

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// freeAddress is a loopback address that was free a moment ago.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func port(t testing.TB, address string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}

// node is a NATS server in this process that can be stopped and started again at its address.
type node struct {
	opts server.Options
	srv  *server.Server
}

func newNode(t testing.TB, address string) *node {
	n := &node{opts: server.Options{
		ServerName: "node-" + fmt.Sprint(port(t, address)), Host: "127.0.0.1", Port: port(t, address), NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 30,
	}}
	t.Cleanup(n.stop)
	return n
}

func (n *node) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.opts.Port) }

func (n *node) start(t testing.TB) {
	t.Helper()
	opts := n.opts
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	n.srv = srv
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
}

func (n *node) stop() {
	if n.srv != nil {
		n.srv.Shutdown()
		n.srv.WaitForShutdown()
		n.srv = nil
	}
}

// wipe forgets all that a stopped node had stored.
func (n *node) wipe(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(n.opts.StoreDir); err != nil {
		t.Fatal(err)
	}
}

// startCluster starts three nodes that replicate.
func startCluster(t testing.TB) []*node {
	t.Helper()
	var nodes []*node
	var routes []*url.URL
	for range 3 {
		n := newNode(t, freeAddress(t))
		n.opts.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port(t, freeAddress(t))}
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", n.opts.Cluster.Port)})
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.opts.Routes = routes
		n.start(t)
	}
	return nodes
}

func urls(nodes []*node) []string {
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.url())
	}
	return urls
}
