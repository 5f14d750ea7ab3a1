package app

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/httpserver"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/webhook"
)

// Settings of the public server.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// What was cut has this long to be charged. Cutting is felt within one token.
	cutTimeout = 10 * time.Second
)

// calls counts the requests that can cost something, so that a stop can say what it
// waits for.
type calls struct {
	http.Handler
	running atomic.Int64
	ended   atomic.Int64
}

func (c *calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.running.Add(1)
		defer func() {
			c.running.Add(-1)
			c.ended.Add(1)
		}()
	}
	c.Handler.ServeHTTP(w, r)
}

// Run serves until ctx ends, then stops in order: running calls may finish within the
// configured limit or until [App.Cut]. It returns nil after an orderly stop.
func (a *App) Run(ctx context.Context) error {
	// Calls outlive ctx: they end by themselves, or are cut with the reason.
	base, cutCalls := a.base, a.cutCalls
	defer cutCalls(nil)
	rest, endRest := context.WithCancel(context.WithoutCancel(ctx))
	public, servePublic := a.public(base)
	operator := a.server(rest, a.rooms.api(a.status, a.upstreams.load))
	failed := make(chan error, 3)
	var group sync.WaitGroup
	defer group.Wait()
	defer endRest()
	group.Go(func() { failed <- servePublic() })
	group.Go(func() { failed <- operator.Serve(a.operator) })
	if a.measured != nil {
		measured := a.server(rest, metricsDoor(a.metrics.Handler()))
		group.Go(func() { failed <- measured.Serve(a.measured) })
		// A scrape that is under way reads what is closed next.
		defer func() { _ = end(context.WithoutCancel(ctx), measured) }()
	}
	group.Go(func() { a.watchDisk(rest) })
	group.Go(func() { a.sweepLimits(rest) })
	group.Go(func() { a.expireCredit(rest) })
	group.Go(func() { a.turnPeriods(rest) })
	group.Go(func() { a.proveBooks(rest) })
	group.Go(func() { a.sweepKeys(rest) })
	if hooks := endpoints(a.config); len(hooks) > 0 {
		group.Go(func() { webhook.New(countedOutbox{a.rooms.db, a.metrics}, hooks, a.log).Run(rest) })
	}
	group.Go(func() { a.refusals.Run(rest) })
	group.Go(func() {
		if err := a.rooms.keys.Run(rest); err != nil && rest.Err() == nil {
			a.log.Warn("key use not noted", "error", err)
		}
	})
	defer operator.Close()
	if err := a.announce(); err != nil {
		return errors.Join(err, public.Close())
	}
	select {
	case <-ctx.Done():
		return a.stop(context.WithoutCancel(ctx), public, cutCalls)
	case <-a.rooms.ledger.Failed():
		err := a.rooms.ledger.Err()
		a.state.Store(draining)
		cutCalls(fmt.Errorf("%w: %w", ledger.ErrUnavailable, err))
		return errors.Join(refuse("ledger_failed",
			"The books could not be written: "+err.Error()+".",
			"Parley has stopped, because nothing may be served that is not in the books.",
			"See to the disk of "+a.config.Data+", then start again."), end(ctx, public))
	case err := <-failed:
		cutCalls(chat.ErrShutdown)
		return errors.Join(fmt.Errorf("the server has failed: %w", err), end(ctx, public))
	}
}

// server is what Run needs of a server once it serves.
type server interface {
	Shutdown(ctx context.Context) error
	Close() error
}

// public makes the server of the public door. HTTP/2, which TLS brings, is net/http's.
func (a *App) public(ctx context.Context) (s server, serve func() error) {
	if a.tls != nil {
		s := a.server(ctx, a.front())
		s.TLSConfig = a.tls
		return s, func() error { return s.ServeTLS(a.listener, "", "") }
	}
	own := &httpserver.Server{
		Handler:           a.front(),
		Reject:            a.reject,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          a.quietLog(),
	}
	return own, func() error { return own.Serve(a.listener) }
}

func (a *App) server(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes - 4096, // which net/http adds
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          a.quietLog(),
	}
}

// quietLog is for clients' broken handshakes and the like.
func (a *App) quietLog() *log.Logger { return slog.NewLogLogger(a.log.Handler(), slog.LevelDebug) }

// announce tells that the server is ready, after the facts of a first start.
func (a *App) announce() error {
	if a.first != nil {
		if err := a.first.tell(a); err != nil {
			return err
		}
	}
	a.state.Store(ready)
	a.screen.note("Ready on %s after %s. Ctrl+C lets running calls finish.", a.URL(), seconds(time.Since(a.started)))
	return nil
}

// Cut ends the calls that a stopping server still waits for. They are charged for
// what was delivered.
func (a *App) Cut() {
	select {
	case a.cut <- struct{}{}:
	default:
	}
}

// stop drains the server: first only /readyz tells of it, then new calls are refused.
func (a *App) stop(ctx context.Context, public server, cutCalls context.CancelCauseFunc) error {
	d := a.config.Drain
	before, running := a.calls.ended.Load(), a.calls.running.Load()
	a.state.Store(leaving)
	if running == 0 && d.Delay == 0 {
		a.screen.note("Stopping: no calls running.")
	} else {
		a.screen.note("Stopping: %s running, up to %s. Ctrl+C again cuts them.", english.Plural(running, "call"), minutes(d.Delay+d.Limit))
	}

	impatient, give := context.WithCancel(ctx)
	defer give()
	go func() {
		select {
		case <-a.cut:
			give()
		case <-impatient.Done():
		}
	}()
	wait(impatient, d.Delay)
	a.state.Store(draining)
	patient, done := context.WithTimeout(impatient, d.Limit)
	err := public.Shutdown(patient)
	done()
	if err != nil {
		cutCalls(chat.ErrShutdown)
		err = end(ctx, public)
	}
	a.requests.Flush() // before what is told next
	settled := english.Plural(int(a.calls.ended.Load()-before), "call") + " settled"
	if err != nil {
		return fmt.Errorf("calls did not end when they were cut: %w", err)
	}
	report, proved, err := a.proveWithin(ctx)
	switch {
	case err != nil:
		return err
	case !proved && !a.knownBroken(ctx):
		a.screen.note("Stopped. %s; the books were %s.", settled, a.lastProof(ctx))
		return nil
	case !proved || !report.OK():
		return refuse("not_balanced", "Stopped. "+settled+", but the books are not balanced.", "What is wrong says:", "  parley ledger verify --data "+a.config.Data)
	}
	a.screen.note("Stopped. %s, books balanced.", settled)
	return nil
}

// end waits for calls that have been cut.
func end(ctx context.Context, s server) error {
	last, done := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
	defer done()
	return errors.Join(s.Shutdown(last), s.Close())
}

// wait lets d pass, or less when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
