package upstreamtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// HTTP is a provider behind a socket that does, byte by byte, what a test tells it to.
// It waits for nothing but the channels of its script.
type HTTP struct {
	// URL is the base URL of a provider that listens.
	URL string

	script    func(*Exchange)
	tls       *tls.Config // nil without
	mu        sync.Mutex
	conns     []net.Conn
	exchanges []*Exchange
	running   sync.WaitGroup
}

// NewHTTP listens on this machine until the test ends and runs the script, one or
// several at a time, for every request.
func NewHTTP(t testing.TB, script func(*Exchange)) *HTTP {
	t.Helper()
	return listen(t, "127.0.0.1", nil, script)
}

// NewTLS is [NewHTTP] over TLS with that configuration, at an address such as 127.0.0.1.
func NewTLS(t testing.TB, host string, config *tls.Config, script func(*Exchange)) *HTTP {
	t.Helper()
	return listen(t, host, config, script)
}

func listen(t testing.TB, host string, config *tls.Config, script func(*Exchange)) *HTTP {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	s := NewPipe(t, script)
	s.URL = "http://" + l.Addr().String() + "/v1"
	if s.tls = config; config != nil {
		s.URL = "https://" + l.Addr().String() + "/v1"
	}
	t.Cleanup(func() { l.Close() })
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.start(conn)
		}
	})
	return s
}

// NewPipe is [NewHTTP] without a socket: its connections come from [HTTP.Dial] and are
// made of memory, so that they work on the clock of a synctest bubble.
func NewPipe(t testing.TB, script func(*Exchange)) *HTTP {
	t.Helper()
	s := &HTTP{URL: "http://provider.test/v1", script: script}
	t.Cleanup(s.close)
	return s
}

// Dial connects to the provider, whatever the address.
func (s *HTTP) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.start(theirs)
	return ours, nil
}

// Exchanges returns the requests so far, in the order in which they came.
func (s *HTTP) Exchanges() []*Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.exchanges)
}

// Connections is how many connections were made so far.
func (s *HTTP) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *HTTP) close() {
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *HTTP) start(conn net.Conn) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	s.running.Go(func() { s.serve(conn) })
}

func (s *HTTP) serve(raw net.Conn) {
	conn := raw
	if s.tls != nil {
		conn = tls.Server(raw, s.tls)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		e := &Exchange{Request: req, Body: body, conn: conn, raw: raw, gone: make(chan struct{})}
		s.mu.Lock()
		s.exchanges = append(s.exchanges, e)
		s.mu.Unlock()
		more := make(chan bool, 1)
		s.running.Go(func() {
			_, err := r.Peek(1)
			if err != nil {
				close(e.gone)
			}
			more <- err == nil
		})
		s.script(e)
		if !e.whole {
			conn.Close()
		}
		if !<-more {
			return
		}
	}
}

// Exchange is one request and the answer to it. A script that returns before the
// answer is whole has cut it off.
type Exchange struct {
	Request *http.Request
	Body    []byte

	conn  net.Conn
	raw   net.Conn // below TLS
	gone  chan struct{}
	whole bool
}

// Gone is closed when the other side has closed the connection.
func (e *Exchange) Gone() <-chan struct{} { return e.gone }

// Raw writes text as it is. It reports whether the other side still takes it.
func (e *Exchange) Raw(text string) bool {
	_, err := io.WriteString(e.conn, text)
	return err == nil
}

// Respond writes a whole answer. header are further lines, each with its \r\n.
func (e *Exchange) Respond(status int, contentType, header, body string) {
	e.whole = e.Raw(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s",
		status, http.StatusText(status), contentType, len(body), header, body))
}

// Stream begins a stream.
func (e *Exchange) Stream() {
	e.Raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
}

// Bytes writes a piece of a stream.
func (e *Exchange) Bytes(text string) bool {
	return e.Raw(fmt.Sprintf("%x\r\n%s\r\n", len(text), text))
}

// Event writes one event of a stream.
func (e *Exchange) Event(data string) bool { return e.Bytes("data: " + data + "\n\n") }

// End ends a stream without a terminator. The connection stays.
func (e *Exchange) End() { e.whole = e.Raw("0\r\n\r\n") }

// Done ends a stream in the way of the convention.
func (e *Exchange) Done() {
	e.Event("[DONE]")
	e.End()
}

// Reset breaks the connection so that the other side sees an error, not an end.
func (e *Exchange) Reset() {
	if c, ok := e.raw.(*net.TCPConn); ok {
		c.SetLinger(0) //nolint:errcheck // The connection is thrown away.
	}
	e.raw.Close()
}

// Sever closes the connection below TLS, without the word of TLS that this is the end.
func (e *Exchange) Sever() { e.raw.Close() }
