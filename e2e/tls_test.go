package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/e2e/stub"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// authority is one whose certificate is in a file.
type authority struct {
	*upstreamtest.Authority
	file string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := upstreamtest.NewAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, a.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	return authority{a, file}
}

// serves is what a server speaks that this authority vouches for.
func (a authority) serves(t *testing.T, name string, lasts time.Duration) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{a.Certificate(t, name, time.Now().Add(lasts))}, MinVersion: tls.VersionTLS12}
}

// startProxy connects whoever asks by CONNECT, and counts them.
func startProxy(t *testing.T) (address string, asked *atomic.Int64) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int64)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				req, err := http.ReadRequest(r)
				if err != nil || req.Method != http.MethodConnect {
					t.Errorf("the proxy is asked for %+v, %v", req, err)
					return
				}
				asked.Add(1)
				there, err := new(net.Dialer).DialContext(t.Context(), "tcp", req.RequestURI)
				if err != nil {
					return
				}
				defer there.Close()
				served.Go(func() {
					defer there.Close()
					_, _ = io.Copy(there, r) // either end closes both
				})
				_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n") // as above
				_, _ = io.Copy(c, there)
			})
		}
	})
	// The server is gone by then: it was started later.
	t.Cleanup(func() { l.Close(); served.Wait() })
	return l.Addr().String(), asked
}

// TestOpenAIGo_TLS is all that the official client does, before a provider over TLS whose authority
// the system does not know, behind a proxy. What the environment says of proxies is not for us.
func TestOpenAIGo_TLS(t *testing.T) { //nolint:tparallel // the receipts are checked after its subtests
	t.Parallel()
	a := newAuthority(t)
	proxy, asked := startProxy(t)
	nobody := "http://127.0.0.1:1"
	r := startRemoteOver(t, a.serves(t, "127.0.0.1", time.Hour), fmt.Sprintf(", ca_file: %q, proxy: %q", a.file, "http://"+proxy),
		"HTTPS_PROXY="+nobody, "https_proxy="+nobody, "ALL_PROXY="+nobody, "NO_PROXY=")
	checkOpenAIGo(t, r)
	if asked.Load() == 0 {
		t.Error("the proxy was never asked")
	}
}

// overTLS is Parley before providers over TLS, one a model.
type overTLS struct {
	*proc.Server
	key string
}

// startOverTLS starts a server with a model and an upstream for each name; upstreams are their keys.
func startOverTLS(t *testing.T, upstreams map[string]string, env ...string) *overTLS {
	t.Helper()
	var b strings.Builder
	b.WriteString("plans: [{id: pro}]\nupstreams:\n")
	for name, keys := range upstreams {
		fmt.Fprintf(&b, "  - {id: %s, kind: openai, %s}\n", name, keys)
	}
	b.WriteString("models:\n")
	for name := range upstreams {
		fmt.Fprintf(&b, "  - {id: %s, context_window: 8192, pricing: {input: \"0.05\", cached_input: \"0.01\", output: \"0.1\"}, plans: [pro], targets: [{upstream: %s, model: m}]}\n", name, name)
	}
	o := options(dataDir(t))
	o.Config, o.Env = filepath.Join(t.TempDir(), "parley.yaml"), env
	if err := os.WriteFile(o.Config, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			text := s.Stderr()
			t.Logf("the server wrote:\n%s", text[max(0, len(text)-4000):])
		}
	})
	key, _ := account(t, s, "Lab", "pro", "100")
	return &overTLS{s, key}
}

// TestTLS_NotReached: a provider that cannot be spoken to safely is sent nothing; the caller gets 502 in
// our words and is not charged, and the log says what is wrong.
func TestTLS_NotReached(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	var asked []*stub.Server
	at := func(config *tls.Config) string {
		s := stub.StartTLS(config)
		t.Cleanup(s.Close)
		asked = append(asked, s)
		return s.URL
	}
	old := a.serves(t, "127.0.0.1", time.Hour)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	good := at(a.serves(t, "127.0.0.1", time.Hour))
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()     // it takes connections all the same, and nobody serves them
	refusing := stub.Start() // it knows no CONNECT
	defer refusing.Close()
	cases := map[string]struct{ url, keys, says string }{
		"name":      {at(a.serves(t, "elsewhere.example", time.Hour)), "", "cannot validate certificate for 127.0.0.1"},
		"expired":   {at(a.serves(t, "127.0.0.1", -time.Hour)), "", "certificate has expired"},
		"unknown":   {at(other.serves(t, "127.0.0.1", time.Hour)), "", "of an authority that is not trusted; ca_file names"},
		"others-ca": {good, ", ca_file: " + other.file, "of an authority that is not trusted; ca_file names"},
		"old":       {at(old), "", "protocol version not supported"},
		"plain":     {strings.Replace(at(nil), "http:", "https:", 1), "", "the server does not speak TLS here"},
		"secure":    {strings.Replace(good, "https:", "http:", 1), "", "the server speaks TLS here"},
		"silent":    {"https://" + silent.Addr().String(), ", timeouts: {connect: 200ms}", "TLS was not agreed on within the time to connect"},
		"proxied":   {good, ", proxy: \"http://" + strings.TrimSuffix(strings.TrimPrefix(refusing.URL, "http://"), "/v1") + "\"", "the proxy refuses to connect: status 400"},
	}
	upstreams := map[string]string{}
	for name, c := range cases {
		if name != "silent" {
			c.keys += ", timeouts: {connect: 1m}"
		}
		upstreams[name] = fmt.Sprintf("base_url: %q, retries: 1%s", c.url, c.keys)
	}
	s := startOverTLS(t, upstreams, "SSL_CERT_FILE="+a.file, "SSL_CERT_DIR=/none")
	for name, c := range cases {
		for _, fields := range []string{"", withUsage} {
			before := len(s.Stderr())
			answer := post(t, s.Server, s.key, tell(name, fields, "words=3"))
			e := wantError(t, answer, http.StatusBadGateway, "upstream_error")
			if strings.Contains(strings.ToLower(e.Error.Message), "tls") || strings.Contains(e.Error.Message, "127.0.0.1") {
				t.Errorf("%s: the caller is told %q", name, e.Error.Message)
			}
			eventually(t, func() error {
				if log := s.Stderr()[before:]; !strings.Contains(log, c.says) {
					return fmt.Errorf("%s: the log has no %q: %s", name, c.says, log)
				}
				return nil
			})
		}
	}
	// A target that another one stands in for is heard of when it is left out.
	for range 5 {
		post(t, s.Server, s.key, tell("expired", "", "words=3"))
	}
	eventually(t, func() error {
		for line := range strings.Lines(s.Stderr()) {
			if strings.Contains(line, "target ejected") && strings.Contains(line, "expired/m") && strings.Contains(line, "certificate has expired") {
				return nil
			}
		}
		return errors.New("no line tells why the target was ejected")
	})
	for _, p := range asked {
		if n := p.Calls(); n != 0 {
			t.Errorf("%s was sent %d calls", p.URL, n)
		}
	}
	for _, r := range s.receipts(t) {
		if r.State != "voided" || r.Charge != "0" {
			t.Errorf("%+v: charged", r)
		}
	}
}

