// Package config reads Understudy's one YAML file into a validated, immutable Config.
//
// It is a leaf: it imports nothing of ours, so every other package may read it.
package config

import (
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Config is what the file means once every name in it is resolved.
//
// Ownership: Parse makes it and nobody changes it afterwards; a reload makes a new one.
// Concurrency: any number of goroutines may read it.
type Config struct {
	File string // as given to Load, for messages
	Hash string // hex SHA-256 over the file and every secret it names; changes when either does

	Server        Server
	Envoy         Envoy
	Providers     map[string]*Provider
	Targets       map[string]*Target
	Chains        []*Chain // in the order of the file; see Chain
	Passthrough   []Passthrough
	MaxRetryAfter time.Duration // longest Retry-After told to a client
	Store         Store
	Recovery      Recovery
	Jobs          Jobs
	Drill         Drill
	Tracing       Tracing
	Tenant        Tenant

	refs []string // of every secret that the file names
}

// Server is where the service listens and how much it holds.
type Server struct {
	GRPC            Address
	Admin           Address
	TLS             *ServerTLS  // of GRPC; nil: plaintext
	AdminTLS        *ServerTLS  // of Admin; nil: plaintext
	SocketMode      fs.FileMode // of the socket files
	MaxBody         int64       // bytes of one request body
	MaxInflightBody int64       // bytes of all request bodies and held answers together
	Drain           time.Duration
	AdminToken      Secret   // for changes over the admin listener; needed where that is not loopback
	AdminNames      []string // lower case: hosts by which browsers may ask for the status page, beside IPs and localhost
}

// Address is a listener: Network is "tcp" or "unix", Addr is what net.Listen takes.
type Address struct{ Network, Addr string }

// String is the address as the file writes it.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix://" + a.Addr
	}
	return a.Addr
}

// Local reports whether only this machine can reach the address: a socket file, or a loopback address.
func (a Address) Local() bool {
	host, _, err := net.SplitHostPort(a.Addr)
	return a.Network == "unix" || err == nil && localHost(host)
}

func localHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// ServerTLS is TLS on a listener, mutual where there is a ClientCA. ClientNames, when not empty, lists the SANs (DNS or
// URI) let in.
type ServerTLS struct {
	Cert, Key, ClientCA string // paths; ClientCA may be ""
	ClientNames         []string
}

// Envoy is what `extproc envoy` writes and where our own calls enter Envoy.
type Envoy struct {
	Listen   Address
	Admin    Address
	Gateway  *url.URL
	FailOpen bool       // when_service_down: open
	Services []Address  // the replicas of this service; the default is Server.GRPC
	TLS      *ClientTLS // Envoy's certificate towards the service; needed when Server.TLS is set
	CAFile   string     // the system trust store on Envoy's machine
	XDS      bool       // the gRPC port tells Envoy its part of this config
}

// ClientTLS is what Envoy presents to, and expects of, the gRPC port. SDS is the folder, on Envoy's machine, of the two
// files by which it follows changes of the others; "" where it reads them once.
type ClientTLS struct{ Cert, Key, CA, ServerName, SDS string }

// API is a dialect.
type API string

// The dialects that can be configured so far.
const (
	Anthropic API = "anthropic"
	OpenAI    API = "openai"
	Gemini    API = "gemini"
)

// Platform is where a dialect is served.
type Platform string

// The platforms.
const (
	Native  Platform = "native"
	Bedrock Platform = "bedrock" // Anthropic; see Provider.Surface
	Vertex  Platform = "vertex"  // Anthropic and Gemini
	Azure   Platform = "azure"   // OpenAI
	Foundry Platform = "foundry" // Anthropic
)

// Surface is which of Bedrock's APIs a provider is called by.
type Surface string

// The surfaces of Bedrock.
const (
	Invoke   Surface = "invoke"   // InvokeModel on bedrock-runtime: JSON and eventstream frames; the default
	Messages Surface = "messages" // Messages on bedrock-runtime: SSE
	Mantle   Surface = "mantle"   // Messages on bedrock-mantle: SSE
)

