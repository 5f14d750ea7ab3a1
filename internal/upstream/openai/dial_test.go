package openai

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// serves is what a server with that certificate speaks.
func serves(c tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
}

func soon() time.Time { return time.Now().Add(time.Hour) }

func TestGenerate_TLS(t *testing.T) {
	t.Parallel()
	a := upstreamtest.NewAuthority(t)
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			config := serves(a.Certificate(t, host, soon()))
			config.MaxVersion = version
			s := upstreamtest.NewTLS(t, host, config, events(role, text("Hi"), finish("stop"), usage))
			p := newProvider(t, s, func(o *Options) { o.RootCAs = a.Pool })
			for range 5 {
				got, err := generate(t.Context(), p, newCall(t, ""))
				if diff := cmp.Diff([]string{"text Hi", "finish stop usage 3 2 1 1"}, got); diff != "" || err != nil {
					t.Errorf("%s, version %x: %v (-want +got):\n%s", host, version, err, diff)
				}
			}
			if n := s.Connections(); n != 1 {
				t.Errorf("%s, version %x: %d connections for 5 calls in a row, want 1", host, version, n)
			}
		}
	}
}

// What will not be otherwise the next time is not asked for again.
func TestGenerate_NoTLS(t *testing.T) {
	t.Parallel()
	a, other := upstreamtest.NewAuthority(t), upstreamtest.NewAuthority(t)
	const here = "127.0.0.1"
	old := serves(a.Certificate(t, here, soon()))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	for name, c := range map[string]struct {
		config      *tls.Config
		class, says string
	}{
		"another name": {serves(a.Certificate(t, "elsewhere.example", soon())), "unreachable", "cannot validate certificate for 127.0.0.1"},
		"expired":      {serves(a.Certificate(t, here, time.Now().Add(-time.Hour))), "unreachable", "certificate has expired"},
		"untrusted":    {serves(other.Certificate(t, here, soon())), "unreachable", "of an authority that is not trusted; ca_file names"},
		"TLS 1.1":      {old, "unreachable retryable", "protocol version not supported"},
		"plain":        {nil, "unreachable", "does not speak TLS here: base_url must begin with http,"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := upstreamtest.NewTLS(t, here, c.config, func(*upstreamtest.Exchange) { t.Error("a request was sent") })
			if c.config == nil {
				s.URL = speaker(t, "HTTP/1.1 400 Bad Request\r\n\r\n", 5)
			}
			p := newProvider(t, s, func(o *Options) {
				o.RootCAs, o.BaseURL = a.Pool, strings.Replace(s.URL, "http:", "https:", 1)
			})
			_, err := generate(t.Context(), p, newCall(t, ""))
			if class(err) != c.class || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("Generate = %s, %v; want %s, %s", class(err), err, c.class, c.says)
			}
		})
	}
}

// speaker is a server that waits for so many bytes, says something, and hangs up.
func speaker(t *testing.T, says string, after int) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				_, _ = io.ReadFull(c, make([]byte, after)) // it speaks whatever comes
				_, _ = io.WriteString(c, says)
				_ = c.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // it is of a TCP listener
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return "http://" + l.Addr().String()
}

// A server that speaks TLS says so in one of two ways to one that does not.
func TestGenerate_WantsTLS(t *testing.T) {
	t.Parallel()
	for _, says := range []string{
		"\x15\x03\x01\x00\x02\x02\x46",
		"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
		"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: 82\r\n\r\n<html><body><center>The plain HTTP request was sent to HTTPS port</center></body></html>",
		"HTTP/1.1 400 Bad Request\r\n\r\nReason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
	} {
		s := &upstreamtest.HTTP{URL: speaker(t, says, 100)}
		_, err := generate(t.Context(), newProvider(t, s, nil), newCall(t, ""))
		if class(err) != "failed" || !strings.Contains(err.Error(), "base_url must begin with https") {
			t.Errorf("Generate after %.30q = %s, %v", says, class(err), err)
		}
	}
}

// An answer that ends with its connection ends there only when it has told why: whoever cuts
// the connection can make no shorter answer of it, with the word of TLS or without.
func TestGenerate_Truncated(t *testing.T) {
	t.Parallel()
	a := upstreamtest.NewAuthority(t)
	const start = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	answer := start + "data: " + text("Hi") + "\n\ndata: " + text("there") + "\n\ndata: " + finish("stop") + "\n\n"
	told := len(answer) - 1 // the line with the reason has its end
	for _, severed := range []bool{false, true} {
		for _, at := range []int{0, 10, len(start), len(start) + 40, len(answer) - len(finish("stop")) - 8, told - 1, told, len(answer)} {
			s := upstreamtest.NewTLS(t, "127.0.0.1", serves(a.Certificate(t, "127.0.0.1", soon())), func(e *upstreamtest.Exchange) {
				e.Raw(answer[:at])
				if severed {
					e.Sever()
				}
			})
			p := newProvider(t, s, func(o *Options) { o.RootCAs = a.Pool })
			got, err := generate(t.Context(), p, newCall(t, `,"stream":true`))
			if whole := at >= told; (err == nil) != whole {
				t.Errorf("cut at %d of %d, severed %v: %q, %v", at, len(answer), severed, got, err)
			}
		}
	}
}

