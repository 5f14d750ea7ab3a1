// Package httpserver serves HTTP/1.1 on plain TCP with less work an answer than net/http,
// whose server spends a fifth of a call's time beside the handler. It reads requests with
// net/http's parser and serves any [http.Handler]; what is its own is the loop around
// them: one goroutine a connection, one write an answer, clients that leave noticed by
// epoll instead of a read in the background, deadlines without timers.
//
// Handlers have net/http's contract with these exceptions: no Hijacker, no CloseNotifier,
// no trailers and no Transfer-Encoding of the handler's own, and the values of
// [http.ServerContextKey] and [http.LocalAddrContextKey] are not in the context.
package httpserver

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// freshGrace is how long a shutdown waits for the first request of a connection that was
// accepted just before.
const freshGrace = time.Second

// Server serves one or more listeners. Its fields must be set before Serve and not change
// after; its methods may be called at any time.
type Server struct {
	Handler http.Handler // required
	// Reject answers what never becomes a request that Handler could see, and is called once
	// for each. The status is 400, 408, 417, 431, 501 or 505; reason says why in a few words,
	// none of them the client's. The connection is closed behind the answer. nil answers with
	// one line of text.
	Reject func(w http.ResponseWriter, status int, reason string)
	// ReadHeaderTimeout bounds the time from a request's first byte to the end of its head,
	// and how long a body that the handler left is waited for. Zero is no bound.
	ReadHeaderTimeout time.Duration
	// IdleTimeout bounds the time between two requests. Zero is no bound.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's head, its first line included. Zero means
	// [http.DefaultMaxHeaderBytes].
	MaxHeaderBytes int
	// BaseContext is what the contexts of all requests of a listener descend from; nil means
	// the background.
	BaseContext func(net.Listener) context.Context
	// ErrorLog is told of panics, of requests that were refused and of broken listeners; nil
	// is the standard logger.
	ErrorLog *log.Logger

	stopping atomic.Bool
	mu       sync.Mutex // guards the rest
	watch    *watcher
	standard *http.Server // where there is no watcher
	stopped  chan struct{}
	quiet    chan struct{} // closed when the server stops and the last connection has ended
	open     map[net.Listener]struct{}
	conns    map[*conn]struct{}

	readers sync.Pool // of *bufio.Reader of readerSize
	buffers sync.Pool // of *[]byte
	date    atomic.Pointer[date]
}

// Serve accepts connections of l until it fails or the server is stopped, and closes it.
// It never returns nil: after Shutdown or Close it is [http.ErrServerClosed]. On systems
// other than Linux it serves with net/http.
func (s *Server) Serve(l net.Listener) error {
	err := s.start(l)
	if errors.Is(err, errors.ErrUnsupported) {
		return s.serveStandard(l)
	}
	defer l.Close()
	if err != nil {
		return err
	}
	defer s.forget(l)
	base := context.Background()
	if s.BaseContext != nil {
		base = s.BaseContext(l)
	}
	for pause := 5 * time.Millisecond; ; {
		rwc, err := l.Accept()
		switch {
		case err == nil:
			pause = 5 * time.Millisecond
			s.serveConn(base, rwc)
		case s.stopping.Load():
			return http.ErrServerClosed
		case !exhausted(err):
			return err
		default:
			s.logf("httpserver: accept: %v; again in %v", err, pause)
			select {
			case <-time.After(pause):
			case <-s.stopped:
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// exhausted reports whether a listener has failed for want of something that comes back when
// other connections end.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// start makes the server ready for l.
func (s *Server) start(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return http.ErrServerClosed
	}
	if s.open == nil {
		w, err := newWatcher()
		if err != nil {
			return err
		}
		s.watch = w
		s.open, s.conns = map[net.Listener]struct{}{}, map[*conn]struct{}{}
		s.stopped, s.quiet = make(chan struct{}), make(chan struct{})
	}
	s.open[l] = struct{}{}
	return nil
}

// forget notes that l is closed.
func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, l)
}

// serveConn serves rwc in a goroutine of its own.
func (s *Server) serveConn(base context.Context, rwc net.Conn) {
	c := newConn(base, s, rwc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		c.leave()
		_ = rwc.Close() // nothing was promised
		return
	}
	s.conns[c] = struct{}{}
	s.watch.add(c)
	go c.serve()
}

// untrack notes that c ends. Its file descriptor is still open.
func (s *Server) untrack(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.remove(c)
	delete(s.conns, c)
	s.settle()
}

func (s *Server) maxHeaderBytes() int {
	if s.MaxHeaderBytes <= 0 {
		return http.DefaultMaxHeaderBytes
	}
	return s.MaxHeaderBytes
}

// headerDeadline is when what a client owes now must have come.
func (s *Server) headerDeadline() time.Time { return after(s.ReadHeaderTimeout) }

// idleDeadline is when a connection without requests ends.
func (s *Server) idleDeadline() time.Time { return after(s.IdleTimeout) }

func after(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

func (s *Server) logf(format string, args ...any) {
	if s.ErrorLog != nil {
		s.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}

// date is the Date field of one second.
type date struct {
	second int64
	field  string
}

// appendDate appends the Date field.
func (s *Server) appendDate(b []byte) []byte {
	now := time.Now()
	d := s.date.Load()
	if d == nil || d.second != now.Unix() {
		d = &date{now.Unix(), now.UTC().Format("Date: " + http.TimeFormat + "\r\n")}
		s.date.Store(d)
	}
	return append(b, d.field...)
}
