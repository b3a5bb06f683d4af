// Package scripted plays LLM providers: HTTP servers that do on the wire what real ones did, on cue.
//
// What a request gets is said by its own header, so that any number of tests share one provider:
//
//	x-script: a=529, ok; b=ok n=100 delay=5ms
//
// means: provider "a" answers 529 to the first request of this x-script-id and well to the later ones; provider
// "b" always streams 100 content events, 5 ms apart. "*" stands for any provider. See [ParseBehaviour] for the words.
package scripted

import (
	"net/http"
	"strings"
	"sync"
)

// The headers that carry a script. They are ordinary headers to everything in between.
const (
	ScriptHeader = "X-Script"
	IDHeader     = "X-Script-Id"
)

// Options of a provider.
type Options struct {
	Default string   // behaviours for requests without a script; "" is "ok"
	Models  []string // listed by GET /v1/models, and all that a platform has
	As      Persona

	Platform Platform // nil: all dialects, and no request is refused
}

// Persona is whom answers name, so that several providers can answer alike. What is "" is the provider's own.
type Persona struct{ Name, Model string }

// Provider is one provider's account, speaking Anthropic Messages, OpenAI Chat Completions, Responses and embeddings,
// or what its [Platform] speaks.
//
// Ownership: the test or demo that made it; any number of [Server]s may serve it.
// Concurrency: safe for any number of goroutines.
type Provider struct {
	name string
	as   Persona
	mux  *http.ServeMux
	log  log

	// mu guards the fields below.
	mu       sync.Mutex
	defaults []Behaviour
	models   []string
	gates    map[string]chan struct{} // by script id; closed once opened
}

// New makes a provider. A default that does not parse is a programmer's fault and panics.
func New(name string, o Options) *Provider {
	p := &Provider{name: name, as: o.As, models: o.Models, gates: map[string]chan struct{}{}}
	p.log.init()
	if o.Default == "" {
		o.Default = "ok"
	}
	if err := p.Set(o.Default); err != nil {
		panic(err)
	}
	if o.Platform != nil {
		p.mux = p.served(o.Platform)
	} else {
		p.mux = p.routes()
	}
	return p
}

// Name is the provider's name in scripts and in the texts it answers with.
func (p *Provider) Name() string { return p.name }

// Set replaces what requests without a script get. Several comma-separated behaviours are taken in turn by the
// requests of one x-script-id; the last one stays.
func (p *Provider) Set(behaviours string) error {
	steps, err := parseSteps(behaviours)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.defaults = steps
	return nil
}

// Open lets every request of a script id pass its `gate`, now and later.
func (p *Provider) Open(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := p.gateLocked(id)
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (p *Provider) gate(id string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gateLocked(id)
}

// Caller must hold mu.
func (p *Provider) gateLocked(id string) chan struct{} {
	gate, ok := p.gates[id]
	if !ok {
		gate = make(chan struct{})
		p.gates[id] = gate
	}
	return gate
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

func (p *Provider) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", p.llm(anthropic{}))
	mux.HandleFunc("POST /v1/chat/completions", p.llm(chat{}))
	mux.HandleFunc("POST /v1/responses", p.llm(responses{}))
	mux.HandleFunc("POST /v1/embeddings", p.llm(embeddings{}))
	mux.HandleFunc("POST /v1/messages/count_tokens", p.recorded(countTokens))
	mux.HandleFunc("GET /v1/models", p.recorded(p.listModels))
	mux.HandleFunc("POST /v1/files", p.recorded(upload))
	mux.HandleFunc("GET /v1/files/{id}/content", p.recorded(download))
	mux.HandleFunc("GET /v1/realtime", p.recorded(echo))
	mux.HandleFunc("/", p.recorded(notFound))
	return mux
}

// behaviour is what the nth request (from 0) of a script id gets here.
func (p *Provider) behaviour(script string, n int) (Behaviour, error) {
	steps, err := p.steps(script)
	if err != nil {
		return Behaviour{}, err
	}
	return steps[min(n, len(steps)-1)], nil
}

func (p *Provider) steps(script string) ([]Behaviour, error) {
	for entry := range strings.SplitSeq(script, ";") {
		name, behaviours, _ := strings.Cut(strings.TrimSpace(entry), "=")
		if name == p.name || name == "*" {
			return parseSteps(behaviours)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.defaults, nil
}
