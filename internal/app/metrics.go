package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/webhook"
)

// Rooms know nothing of metrics. What is measured stands around them: each type here
// is a room's interface that counts and passes on. With nil metrics they only pass on.

// openMetrics takes the address of the metrics, where the configuration has one.
func (a *App) openMetrics(ctx context.Context) (err error) {
	address := a.config.Metrics.Listen
	if address == "" {
		return nil
	}
	if a.measured, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err != nil {
		return refuse("metrics_listen", "The address "+address+" of the metrics cannot be used: "+reason(err)+".", "Choose another as metrics.listen in the configuration.")
	}
	a.metrics = telemetry.New(Version(a.options.Version))
	a.metrics.Ready(func() bool { return a.ready() == nil })
	a.screen.note("metrics  http://%s/metrics", a.measured.Addr())
	return nil
}

// metricsDoor serves the metrics under the one path where they are looked for.
func metricsDoor(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return mux
}

// observe counts the end of a request.
func observe(m *telemetry.Metrics, hour *telemetry.Hour) func(api.Observation) {
	return func(o api.Observation) {
		u := o.Call.Usage
		if o.Route == "chat.completions" {
			upstreamID, _, _ := strings.Cut(o.Call.Target, "/")
			hour.Call(time.Now(), telemetry.Ended{
				Model: o.Model, Upstream: upstreamID, End: endOf(o), Prompt: u.PromptTokens, Completion: u.CompletionTokens,
				Charged: int64(o.Call.Charge), FirstToken: o.Call.FirstToken,
			})
		}
		m.Request(telemetry.Request{
			Route: o.Route, Model: o.Model, Stream: o.Stream, Status: o.Status, Code: o.Code, Took: o.Took, FirstToken: o.Call.FirstToken,
			Prompt: u.PromptTokens, Cached: u.CachedTokens, Completion: u.CompletionTokens, Charged: float64(o.Call.Charge) / float64(money.IU),
		})
	}
}

// endOf is how a call ended, as its receipt and its refusal have it.
func endOf(o api.Observation) telemetry.End {
	r := ledger.Receipt{Ending: o.Call.Ending, Status: o.Status}
	if o.Status >= http.StatusBadRequest {
		r.State = ledger.Voided
	}
	switch class := r.Class(); {
	case class == ledger.Left, o.Status == statusClientGone:
		return telemetry.Left
	case class == ledger.Failed, o.Status >= http.StatusInternalServerError:
		return telemetry.Failed
	case class == ledger.Refused:
		return telemetry.Refused
	}
	return telemetry.Answered
}

// statusClientGone is what the log says of a call whose caller left before it was answered.
const statusClientGone = 499

// countedCalls counts the calls under way.
type countedCalls struct {
	api.Completer
	metrics *telemetry.Metrics
}

func (c countedCalls) Complete(ctx context.Context, call chat.Call, emit chat.Emitter) (chat.Summary, error) {
	c.metrics.Running(call.Request.Stream, 1)
	defer c.metrics.Running(call.Request.Stream, -1)
	return c.Completer.Complete(ctx, call, emit)
}

// countedRouter counts what is tried again.
type countedRouter struct {
	chat.Router
	metrics *telemetry.Metrics
}

func (c countedRouter) Generate(ctx context.Context, m *catalog.Model, call *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error) {
	route, err := c.Router.Generate(ctx, m, call, yield)
	c.metrics.Retries(m.ID, route.Attempts-1)
	return route, err
}

// countedProvider counts the attempts at one upstream.
type countedProvider struct {
	upstream.Provider
	id      string
	metrics *telemetry.Metrics
	hour    *telemetry.Hour
	running *atomic.Int64
}

func (c countedProvider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	begin, first := time.Now(), time.Duration(0)
	c.running.Add(1)
	defer c.running.Add(-1)
	err := c.Provider.Generate(ctx, call, func(e upstream.Event) error {
		if first == 0 {
			first = time.Since(begin)
		}
		return yield(e)
	})
	end := outcome(err)
	c.metrics.Attempt(c.id, end, first)
	c.hour.Attempt(time.Now(), c.id, attemptEnd(end), first)
	return err
}

