// Package app is the composition root: it wires every room into a server, runs it
// and stops it in order. It is the only package that knows all others.
//
// Nothing here decides about a request. What is here is the order of things: what
// opens before what, what an operator is told, and what is still written when
// everything ends.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/upstream"
)

// Options is what the command line decides of a server.
type Options struct {
	// Config is used as it is; flags have already replaced its listen and data.
	Config *config.Config
	// Version is what the linker was told, or empty.
	Version string
	// Stdout gets the facts of a first start, Stderr everything else.
	Stdout, Stderr io.Writer
	// Terminal says that Stderr is one: progress is redrawn in place.
	Terminal bool
	// QuietSecrets prints the path of first-start.json instead of what is in it.
	QuietSecrets bool
	// JSONLog writes log records as JSON, else as text.
	JSONLog bool
	// Debug logs what only a developer wants to know.
	Debug bool

	// upstreams replaces what computes in tests.
	upstreams func(*config.Config, *screen) (*upstreams, error)
	// free replaces the question to the file system in tests.
	free func(dir string) (uint64, error)
	// patience is how long a start and a stop wait for a proof, where tests have less.
	patience time.Duration
}

// ballastBytes is memory that is never touched, so that it takes none: the collector
// counts it when it decides how much garbage is worth a collection. Without it a heap of
// 20 MB, vocabularies mostly, is searched anew after every 20 MB of requests.
const ballastBytes = 64 << 20

// App is a server that has opened everything and serves nobody yet. Run serves;
// Close must be called in any case.
type App struct {
	options   Options
	config    *config.Config
	screen    *screen
	log       *slog.Logger
	started   time.Time
	rooms     *rooms
	upstreams *upstreams
	tls       *tls.Config // nil without
	listener  net.Listener
	operator  net.Listener
	measured  net.Listener        // of the metrics; nil without
	metrics   *telemetry.Metrics  // nil without
	requests  *telemetry.Gatherer // the log's lines of requests
	calls     calls
	base      context.Context         //nolint:containedctx // of all calls, which outlive the one Open was called with
	cutCalls  context.CancelCauseFunc // ends base
	pages     *console.Server
	reject    func(w http.ResponseWriter, status int, reason string)
	limiter   *ratelimit.Limiter
	proofs    proofs
	targets   targets
	hour      telemetry.Hour
	attempts  map[string]*atomic.Int64 // that run, by upstream
	refusals  *refusal.Recorder
	unproved  bool // the books were too large to be proved at the start
	state     atomic.Int32
	cut       chan struct{} // one token: a second signal
	first     *firstStart   // nil on a later start
	ballast   []byte        // never touched
}

// The states of a server as /readyz sees them, in their order.
const (
	starting int32 = iota
	ready
	leaving  // told to stop, still serving: load balancers shall look away
	draining // new calls are refused
)

// Open opens the data directory and the models and takes the address. It prints what
// it finds. Errors are [*Error], [*InUseError] or carry their own sentence.
func Open(ctx context.Context, o Options) (_ *App, err error) {
	if o.upstreams == nil {
		o.upstreams = openUpstreams
	}
	if o.free == nil {
		o.free = freeBytes
	}
	if o.patience == 0 {
		o.patience = patience
	}
	a := &App{
		options: o, config: o.Config, started: time.Now(), cut: make(chan struct{}, 1), proofs: proofs{asked: make(chan struct{}, 1)}, ballast: make([]byte, ballastBytes),
		screen: &screen{out: o.Stdout, err: o.Stderr, terminal: o.Terminal},
		log:    newLog(o),
	}
	a.base, a.cutCalls = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	a.screen.note("parley %s    data %s    %s", Version(a.options.Version), a.config.Data, a.config.Source)
	if err := a.openMetrics(ctx); err != nil {
		return a, err
	}
	if err := a.openBooks(ctx); err != nil {
		return a, err
	}
	if a.tls, err = certificate(a.config.TLS); err != nil {
		return a, err
	}
	if a.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", a.config.Listen); err != nil {
		return a, refuse("listen", "The address "+a.config.Listen+" cannot be used: "+reason(err)+".", "Choose another with --listen.")
	}
	a.listener = &heard{Listener: a.listener, log: a.log}
	if a.upstreams, err = o.upstreams(a.config, a.screen); err != nil {
		return a, err
	}
	a.measureEngines()
	door, err := a.door()
	if err != nil {
		return a, err
	}
	a.calls.Handler, a.reject = api.New(*door), api.Reject(*door)
	if a.pages, err = a.openConsole(door.Log); err != nil {
		return a, err
	}
	if a.operator, err = admin.Listen(a.config.Data); err != nil {
		return a, fmt.Errorf("the operator's socket cannot be opened: %w", err)
	}
	a.first, err = a.beginFirst(ctx)
	return a, err
}

