package scripted_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"understudy/internal/scripted"
)

// tlsClient trusts ca alone and speaks HTTP/2 or, on demand, HTTP/1.1.
func tlsClient(t *testing.T, ca *scripted.CA, h2 bool) *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func secure(t *testing.T, names ...string) (*scripted.CA, *scripted.Server) {
	t.Helper()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Leaf(names...)
	if err != nil {
		t.Fatal(err)
	}
	_, s := serve(t, leaf)
	return ca, s
}

func TestTLSSpeaksWhatTheClientPrefers(t *testing.T) {
	t.Parallel()
	ca, s := secure(t, "localhost", "127.0.0.1")
	for h2, proto := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		resp, err := tlsClient(t, ca, h2).Post(s.URL("localhost")+messages, "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.Proto != proto {
			t.Errorf("protocol = %s, want %s", resp.Proto, proto)
		}
	}
}

func TestAResetOverTLSLeavesNoAnswer(t *testing.T) {
	t.Parallel()
	ca, s := secure(t, "localhost")
	for _, h2 := range []bool{true, false} {
		for script, answered := range map[string]bool{"a=reset": false, "a=cut n=1": true} {
			req, _ := http.NewRequestWithContext(deadline(t), http.MethodPost, s.URL("localhost")+messages, strings.NewReader(`{"stream":true}`))
			req.Header.Set(scripted.ScriptHeader, script)
			resp, err := tlsClient(t, ca, h2).Do(req)
			if (err == nil) != answered {
				t.Fatalf("%s, h2 %v: %v, want answered = %v", script, h2, err, answered)
			}
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Errorf("%s, h2 %v: ended cleanly, want a reset", script, h2)
			}
		}
	}
}

func TestACertificateForAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	ca, s := secure(t, "elsewhere.test")
	_, err := tlsClient(t, ca, true).Get(s.URL("localhost") + "/v1/models")
	if wrong := (x509.HostnameError{}); !errors.As(err, &wrong) {
		t.Errorf("Get = %v, want a host name error", err)
	}
}

func TestUploadsAreHashedAndDownloadsAreTheSameNoise(t *testing.T) {
	t.Parallel()
	p, s := serve(t, nil)
	const size = 3 << 20
	hash := sha256.New()
	io.Copy(hash, scripted.Noise(size))
	want := hex.EncodeToString(hash.Sum(nil))

	resp, err := plainClient.Post(s.URL("127.0.0.1")+"/v1/files", "application/octet-stream", scripted.Noise(size))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !strings.Contains(string(body), want) || p.Requests("")[0].SHA256 != want {
		t.Errorf("upload = %s, on record %s, want %s", body, p.Requests("")[0].SHA256, want)
	}

	resp, err = plainClient.Get(fmt.Sprintf("%s/v1/files/f/content?size=%d", s.URL("127.0.0.1"), size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	hash.Reset()
	n, err := io.Copy(hash, resp.Body)
	if got := hex.EncodeToString(hash.Sum(nil)); got != want || n != size || err != nil {
		t.Errorf("download = %d bytes, %s, %v, want %d, %s", n, got, err, size, want)
	}
}

func TestModelsAreListed(t *testing.T) {
	t.Parallel()
	_, s := serve(t, nil)
	resp, err := plainClient.Get(s.URL("127.0.0.1") + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if want := `{"object":"list","data":[{"id":"m-1","object":"model"}]}`; string(body) != want {
		t.Errorf("GET /v1/models = %s, want %s", body, want)
	}
}

func TestAWebSocketEchoes(t *testing.T) {
	t.Parallel()
	_, s := serve(t, nil)
	conn, _, err := websocket.Dial(deadline(t), s.URL("127.0.0.1")+"/v1/realtime", &websocket.DialOptions{HTTPClient: plainClient})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	for _, text := range []string{"one", "two"} {
		if err := conn.Write(deadline(t), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, got, err := conn.Read(deadline(t))
		if err != nil || string(got) != text {
			t.Errorf("echo of %q = %q, %v", text, got, err)
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsEveryHandler(t *testing.T) {
	t.Parallel()
	p, s := serve(t, nil)
	answered := make(chan got, 1)
	go func() { answered <- ask(t, s.URL("127.0.0.1"), messages, "a=hang", "hung", false) }()
	if err := p.AwaitRequests(deadline(t), "hung", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if g := <-answered; g.err == nil {
		t.Errorf("a hanging request = %+v after Close, want an error", g)
	}
	if err := p.AwaitDone(deadline(t), "hung", 1); err != nil {
		t.Error(err)
	}
}
