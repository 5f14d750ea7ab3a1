package httpserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sink is a connection that brings text again and again and takes everything.
type sink struct {
	net.Conn
	text string
	rest *strings.Reader
	left int
}

func (s *sink) Read(p []byte) (int, error) {
	if s.rest.Len() == 0 {
		if s.left--; s.left < 0 {
			return 0, io.EOF
		}
		s.rest.Reset(s.text)
	}
	return s.rest.Read(p)
}

func (*sink) Write(p []byte) (int, error)      { return len(p), nil }
func (*sink) Close() error                     { return nil }
func (*sink) RemoteAddr() net.Addr             { return nil }
func (*sink) SetReadDeadline(time.Time) error  { return nil }
func (*sink) SetWriteDeadline(time.Time) error { return nil }

// run serves n times text to h on one connection.
func run(tb testing.TB, h http.HandlerFunc, text string, n int) {
	tb.Helper()
	s := &Server{Handler: h, ReadHeaderTimeout: time.Second, IdleTimeout: time.Second}
	if err := s.start(&pipeListener{}); err != nil {
		tb.Fatal(err)
	}
	c := newConn(context.Background(), s, &sink{text: text, rest: strings.NewReader(""), left: n})
	s.conns[c] = struct{}{}
	c.serve()
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
}

// An event of a stream costs no memory.
func TestAllocations_Event(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts everybody's
	event := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n")
	calls := 0
	run(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		rc := http.NewResponseController(w)
		if n := testing.AllocsPerRun(1000, func() {
			if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			if _, err := w.Write(event); err != nil {
				t.Error(err)
			}
			if err := rc.Flush(); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("an event takes %v allocations", n)
		}
	}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1)
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// openai is a request as the Python client sends it.
const openai = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\n" +
	"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.54.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.54.0\r\nX-Stainless-OS: Linux\r\n" +
	"X-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.12.3\r\nAuthorization: Bearer sk-parley-0123456789012345678901234567890123456789012345678\r\n" +
	"X-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nContent-Length: 21\r\n\r\n{\"model\":\"svc-pulse\"}"

// BenchmarkRequest is one whole call without its handler's work. Beside it stands net/http.
func BenchmarkRequest(b *testing.B) {
	body := make([]byte, 320)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Content-Length"] = []string{"320"}
		w.Write(body)
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		run(b, handler, openai, b.N)
	})
	b.Run("net_http", func(b *testing.B) {
		b.ReportAllocs()
		c := &closing{sink{text: openai, rest: strings.NewReader(""), left: b.N}, make(chan struct{})}
		s := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: time.Second, IdleTimeout: time.Second}
		go s.Serve(&once{c: c, done: make(chan struct{})})
		<-c.closed
		s.Close()
	})
}

// BenchmarkSocket is whole calls over real connections, sixteen at once. Its figure is the
// CPU time of both sides; the clients' is the same for both servers.
func BenchmarkSocket(b *testing.B) {
	body := make([]byte, 320)
	event := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		if r.URL.Path == "/v1/chat/completions" {
			w.Header()["Content-Type"] = []string{"application/json"}
			w.Header()["Content-Length"] = []string{"320"}
			w.Write(body)
			return
		}
		rc := http.NewResponseController(w)
		w.Header()["Content-Type"] = []string{"text/event-stream"}
		for range 64 {
			if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				b.Error(err)
			}
			w.Write(event)
			if err := rc.Flush(); err != nil {
				b.Error(err)
			}
		}
	})
	servers := map[string]interface {
		Serve(l net.Listener) error
		Close() error
	}{
		"own":      &Server{Handler: handler, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute},
		"net_http": &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute},
	}
	for kind, text := range map[string]string{"whole": openai, "stream": strings.Replace(openai, "chat/completions", "stream", 1)} {
		for name, s := range servers {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go s.Serve(l)
			b.Run(kind+"/"+name, func(b *testing.B) { ask(b, l.Addr().String(), text) })
		}
	}
	for _, s := range servers {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}
}

// ask sends text b.N times and reads the answers.
func ask(b *testing.B, addr, text string) {
	b.Helper()
	b.SetParallelism(8)
	began := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for pb.Next() {
			if _, err := io.WriteString(c, text); err != nil {
				b.Error(err)
				return
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(cpuTime(b)-began)/1000/float64(b.N), "cpu-us/op")
}

// cpuTime is what the process has computed, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// closing tells when it is closed.
type closing struct {
	sink
	closed chan struct{}
}

func (c *closing) LocalAddr() net.Addr         { return nil }
func (c *closing) SetDeadline(time.Time) error { return nil }

func (c *closing) Close() error {
	close(c.closed)
	return nil
}

// once is a listener of one connection.
type once struct {
	c    net.Conn
	done chan struct{}
}

func (o *once) Accept() (net.Conn, error) {
	if c := o.c; c != nil {
		o.c = nil
		return c, nil
	}
	<-o.done
	return nil, net.ErrClosed
}

func (o *once) Addr() net.Addr { return nil }

func (o *once) Close() error {
	close(o.done)
	return nil
}
