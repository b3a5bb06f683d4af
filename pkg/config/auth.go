package config

import (
	"regexp"
	"slices"
	"strings"
)

// authForm is one way to write auth.
type authForm struct {
	name string     // in messages
	keys []string   // each of which says that it is meant
	only []Platform // where it is of use; nil: everywhere
	read func(*compiler, func(key string) string, *fileAuth) Auth
}

func authForms() []authForm {
	return []authForm{
		{"header and secret", []string{"header", "secret"}, nil, (*compiler).headerAuth},
		{"bearer", []string{"bearer"}, nil, (*compiler).bearerAuth},
		{"aws", []string{"aws"}, []Platform{Bedrock}, (*compiler).awsAuth},
		{"gcp", []string{"gcp"}, []Platform{Vertex}, (*compiler).gcpAuth},
		{"azure", []string{"azure"}, []Platform{Azure, Foundry}, (*compiler).entraAuth},
		{"from: client", []string{"from"}, nil, (*compiler).clientAuth},
		{"none: true", []string{"none"}, nil, (*compiler).noAuth},
	}
}

func (a authForm) fits(p Platform) bool { return a.only == nil || slices.Contains(a.only, p) }

func (c *compiler) auth(path string, f *fileAuth, p Platform) Auth {
	if c.wrong[path] {
		return Auth{}
	}
	key := func(k string) string { return at(path, k) }
	var given []authForm
	var fitting []string
	for _, form := range authForms() {
		if slices.ContainsFunc(form.keys, func(k string) bool { return c.has(key(k)) }) {
			given = append(given, form)
		}
		if form.fits(p) {
			fitting = append(fitting, form.name)
		}
	}
	switch {
	case len(given) != 1:
		c.fault(path, "needs exactly one of: %s", strings.Join(fitting, "; "))
	case !given[0].fits(p):
		c.fault(key(given[0].name), "is no credential for platform %s: use one of: %s", p, strings.Join(fitting, "; "))
	default:
		return given[0].read(c, key, f)
	}
	return Auth{}
}

var headerName = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]+$") // RFC 9110, 5.6.2: token

func (c *compiler) headerAuth(key func(string) string, f *fileAuth) Auth {
	name := strings.ToLower(f.Header)
	switch {
	case !c.required(key("header"), name):
	case !headerName.MatchString(name):
		c.fault(key("header"), "is no header name")
	case reservedHeader(name):
		c.fault(key("header"), "%s carries no credential: name the provider's header, such as x-api-key", name)
	}
	return Auth{Header: name, Secret: c.secret(key("secret"), f.Secret)}
}

func (c *compiler) bearerAuth(key func(string) string, f *fileAuth) Auth {
	return Auth{Header: "authorization", Prefix: "Bearer ", Secret: c.secret(key("bearer"), f.Bearer)}
}

func (c *compiler) awsAuth(key func(string) string, f *fileAuth) Auth {
	return Auth{AWS: c.login(key("aws"), f.AWS, "profile", "NAME")}
}

func (c *compiler) gcpAuth(key func(string) string, f *fileAuth) Auth {
	return Auth{GCP: c.login(key("gcp"), f.GCP, "file", "PATH")}
}

func (c *compiler) entraAuth(key func(string) string, f *fileAuth) Auth {
	if f.Azure != "default" && !c.wrong[key("azure")] {
		c.fault(key("azure"), "expected default")
	}
	return Auth{Entra: f.Azure}
}

func (c *compiler) clientAuth(key func(string) string, f *fileAuth) Auth {
	if f.From != "client" && !c.wrong[key("from")] {
		c.fault(key("from"), "expected client")
	}
	return Auth{FromClient: true}
}

func (c *compiler) noAuth(key func(string) string, f *fileAuth) Auth {
	if !f.None && !c.wrong[key("none")] {
		c.fault(key("none"), "expected true, or a credential in its place")
	}
	return Auth{None: true}
}

// login is where a cloud's own credentials come from: "default", or KIND:NAME. Nothing of a refused one is repeated, as
// it may be a credential in the wrong place.
func (c *compiler) login(p, got, kind, name string) string {
	given, ok := strings.CutPrefix(got, kind+":")
	named := ok && given != "" && !strings.ContainsAny(given, "\x00\r\n")
	if got != "default" && !named && !c.wrong[p] {
		c.fault(p, "expected default or %s:%s", kind, name)
	}
	return got
}

// secret never repeats what it refuses: it may be the secret itself.
func (c *compiler) secret(path, ref string) Secret {
	if c.wrong[path] || !c.required(path, ref) {
		return Secret{}
	}
	if s, ok := c.secrets[ref]; ok {
		return s
	}
	s, err := ReadSecret(ref)
	if err != nil {
		c.fault(path, "%s", err)
		return Secret{}
	}
	c.secrets[ref] = s
	return s
}