// Provider is an API account and its endpoint.
type Provider struct {
	Name       string
	API        API
	Platform   Platform
	Surface    Surface  // of Bedrock
	Region     string   // of Bedrock, or the location of Vertex ("global" included)
	Project    string   // of Vertex
	APIVersion string   // of Azure: the deployment paths with this api-version; "": the v1 paths
	Endpoint   *url.URL // scheme, host, optional base path without a trailing slash; the platform's own by default
	Auth       Auth
	TierCheck  bool   // compare the asked and the served tier
	Cluster    string // Envoy cluster name
	CA         string // path of the trust anchors for this endpoint; "" is Envoy.CAFile

	// SharedLimits says that all targets of the account share its rate limits (rate_limits: account, the default):
	// a rate limit of one cools them all.
	SharedLimits bool
	StatusFeed   *StatusFeed // nil: none
	Shape        Shape
}

// StatusFeed is a provider's public status page, a supplement only.
type StatusFeed struct {
	Kind      string // statuspage | incidentio
	URL       *url.URL
	Component string // "" is the page as a whole
}

// Auth is the credential of a provider, exactly one of these: FromClient forwards the client's own; None sends none;
// AWS, GCP and Entra sign or fetch tokens; otherwise Header is set to Prefix + the secret's value.
type Auth struct {
	FromClient bool
	None       bool
	AWS        string // "default" (the default chain, web identity included) or "profile:NAME"
	GCP        string // "default" (application default credentials) or "file:PATH" of a credentials file
	Entra      string // "default" (AZURE_TENANT_ID, AZURE_CLIENT_ID and a secret or federated token, or the managed identity)
	Header     string // lower case
	Prefix     string
	Secret     Secret
}

// Place is where the provider's calls go: calls to another place say nothing about this one.
func (p *Provider) Place() string {
	return strings.Join([]string{p.Endpoint.String(), string(p.Platform), string(p.Surface), p.Region, p.Project, p.APIVersion}, " ")
}

// Envoy's clusters that lead to no provider and to no replica; no provider can have their names.
const (
	DrillCluster     = "understudy-drill" // where faults are played
	CollectorCluster = "understudy-otlp"  // of traces
)

// FeedCluster is the Envoy cluster of the provider's status feed.
func (p *Provider) FeedCluster() string { return p.Cluster + "-status" }

// Target is one provider × one model.
type Target struct {
	Name     string
	Provider *Provider
	Model    string
	Family   string // model_family; the default is Model
	Tier     string // service_tier to ask for; "": what the client asks
	Speed    string // speed to ask for (Anthropic); "": what the client asks
	Limits   Limits
	Price    Price
	MaxRamp  float64 // most growth of its tokens a minute within 15 minutes, as a factor more than 1; 0: no bound
	Breaker  Breaker
	Probe    Probe
}

// Price is what a target bills, in USD per million tokens. CacheRead and CacheWrite are Input's where the file leaves them
// out. Tiers are factors on all of it by served tier, such as {flex: 0.5, priority: 2}; a tier without one costs 1.
type Price struct {
	Known                                bool // the file has a price
	Input, Output, CacheRead, CacheWrite float64
	Tiers                                map[string]float64
}

// Budget is the cost breaker of a chain, or of each tenant of it; the zero Budget is none.
type Budget struct {
	USD        float64       // hard limit of a window
	Soft       float64       // share of it from which on only cheaper rungs serve, 0 to 1; 0: none
	Window     time.Duration // rolling; 0 with Month
	Month      bool          // the calendar month, in UTC
	Tenant     bool          // per tenant, as Config.Tenant tells it
	MaxPremium float64       // a fallback may cost at most this many times the primary; 0: no bound
}

// Shape is the client-side shaping of one account's rate: requests and tokens are held back, or sent on to the next
// target, before the provider says 429.
type Shape struct {
	On      bool
	MaxWait time.Duration // a request waits at most this long
}