// attemptEnd is what an outcome means for the upstream.
func attemptEnd(outcome string) telemetry.End {
	switch outcome {
	case attemptOK:
		return telemetry.Answered
	case attemptRejected:
		return telemetry.Refused
	case attemptAbandoned:
		return telemetry.Left
	}
	return telemetry.Failed
}

// Outcomes that are no class of failure.
const (
	attemptOK        = "ok"
	attemptRejected  = "rejected"
	attemptAbandoned = "abandoned"
)

// outcome is how an attempt ended: ok, a class of failure, rejected for a fault of the
// caller's, or abandoned by whoever waited for it.
func outcome(err error) string {
	if err == nil {
		return attemptOK
	}
	if f, ok := errors.AsType[*upstream.Failure](err); ok {
		return string(f.Class)
	}
	if _, ok := errors.AsType[*upstream.Rejected](err); ok {
		return attemptRejected
	}
	return attemptAbandoned
}

// countedBooks counts the transactions of the ledger.
type countedBooks struct {
	ledger.Store
	metrics *telemetry.Metrics
}

func (c countedBooks) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	begin := time.Now()
	results, err := c.Store.Commit(ctx, ops)
	c.metrics.Commit(len(ops), time.Since(begin), err != nil)
	return results, err
}

// countedOutbox counts events that no endpoint will have.
type countedOutbox struct {
	webhook.Store
	metrics *telemetry.Metrics
}

func (c countedOutbox) ForgetEvents(ctx context.Context, ended, waiting time.Time, most int) (int, []webhook.Lost, error) {
	n, lost, err := c.Store.ForgetEvents(ctx, ended, waiting, most)
	for _, l := range lost {
		c.metrics.EventsLost(l.Address, l.Events)
	}
	return n, lost, err
}

// countedKeys counts revocations.
type countedKeys struct {
	*apikey.Keyring
	metrics *telemetry.Metrics
}

func (c countedKeys) Revoke(ctx context.Context, id string) (apikey.Key, error) {
	before, known := c.Find(id)
	k, err := c.Keyring.Revoke(ctx, id)
	if err == nil && known && before.RevokedAt.IsZero() {
		c.metrics.Revoked("key")
	}
	return k, err
}

// countedAccounts counts suspensions.
type countedAccounts struct {
	*account.Directory
	metrics *telemetry.Metrics
}

func (c countedAccounts) Change(ctx context.Context, id string, change account.Change) (*account.Account, error) {
	before, known := c.ByID(id)
	a, err := c.Directory.Change(ctx, id, change)
	if err == nil && known && before.Status != account.Suspended && a.Status == account.Suspended {
		c.metrics.Revoked("account")
	}
	return a, err
}

// measureEngines tells of the embedded engines at every scrape.
func (a *App) measureEngines() {
	a.metrics.Engines(func() map[string]telemetry.Engine {
		all := make(map[string]telemetry.Engine, len(a.upstreams.engines))
		for id, e := range a.upstreams.engines {
			s := e.Stats()
			all[id] = telemetry.Engine{
				Running: s.Running, Places: s.Places, Waiting: s.Waiting,
				PagesUsed: s.PagesUsed, PagesCached: s.PagesCached, PagesTotal: s.PagesTotal,
				Generated: s.Tokens, Prompt: s.PromptTokens, PrefixQueries: s.PrefixQueries, PrefixHits: s.PrefixHits,
				Preempted: s.Preempted, Steps: s.Steps, Busy: s.Busy, TokensPerSecond: s.TokensPerSecond,
				QueueTime: durations(s.QueueTime), FirstToken: durations(s.FirstToken),
			}
		}
		return all
	})
}

func durations(h engine.Histogram) telemetry.Histogram {
	bounds := engine.Buckets()
	return telemetry.Histogram{Bounds: bounds[:], Counts: h.Counts[:], Count: h.Count, Sum: h.Sum}
}
