package httpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// serve serves one end of a pipe, where time is the bubble's and writes wait for reads,
// and returns the other.
func serve(t *testing.T, h http.HandlerFunc) net.Conn {
	t.Helper()
	s := &Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	server, client := net.Pipe()
	if err := s.start(&pipeListener{}); err != nil {
		t.Fatal(err)
	}
	s.serveConn(t.Context(), server)
	t.Cleanup(func() {
		client.Close()
		s.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

type pipeListener struct{ net.Listener }

func (*pipeListener) Close() error { return nil }

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

// TestTimeouts: what ends a connection that does nothing, when, and with which words.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, tc := range map[string]struct {
		say     []string // one each second
		want    string   // beginnings of answers
		seconds float64
	}{
		"nothing":                {seconds: 10},
		"half a head":            {say: []string{"GET / HT"}, want: "408", seconds: 10},
		"drops":                  {say: strings.Split("GET / HTTP/1.1\r\nA: 123456789", ""), want: "408", seconds: 10},
		"idle":                   {say: []string{request}, want: "200", seconds: 60},
		"idle, twice":            {say: []string{request, request}, want: "200 200", seconds: 61},
		"idle, then half a head": {say: []string{request, "GET"}, want: "200 408", seconds: 11},
		"head in two":            {say: []string{request[:9], request[9:]}, want: "200", seconds: 61},
		"body that nobody reads": {say: []string{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234"}, want: "200", seconds: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c := serve(t, hello)
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					for _, s := range tc.say {
						if _, err := io.WriteString(c, s); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
				var got []string
				r := bufio.NewReader(c)
				for {
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						break
					}
					io.Copy(io.Discard, resp.Body)
					got = append(got, resp.Status[:3])
				}
				if s := strings.Join(got, " "); s != tc.want {
					t.Errorf("answers %q, want %q", s, tc.want)
				}
				if took := time.Since(began).Seconds(); took != tc.seconds {
					t.Errorf("closed after %v s, want %v", took, tc.seconds)
				}
			})
		})
	}
}

// TestWriteDeadline: a write to a client that does not read ends when the last deadline that
// was set says, and not when an earlier one would have.
func TestWriteDeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deadlines []time.Duration // set one each second, the last two seconds after a write has begun
		want      float64         // seconds after the first was set
	}{
		"one":                {[]time.Duration{30 * time.Second}, 30},
		"moved":              {[]time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second}, 32},
		"moved far":          {[]time.Duration{5 * time.Second, time.Hour}, 3601},
		"sooner":             {[]time.Duration{30 * time.Second, time.Second}, 2},
		"passed":             {[]time.Duration{-time.Second}, 0},
		"passed, then moved": {[]time.Duration{-time.Second, 3 * time.Second}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan float64, 1)
				c := serve(t, func(w http.ResponseWriter, r *http.Request) {
					rc, began := http.NewResponseController(w), time.Now()
					for i, d := range tc.deadlines {
						if i > 0 {
							time.Sleep(time.Second)
						}
						if err := rc.SetWriteDeadline(time.Now().Add(d)); err != nil {
							t.Error(err)
						}
					}
					io.WriteString(w, "hello")
					if err := rc.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("Flush: %v", err)
					}
					failed <- time.Since(began).Seconds()
					if r.Context().Err() == nil {
						t.Error("the context goes on")
					}
				})
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				if got := <-failed; got != tc.want {
					t.Errorf("the write failed after %v s, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestWriteDeadline_Hurry: a deadline that is set meanwhile bounds the write that is under
// way.
func TestWriteDeadline_Hurry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan time.Duration, 1)
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			rc, began := http.NewResponseController(w), time.Now()
			if err := rc.SetWriteDeadline(began.Add(30 * time.Second)); err != nil {
				t.Error(err)
			}
			time.AfterFunc(5*time.Second, func() {
				if err := rc.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
					t.Error(err)
				}
			})
			io.WriteString(w, "hello")
			if err := rc.Flush(); err == nil {
				t.Error("nobody has read, and it was written")
			}
			failed <- time.Since(began)
		})
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if took := <-failed; took != 6*time.Second {
			t.Errorf("the write failed after %v", took)
		}
	})
}

// TestReadDeadline bounds the reading of a body and nothing that comes later; a response
// whose handler has returned sets none.
func TestReadDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var late *http.ResponseController
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if late != nil {
				if err := late.SetReadDeadline(time.Now()); err == nil {
					t.Error("a response that is over sets a deadline")
				}
				return
			}
			late = http.NewResponseController(w)
			if err := late.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Error(err)
			}
			b, err := io.ReadAll(r.Body)
			if string(b) != "12345" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			time.Sleep(20 * time.Second)
		})
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n123")
		time.Sleep(4 * time.Second)
		io.WriteString(c, "45")
		r := bufio.NewReader(c)
		for range 2 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			time.Sleep(30 * time.Second)
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		if took := time.Since(began); took != 84*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestShutdown_Silent: a connection that never sends anything does not hold a shutdown up.
func TestShutdown_Silent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer client.Close()
		s := &Server{Handler: http.HandlerFunc(hello)}
		if err := s.start(&pipeListener{}); err != nil {
			t.Fatal(err)
		}
		s.serveConn(t.Context(), server)
		began := time.Now()
		if err := s.Shutdown(t.Context()); err != nil || time.Since(began) != freshGrace {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// starved is a listener that has no file descriptor a few times.
type starved struct {
	pipeListener
	times atomic.Int32
	done  chan struct{}
}

func (s *starved) Accept() (net.Conn, error) {
	if s.times.Add(-1) >= 0 {
		return nil, os.NewSyscallError("accept4", syscall.EMFILE)
	}
	<-s.done
	return nil, net.ErrClosed
}

func (s *starved) Close() error {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

// TestServe_Starved: a server that has no file descriptors waits for some.
func TestServe_Starved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Handler: http.HandlerFunc(hello), ErrorLog: log.New(io.Discard, "", 0)}
		l := &starved{done: make(chan struct{})}
		l.times.Store(10)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		time.Sleep(time.Minute)
		if n := l.times.Load(); n != -1 {
			t.Errorf("accepted %d times too few", n+1)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestStandard: where there is no watcher net/http serves, and stops alike.
func TestStandard(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Handler: http.HandlerFunc(hello)}
	served := make(chan error, 1)
	go func() { served <- s.serveStandard(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "hello") {
		t.Errorf("%q, %v", b, err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.serveStandard(l); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
