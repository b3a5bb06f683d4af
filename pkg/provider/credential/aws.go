package credential

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"understudy/pkg/config"
)

// amzDate is the form of x-amz-date: basic ISO 8601 (AWS IAM User Guide, "Elements of an AWS API request signature").
const amzDate = "20060102T150405Z"

// signingName is the service that a signature names: bedrock-mantle has one of its own (anthropic-sdk-go,
// bedrock/bedrockmantle.go).
func signingName(s config.Surface) string {
	if s == config.Mantle {
		return "bedrock-mantle"
	}
	return "bedrock"
}

// fetchAWS walks the SDK's default chain, or that of a profile, from its beginning: the SDK reads environment and
// files once in the life of a configuration.
func (a account) fetchAWS(ctx context.Context) (lease, error) {
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithRegion(a.region), awsconfig.WithLogger(logging.Nop{})}
	if profile, ok := strings.CutPrefix(a.aws, "profile:"); ok {
		options = append(options, awsconfig.WithSharedConfigProfile(profile))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return lease{}, err
	}
	c, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return lease{}, err
	}
	l := lease{proof: &signature{credentials: c, region: a.region, service: a.service, signer: v4.NewSigner()}}
	if c.CanExpire {
		l.ends = c.Expires
	}
	return l, nil
}

// awsFiles are where keys may stand that never end; tokens of web identity are read anew at each renewal anyway.
func awsFiles() []string {
	return []string{
		cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), awsconfig.DefaultSharedCredentialsFilename()),
		cmp.Or(os.Getenv("AWS_CONFIG_FILE"), awsconfig.DefaultSharedConfigFilename()),
	}
}

// signature is the proof by AWS Signature Version 4 over method, path, query, headers and body.
type signature struct {
	credentials     aws.Credentials
	region, service string
	signer          *v4.Signer // caches the day's signing key
}

func (s *signature) headers(ctx context.Context, now time.Time, r Request) ([]Header, error) {
	req, err := s.request(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.Body)
	err = s.signer.SignHTTP(ctx, s.credentials, req, hex.EncodeToString(sum[:]), s.service, s.region, now)
	if err != nil {
		return nil, err
	}
	var out []Header
	for _, name := range []string{"authorization", "x-amz-date", "x-amz-security-token"} {
		if v := req.Header.Get(name); v != "" {
			out = append(out, Header{name, v})
		}
	}
	return out, nil
}

var errQuery = errors.New("the query of the request cannot be signed: it has a semicolon or a broken percent-escape")

// request is what the signer reads. Its Opaque keeps the path's own escapes, which are escaped once more: "Each path
// segment must be URI-encoded twice (except for Amazon S3 …)". The length is left out: the body may go without one.
func (s *signature) request(r Request) (*http.Request, error) {
	p, query, _ := strings.Cut(r.Path, "?")
	if _, err := url.ParseQuery(query); err != nil {
		return nil, errQuery // the signer would leave the parameter out, and AWS refuse the signature
	}
	req := &http.Request{
		Method: r.Method, Host: r.Host, Header: http.Header{},
		URL: &url.URL{Opaque: "//" + r.Host + normal(p), RawQuery: query},
	}
	for name, value := range r.Headers {
		if name = strings.ToLower(name); !slices.Contains(wellKnown, name) {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// normal is the path without empty and relative parts: "Normalize URI paths according to RFC 3986."
func normal(p string) string {
	clean := path.Clean("/" + p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}
