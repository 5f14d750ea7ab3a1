package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/internal/config"
)

// tiny are options for a server on the embedded engine with a model of random weights.
func tiny(t *testing.T) (Options, *output, *output) {
	t.Helper()
	o, out, errs := options(t, t.TempDir(), nil)
	o.upstreams = nil
	path := filepath.Join(t.TempDir(), "tiny.random.gguf")
	if err := enginetest.WriteModel(path, 1); err != nil {
		t.Fatal(err)
	}
	o.Config.Upstreams[0].Weights = path
	o.Config.Engine = config.Engine{Threads: 1, MaxSequences: 2, KVBytes: 16 << 20}
	for i := range o.Config.Models {
		o.Config.Models[i].ContextWindow, o.Config.Models[i].MaxOutput = enginetest.Context, 256
	}
	return o, out, errs
}

func TestServe_EmbeddedEngine(t *testing.T) {
	t.Parallel()
	o, out, errs := tiny(t)
	r := start(t, o, out, errs)
	errs.await(t, "weights  tiny random, ")
	errs.await(t, "engine   1 thread, batch 2, context 2,048, ")
	res := r.post(t, secret.FindString(out.String()), strings.Replace(hello, `{`, `{"max_tokens":5,"seed":1,`, 1))
	if body := read(t, res.Body); res.StatusCode != http.StatusOK || !strings.Contains(body, `"completion_tokens":5,`) {
		t.Errorf("the embedded engine gives %d %s", res.StatusCode, body)
	}
}

func TestOpen_UselessWeights(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *Options) error{
		"damaged":          func(o *Options) error { return os.Truncate(o.Config.Upstreams[0].Weights, 5000) },
		"no GGUF":          func(o *Options) error { return os.WriteFile(o.Config.Upstreams[0].Weights, []byte("text"), 0o600) },
		"window too large": func(o *Options) error { o.Config.Models[1].ContextWindow = enginetest.Context + 1; return nil },
		"too little room":  func(o *Options) error { o.Config.Engine.KVBytes = 1; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _, _ := tiny(t)
			if err := change(&o); err != nil {
				t.Fatal(err)
			}
			a, err := Open(t.Context(), o)
			if err == nil {
				_ = a.Close()
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != "weights" || !strings.Contains(e.Error(), "tiny.random.gguf") {
				t.Errorf("Open gives %v", err)
			}
		})
	}
}

// The progress of a terminal is one line, redrawn and then replaced.
func TestScreen_Loading(t *testing.T) {
	t.Parallel()
	o, out, errs := tiny(t)
	o.Terminal = true
	start(t, o, out, errs)
	if n := strings.Count(errs.String(), "weights  "); n != strings.Count(errs.String(), "\r\x1b[Kweights  ") {
		t.Errorf("%d lines of weights are not drawn in place:\n%q", n, errs)
	}
}

func TestServe_TLS(t *testing.T) {
	t.Parallel()
	o, out, errs := options(t, t.TempDir(), &provider{})
	var pool *x509.CertPool
	o.Config.TLS, pool = authority(t)
	r := start(t, o, out, errs)
	if !strings.HasPrefix(r.URL(), "https://127.0.0.1:") {
		t.Errorf("URL is %s", r.URL())
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	res, err := client.Get(r.URL() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Proto != "HTTP/2.0" {
		t.Errorf("readyz over TLS gives %d over %s", res.StatusCode, res.Proto)
	}
	client.CloseIdleConnections()
}

// authority makes a certificate for 127.0.0.1 and who trusts it.
func authority(t *testing.T) (config.TLS, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	parsed, err3 := x509.ParseCertificate(cert)
	dir := t.TempDir()
	files := config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	if err := errors.Join(err1, err2, err3,
		os.WriteFile(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return files, pool
}

// While load balancers look away, /readyz says so and calls are still served.
func TestServe_DrainDelay(t *testing.T) {
	t.Parallel()
	o, out, errs := options(t, t.TempDir(), &provider{})
	o.Config.Drain = config.Drain{Delay: time.Hour, Limit: time.Hour}
	r := start(t, o, out, errs)
	r.stop()
	errs.await(t, "Stopping: 0 calls running, up to 120 min.")
	res, err := http.Get(r.URL() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz gives %d during the delay", res.StatusCode)
	}
	if res := r.post(t, secret.FindString(out.String()), hello); res.StatusCode != http.StatusOK {
		t.Errorf("a call gives %d during the delay", res.StatusCode)
	}
	r.Cut()
	if err := r.finish(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	errs.await(t, "Stopped. 1 call settled, books balanced.")
}

// A server whose books cannot be written must not go on.
func TestServe_LedgerFails(t *testing.T) {
	t.Parallel()
	o, out, errs := options(t, t.TempDir(), &provider{})
	r := start(t, o, out, errs)
	if err := r.rooms.db.Close(); err != nil {
		t.Fatal(err)
	}
	if res := r.post(t, secret.FindString(out.String()), hello); res.StatusCode != http.StatusInternalServerError {
		body, _ := io.ReadAll(res.Body)
		t.Errorf("a call that cannot be charged gives %d %s", res.StatusCode, body)
	}
	err := <-r.done
	r.done <- nil
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "ledger_failed" {
		t.Errorf("Run gives %v", err)
	}
}
