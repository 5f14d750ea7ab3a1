package httpserver

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Shutdown closes the listeners and the idle connections and waits for the others:
// requests that run, and those that their connections still bring, are answered with
// "Connection: close". It returns ctx's error when that ends first, and may be called
// again.
func (s *Server) Shutdown(ctx context.Context) error {
	if standard := s.stop(); standard != nil {
		return standard.Shutdown(ctx)
	}
	s.mu.Lock()
	for c := range s.conns {
		c.dismiss()
	}
	quiet := s.quiet
	s.mu.Unlock()
	if quiet == nil {
		return nil
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the listeners and all connections and ends the contexts of all requests.
// It does not wait for their handlers.
func (s *Server) Close() error {
	if standard := s.stop(); standard != nil {
		return standard.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.leave()
		_ = c.rwc.Close() // its goroutine finds out
	}
	return nil
}

// stop closes the listeners, once, and returns the server that stands in, if one does.
func (s *Server) stop() *http.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Swap(true) || s.open == nil {
		return s.standard
	}
	for l := range s.open {
		_ = l.Close() // Accept says so
	}
	close(s.stopped)
	s.settle()
	return s.standard
}

// settle notes when a stopping server has no connection left. s.mu is held.
func (s *Server) settle() {
	if s.stopping.Load() && len(s.conns) == 0 {
		s.watch.close()
		close(s.quiet)
	}
}

// dismiss closes c if it is idle. One that has brought no request yet has a moment more.
func (c *conn) dismiss() {
	if c.state.CompareAndSwap(idle, cut) {
		_ = c.rwc.Close() // its goroutine finds out
		return
	}
	// A dead connection is seen when it is read.
	_ = c.readBy.setIf(func() bool { return c.state.Load() == fresh }, time.Now().Add(freshGrace))
}

// serveStandard serves l with net/http.
func (s *Server) serveStandard(l net.Listener) error {
	s.mu.Lock()
	if s.stopping.Load() {
		s.mu.Unlock()
		_ = l.Close() // nothing was promised
		return http.ErrServerClosed
	}
	if s.standard == nil {
		s.standard = &http.Server{
			Handler: s.Handler, ReadHeaderTimeout: s.ReadHeaderTimeout, IdleTimeout: s.IdleTimeout,
			// net/http adds 4096 to what it is told.
			MaxHeaderBytes: max(s.maxHeaderBytes()-4096, 1), BaseContext: s.BaseContext, ErrorLog: s.ErrorLog,
		}
	}
	standard := s.standard
	s.mu.Unlock()
	return standard.Serve(l)
}
