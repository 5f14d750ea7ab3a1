package openai

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// proxied is a proxy that answers each CONNECT with the same words and, where those are 200,
// connects to target, whatever it is asked for.
type proxied struct {
	url   *url.URL
	mu    sync.Mutex
	asked []http.Header // with the method and the target
}

func newProxied(t *testing.T, says, target string) *proxied {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxied{url: &url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("parley", "p@ss:word")}}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { p.serve(c, says, target) })
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return p
}

func (p *proxied) serve(c net.Conn, says, target string) {
	defer c.Close()
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	p.mu.Lock()
	req.Header["asked"] = []string{req.Method, req.RequestURI, req.Host}
	p.asked = append(p.asked, req.Header)
	p.mu.Unlock()
	if _, err := io.WriteString(c, says); err != nil || target == "" {
		return
	}
	there, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer there.Close()
	go func() {
		_, _ = io.Copy(there, r) // either end closes both
		there.Close()
	}()
	_, _ = io.Copy(c, there)
}

const established = "HTTP/1.0 200 Connection established\r\nVia: test\r\n\r\n"

// The name of the server is looked up by the proxy; the key and the request pass through it
// encrypted.
func TestGenerate_Proxy(t *testing.T) {
	t.Parallel()
	a := upstreamtest.NewAuthority(t)
	s := upstreamtest.NewTLS(t, "127.0.0.1", serves(a.Certificate(t, "provider.invalid", soon())), events(text("Hi"), finish("stop")))
	proxy := newProxied(t, established, strings.TrimSuffix(strings.TrimPrefix(s.URL, "https://"), "/v1"))
	p := newProvider(t, s, func(o *Options) {
		o.RootCAs, o.Proxy, o.BaseURL = a.Pool, proxy.url, "https://provider.invalid/v1"
	})
	for range 3 {
		if got, err := generate(t.Context(), p, newCall(t, "")); err != nil || len(got) != 2 {
			t.Fatalf("Generate = %q, %v", got, err)
		}
	}
	want := []http.Header{{
		"asked":      {"CONNECT", "provider.invalid:443", "provider.invalid:443"},
		"User-Agent": {"parley"}, "Proxy-Authorization": {"Basic cGFybGV5OnBAc3M6d29yZA=="},
	}}
	if diff := cmp.Diff(want, proxy.asked); diff != "" {
		t.Errorf("the proxy was asked (-want +got):\n%s", diff)
	}
	if r := s.Exchanges()[0].Request; r.Host != "provider.invalid" || r.Header.Get("Authorization") != "Bearer "+secret || r.Header.Get("Proxy-Authorization") != "" {
		t.Errorf("the server was asked for %s with %v", r.Host, r.Header)
	}
}

func TestGenerate_ProxyFails(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\n\r\n":         "unreachable: the proxy refuses to connect: status 407 Proxy Authentication Required",
		"HTTP/1.1 403 No\r\nContent-Length: 6\r\n\r\nsecret":             "unreachable: the proxy refuses to connect: status 403 Forbidden",
		"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\n\r\n": "unreachable: the proxy refuses to connect: status 302 Found",
		"HTTP/1.1 503 No\r\n\r\n":                                        "unreachable retryable: the proxy refuses to connect: status 503 Service Unavailable",
		"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x03":                            "unreachable retryable: the proxy sent bytes before the server was asked for any",
		"HTTP/1.1 200 OK\r\n":                                            "unreachable retryable: the proxy: unexpected EOF",
		"":                                                               "unreachable retryable: the proxy: EOF",
		"SSH-2.0-OpenSSH\r\n":                                            "unreachable retryable: the proxy: no HTTP/1: it begins with \"SSH-2.0-OpenSSH\"",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n": "unreachable retryable: the proxy: unexpected EOF",
	} {
		proxy := newProxied(t, says, "")
		p := newProvider(t, &upstreamtest.HTTP{URL: "https://provider.invalid/v1"}, func(o *Options) { o.Proxy = proxy.url })
		_, err := generate(t.Context(), p, newCall(t, ""))
		if got := class(err) + strings.TrimPrefix(err.Error(), "upstream unreachable"); got != want {
			t.Errorf("Generate after %.40q = %s, want %s", says, got, want)
		}
	}
	// The address of the proxy is what is dialled.
	p := newProvider(t, &upstreamtest.HTTP{URL: "https://provider.invalid/v1"}, func(o *Options) {
		o.Proxy = &url.URL{Scheme: "http", Host: "169.254.169.254"}
	})
	if _, err := generate(t.Context(), p, newCall(t, "")); class(err) != "unreachable" {
		t.Errorf("Generate through a proxy that must not be dialled = %v", err)
	}
}