// Limits is what a model cannot take; the zero Limits takes everything. A request for another model's rung is
// changed, or goes elsewhere, accordingly.
type Limits struct {
	MaxOutput int               // cap on max_tokens; 0: none
	Drop      []string          // top-level body fields to leave out, such as temperature
	Betas     map[string]string // anthropic-beta value to another, "" drops it; others pass
	Lacks     []string          // what makes a request ineligible: tools, images, documents, thinking, web_search, …
}

// Breaker says when a target's breaker opens, for how long, and how traffic comes back.
type Breaker struct {
	Failures   int           // consecutive failures that open it
	Ratio      Ratio         // share of failed calls that opens it too; zero: none
	OpenFor    time.Duration // first open period; each opening without a quiet time between doubles it
	MaxOpenFor time.Duration // longest open period, and the quiet time that resets the doubling
	Probe      bool          // half_open: probe; otherwise the first ordinary request tries
	Ramp       Ramp
}

// Ratio opens a breaker when Share of at least MinCalls calls in Window failed.
type Ratio struct {
	Share    float64
	Window   time.Duration
	MinCalls int
}

// Ramp lets Share of the traffic through in the first Interval after closing, and twice as much after each clean
// one. Share 1 lets all through at once.
type Ramp struct {
	Interval time.Duration
	Share    float64
}

// Probe is the cheapest call that shows whether a target's provider is back.
type Probe struct {
	Model     string // the default is the target's
	MaxTokens int
}

// Commit is when the first byte of an answer may leave.
type Commit string

// The commit policies.
const (
	CommitHeaders      Commit = "headers"       // never hold
	CommitFirstContent Commit = "first_content" // hold until the first event that carries content
	CommitComplete     Commit = "complete"      // hold the whole answer
)

// Chain is a product feature's ordered list of targets with its policy.
type Chain struct {
	Name         string
	API          API
	Endpoint     string // "": the dialect's model calls; otherwise the one other endpoint that it serves, see API.Others
	Matches      []Match
	Default      bool
	SelectHeader bool // select: header, picked by x-llm-chain
	Rungs        []Rung
	Commit       Commit
	Hold         Hold
	Deadlines    Deadlines
	Retry        Retry
	On           On
	Downshift    int      // first rung that serves as the `downshift` mode only; 0: none
	Degrade      []string // cache, queue, downshift, off, in the order of the ladder
	Cache        Cache
	Queue        Queue
	Off          Off
	MinRate      MinRate // zero: none
	Sticky       Sticky
	Budget       Budget
	Idempotency  time.Duration // window in which the answer to a key is given again; 0: not at all
	Observe      bool          // mode: observe: classify, count, change nothing
}

// MinRate is the least speed of a stream's content: fewer bytes in Window is a failure.
type MinRate struct {
	BytesPerSecond int64
	Window         time.Duration
}

// Match is one rule: an exact path and a model glob ("*" stands for any run of characters; "" is any model, after all rules that name one).
// Of Gemini's, whose calls name the model, Path is what stands before /{model}:generateContent.
type Match struct{ Path, Model string }

// Rung is a target at its position in a chain, or several of one model that share the position.
type Rung struct {
	Target  *Target  // the first of Members
	Members []Member // {any: […], weights: […]}; one without weights for a plain target
	Larger  bool     // takes longer prompts than the rungs before it
}

// Member is a target that shares a rung, and its share of the rung's first attempts, more than 0.
type Member struct {
	Target *Target
	Weight float64
}

// Sticky keeps a conversation with the target that served it after a failover.
type Sticky struct {
	For    time.Duration // since its last turn; 0: not at all
	Header string        // lower case, names the conversation
}

// Hold bounds what an attempt may keep back, in bytes and time.
type Hold struct {
	Bytes int64
	Time  time.Duration
}

// Deadlines of an attempt (FirstContent, Answer, Idle) and of the exchange (Total).
type Deadlines struct{ FirstContent, Answer, Idle, Total time.Duration }

