package recovery

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Indicator is what a status page says of a provider as a whole, in Statuspage's words.
type Indicator string

// The indicators. Unsaid is whatever cannot be read, and words that nobody has explained.
const (
	None        Indicator = "none"
	Minor       Indicator = "minor"
	Major       Indicator = "major"
	Critical    Indicator = "critical"
	Maintenance Indicator = "maintenance"
	Unsaid      Indicator = "unknown"
)

// Level is how ill a provider says it is; its number is the value of the metric understudy_provider_status.
type Level int

// The levels. Maintenance is Degraded.
const (
	Unheard Level = iota - 1
	Operational
	Degraded
	PartialOutage
	MajorOutage
)

// Status is what a provider's page said last.
type Status struct {
	Indicator Indicator
	Component string // status of the component that the config names, in the page's word; "" without one
	Incident  string // title of the latest open incident, in one line of at most maxTitle characters
	At        time.Time

	level Level
}

// unheard is the status of a page that has not been read.
func unheard() Status { return Status{Indicator: Unsaid, level: Unheard} }

// Level is that of the component that the config names, or else of the page.
func (s Status) Level() Level { return s.level }

// maxTitle is the length of an incident's title that is kept, in characters.
const maxTitle = 200

// page is what is read of a Statuspage's summary.json, which incident.io offers too, and of incident.io's own JSON,
// where all is inside summary.
type page struct {
	Status struct {
		Indicator string `json:"indicator"`
	} `json:"status"`
	Components []component `json:"components"`
	Incidents  []incident  `json:"incidents"`
	Summary    *summary    `json:"summary"`
}

type component struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"` // Statuspage's only
}

type incident struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// summary has no word for the whole, and a component that is not affected is operational.
type summary struct {
	Components []component `json:"components"`
	Affected   []struct {
		ID     string `json:"component_id"`
		Status string `json:"status"`
	} `json:"affected_components"`
	Incidents   []incident `json:"ongoing_incidents"`
	Maintenance []incident `json:"in_progress_maintenances"`
}

// readPage reads a page; part is the name or id of the component that counts, "" for the page as a whole.
func readPage(data []byte, part string) (Status, error) {
	var p page
	if err := json.Unmarshal(data, &p); err != nil {
		return Status{}, fmt.Errorf("it is not the JSON of a status page: %w", err)
	}
	if p.Summary != nil {
		p = p.Summary.page()
	}
	if p.Status.Indicator == "" && len(p.Components) == 0 {
		return Status{}, fmt.Errorf("its JSON has neither an indicator nor components")
	}
	s := Status{Indicator: indicator(p.Status.Indicator), Incident: title(p.Incidents)}
	s.level = s.Indicator.level()
	if part != "" {
		s.Component, s.level = worst(p.Components, part)
	}
	return s, nil
}

// page is s in Statuspage's form.
func (s *summary) page() page {
	p := page{Components: s.Components, Incidents: s.Incidents}
	status := map[string]string{}
	all := Operational
	for _, a := range s.Affected {
		if level(a.Status) >= level(status[a.ID]) {
			status[a.ID] = a.Status
		}
		all = max(all, level(a.Status))
	}
	for i, c := range p.Components {
		if p.Components[i].Status = status[c.ID]; p.Components[i].Status == "" {
			p.Components[i].Status = "operational"
		}
	}
	// Incidents often name no component.
	if all == Operational && len(s.Incidents) > 0 {
		all = Degraded
	}
	p.Status.Indicator = string([...]Indicator{None, Minor, Major, Critical}[all])
	if all == Operational && len(s.Maintenance) > 0 {
		p.Status.Indicator = string(Maintenance)
	}
	return p
}

func indicator(word string) Indicator {
	switch i := Indicator(word); i {
	case None, Minor, Major, Critical, Maintenance:
		return i
	}
	return Unsaid
}

func (i Indicator) level() Level {
	switch i {
	case None:
		return Operational
	case Minor, Maintenance:
		return Degraded
	case Major:
		return PartialOutage
	case Critical:
		return MajorOutage
	}
	return Unheard
}

// level is that of a component.
func level(status string) Level {
	switch status {
	case "operational":
		return Operational
	case "degraded_performance", "under_maintenance":
		return Degraded
	case "partial_outage":
		return PartialOutage
	case "major_outage", "full_outage": // Statuspage's word, incident.io's
		return MajorOutage
	}
	return Unheard
}

// worst is the status of the component that part names by its id, or else by its name, which may be several
// components'.
func worst(cs []component, part string) (status string, l Level) {
	l = Unheard
	for _, c := range cs {
		if c.ID == part {
			return clean(c.Status), level(c.Status)
		}
		if strings.EqualFold(strings.TrimSpace(c.Name), part) && (status == "" || level(c.Status) > l) {
			status, l = clean(c.Status), level(c.Status)
		}
	}
	return status, l
}

// title is that of the first incident that is not over; pages have the latest first.
func title(is []incident) string {
	for _, i := range is {
		if i.Status != "resolved" && i.Status != "postmortem" {
			return clean(i.Name)
		}
	}
	return ""
}

// clean makes a text of a page fit for a log and a page of ours: one line, no controls, of bounded length.
func clean(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	runes := []rune(strings.ToValidUTF8(strings.Join(words, " "), ""))
	if len(runes) > maxTitle {
		runes = append(runes[:maxTitle-1], '…')
	}
	return string(runes)
}
