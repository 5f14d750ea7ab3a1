package openai

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// server is a server and a transport to it that counts the connections it makes.
func server(t *testing.T, secure bool, h http.HandlerFunc) (*httptest.Server, *transport, *atomic.Int64) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	tr := newTransport(u, Options{Timeouts: Timeouts{Connect: time.Minute}.withDefaults()})
	t.Cleanup(tr.close)
	dials := new(atomic.Int64)
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx, network, address)
	}
	if secure {
		pool := x509.NewCertPool()
		pool.AddCert(s.Certificate())
		tr.tls.RootCAs = pool
	}
	return s, tr, dials
}

// watched is a watch that ends with ctx.
func watched(t *testing.T, ctx context.Context) *watch { //nolint:revive // the test is what it is for
	t.Helper()
	w := newWatch(ctx, Timeouts{}.withDefaults())
	t.Cleanup(w.stop)
	return w
}

// post returns the status and the body of an answer, read to its end.
func post(t *testing.T, tr *transport, body []byte) string {
	t.Helper()
	resp, _, err := tr.do(t.Context(), watched(t, t.Context()), body)
	if err != nil {
		t.Fatalf("do: %v", err)
	}
	defer resp.Close()
	text, err := io.ReadAll(resp)
	if err != nil {
		t.Fatalf("body: %v", err)
	}
	return fmt.Sprint(resp.head.status, " ", string(text))
}

func echo(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body) // what is missing shows in the number
	w.WriteHeader(http.StatusEarlyHints)
	fmt.Fprint(w, n, " ", r.Host != "")
}

func TestTransport_Reuse(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		s, tr, dials := server(t, secure, echo)
		for _, size := range []int{0, 100, inlineBytes, 1 << 20} {
			if got, want := post(t, tr, make([]byte, size)), fmt.Sprint("200 ", size, " true"); got != want {
				t.Errorf("answer to %d bytes = %q, want %q", size, got, want)
			}
		}
		if n := dials.Load(); n > 2 { // the answer to the long one may come before its end was noted
			t.Errorf("%d connections for 4 calls in a row, want 1 or 2", n)
		}
		// A server that closes what is idle is not asked over that connection again.
		s.CloseClientConnections()
		if got := post(t, tr, nil); got != "200 0 true" {
			t.Errorf("answer after a close = %q", got)
		}
	}
}

func TestTransport_Untrusted(t *testing.T) {
	t.Parallel()
	_, tr, _ := server(t, true, echo)
	tr.tls.RootCAs = nil
	if resp, connected, err := tr.do(t.Context(), watched(t, t.Context()), nil); err == nil || connected {
		t.Errorf("do = %v, connected %v, want an error of the certificate", resp, connected)
	}
	_, tr, _ = server(t, true, echo)
	tr.tls = &tls.Config{RootCAs: tr.tls.RootCAs, ServerName: "elsewhere.example", MinVersion: tls.VersionTLS12}
	if _, _, err := tr.do(t.Context(), watched(t, t.Context()), nil); err == nil {
		t.Error("do accepts the certificate of another host")
	}
}

// A server may refuse a long request before it has read it. This one reads no further
// and stays, so that no reset can overtake its answer.
func TestTransport_RefusedHalfWay(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var served sync.WaitGroup
	served.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 1)) // the request has begun
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		<-over
	})
	t.Cleanup(func() {
		close(over)
		l.Close()
		served.Wait()
	})
	tr := newTransport(&url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/v1"}, Options{Timeouts: Timeouts{Connect: time.Minute}.withDefaults()})
	t.Cleanup(tr.close)
	resp, _, err := tr.do(t.Context(), watched(t, t.Context()), make([]byte, 8<<20))
	if err != nil {
		t.Fatalf("do: %v, want the refusal", err)
	}
	if err := resp.Close(); err != nil || resp.head.status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, close: %v", resp.head.status, err)
	}
}

// Leaving a call closes its connection, which is how the server learns of it.
func TestTransport_Leave(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 2)
	_, tr, _ := server(t, false, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the caller finds out
		<-r.Context().Done()
		left <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, _, err := tr.do(ctx, watched(t, ctx), nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(resp); err == nil {
		t.Error("a body that was left has an end")
	}
	resp.Close()
	if resp, _, err = tr.do(t.Context(), watched(t, t.Context()), nil); err != nil {
		t.Fatal(err)
	}
	resp.Close() // unread
	for range 2 {
		select {
		case <-left:
		case <-time.After(3 * time.Minute):
			t.Fatal("the server was not told")
		}
	}
	if len(tr.idle) != 0 {
		t.Errorf("%d connections kept of calls that were left", len(tr.idle))
	}
}

func TestTransport_Expire(t *testing.T) {
	t.Parallel()
	_, tr, dials := server(t, false, echo)
	post(t, tr, nil)
	tr.mu.Lock()
	tr.idle[0].since = time.Now().Add(-idleConnTimeout)
	tr.mu.Unlock()
	tr.expire()
	if len(tr.idle) != 0 || tr.sweep != nil {
		t.Errorf("%d connections idle after their time", len(tr.idle))
	}
	if post(t, tr, nil); dials.Load() != 2 {
		t.Errorf("%d connections, want a second one", dials.Load())
	}
}
