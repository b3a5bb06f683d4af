//go:build story

package story

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/net/html"

	"understudy/internal/stage"
	"understudy/pkg/admin"
)

// shows waits until a part of the status page matches all of these, as who reads it without scripts.
func (s *stack) shows(id string, patterns ...string) {
	s.t.Helper()
	stage.Eventually(s.t, stage.Patience, "#"+id+" of the page", func(ctx context.Context) error {
		page, err := stage.Get(ctx, s.status+"/")
		if err != nil {
			return err
		}
		text, err := textOf(page, id)
		for _, p := range patterns {
			if err == nil && !regexp.MustCompile(p).MatchString(text) {
				err = fmt.Errorf("it says %q, want a match of %q", text, p)
			}
		}
		return err
	})
}

// textOf is the text below the element of that id, with single spaces.
func textOf(page []byte, id string) (string, error) {
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		return "", err
	}
	var words []string
	for n := range root.Descendants() {
		if n.Type == html.TextNode && below(n, id) {
			words = append(words, strings.Fields(n.Data)...)
		}
	}
	return strings.Join(words, " "), nil
}

func below(n *html.Node, id string) bool {
	for up := range n.Ancestors() {
		for _, a := range up.Attr {
			if a.Key == "id" && a.Val == id {
				return true
			}
		}
	}
	return false
}

// chain is what /api/status says of a chain.
func (s *stack) chain(ctx context.Context, name string) (admin.Chain, error) {
	status, err := stage.GetJSON[admin.Status](ctx, s.status+"/api/status")
	for _, c := range status.Chains {
		if c.Name == name {
			return c, nil
		}
	}
	return admin.Chain{}, fmt.Errorf("chain %s is not in %v: %w", name, status.Chains, err)
}
