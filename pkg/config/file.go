package config

import "time"

// The structs below are the file as it is written; config.go is what it means. The yaml tag is the key,
// and docs/config.md has a row for each of them.

// size is a number of bytes, written as such or with KiB, MiB or GiB.
type size int64

// rate is a number of calls per second, written N/s, N/m or N/h.
type rate float64

type fileRoot struct {
	Include       string                   `yaml:"include"`
	Server        fileServer               `yaml:"server"`
	Envoy         fileEnvoy                `yaml:"envoy"`
	Providers     map[string]*fileProvider `yaml:"providers"`
	Passthrough   []filePassthrough        `yaml:"passthrough"`
	Targets       map[string]*fileTarget   `yaml:"targets"`
	Chains        map[string]*fileChain    `yaml:"chains"`
	MaxRetryAfter time.Duration            `yaml:"max_retry_after"`
	Mode          string                   `yaml:"mode"`
	Store         fileStore                `yaml:"store"`
	Recovery      fileRecovery             `yaml:"recovery"`
	Jobs          fileJobs                 `yaml:"jobs"`
	Drill         fileDrill                `yaml:"drill"`
	Tracing       fileTracing              `yaml:"tracing"`
	Tenant        fileTenant               `yaml:"tenant"`
}

type fileServer struct {
	GRPC            string        `yaml:"grpc"`
	Admin           string        `yaml:"admin"`
	TLS             fileServerTLS `yaml:"tls"`
	AdminTLS        fileServerTLS `yaml:"admin_tls"`
	SocketMode      string        `yaml:"socket_mode"`
	Insecure        bool          `yaml:"insecure"`
	MaxBody         size          `yaml:"max_body"`
	MaxInflightBody size          `yaml:"max_inflight_body"`
	Drain           time.Duration `yaml:"drain"`
	AdminToken      string        `yaml:"admin_token"`
	AdminNames      []string      `yaml:"admin_names"`
}

type fileServerTLS struct {
	Cert        string   `yaml:"cert"`
	Key         string   `yaml:"key"`
	ClientCA    string   `yaml:"client_ca"`
	ClientNames []string `yaml:"client_names"`
}

type fileEnvoy struct {
	Listen          string        `yaml:"listen"`
	Admin           string        `yaml:"admin"`
	Gateway         string        `yaml:"gateway"`
	WhenServiceDown string        `yaml:"when_service_down"`
	Services        []string      `yaml:"services"`
	TLS             fileClientTLS `yaml:"tls"`
	CAFile          string        `yaml:"ca_file"`
	XDS             bool          `yaml:"xds"`
}

type fileClientTLS struct {
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	CA         string `yaml:"ca"`
	ServerName string `yaml:"server_name"`
	SDS        string `yaml:"sds"`
}

type fileProvider struct {
	API        string    `yaml:"api"`
	Platform   string    `yaml:"platform"`
	Surface    string    `yaml:"surface"`
	Region     string    `yaml:"region"`
	Project    string    `yaml:"project"`
	APIVersion string    `yaml:"api_version"`
	Endpoint   string    `yaml:"endpoint"`
	Insecure   bool      `yaml:"insecure"`
	Auth       fileAuth  `yaml:"auth"`
	TierCheck  bool      `yaml:"tier_check"`
	Cluster    string    `yaml:"cluster"`
	CA         string    `yaml:"ca"`
	RateLimits string    `yaml:"rate_limits"`
	StatusFeed fileFeed  `yaml:"status_feed"`
	Shape      fileShape `yaml:"shape"`
}

type fileShape struct {
	MaxWait time.Duration `yaml:"max_wait"`
}

type fileFeed struct {
	Statuspage string `yaml:"statuspage"`
	IncidentIO string `yaml:"incidentio"`
	Component  string `yaml:"component"`
}

type fileAuth struct {
	Header string `yaml:"header"`
	Secret string `yaml:"secret"`
	Bearer string `yaml:"bearer"`
	AWS    string `yaml:"aws"`
	GCP    string `yaml:"gcp"`
	Azure  string `yaml:"azure"`
	From   string `yaml:"from"`
	None   bool   `yaml:"none"`
}

type filePassthrough struct {
	Path     string `yaml:"path"`
	Provider string `yaml:"provider"`
}

type fileTarget struct {
	Provider    string      `yaml:"provider"`
	Model       string      `yaml:"model"`
	ModelFamily string      `yaml:"model_family"`
	ServiceTier string      `yaml:"service_tier"`
	Speed       string      `yaml:"speed"`
	Limits      fileLimits  `yaml:"limits"`
	Breaker     fileBreaker `yaml:"breaker"`
	Probe       fileProbe   `yaml:"probe"`
	Price       filePrice   `yaml:"price"`
	MaxRamp     float64     `yaml:"max_ramp"`
}

