package admin

import "time"

// Status is all that the page shows, and what /api/status says. Lists are never null; what is not known is left out.
// status.schema.json describes it for others.
type Status struct {
	At      time.Time `json:"at"`
	Replica string    `json:"replica"` // what is told of exchanges and attempts is this one's
	Config  Config    `json:"config"`
	Store   string    `json:"store"` // up or down
	Envoy   Envoy     `json:"envoy"`

	Chains      []Chain      `json:"chains"`
	Targets     []Target     `json:"targets"`
	Providers   []Provider   `json:"providers"`
	Drills      []Drill      `json:"drills"`
	Failovers   []Failover   `json:"failovers"`   // the latest first
	Transitions []Transition `json:"transitions"` // the latest first
	Window      int          `json:"window_seconds"`

	Faults []string `json:"drill_faults"` // that a drill of clients' requests can play; empty: there are no drills
}

// Config is the configuration in use, and what became of the last change.
type Config struct {
	File   string    `json:"file"`
	Hash   string    `json:"hash"`
	Loaded time.Time `json:"loaded"`
	OK     bool      `json:"ok"` // the last change is in use
	// Error is why the last change is not, and Tried when that was.
	Error string     `json:"error,omitempty"`
	Tried *time.Time `json:"tried,omitempty"`
}

// Envoy is which Envoys the service is made for and, where it tells them their configuration, who they are.
type Envoy struct {
	Oldest    string   `json:"oldest"`
	Newest    string   `json:"newest"`
	Config    string   `json:"config,omitempty"`    // hash of what they are told
	Refused   *Refusal `json:"refused,omitempty"`   // of the last change
	Connected *[]Peer  `json:"connected,omitempty"` // nil: not known, as Envoy has its configuration from elsewhere
}

// Peer is one Envoy.
type Peer struct {
	Node      string            `json:"node"`
	Version   string            `json:"version"`
	Supported bool              `json:"supported"` // the version is one of Oldest to Newest
	Hop       string            `json:"hop"`
	Accepted  map[string]string `json:"accepted"` // version in use, by type: cds, lds, rds, ecds or sds
	Refused   map[string]string `json:"refused"`  // why it would not take the last one that it refused, by type
	Refusing  bool              `json:"refusing"` // it would not take the latest, of some type
}

// Refusal is an Envoy's no to a configuration.
type Refusal struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	Type    string `json:"type"`
	Why     string `json:"why"`
}

// Chain is a chain and how its traffic goes.
type Chain struct {
	Name    string   `json:"name"`
	API     string   `json:"api"`
	Off     string   `json:"off,omitempty"` // "operator" or "config": who has switched it off
	Observe bool     `json:"observe,omitempty"`
	Drill   string   `json:"drill,omitempty"` // id of the active one
	Rungs   []Rung   `json:"rungs"`
	Degrade []string `json:"degrade"` // modes, in their order

	PerSecond float64  `json:"requests_per_second"`
	Outcomes  Outcomes `json:"outcomes"`
	Budget    *Budget  `json:"budget,omitempty"`
	SpentUSD  float64  `json:"spent_usd"` // by this replica since its start
	Queue     *Queue   `json:"queue,omitempty"`
}

// Rung is a position in a chain.
type Rung struct {
	Targets   []string `json:"targets"`
	Downshift bool     `json:"downshift,omitempty"`
	Served    int      `json:"served"` // exchanges of the window
	Share     float64  `json:"share"`  // of those that a rung has answered, 0 to 1
}

// Outcomes count a chain's exchanges of the window by what became of them.
type Outcomes struct {
	Served   int `json:"served"`
	Fallback int `json:"fallback"`
	Degraded int `json:"degraded"`
	Failed   int `json:"failed"`
	Canceled int `json:"canceled"`
}

// Total is all of them.
func (o Outcomes) Total() int { return o.Served + o.Fallback + o.Degraded + o.Failed + o.Canceled }

// Budget is a chain's; of one with a budget for each tenant, that of the tightest.
type Budget struct {
	USD       float64    `json:"usd"`
	Remaining float64    `json:"remaining_usd"`
	State     string     `json:"state"` // closed, soft or open
	Per       string     `json:"per"`   // the window: a duration, or month
	Tenant    bool       `json:"tenant,omitempty"`
	Reopens   *time.Time `json:"reopens,omitempty"`
}

// Queue is a chain's queued requests that are not finished.
type Queue struct {
	Waiting int     `json:"waiting"`
	Running int     `json:"running"`
	Oldest  float64 `json:"oldest_seconds"`
}

// Target is a target and its breaker.
type Target struct {
	Name     string   `json:"name"`
	Provider string   `json:"provider"`
	Model    string   `json:"model"`
	Chains   []string `json:"chains"`
	State    string   `json:"state"`            // closed, half-open or open; a forced one where it is forced
	Forced   string   `json:"forced,omitempty"` // open or closed
	Share    float64  `json:"share"`            // of the traffic that its breaker lets through, 0 to 1
	// Until is when an open breaker becomes half-open, Cooling when a cooldown ends.
	Until    *time.Time `json:"half_open_at,omitempty"`
	Cooling  *time.Time `json:"cooling_until,omitempty"`
	Why      string     `json:"why,omitempty"` // class of the latest failure
	Verdicts []Verdict  `json:"verdicts"`      // the latest first
}

// Verdict is what an attempt came to.
type Verdict struct {
	At     time.Time `json:"at"`
	Class  string    `json:"class"`
	Detail string    `json:"detail,omitempty"` // the provider's own code, or a short reason
}

// Provider is an account, and what its vendor says of itself.
type Provider struct {
	Name     string     `json:"name"`
	Ready    bool       `json:"ready"`          // its calls can be given their credential
	Feed     string     `json:"feed,omitempty"` // operational, degraded, partial outage, major outage or unknown; "": it has no feed
	Incident string     `json:"incident,omitempty"`
	Heard    *time.Time `json:"heard,omitempty"`
}

// Drill is an active drill of clients' requests.
type Drill struct {
	ID        string            `json:"id"`
	Chain     string            `json:"chain"`
	Faults    map[string]string `json:"faults"` // by target; * is every other one
	Share     float64           `json:"share"`
	MaxErrors float64           `json:"max_errors"`
	Until     time.Time         `json:"until"`
}

// Failover is an exchange that its first target has not served.
type Failover struct {
	At       time.Time `json:"at"`
	Chain    string    `json:"chain"`
	Exchange string    `json:"exchange"`
	From     string    `json:"from"` // the target that should have served
	To       string    `json:"to"`   // the one that did, "" for none
	Outcome  string    `json:"outcome"`
	Mode     string    `json:"mode,omitempty"` // the degraded mode that answered
	Why      string    `json:"why,omitempty"`
	Attempts int       `json:"attempts"`
	Lost     int64     `json:"lost_ms"` // until the last attempt that failed here had failed
	Took     int64     `json:"took_ms"` // the exchange, to its end
	Drill    string    `json:"drill,omitempty"`
}

// Transition is a change of a breaker's state, or an operator's word on it.
type Transition struct {
	At     time.Time `json:"at"`
	Target string    `json:"target"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Why    string    `json:"why,omitempty"`
	By     string    `json:"by"` // this replica, the fleet, or an operator
}
