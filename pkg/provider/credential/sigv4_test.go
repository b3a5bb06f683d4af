package credential

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// call is one row of testdata/sigv4.json, which botocore signed (TestBotocoreSignsAlike).
type call struct {
	Name    string      `json:"name"`
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"`
	Headers [][2]string `json:"headers"` // in this order
	Body    string      `json:"body"`
	Time    string      `json:"time"`
	Region  string      `json:"region"`
	Service string      `json:"service"`
	Key     string      `json:"key"`
	Secret  string      `json:"secret"`
	Token   string      `json:"token"`
	Want    string      `json:"want"` // Authorization
}

const golden = "testdata/sigv4.json"

func readCalls(t *testing.T) []call {
	t.Helper()
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var calls []call
	if err := json.Unmarshal(data, &calls); err != nil || len(calls) == 0 {
		t.Fatalf("%s: %d calls, %v", golden, len(calls), err)
	}
	return calls
}

func (c call) request() Request {
	headers := map[string]string{}
	for _, h := range c.Headers {
		headers[h[0]] = h[1]
	}
	return Request{Method: c.Method, Host: c.Host, Path: c.Path, Headers: headers, Body: []byte(c.Body)}
}

// sign is what the proof of an AWS account says to the call, by name.
func (c call) sign(t testing.TB) map[string]string {
	t.Helper()
	now, err := time.Parse(amzDate, c.Time)
	if err != nil {
		t.Fatal(err)
	}
	s := signature{
		credentials: aws.Credentials{AccessKeyID: c.Key, SecretAccessKey: c.Secret, SessionToken: c.Token},
		region:      c.Region, service: c.Service, signer: v4.NewSigner(),
	}
	headers, err := s.headers(t.Context(), now, c.request())
	if err != nil {
		t.Fatalf("headers(%s %s) = %v", c.Method, c.Path, err)
	}
	return byName(headers)
}

func byName(headers []Header) map[string]string {
	m := map[string]string{}
	for _, h := range headers {
		m[h.Name] = h.Value
	}
	return m
}

func TestSignaturesAreThoseOfBotocore(t *testing.T) {
	for _, c := range readCalls(t) {
		t.Run(c.Name, func(t *testing.T) {
			got := c.sign(t)
			if got["authorization"] != c.Want {
				t.Errorf("authorization of %s %s = %s, want %s", c.Method, c.Path, got["authorization"], c.Want)
			}
			if got["x-amz-date"] != c.Time || got["x-amz-security-token"] != c.Token {
				t.Errorf("headers = %v, want x-amz-date %s and x-amz-security-token %q", got, c.Time, c.Token)
			}
		})
	}
}

func TestWhatMayChangeOnTheWayIsNotSigned(t *testing.T) {
	c := readCalls(t)[0]
	want := c.sign(t)["authorization"]
	c.Headers = append(c.Headers, [2]string{"Content-Length", "7"}, [2]string{"HOST", "other.example"},
		[2]string{"X-Amz-Security-Token", "the client's"}, [2]string{"x-api-key", "sk"}, [2]string{"authorization", "Bearer x"},
		[2]string{"User-Agent", "curl"}, [2]string{"x-amz-date", "20200101T000000Z"})
	if got := c.sign(t)["authorization"]; got != want {
		t.Errorf("authorization with more headers = %s, want %s", got, want)
	}
}

func TestAQueryThatWouldBeSignedWrongIsAnError(t *testing.T) {
	s := signature{credentials: aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, signer: v4.NewSigner()}
	for _, path := range []string{"/a?x=1;y=2", "/a?x=%zz", "/a?%"} {
		_, err := s.headers(t.Context(), time.Unix(0, 0), Request{Method: "POST", Host: "h", Path: path})
		if err == nil || !strings.Contains(err.Error(), "cannot be signed") {
			t.Errorf("headers(%s) = %v, want an error that it cannot be signed", path, err)
		}
	}
}

// FuzzSignature signs what a client can choose. What botocore makes of it is compared in the e2e tests.
func FuzzSignature(f *testing.F) {
	f.Add("POST", "/model/a%3A0/invoke?x=1", "content-type", "application/json", []byte("{}"))
	f.Add("GET", "//../%2e?=&;%", "Host", "\x00", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path, name, value string, body []byte) {
		s := signature{
			credentials: aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "the-secret-key"},
			region:      "us-east-1", service: "bedrock", signer: v4.NewSigner(),
		}
		r := Request{Method: method, Host: "h.example", Path: path, Headers: map[string]string{name: value}, Body: body}
		headers, err := s.headers(t.Context(), time.Unix(1e9, 0), r)
		if err != nil {
			return
		}
		got := byName(headers)
		if len(got) != 2 || len(got["authorization"]) < 64 || strings.Contains(got["authorization"], "the-secret-key") {
			t.Errorf("headers(%q %q) = %v, want a date and an authorization without the key", method, path, got)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "100KiB": 100 << 10} {
		b.Run(name, func(b *testing.B) {
			s := signature{
				credentials: aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b", SessionToken: "c"},
				region:      "us-east-1", service: "bedrock", signer: v4.NewSigner(),
			}
			r := Request{
				Method: "POST", Host: "bedrock-runtime.us-east-1.amazonaws.com", Path: "/model/anthropic.claude-sonnet-5/invoke",
				Headers: map[string]string{"content-type": "application/json"}, Body: make([]byte, size),
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.headers(b.Context(), time.Now(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
