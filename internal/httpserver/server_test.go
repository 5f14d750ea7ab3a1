package httpserver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/httpserver"
)

// patience bounds what a test waits for; what is waited for comes at once.
const patience = 3 * time.Minute

// running is a server on a real socket.
type running struct {
	*httpserver.Server
	addr   string
	log    *lockedBuffer
	served chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t testing.TB, h http.HandlerFunc) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	r := &running{&httpserver.Server{Handler: h, ErrorLog: log.New(out, "", 0)}, l.Addr().String(), out, make(chan error, 1)}
	go func() { r.served <- r.Serve(l) }()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("connections are left after Close: %v", err)
		}
	})
	return r
}

// dial connects and sends text.
func (r *running) dial(t testing.TB, text string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), bufio.NewReader(c)
}

// answer reads one whole answer.
func answer(t testing.TB, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// ended waits for a channel to be closed or to have something.
func ended[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: waited %v", what, patience)
	}
	return v
}

const plain = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// TestDeparture: the context of a call ends when its client leaves, in whatever way, though
// the handler neither reads nor writes.
func TestDeparture(t *testing.T) {
	t.Parallel()
	inside, gone := make(chan struct{}), make(chan error)
	s := start(t, func(_ http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-r.Context().Done()
		gone <- context.Cause(r.Context())
	})
	chunked := "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	for name, leave := range map[string]func(c *net.TCPConn){
		"close":       func(c *net.TCPConn) { c.Close() },
		"half closed": func(c *net.TCPConn) { c.CloseWrite() },
		"reset": func(c *net.TCPConn) {
			c.SetLinger(0)
			c.Close()
		},
		"behind another request": func(c *net.TCPConn) {
			io.WriteString(c, plain)
			c.Close()
		},
	} {
		for _, request := range []string{plain, chunked} {
			c, _ := s.dial(t, request)
			ended(t, inside, name)
			leave(c)
			if err := ended(t, gone, name); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "behind another request" {
				select { // what was sent before leaving is served too, to nobody
				case <-inside:
					ended(t, gone, name)
				case <-time.After(patience):
					t.Errorf("%s is not served", name)
				}
			}
		}
	}
}

// TestStay: what a client sends while its call runs does not end the call.
func TestStay(t *testing.T) {
	t.Parallel()
	inside, goOn, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		if r.URL.Path == "/leaves" {
			<-r.Context().Done()
			close(gone)
			return
		}
		select {
		case <-goOn:
		case <-r.Context().Done():
			io.WriteString(w, "cancelled")
		}
	})
	c, r := s.dial(t, plain)
	ended(t, inside, "first call")
	io.WriteString(c, plain)
	// A client that leaves behind it proves that departures have been looked for.
	other, _ := s.dial(t, "GET /leaves HTTP/1.1\r\nHost: x\r\n\r\n")
	ended(t, inside, "other call")
	other.Close()
	ended(t, gone, "other call's departure")
	goOn <- struct{}{}
	if _, body := answer(t, r); body != "" {
		t.Errorf("the first call was %s", body)
	}
	ended(t, inside, "second call")
	goOn <- struct{}{}
	if _, body := answer(t, r); body != "" {
		t.Errorf("the second call was %s", body)
	}
}

// TestDeparture_Churn: file descriptors come back in other connections. Whoever leaves ends
// no call but its own.
func TestDeparture_Churn(t *testing.T) {
	t.Parallel()
	var wrong lockedBuffer
	inside := make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			fmt.Fprint(&wrong, r.URL.Query())
		case "/left":
			inside <- struct{}{}
			<-r.Context().Done()
		}
	})
	const long = 20
	var stay []*net.TCPConn
	for i := range long {
		c, r := s.dial(t, fmt.Sprintf("GET /long?n=%d HTTP/1.1\r\nHost: x\r\n\r\n", i))
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		stay = append(stay, c)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				c, r := s.dial(t, plain)
				answer(t, r)
				c.Close()
				c, _ = s.dial(t, "GET /left HTTP/1.1\r\nHost: x\r\n\r\n")
				ended(t, inside, "/left")
				c.Close()
			}
		})
	}
	group.Wait()
	if wrong.String() != "" {
		t.Errorf("calls ended whose clients are there: %s", wrong.String())
	}
	for _, c := range stay {
		c.Close()
	}
}

// TestShutdown: running calls end as they would, idle connections at once, and nobody comes in.
func TestShutdown(t *testing.T) {
	t.Parallel()
	inside, goOn := make(chan struct{}), make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
		}
		inside <- struct{}{}
		<-goOn
		io.WriteString(w, "b")
	})
	idle, idleReader := s.dial(t, plain)
	ended(t, inside, "idle")
	goOn <- struct{}{}
	answer(t, idleReader)
	fresh, freshReader := s.dial(t, "")
	_, whole := s.dial(t, plain)
	ended(t, inside, "whole")
	_, stream := s.dial(t, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	ended(t, inside, "stream")

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown with calls running: %v", err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	if err := ended(t, s.served, "Serve"); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("the listener still listens")
	}
	if n, err := idle.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("an idle connection has %d bytes, %v", n, err)
	}
	// The request of a connection that was accepted before is still answered.
	io.WriteString(fresh, plain)
	ended(t, inside, "fresh")
	for range 3 {
		goOn <- struct{}{}
	}
	if resp, body := answer(t, freshReader); body != "b" || !resp.Close {
		t.Errorf("fresh: %q, close %v", body, resp.Close)
	}
	if resp, body := answer(t, whole); body != "b" || !resp.Close {
		t.Errorf("whole: %q, close %v", body, resp.Close)
	}
	if _, body := answer(t, stream); body != "ab" {
		t.Errorf("stream: %q", body)
	}
	if _, err := stream.ReadByte(); err != io.EOF {
		t.Errorf("the stream's connection stays open: %v", err)
	}
	if err := ended(t, stopped, "Shutdown"); err != nil {
		t.Error(err)
	}
	if err := s.Serve(newQueue()); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

