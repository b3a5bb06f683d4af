package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

func TestAClusterThatIsNotThereYetIsFoundWhenItComes(t *testing.T) {
	var log logBuffer
	n := newNode(t, freeAddress(t))
	s := openStore(t, Options{URLs: []string{n.url()}, Log: log.logger()})
	b := s.Bucket(BucketOptions{Name: "b"})
	w := watchAll(t, b)
	wantDown(t, s, b)
	eventually(t, "the reason", func() error {
		if err := s.Ready(); errors.Is(err, errOpening) {
			return err
		}
		return nil
	})
	n.start(t)
	awaitReady(t, s)
	if _, err := b.Put(bounded(t), "k", []byte("v"), 0); err != nil {
		t.Errorf("Put() = %v, want nil", err)
	}
	w.want(t, "k=v")
	testNews(t, s, s)
	if log.count("store is not reachable") != 1 || log.count("store is up") != 1 || log.count("\n") != 2 {
		t.Errorf("the log is, want one line for each change:\n%s", log.String())
	}
}

// wantDown makes calls that must fail at once; they have no deadline of their own.
func wantDown(t *testing.T, s *Store, b *Bucket) {
	t.Helper()
	ctx := t.Context()
	_, get := b.Get(ctx, "k")
	_, put := b.Put(ctx, "k", nil, 0)
	_, keys := b.Keys(ctx)
	_, lease := b.Lease(ctx, "k", "h", time.Second)
	for what, err := range map[string]error{
		"Get": get, "Put": put, "Keys": keys, "Lease": lease, "Delete": b.Delete(ctx, "k", 0), "Ready": s.Ready(),
	} {
		if !errors.Is(err, ErrDown) {
			t.Errorf("%s() while down = %v, want ErrDown", what, err)
		}
	}
}

func TestAServerThatSaysNothingHoldsUpNeitherOpenNorClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := openStore(t, Options{URLs: []string{"nats://" + l.Addr().String()}})
	wantDown(t, s, s.Bucket(BucketOptions{Name: "b"}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close() with a cancelled context = %v, want context.Canceled", err)
	}
}

func TestAServerThatRefusesTheLoginIsTriedAgain(t *testing.T) {
	n := newNode(t, freeAddress(t))
	n.opts.Username, n.opts.Password = "u", "right"
	n.start(t)
	s := openStore(t, Options{URLs: []string{fmt.Sprintf("nats://u:wrong@127.0.0.1:%d", n.opts.Port)}})
	eventually(t, "three refusals", func() error {
		if got := n.srv.NumClients(); got > 0 {
			return fmt.Errorf("%d clients", got)
		}
		v, err := n.srv.Varz(nil)
		if err == nil && v.TotalConnections < 3 {
			err = fmt.Errorf("%d connections", v.TotalConnections)
		}
		return err
	})
	wantDown(t, s, s.Bucket(BucketOptions{Name: "b"}))
	n.stop()
	n.opts.Password = "wrong"
	n.start(t)
	awaitReady(t, s)
}

func TestCredentialsAreTakenAsContentAndAsAFile(t *testing.T) {
	n := newNode(t, freeAddress(t))
	creds := operatorMode(t, n)
	n.start(t)
	testBucketOn := func(creds string) {
		s := openStore(t, Options{URLs: []string{n.url()}, Creds: creds})
		awaitReady(t, s)
		if _, err := s.Bucket(BucketOptions{Name: "b"}).Put(bounded(t), "k", nil, 0); err != nil {
			t.Errorf("Put() = %v, want nil", err)
		}
	}
	testBucketOn(string(creds))
	testBucketOn(writeFile(t, "user.creds", creds))
}

// operatorMode makes n ask for credentials of one account and returns a user's.
func operatorMode(t *testing.T, n *node) []byte {
	t.Helper()
	must := func(s string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	system, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	claims := jwt.NewAccountClaims(must(account.PublicKey()))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	sys := jwt.NewAccountClaims(must(system.PublicKey()))
	resolver := &server.MemAccResolver{}
	resolver.Store(claims.Subject, must(claims.Encode(operator)))
	resolver.Store(sys.Subject, must(sys.Encode(operator)))
	op := jwt.NewOperatorClaims(must(operator.PublicKey()))
	op.SystemAccount = sys.Subject
	n.opts.TrustedOperators = []*jwt.OperatorClaims{op}
	n.opts.SystemAccount = sys.Subject
	n.opts.AccountResolver = resolver
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(must(jwt.NewUserClaims(must(user.PublicKey())).Encode(account)), seed)
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

func TestMoreReplicasThanTheClusterHasNodesIsTold(t *testing.T) {
	n := newNode(t, freeAddress(t))
	n.start(t)
	s := openStore(t, Options{URLs: []string{n.url()}, Replicas: 3})
	b := s.Bucket(BucketOptions{Name: "b"})
	eventually(t, "the reason", s.wantFault("replicas > 1"))
	wantDown(t, s, b)
	if got := s.Stats().Losses; got != 0 {
		t.Errorf("Stats().Losses = %d, want 0: the cluster is there", got)
	}
}

func TestAClusterThatLostEverythingIsFilledAgain(t *testing.T) {
	var log logBuffer
	n := newNode(t, freeAddress(t))
	n.start(t)
	s := openStore(t, Options{URLs: []string{n.url()}, Log: log.logger()})
	b := s.Bucket(BucketOptions{Name: "b"})
	awaitReady(t, s)
	w := watchAll(t, b)
	for _, key := range []string{"a", "b"} {
		if _, err := b.Put(bounded(t), key, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	w.want(t, "a=1", "b=1")
	n.stop()
	eventually(t, "the loss", func() error {
		if s.Ready() == nil {
			return errors.New("still ready")
		}
		return nil
	})
	wantDown(t, s, b)
	n.wipe(t)
	n.start(t)
	awaitReady(t, s)
	if _, err := b.Put(bounded(t), "b", []byte("2"), 0); err != nil {
		t.Errorf("Put() after the return = %v, want nil", err)
	}
	w.untilAll(t, "-a", "b=2")
	testNews(t, s, s)
	if got := s.Stats().Losses; got != 1 {
		t.Errorf("Stats().Losses = %d, want 1", got)
	}
	if log.count("store is down") != 1 || log.count("store is up") != 2 {
		t.Errorf("the log is, want one line for each change:\n%s", log.String())
	}
}

func TestABucketDeletedByAnOperatorIsMadeAgain(t *testing.T) {
	s := openEmbedded(t)
	b := s.Bucket(BucketOptions{Name: "b"})
	w := watchAll(t, b)
	if _, err := b.Put(bounded(t), "k", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	w.want(t, "k=1")
	if err := s.state.Load().ses.js.DeleteStream(bounded(t), "KV_b"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a bucket that works", func() error {
		_, err := b.Put(bounded(t), "new", []byte("2"), 0)
		return err
	})
	w.untilAll(t, "-k", "new=2")
}
