//go:build mesh

// Package mesh proves that Understudy works as a policy of a mesh: control planes write Envoy's configuration from our
// manifests, and a real Envoy, the built service, scripted providers and the official SDKs do the rest.
package mesh

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"understudy/internal/scripted"
	"understudy/internal/stage"
)

const envoyVersion = "1.40.0"

// binary is the path of the built service. TestMain sets it.
var binary string

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &binary)) }

// stack is providers and the service, running, and an address for the front that a test is to bring.
//
// Providers a and b are accounts of Anthropic's dialect, c and d of OpenAI's; dead and gone refuse connections. Every row has a
// chain of its own, so that a breaker that one row opens is no other's.
//
// Ownership: the test that made it; its clean-up ends everything. Concurrency: requests from any goroutine.
type stack struct {
	dir         string
	providers   map[string]*scripted.Provider
	accounts    map[string]account
	chains      map[string]chain
	failOpen    bool
	tls         *links // between Envoy and the service; nil: none
	service     *stage.Process
	config      string // path of the service's config file
	grpc, admin string // of the service
	listen      string // of the front, host:port; config's envoy.listen
	envoyAdmin  string // config's envoy.admin
	http        *http.Client
}

// account is a provider in the config.
type account struct {
	api, endpoint string
	ca            string // path of the authority of a provider with TLS; "": it has none
}

// links is TLS between Envoy and the service, both ways: paths of PEM files.
type links struct{ ca, serviceCert, serviceKey, envoyCert, envoyKey string }

// chain is a product feature in the config.
type chain struct {
	on     []string // accounts
	commit string   // "": the default
	paths  []string // that it serves; none: picked by x-llm-chain
}

// frontURL is where clients call when the front listens where the config says.
func (s *stack) frontURL() string { return "http://" + s.listen }

// newStack starts the providers and the service. edit has the last word on the stack before its config is written; nil:
// it stays.
func newStack(t *testing.T, edit func(*stack)) *stack {
	t.Helper()
	s := &stack{
		dir: t.TempDir(), grpc: stage.Free(t), admin: stage.Free(t), listen: stage.Free(t), envoyAdmin: stage.Free(t), http: client(t),
		providers: map[string]*scripted.Provider{},
		accounts: map[string]account{
			"dead": {api: "anthropic", endpoint: "http://" + stage.Refusing(t)}, "gone": {api: "anthropic", endpoint: "http://" + stage.Refusing(t)},
		},
		chains: map[string]chain{
			"claude": {on: []string{"a", "b"}, paths: []string{messages}},
			"gpt":    {on: []string{"c", "d"}, paths: []string{chats, responsed}},
		},
	}
	s.config = filepath.Join(s.dir, "understudy.yaml")
	for name, api := range map[string]string{"a": "anthropic", "b": "anthropic", "c": "openai", "d": "openai"} {
		s.hire(t, name, api)
	}
	for _, r := range failoverRows {
		s.chains[r.chain] = chain{on: r.on, commit: r.commit}
	}
	if edit != nil {
		edit(s)
	}
	s.save(t)
	s.startService(t)
	return s
}

// hire starts a provider and gives the config an account with it; save tells the service.
func (s *stack) hire(t testing.TB, name, api string) {
	t.Helper()
	s.providers[name] = scripted.New(name, scripted.Options{Models: []string{model(name)}})
	s.accounts[name] = account{api: api, endpoint: stage.Serve(t, s.providers[name], nil).URL("127.0.0.1")}
}

// link gives Envoy and the service certificates for each other.
func (s *stack) link(t testing.TB) {
	t.Helper()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	s.tls = &links{ca: stage.Write(t, filepath.Join(s.dir, "links.ca.pem"), ca.PEM())}
	s.tls.serviceCert, s.tls.serviceKey = s.leaf(t, ca, "understudy.test")
	s.tls.envoyCert, s.tls.envoyKey = s.leaf(t, ca, "envoy.test")
}