// TestClose ends the calls that run.
func TestClose(t *testing.T) {
	t.Parallel()
	inside, gone := make(chan struct{}), make(chan struct{})
	s := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
		close(gone)
	})
	_, r := s.dial(t, plain)
	ended(t, inside, "call")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	ended(t, gone, "context")
	if _, err := r.ReadByte(); err == nil {
		t.Error("there is an answer")
	}
}

// TestPanic costs one connection and leaves a line in the log; ErrAbortHandler leaves none.
func TestPanic(t *testing.T) {
	t.Parallel()
	contexts := make(chan context.Context, 1)
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		contexts <- r.Context()
		if r.URL.Path == "/abort" {
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		panic("some bug")
	})
	_, r := s.dial(t, "GET /abort HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an aborted answer is %q, %v", b, err)
	}
	ended(t, (<-contexts).Done(), "context of an aborted call")
	if s.log.String() != "" {
		t.Errorf("logged: %s", s.log.String())
	}
	_, r = s.dial(t, plain)
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after a panic: %v", err)
	}
	ended(t, (<-contexts).Done(), "context of a call that panicked")
	if got := s.log.String(); !strings.Contains(got, "some bug") || !strings.Contains(got, "server_test.go") {
		t.Errorf("logged: %s", got)
	}
}

// TestContext: what a handler has started ends with it, and the base's cause reaches it.
func TestContext(t *testing.T) {
	t.Parallel()
	contexts := make(chan context.Context, 1)
	reason := errors.New("reason")
	base, cancel := context.WithCancelCause(t.Context())
	inside := make(chan struct{})
	s := &httpserver.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			contexts <- r.Context()
			if r.URL.Path == "/wait" {
				close(inside)
				<-r.Context().Done()
			}
		}),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	r := &running{Server: s, addr: l.Addr().String()}
	_, in := r.dial(t, plain)
	answer(t, in)
	ended(t, (<-contexts).Done(), "context of a call that has returned")
	_, in = r.dial(t, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	ended(t, inside, "call")
	cancel(reason)
	answer(t, in)
	if err := context.Cause(<-contexts); !errors.Is(err, reason) {
		t.Errorf("cause: %v", err)
	}
}

// TestLinger: a client that sends its whole body before it reads still gets the answer that
// came in the middle.
func TestLinger(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	const size = 8 << 20
	c, r := s.dial(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size))
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Errorf("the body could not be sent: %v", err)
	}
	if resp, _ := answer(t, r); resp.StatusCode != http.StatusUnauthorized || !resp.Close {
		t.Errorf("%s, close %v", resp.Status, resp.Close)
	}
}

// TestReject: what is no request is answered by Reject, once, and the connection closed.
func TestReject(t *testing.T) {
	t.Parallel()
	s := &httpserver.Server{
		MaxHeaderBytes: 8 << 10,
		Handler:        http.HandlerFunc(echo),
		ErrorLog:       log.New(io.Discard, "", 0),
		Reject: func(w http.ResponseWriter, status int, reason string) {
			w.Header().Set("X-Method", "GET")
			w.Header().Set("X-Reason", reason)
			w.WriteHeader(status)
			io.WriteString(w, `{"error":{}}`)
		},
	}
	q := newQueue()
	go s.Serve(q)
	defer s.Close()
	for text, want := range map[string]string{
		"\x16\x03\x01":                   "400",
		"hello\r\n":                      "400",
		"GET / HTTP/1.1\r\n\r\n" + plain: "400",
		get("Host: x", "A: "+strings.Repeat("b", 9<<10)): "431",
		get("Host: x", "Expect: wonders") + plain:        "417",
		post("", "Transfer-Encoding: gzip") + plain:      "501",
		"GET / HTTP/3.0\r\nHost: x\r\n\r\n":              "505",
	} {
		got := replies(t, q.say(t, text, 1<<20))
		if len(got) != 1 || !strings.HasPrefix(got[0].Line, "HTTP/1.1 "+want) || got[0].Body != `{"error":{}}` || got[0].Header["Connection"][0] != "close" || got[0].Header["X-Reason"][0] == "" {
			t.Errorf("%.40q: %+v, want %s", text, got, want)
		}
	}
}

// TestClients: many requests of many real clients at once, and all get their own answer.
func TestClients(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(b)
		if len(b)%2 == 0 {
			w.(http.Flusher).Flush()
			w.Write(b)
		}
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 200 {
				body := strings.Repeat(string(rune('a'+worker)), i*i%9000)
				resp, err := client.Post("http://"+s.addr, "text/plain", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := body
				if len(body)%2 == 0 {
					want += body
				}
				if err != nil || string(got) != want {
					t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
				}
			}
		})
	}
	group.Wait()
}