type filePrice struct {
	Input      float64            `yaml:"input"`
	Output     float64            `yaml:"output"`
	CacheRead  float64            `yaml:"cache_read"`
	CacheWrite float64            `yaml:"cache_write"`
	Tiers      map[string]float64 `yaml:"tiers"`
}

type fileLimits struct {
	MaxOutput int               `yaml:"max_output"`
	Drop      []string          `yaml:"drop"`
	Betas     map[string]string `yaml:"betas"`
	Lacks     []string          `yaml:"lacks"`
}

type fileBreaker struct {
	Failures   int           `yaml:"failures"`
	Ratio      fileRatio     `yaml:"ratio"`
	OpenFor    time.Duration `yaml:"open_for"`
	MaxOpenFor time.Duration `yaml:"max_open_for"`
	HalfOpen   string        `yaml:"half_open"`
	Ramp       fileRamp      `yaml:"ramp"`
}

type fileRatio struct {
	Share    float64       `yaml:"share"`
	Window   time.Duration `yaml:"window"`
	MinCalls int           `yaml:"min_calls"`
}

type fileRamp struct {
	Interval time.Duration `yaml:"interval"`
	Share    float64       `yaml:"share"`
}

type fileProbe struct {
	Model     string `yaml:"model"`
	MaxTokens int    `yaml:"max_tokens"`
}

type fileChain struct {
	Match         []fileMatch     `yaml:"match"`
	Default       bool            `yaml:"default"`
	Select        string          `yaml:"select"`
	Targets       []fileRung      `yaml:"targets"`
	Commit        string          `yaml:"commit"`
	Hold          fileHold        `yaml:"hold"`
	Deadlines     fileDeadlines   `yaml:"deadlines"`
	MinRate       fileMinRate     `yaml:"min_rate"`
	Retry         fileRetry       `yaml:"retry"`
	On            fileOn          `yaml:"on"`
	DownshiftFrom string          `yaml:"downshift_from"`
	Degrade       []string        `yaml:"degrade"`
	Cache         fileCache       `yaml:"cache"`
	Queue         fileQueue       `yaml:"queue"`
	Off           fileOff         `yaml:"off"`
	Sticky        fileSticky      `yaml:"sticky"`
	Mode          string          `yaml:"mode"`
	Budget        fileBudget      `yaml:"budget"`
	Idempotency   fileIdempotency `yaml:"idempotency"`
}

type fileMatch struct {
	Path  string `yaml:"path"`
	Model string `yaml:"model"`
}

// fileRung is a target's name, or a mapping when there is more to say.
type fileRung struct {
	Target    string    `yaml:"target"`
	Any       []string  `yaml:"any"`
	Weights   []float64 `yaml:"weights"`
	Validated bool      `yaml:"validated"`
	Larger    bool      `yaml:"larger"`
}

func (r *fileRung) short(name string) { r.Target = name }

// names are the targets of the rung.
func (r *fileRung) names() []string {
	if len(r.Any) > 0 {
		return r.Any
	}
	return []string{r.Target}
}

type fileHold struct {
	Bytes size          `yaml:"bytes"`
	Time  time.Duration `yaml:"time"`
}

type fileDeadlines struct {
	FirstContent time.Duration `yaml:"first_content"`
	Answer       time.Duration `yaml:"answer"`
	Idle         time.Duration `yaml:"idle"`
	Total        time.Duration `yaml:"total"`
}

type fileMinRate struct {
	BytesPerSecond size          `yaml:"bytes_per_second"`
	Window         time.Duration `yaml:"window"`
}

type fileRetry struct {
	SameTarget int      `yaml:"same_target"`
	On         []string `yaml:"on"`
	Budget     float64  `yaml:"budget"`
	Client     int      `yaml:"client"`
}

type fileBudget struct {
	USD           float64 `yaml:"usd"`
	Window        string  `yaml:"window"`
	Soft          float64 `yaml:"soft"`
	Per           string  `yaml:"per"`
	TrustedHeader bool    `yaml:"trusted_header"`
	MaxPremium    float64 `yaml:"max_premium"`
}

type fileIdempotency struct {
	Window time.Duration `yaml:"window"`
}

type fileOn struct {
	Capacity      string        `yaml:"capacity"`
	RateLimited   string        `yaml:"rate_limited"`
	MaxWait       time.Duration `yaml:"max_wait"`
	Refusal       string        `yaml:"refusal"`
	Filtered      string        `yaml:"filtered"`
	TierDowngrade string        `yaml:"tier_downgrade"`
	ContextLength string        `yaml:"context_length"`
}

type fileCache struct {
	TTL       time.Duration `yaml:"ttl"`
	Near      float64       `yaml:"near"`
	ToolCalls bool          `yaml:"tool_calls"`
}

type fileQueue struct {
	MaxAge  time.Duration `yaml:"max_age"`
	Message string        `yaml:"message"`
	Notify  fileNotify    `yaml:"notify"`
}

type fileNotify struct {
	Webhook      string `yaml:"webhook"`
	Secret       string `yaml:"secret"`
	AllowPrivate bool   `yaml:"allow_private"`
}