// gather keeps what TLS writes while it holds, so that it arrives at once.
type gather struct {
	net.Conn
	hold bool
	buf  bytes.Buffer
}

func (g *gather) Write(p []byte) (int, error) {
	if g.hold {
		return g.buf.Write(p)
	}
	return g.Conn.Write(p)
}

func (g *gather) flush() error {
	g.hold = false
	_, err := g.buf.WriteTo(g.Conn)
	return err
}

// TestTransport_Leftover: what TLS has read of what follows an answer is seen before the
// connection is used again, be it an answer that nobody asked for or the end.
func TestTransport_Leftover(t *testing.T) {
	t.Parallel()
	a := upstreamtest.NewAuthority(t)
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	for name, behind := range map[string]func(c *tls.Conn, g *gather) error{
		"an answer": func(c *tls.Conn, _ *gather) error {
			_, err := io.WriteString(c, answer+"evil")
			return err
		},
		"the end": func(c *tls.Conn, g *gather) error {
			err := c.CloseWrite()
			return errors.Join(err, g.SetWriteDeadline(time.Time{})) // CloseWrite ends it
		},
		"nothing": func(*tls.Conn, *gather) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := serves(a.Certificate(t, "provider.test", soon()))
			config.SessionTicketsDisabled = true // they would be written while the request is: pipes have no room
			tr := newTransport(&url.URL{Scheme: "https", Host: "provider.test"}, Options{RootCAs: a.Pool, Timeouts: Timeouts{Connect: time.Minute}.withDefaults()})
			t.Cleanup(tr.close)
			var served sync.WaitGroup
			dials := 0
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				dials++
				served.Go(func() { leave(t, theirs, config, answer, behind) })
				return ours, nil
			}
			for range 3 {
				if got := post(t, tr, nil); got != "200 good" {
					t.Errorf("answer = %q", got)
				}
			}
			if want := map[bool]int{true: 1, false: 3}[name == "nothing"]; dials != want {
				t.Errorf("%d connections, want %d", dials, want)
			}
			tr.close()
			served.Wait()
		})
	}
}

// leave answers what comes and has behind write more, which arrives with the answer.
func leave(t *testing.T, raw net.Conn, config *tls.Config, answer string, behind func(*tls.Conn, *gather) error) {
	t.Helper()
	defer raw.Close()
	g := &gather{Conn: raw}
	c := tls.Server(g, config)
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		g.hold = true
		_, err = io.WriteString(c, answer+"good")
		if err = errors.Join(err, behind(c, g), g.flush()); err != nil {
			t.Errorf("answer: %v", err)
			return
		}
	}
}

// A server, or a proxy, that takes a connection and says nothing costs the time to connect.
func TestDial_Stall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proxy *url.URL
		says  string
	}{
		"TLS was not agreed on":                     {nil, ""},
		"the proxy did not answer":                  {&url.URL{Scheme: "http", Host: "proxy.test:3128"}, ""},
		"TLS was not agreed on within the time to ": {&url.URL{Scheme: "http", Host: "proxy.test:3128"}, "HTTP/1.1 200 Connection established\r\n\r\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(t, &upstreamtest.HTTP{URL: "https://provider.test/v1"}, func(o *Options) { o.Proxy, o.Timeouts = c.proxy, Timeouts{} })
			var served sync.WaitGroup
			p.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				served.Go(func() {
					defer theirs.Close()
					if c.proxy != nil {
						if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
							t.Errorf("CONNECT: %v", err)
						}
						_, _ = io.WriteString(theirs, c.says) // who has left has left
					}
					_, _ = io.Copy(io.Discard, theirs)
				})
				return ours, nil
			}
			begin := time.Now()
			_, err := generate(t.Context(), p, newCall(t, ""))
			if took := time.Since(begin); class(err) != "unreachable retryable" || !strings.Contains(err.Error(), name) || took != 2*time.Second {
				t.Errorf("Generate = %s, %v after %v; want %s after 2s", class(err), err, took, name)
			}
			served.Wait()
		})
	}
}