// receipts are all there are, when no call runs any more.
func (s *overTLS) receipts(t *testing.T) (all []receipt) {
	t.Helper()
	eventually(t, func() error {
		all = runJSON[[]receipt](t, s.Server, "receipts", "--account", "Lab", "--limit", "1000")
		for _, r := range all {
			if r.State == "running" {
				return fmt.Errorf("a call still runs: %+v", r)
			}
		}
		return nil
	})
	return all
}

// TestTLS_Connections: connections are kept, and however a provider ends one, no call is lost, made
// twice for the caller or charged for more than it delivered.
func TestTLS_Connections(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := stub.StartTLS(a.serves(t, "127.0.0.1", time.Hour))
	t.Cleanup(p.Close)
	s := startOverTLS(t, map[string]string{
		"once": fmt.Sprintf("base_url: %q, retries: 0, timeouts: {connect: 1m}", p.URL), // SSL_CERT_FILE
		"more": fmt.Sprintf("base_url: %q, retries: 1, timeouts: {connect: 1m}, ca_file: %q", strings.TrimSuffix(p.URL, "/v1"), a.file),
	}, "SSL_CERT_FILE="+a.file, "SSL_CERT_DIR=/none")
	ask := func(model, fields, order string) {
		t.Helper()
		if got := post(t, s.Server, s.key, tell(model, fields, order)); got.Status != http.StatusOK || strings.Contains(string(got.Body), `"error"`) {
			t.Errorf("%s %s: %d %s", model, order, got.Status, got.Body)
		}
	}
	const calls = 40
	for range calls / 2 {
		ask("once", "", "words=3")
		ask("once", withUsage, "words=3")
	}
	if n := p.Connections(); n > calls/2 {
		t.Errorf("%d connections for %d calls in a row", n, calls)
	} else {
		t.Logf("%d connections for %d calls in a row", n, calls)
	}
	for _, how := range []string{"notify", "fin", "reset"} {
		for range 3 {
			before := p.HungUp()
			ask("once", "", "hangup="+how)
			eventually(t, func() error {
				if p.HungUp() == before {
					return fmt.Errorf("the connection still stands after %s", how)
				}
				return nil
			})
		}
	}
	before := p.Calls()
	ask("more", "", "hangup=once whole")
	ask("more", withUsage, "hangup=once stream")
	if n := p.Calls() - before; n != 4 {
		t.Errorf("the provider got %d requests for 2 calls that it left once each, want 4", n)
	}
	s.checkSevered(t)
	for _, r := range s.receipts(t) {
		want := r.PromptTokens*remoteIn + r.CompletionTokens*remoteOut
		if got := nano(t, r.Charge); got != want || r.State == "settled" && r.CompletionTokens != 3 {
			t.Errorf("%+v: charged %d nano-IU, want %d", r, got, want)
		}
	}
}

// checkSevered: an answer whose only end is that of its connection has none when TLS does not say so,
// and neither has one that TLS ends before the provider said why it stopped.
func (s *overTLS) checkSevered(t *testing.T) {
	t.Helper()
	a, err := tryPost(t, httpClient, s.Server, s.key, tell("once", withUsage, "hangup=severed"))
	if err == nil {
		t.Error("a stream that was cut below TLS ended cleanly")
	}
	checkCut(t, string(a.Body), "upstream_error")
	if n := strings.Count(string(a.Body), stub.Word); n != 3 {
		t.Errorf("%d words were passed on, want 3: %s", n, a.Body)
	}
	wantError(t, post(t, s.Server, s.key, tell("once", "", "hangup=severed")), http.StatusBadGateway, "upstream_error")
	cut := 0
	for _, r := range s.receipts(t) {
		if r.State == "settled" && r.Ending == "upstream_cut" {
			cut++
		}
	}
	if cut != 1 {
		t.Errorf("%d cut calls are charged, want that which passed words on", cut)
	}
}