// openBooks opens the data directory and proves its books.
func (a *App) openBooks(ctx context.Context) (err error) {
	dir := a.config.Data
	if err := prepare(dir); err != nil {
		return err
	}
	if free, err := a.options.free(dir); err == nil && free < leastFree {
		return refuse("disk_full", fmt.Sprintf("There is too little space for the books: %s are free on the disk of %s, %s are needed.", english.Bytes(free), dir, english.Bytes(leastFree)), "Make room, then start again.")
	}
	if a.rooms, err = openRooms(ctx, a.config, a.metrics, false); err != nil {
		return err
	}
	r := a.rooms
	age := "opened"
	if r.db.New() {
		age = "new"
		a.metrics.Proof(true, 0, time.Now()) // there is nothing yet that a law could speak of
	}
	a.screen.note("store    SQLite, %s, schema %d", age, r.db.SchemaVersion())
	if kept := r.db.Kept(); kept != "" {
		a.screen.note("kept     %s, the books before the upgrade; delete it when this version has proved itself", kept)
	}
	if !r.db.New() {
		if err := a.proveAtStart(ctx); err != nil {
			return err
		}
	}
	if n := r.recovery; n.Settled+n.Voided > 0 {
		a.screen.note("recovered %s of the last run: %d settled, %d voided", english.Plural(n.Settled+n.Voided, "call"), n.Settled, n.Voided)
	}
	a.strandedPlans()
	return a.openLimits(ctx)
}

// strandedPlans tells of accounts whose plan the configuration has lost: they can use
// nothing, which looks like a fault of theirs.
func (a *App) strandedPlans() {
	lost := make(map[string]int)
	for _, who := range a.rooms.accounts.All() {
		id := who.PlanAt(a.started)
		if _, ok := a.rooms.accounts.Plan(id); !ok {
			lost[id]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lost)) {
		a.screen.note("plans    %s on plan %s, which the configuration does not have: no model for them", english.Plural(lost[id], "account"), id)
	}
}

// door wires the line and returns the configuration of what the public meets.
func (a *App) door() (*api.Config, error) {
	providers := make(map[string]upstream.Provider, len(a.upstreams.providers))
	a.attempts = make(map[string]*atomic.Int64, len(a.upstreams.providers))
	for id, p := range a.upstreams.providers {
		a.attempts[id] = new(atomic.Int64)
		providers[id] = countedProvider{p, id, a.metrics, &a.hour, a.attempts[id]}
	}
	router := routing.New(providers).WithOptions(a.upstreams.options)
	router.Watch(a.targetChanged)
	for _, m := range a.rooms.catalog.List(time.Now()) {
		if err := router.Check(m); err != nil {
			return nil, err
		}
	}
	a.requests = telemetry.NewGatherer(a.options.Stderr)
	a.refusals = refusal.NewRecorder(a.rooms.db, func(err error) { a.log.Warn("refusals not written", "error", err) })
	a.metrics.Dropped(a.refusals.Dropped)
	line := &chat.Service{
		Catalog: a.rooms.catalog, Ledger: a.rooms.ledger, Limiter: a.limiter,
		Router: countedRouter{router, a.metrics}, Describe: api.Describe,
	}
	door := &api.Config{
		Chat:    countedCalls{line, a.metrics},
		Keys:    a.rooms.keys,
		Catalog: a.rooms.catalog,
		Limiter: a.limiter,
		Proxies: a.config.TrustedProxies,
		Ready:   a.ready,
		Draining: func() bool {
			return a.state.Load() >= draining
		},
		Log:         telemetry.NewLines(a.requests, a.options.JSONLog),
		Idempotency: a.rooms.repeats,
		Base:        a.base,
		Refused:     a.refusals.Add,
		Observe:     observe(a.metrics, &a.hour),
	}
	if a.rooms.payments != nil {
		door.Payments = a.rooms.payments
	}
	return door, nil
}

// certificate reads what the configuration names; nil when it names nothing.
func certificate(t config.TLS) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, refuse("tls", "The certificate "+t.Cert+" cannot be used with the key "+t.Key+": "+err.Error()+".")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// ready is what /readyz says.
func (a *App) ready() error {
	switch a.state.Load() {
	case starting:
		return errors.New("starting")
	case ready:
		return a.rooms.ledger.Available()
	default:
		return errors.New("stopping")
	}
}

// status is what the operator's API says of this process.
func (a *App) status() admin.Status {
	state := a.state.Load()
	return admin.Status{
		Version: Version(a.options.Version), PID: os.Getpid(), Serving: state == ready || state == leaving, Draining: state >= leaving,
		URL: a.URL(), Console: a.publicURL().String(), StartedAt: a.started.UTC(), Schema: a.rooms.db.SchemaVersion(),
	}
}

// URL is where customers reach the server, with the port that was really taken.
func (a *App) URL() string {
	scheme := "http"
	if a.tls != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(a.listener.Addr().String())
	if err != nil {
		return scheme + "://" + a.listener.Addr().String()
	}
	// All addresses are no address to send a request to.
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Close lets everything go that Open has taken. It waits until what is queued for the
// books is written.
func (a *App) Close() error {
	var errs []error
	if a.requests != nil {
		a.requests.Flush()
	}
	a.cutCalls(nil)
	if a.listener != nil {
		errs = append(errs, closed(a.listener))
	}
	if a.operator != nil {
		errs = append(errs, closed(a.operator), admin.Remove(a.config.Data))
	}
	if a.measured != nil {
		errs = append(errs, closed(a.measured))
	}
	if a.upstreams != nil {
		errs = append(errs, a.upstreams.close())
	}
	if a.rooms != nil {
		errs = append(errs, a.rooms.close())
	}
	a.listener, a.operator, a.measured, a.upstreams, a.rooms = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// closed closes l, which its server may have closed before.
func closed(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// reason is the last words of a network error, without the address that stands before.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return err.Error()
}