// Retry is one more try of the same target for a blip, and the bound on all attempts beyond the first.
type Retry struct {
	SameTarget int // 0 or 1
	On         []string
	Budget     float64 // while more than one target fails: attempts beyond the first, as a share of live requests; 1: no bound
	Client     int     // a client's retry of this number (x-stainless-retry-count) or more of a chain that is spent gets no attempt; 0: each may
}

// On says what a verdict class does to the chain. The values are those of the file.
type On struct {
	Capacity      string // standard (once more at the standard tier, then next) | next
	RateLimited   string // next | wait | return | queue
	MaxWait       time.Duration
	Refusal       string // next | return
	Filtered      string // next | return
	TierDowngrade string // observe | next
	ContextLength string // next | return | larger (default: only to a rung marked larger)
}

// Off is the `off` degraded mode: a sentence of the owner's choosing.
type Off struct {
	Status  int // 200 with Answer
	Message string
	Answer  bool // as: answer: in the shape of a model's answer, not of an error
	Force   bool // the feature flag: every request of the chain gets it
}

// Cache is the `cache` degraded mode: good answers to the same request, for when nothing answers.
type Cache struct {
	TTL       time.Duration
	Near      float64 // least similarity of a near hit, 0 to 1; 0: only the same request hits
	ToolCalls bool    // answers that call tools are served too
}

// Queue is the `queue` degraded mode: the request is kept and run later.
type Queue struct {
	MaxAge  time.Duration // a job that is older expires
	Message string        // told to the client with the job's id
	Notify  *Webhook      // nil: nobody is told
}

// Webhook is where the end of a job is told, signed by Standard Webhooks.
type Webhook struct {
	URL     *url.URL
	Secret  Secret
	Private bool // allow_private: the address may be of a private network, or http
}

// Drill is where the faults of a game day are played. Services are the same of all replicas, as Envoy reaches them; the
// default is Listen. The zero Drill allows no drills.
type Drill struct {
	Listen   Address
	Services []Address
}

// Tracing is where spans go. The zero Tracing makes none.
type Tracing struct {
	OTLP  *url.URL // of a collector's OTLP over HTTP, without /v1/traces
	Share float64  // of the exchanges traced about which nobody has decided before, 0 to 1; the others follow their traceparent
}

// Spans is where the collector takes spans. "the target URL MUST be the base URL with /v1/traces appended" (OTLP exporter).
func (t Tracing) Spans() *url.URL { return t.OTLP.JoinPath("v1", "traces") }

// Jobs says what becomes of the results of queued requests.
type Jobs struct {
	Expose bool          // /jobs/{id} through Envoy too
	Keep   time.Duration // how long a finished job is kept
}

// Tenant says who tells which tenant a request is of; the zero Tenant makes all callers one. Exactly one of Metadata
// and Header is set otherwise.
type Tenant struct {
	Metadata []string // namespace, then the keys down to the value, of Envoy's dynamic metadata
	Header   string   // lower case, of the request; the operator vouches for it
}

// Store is where the replicas keep what they share: a folder of this process, or a NATS cluster.
type Store struct {
	Dir      string   // of the embedded store; "" with URLs
	URLs     []string // nats:// or tls://, without credentials
	Creds    string   // path of the cluster's credentials file; "" is none
	Replicas int      // nodes that keep each bucket, 1 to 5; 1 with Dir
	Encrypt  Secret   // its Keys seal cache, jobs and results at rest; the zero Secret: none
	MaxCache int64    // bytes of all cached answers; the oldest make room
	MaxJobs  int64    // bytes of all requests that wait; more are refused
}

// Recovery bounds the calls that the service makes on its own account.
type Recovery struct {
	Floor       float64 // jobs a second that a chain may run in any case, within Rate
	RetryBudget float64 // most of the drain's calls, as a share of a chain's live requests; Floor always remains
	Rate        float64 // most of them in a second
	Jitter      float64 // 0 to 1: share of a pause that is left to chance
	ProbeTokens int     // most that probes may spend in an hour
}

// Passthrough is a path prefix (on a "/" border) that no chain protects.
type Passthrough struct {
	Path     string
	Provider *Provider
}
