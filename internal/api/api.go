// Package api is the public door: it turns HTTP into calls and answers, and errors
// into the envelope of the convention. routes.go is the whole surface.
package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/wire"
)

// Completer answers chats; [chat.Service] is one.
type Completer interface {
	Complete(ctx context.Context, c chat.Call, emit chat.Emitter) (chat.Summary, error)
}

// Authenticator says who presents the values of an Authorization header.
type Authenticator interface {
	Authenticate(values []string, now time.Time) (*account.Principal, error)
}

// Config is what the door opens to. All fields but Proxies, Refused and Observe are required.
type Config struct {
	Chat    Completer
	Keys    Authenticator
	Catalog *catalog.Catalog
	Limiter *ratelimit.Limiter
	// Ready is nil while calls can be served, else why not, in words for an operator.
	Ready func() error
	// Draining reports whether new calls are refused because the server stops.
	Draining func() bool
	// Log gets one line a request.
	Log *telemetry.Lines
	// Proxies are the networks whose X-Forwarded-For is believed.
	Proxies []netip.Prefix
	// Payments takes what the payment provider tells; nil where there is none.
	Payments payments
	// Idempotency is who knows the calls that have a key of their own.
	Idempotency *idempotency.Room
	// Base ends when every call is cut, whoever waits for it.
	Base context.Context //nolint:containedctx // the life of the server, which is longer than any request's
	// Refused is told of every call that was refused or failed before it was admitted; nil
	// tells nobody. It must be quick.
	Refused func(refusal.Record)
	// Observe is told of every request at its end; nil tells nobody. It must be quick.
	Observe func(Observation)
}

const (
	// writeTimeout bounds how long one write may wait for a reader that does not read.
	writeTimeout = 30 * time.Second
	// hurriedTimeout is the bound for an answer that is broken off, and for its last word.
	hurriedTimeout = time.Second
)

type server struct {
	Config
	routes []route
	memory *bodyMemory
	common http.Header // of every answer; its values are never changed
}

// New returns the handler of all public paths.
func New(c Config) http.Handler {
	return &server{Config: c, routes: routes(), memory: newBodyMemory(), common: common()}
}

// exchange is one request and what is known of its answer.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	id     string // of the request, in the header x-request-id
	now    time.Time
	route  string
	status int // of the answer, once it has begun
	caller *account.Principal
	stream bool
	call   chat.Summary
	err    error
	model  string
	// maxTokens is what the caller asked for; 0 without.
	maxTokens int

	limited bool        // the headers of the limits are set
	hurried atomic.Bool // the answer is broken off

	values []string // of headers, in room at first
	room   [8]string
}

// ServeHTTP answers one request, whatever it is, and logs one line about it.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r, id: ident.RequestID(), now: time.Now(), route: "unknown"}
	s.begin(x)
	defer s.close(x)
	if r.Method == http.MethodOptions {
		x.route = "preflight"
		x.preflight()
		return
	}
	route, rest, err := s.match(r)
	if err == nil {
		x.route = route.name
		err = route.serve(s, x, rest)
	}
	s.answer(x, err)
}

// begin sets the headers of every answer.
func (s *server) begin(x *exchange) {
	x.values = x.room[:0]
	x.set("X-Request-Id", x.id)
	maps.Copy(x.w.Header(), s.common)
}

// set makes value the only one of a header, whose name is canonical. Each answer has some
// of its own: their memory is the exchange's.
func (x *exchange) set(name, value string) {
	x.values = append(x.values, value)
	n := len(x.values)
	x.w.Header()[name] = x.values[n-1 : n : n]
}

// answer tells the caller about err, where there still is a way to.
func (s *server) answer(x *exchange, err error) {
	x.err = err
	switch {
	case err == nil:
	case errors.Is(err, chat.ErrClientGone):
		// Nobody is there. The connection must not end as if the answer were whole.
		panic(http.ErrAbortHandler)
	case x.status != 0:
		x.breakOff(toWire(err))
		panic(http.ErrAbortHandler)
	default:
		s.peek(x)
		x.fail(toWire(err))
	}
}

// close logs the request and answers a panic. The answer of a request that panicked
// before its first byte is 500.
func (s *server) close(x *exchange) {
	p := recover()
	if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
		x.err = &panicError{value: p}
		if x.status == 0 {
			x.fail(wire.Internal())
			p = nil
		} else {
			x.breakOff(wire.Internal())
			p = http.ErrAbortHandler
		}
	}
	s.log(x)
	s.observe(x)
	s.refused(x)
	if p != nil {
		panic(p)
	}
}

// Values of headers that many answers have; nobody changes them.
var (
	typeJSON = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// json sends a whole answer.
func (x *exchange) json(status int, body []byte) error {
	h := x.w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	x.set("Content-Length", strconv.Itoa(len(body)))
	x.writeBy(writeTimeout)
	x.status = status
	x.w.WriteHeader(status)
	if _, err := x.w.Write(body); err != nil {
		return fmt.Errorf("%w: %w", chat.ErrClientGone, err)
	}
	return nil
}

// writeBy bounds how long the next writes may take.
func (x *exchange) writeBy(d time.Duration) {
	rc := http.NewResponseController(x.w)
	// A writer without deadlines, as in some tests, is no reason to fail.
	_ = rc.SetWriteDeadline(time.Now().Add(d))
	if x.hurried.Load() && d > hurriedTimeout { // Hurry may have come before
		_ = rc.SetWriteDeadline(time.Now().Add(hurriedTimeout))
	}
}

// Hurry shortens the wait for a reader, of the write that is under way and of all later.
func (x *exchange) Hurry() {
	x.hurried.Store(true)
	x.writeBy(hurriedTimeout)
}

// fail sends an error as the whole answer.
func (x *exchange) fail(e *wire.Error) {
	h := x.w.Header()
	for _, f := range e.Header {
		h.Set(f.Name, f.Value)
	}
	_ = x.json(e.Status, e.AppendJSON(nil)) // who does not read an error is not told of one
}
