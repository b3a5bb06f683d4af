package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// provisioned is what the provisioning files come to.
type provisioned struct {
	sources map[string]source // by uid
	boards  map[string]board  // by uid
}

// source is an entry of a data source file. Keys of Grafana's that the stack does not use are faults here.
type source struct {
	Name      string            `yaml:"name"`
	UID       string            `yaml:"uid"`
	Type      string            `yaml:"type"`
	Access    string            `yaml:"access"`
	URL       string            `yaml:"url"`
	IsDefault bool              `yaml:"isDefault"`
	JSONData  map[string]string `yaml:"jsonData"`

	to *url.URL
}

// provider is an entry of a dashboard provider file.
type provider struct {
	Name            string `yaml:"name"`
	Type            string `yaml:"type"`
	DisableDeletion bool   `yaml:"disableDeletion"`
	Options         struct {
		Path string `yaml:"path"`
	} `yaml:"options"`
}

// board is a dashboard, as far as it is looked at.
type board struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
	raw    json.RawMessage
}

type panel struct {
	Title      string     `json:"title"`
	Type       string     `json:"type"`
	DataSource *reference `json:"datasource"`
	Panels     []panel    `json:"panels"` // of a collapsed row
}

type reference struct {
	UID string `json:"uid"`
}

// load reads all that Grafana reads at its start; home is the path of the dashboard shown first.
func load(dir, home string) (*provisioned, error) {
	p := &provisioned{sources: map[string]source{}, boards: map[string]board{}}
	var sources struct {
		APIVersion  int      `yaml:"apiVersion"`
		DataSources []source `yaml:"datasources"`
	}
	if err := each(filepath.Join(dir, "datasources", "*.yaml"), func(data []byte) error { return strict(data, &sources) }); err != nil {
		return nil, err
	}
	for _, s := range sources.DataSources {
		if err := p.add(s); err != nil {
			return nil, fmt.Errorf("data source %q: %w", s.Name, err)
		}
	}
	var boards struct {
		APIVersion int        `yaml:"apiVersion"`
		Providers  []provider `yaml:"providers"`
	}
	if err := each(filepath.Join(dir, "dashboards", "*.yaml"), func(data []byte) error { return strict(data, &boards) }); err != nil {
		return nil, err
	}
	for _, from := range boards.Providers {
		if err := each(filepath.Join(from.Options.Path, "*.json"), p.addBoard); err != nil {
			return nil, fmt.Errorf("dashboards %q: %w", from.Name, err)
		}
	}
	if _, err := os.Stat(home); err != nil {
		return nil, fmt.Errorf("the home dashboard: %w", err)
	}
	return p, nil
}

// each reads the files of a pattern, of which there must be one at least.
func each(pattern string, read func([]byte) error) error {
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file matches %s", pattern)
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = read(data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func strict[T any](data []byte, into *T) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	return dec.Decode(into)
}

func (p *provisioned) add(s source) (err error) {
	if s.UID == "" || s.Type != "prometheus" || s.Access != "proxy" {
		return errors.New("it needs a uid, type prometheus and access proxy")
	}
	if s.to, err = url.ParseRequestURI(s.URL); err != nil {
		return err
	}
	p.sources[s.UID] = s
	return nil
}

func (p *provisioned) addBoard(data []byte) error {
	b := board{raw: data}
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	if b.UID == "" || b.Title == "" || len(b.Panels) == 0 {
		return errors.New("a dashboard needs a uid, a title and panels")
	}
	if other, ok := p.boards[b.UID]; ok {
		return fmt.Errorf("its uid is that of %q", other.Title)
	}
	p.boards[b.UID] = b
	return p.sourced(b.Panels)
}

// sourced checks that every panel's data source is there. Those that begin with "$" are variables of the dashboard.
func (p *provisioned) sourced(panels []panel) error {
	for _, panel := range panels {
		if err := p.sourced(panel.Panels); err != nil {
			return err
		}
		if panel.DataSource == nil || strings.HasPrefix(panel.DataSource.UID, "$") {
			continue
		}
		if _, ok := p.sources[panel.DataSource.UID]; !ok {
			return fmt.Errorf("panel %q asks the data source %q, which is not provisioned", panel.Title, panel.DataSource.UID)
		}
	}
	return nil
}