type fileOff struct {
	Status  int    `yaml:"status"`
	Message string `yaml:"message"`
	As      string `yaml:"as"`
	Force   bool   `yaml:"force"`
}

type fileSticky struct {
	For    time.Duration `yaml:"for"`
	Header string        `yaml:"header"`
}

type fileJobs struct {
	Expose bool          `yaml:"expose"`
	Keep   time.Duration `yaml:"keep"`
}

type fileDrill struct {
	Listen   string   `yaml:"listen"`
	Services []string `yaml:"services"`
}

type fileTracing struct {
	OTLP   string  `yaml:"otlp"`
	Sample float64 `yaml:"sample"`
}

type fileTenant struct {
	Metadata      string `yaml:"metadata"`
	Header        string `yaml:"header"`
	TrustedHeader bool   `yaml:"trusted_header"`
}

type fileStore struct {
	Embedded fileEmbedded `yaml:"embedded"`
	NATS     fileNATS     `yaml:"nats"`
	Encrypt  string       `yaml:"encrypt"`
	MaxCache size         `yaml:"max_cache"`
	MaxJobs  size         `yaml:"max_jobs"`
}

type fileEmbedded struct {
	Dir string `yaml:"dir"`
}

type fileNATS struct {
	URLs     []string `yaml:"urls"`
	Creds    string   `yaml:"creds"`
	Replicas int      `yaml:"replicas"`
}

type fileRecovery struct {
	Floor       rate    `yaml:"floor"`
	RetryBudget float64 `yaml:"retry_budget"`
	Rate        rate    `yaml:"rate"`
	Jitter      float64 `yaml:"jitter"`
	ProbeTokens int     `yaml:"probe_tokens"`
}

// defaults is what holds where the file says nothing. The element "*" of a map is what each of its elements starts as.
func defaults() fileRoot {
	return fileRoot{
		Server: fileServer{
			GRPC:            "127.0.0.1:9002",
			Admin:           "127.0.0.1:9003",
			SocketMode:      "0600",
			MaxBody:         32 << 20,
			MaxInflightBody: 1 << 30,
			Drain:           30 * time.Second,
		},
		Envoy: fileEnvoy{
			Listen:          "127.0.0.1:10000",
			Admin:           "127.0.0.1:9901",
			WhenServiceDown: "closed",
			CAFile:          "/etc/ssl/certs/ca-certificates.crt",
		},
		Providers: map[string]*fileProvider{"*": {Platform: "native", Surface: "invoke", TierCheck: true, RateLimits: "account", Shape: fileShape{MaxWait: 2 * time.Second}}},
		Targets: map[string]*fileTarget{"*": {
			Breaker: fileBreaker{
				Failures:   5,
				Ratio:      fileRatio{Window: time.Minute, MinCalls: 20},
				OpenFor:    time.Minute,
				MaxOpenFor: 10 * time.Minute,
				HalfOpen:   "request",
				Ramp:       fileRamp{Interval: 10 * time.Second, Share: 0.1},
			},
			Probe: fileProbe{MaxTokens: 1},
		}},
		Chains: map[string]*fileChain{"*": {
			Commit: string(CommitFirstContent),
			Hold:   fileHold{Bytes: 1 << 20, Time: time.Minute},
			Deadlines: fileDeadlines{
				FirstContent: 30 * time.Second,
				Answer:       120 * time.Second,
				Idle:         30 * time.Second,
				Total:        300 * time.Second,
			},
			MinRate: fileMinRate{Window: 10 * time.Second},
			Retry:   fileRetry{On: []string{"server_error", "transport"}, Budget: 0.1},
			On: fileOn{
				Capacity:      "standard",
				RateLimited:   "next",
				MaxWait:       3 * time.Second,
				Refusal:       "return",
				Filtered:      "return",
				TierDowngrade: "observe",
				ContextLength: "larger",
			},
			Cache: fileCache{TTL: 24 * time.Hour},
			Queue: fileQueue{
				MaxAge:  24 * time.Hour,
				Message: "The service is temporarily unavailable. The request is queued and will be answered later.",
			},
			Off:    fileOff{Status: 503, Message: "The service is temporarily unavailable.", As: "error"},
			Budget: fileBudget{Per: "chain"},
			Mode:   "enforce",
		}},
		MaxRetryAfter: time.Minute,
		Mode:          "enforce",
		Store: fileStore{
			Embedded: fileEmbedded{Dir: "./data"},
			NATS:     fileNATS{Replicas: 1},
			MaxCache: 256 << 20,
			MaxJobs:  4 << 30,
		},
		Recovery: fileRecovery{Floor: 1, RetryBudget: 0.1, Rate: 5, Jitter: 0.2, ProbeTokens: 100_000},
		Jobs:     fileJobs{Keep: 24 * time.Hour},
		Tracing:  fileTracing{Sample: 1},
	}
}