// leaf writes a certificate for a name, and its key.
func (s *stack) leaf(t testing.TB, ca *scripted.CA, name string) (certFile, keyFile string) {
	t.Helper()
	leaf, err := ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile = stage.Write(t, filepath.Join(s.dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	keyFile = stage.Write(t, filepath.Join(s.dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	return certFile, keyFile
}

// hireTLS is hire of a provider of Anthropic's dialect that is called as localhost and shows a certificate for
// certified.
func (s *stack) hireTLS(t testing.TB, name, certified string, ca *scripted.CA) {
	t.Helper()
	cert, err := ca.Leaf(certified)
	if err != nil {
		t.Fatal(err)
	}
	s.providers[name] = scripted.New(name, scripted.Options{Models: []string{model(name)}})
	s.accounts[name] = account{api: "anthropic", endpoint: stage.Serve(t, s.providers[name], cert).URL("localhost"),
		ca: stage.Write(t, filepath.Join(s.dir, name+".ca.pem"), ca.PEM())}
}

// model is what an account's model is called, so that a rewritten model shows.
func model(account string) string { return "m-" + account }

// save writes the config file in one step, as a reload must not see half of it.
func (s *stack) save(t testing.TB) {
	t.Helper()
	out, err := yaml.Marshal(s.compose(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(stage.Write(t, s.config+".new", out), s.config); err != nil {
		t.Fatal(err)
	}
}

func (s *stack) compose(t testing.TB) map[string]any {
	providers, targets, chains := map[string]any{}, map[string]any{}, map[string]any{}
	for name, a := range s.accounts {
		providers[name] = s.provider(t, name, a)
	}
	for name, c := range s.chains {
		chains[name] = c.compose(name, targets)
	}
	down := "closed"
	if s.failOpen {
		down = "open"
	}
	return map[string]any{
		"server":    map[string]any{"grpc": s.grpc, "admin": s.admin},
		"envoy":     map[string]any{"listen": s.listen, "admin": s.envoyAdmin, "when_service_down": down},
		"store":     map[string]any{"embedded": map[string]any{"dir": filepath.Join(s.dir, "store")}},
		"providers": providers,
		"passthrough": []any{
			map[string]any{"path": "/v1/models", "provider": "c"}, map[string]any{"path": "/v1/realtime", "provider": "c"},
		},
		"targets": targets,
		"chains":  chains,
	}
}

func (s *stack) provider(t testing.TB, name string, a account) map[string]any {
	keyFile := filepath.Join(s.dir, name+".key")
	if _, err := os.Stat(keyFile); err != nil { // the service must not see it half written again
		stage.Write(t, keyFile, []byte(key(name)))
	}
	auth := map[string]any{"bearer": "file:" + keyFile}
	if a.api == "anthropic" {
		auth = map[string]any{"header": "x-api-key", "secret": "file:" + keyFile}
	}
	form := map[string]any{"api": a.api, "endpoint": a.endpoint, "auth": auth}
	if a.ca == "" {
		form["insecure"] = true
	} else {
		form["ca"] = a.ca
	}
	return form
}

// key is the credential of an account.
func key(account string) string { return "key-of-" + account }

// compose is the chain in the config; its targets, named chain/account, go to targets.
func (c chain) compose(name string, targets map[string]any) map[string]any {
	var rungs []string
	for _, on := range c.on {
		rungs = append(rungs, name+"/"+on)
		targets[name+"/"+on] = map[string]any{"provider": on, "model": model(on), "model_family": "m"}
	}
	form := map[string]any{"targets": rungs, "degrade": []string{"off"},
		"deadlines": map[string]any{"idle": "10m", "total": "10m"}} // on a busy machine a control plane takes a minute, and streams wait for it
	if c.commit != "" {
		form["commit"] = c.commit
	}
	if len(c.paths) == 0 {
		form["select"] = "header"
		return form
	}
	var match []any
	for _, path := range c.paths {
		match = append(match, map[string]any{"path": path})
	}
	form["match"] = match
	return form
}

// startService starts, or starts again, the service.
func (s *stack) startService(t *testing.T) {
	t.Helper()
	s.service = stage.Start(t, filepath.Join(s.dir, "service.log"), binary, "serve", "-c", s.config)
	s.service.Ready(t, "http://"+s.admin+"/readyz")
}

// within is a context of the test that also ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
