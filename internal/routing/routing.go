// Package routing finds a provider for a model: its targets are tried in order until
// one begins to answer.
package routing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// Options say how an upstream is used. The zero value tries every target once.
type Options struct {
	// Retries is how many further attempts a call makes at targets of this upstream
	// that it has tried before, in all, as long as the upstream's budget allows them.
	Retries int
}

// Router sends calls to providers. It is safe for concurrent use.
type Router struct {
	providers map[string]upstream.Provider // by upstream id
	options   map[string]Options
	budgets   map[string]*budget // by upstream id
	health    *health
}

// New returns a router over the providers by the ids of their upstreams. Every target
// of a model that is routed must name one of them.
func New(providers map[string]upstream.Provider) *Router {
	r := &Router{
		providers: providers, budgets: make(map[string]*budget, len(providers)),
		health: &health{changed: func(Change) {}, targets: map[catalog.Target]*state{}},
	}
	for id := range providers {
		r.budgets[id] = &budget{}
	}
	return r
}

// WithOptions returns a router over the same providers with options by upstream id.
// An upstream that options leave out has none.
func (r *Router) WithOptions(options map[string]Options) *Router {
	same := New(r.providers)
	same.options, same.health.changed = options, r.health.changed
	return same
}

// Watch makes f hear of each target that is ejected and that serves again. It is called
// before the first call; f must be quick and not call the router.
func (r *Router) Watch(f func(Change)) { r.health.changed = f }

// ErrUpstream means a target whose upstream does not exist.
var ErrUpstream = errors.New("no such upstream")

// Check fails with [ErrUpstream] when a target of m has no provider.
func (r *Router) Check(m *catalog.Model) error {
	for _, t := range m.Targets {
		if r.providers[t.Upstream] == nil {
			return fmt.Errorf("model %s: %w: %s", m.ID, ErrUpstream, t.Upstream)
		}
	}
	return nil
}

// CountPrompt counts the prompt as the model's first target does.
func (r *Router) CountPrompt(m *catalog.Model, req *wire.ChatRequest, limit int) (upstream.Prompt, error) {
	return r.providers[m.Targets[0].Upstream].CountPrompt(req, limit)
}

// Capabilities is what the model's first target can do.
func (r *Router) Capabilities(m *catalog.Model) wire.Capabilities {
	t := m.Targets[0]
	return r.providers[t.Upstream].Capabilities(t.Model)
}

// Generate computes the answer at the first target that begins one. A target that
// fails before its first event is passed over; when all have failed, those that may do
// better are tried again, as often as their upstreams and their budgets allow, after a
// short wait, but not when two minutes have passed. A target that fails call after call is ejected: it comes last, and only
// within the budget, until it serves again; where all are, the first is tried. After the first
// event, or when ctx has ended, a failure is the call's, and so is [*upstream.Rejected] that
// no failure wraps at any time. Where all targets fail that is the last failure, but a
// refusal of the request only where all refuse it, and one with [*upstream.Rejected] if any
// is. Targets that cannot do what the request asks for are left out, but for the
// first. A call that ends while it waits between two attempts ends with
// [upstream.ErrNotStarted].
func (r *Router) Generate(ctx context.Context, m *catalog.Model, call *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error) {
	call.Window = m.ContextWindow
	begun := false
	watched := func(e upstream.Event) error {
		begun = true
		return yield(e)
	}
	var route upstream.Route
	spent := map[string]int{} // further attempts by upstream
	may := func(t catalog.Target) bool { return spent[t.Upstream] < r.options[t.Upstream].Retries }
	var last error
	start := time.Now()
	now := start
	targets, further := r.order(r.able(m, call.Request), now)
	for round := 0; ; round++ {
		var again []catalog.Target
		var wait time.Duration
		for i, t := range targets {
			if round > 0 && !may(t) {
				continue // an earlier target of this round has taken the last one
			}
			if !r.pay(t, round > 0 || i >= len(targets)-further, now) {
				continue
			}
			if round > 0 {
				spent[t.Upstream]++
			}
			route.Target = t.String()
			route.Attempts++
			call.Model = t.Model
			err := r.providers[t.Upstream].Generate(ctx, call, watched)
			failure, failed := errors.AsType[*upstream.Failure](err)
			if now = time.Now(); ctx.Err() == nil {
				r.health.note(t, failure, now)
			}
			if !failed || begun || ctx.Err() != nil {
				return route, err
			}
			last = weightier(last, err)
			if failure.Retryable && failure.RetryAfter <= maxWait {
				again = append(again, t)
				wait = max(wait, failure.RetryAfter)
			}
		}
		if now.Sub(start) >= patience || !slices.ContainsFunc(again, func(t catalog.Target) bool { return may(t) && r.budgets[t.Upstream].left(now) }) {
			return route, last
		}
		targets, further = again, 0
		if err := pause(ctx, max(wait, backoff(round))); err != nil {
			return route, err
		}
		now = time.Now()
	}
}

// weightier is the one of two failures, of which b is the later, that a call ends with. A
// target in trouble might have taken what another refuses, so it is no caller's fault yet;
// and a refusal that names its reason says more than one that does not.
func weightier(a, b error) error {
	weight := func(err error) int {
		if _, named := errors.AsType[*upstream.Rejected](err); named {
			return 1
		}
		if f, ok := errors.AsType[*upstream.Failure](err); !ok || f.Class == upstream.Refused {
			return 0
		}
		return 2
	}
	if a != nil && weight(a) > weight(b) {
		return a
	}
	return b
}

// order puts the targets that are ejected behind the others, and says how many of the last
// are tried within the budget only. Where all are ejected the first is tried like one that
// is not: they may be well again.
func (r *Router) order(targets []catalog.Target, now time.Time) (ordered []catalog.Target, further int) {
	var out []catalog.Target
	for i, t := range targets {
		switch {
		case !r.health.serves(t, now):
			if out == nil {
				ordered = slices.Clone(targets[:i])
			}
			out = append(out, t)
		case out != nil:
			ordered = append(ordered, t)
		}
	}
	switch {
	case out == nil:
		return targets, 0
	case len(ordered) == 0:
		return targets, len(targets) - 1
	}
	return append(ordered, out...), len(out)
}

// pay counts an attempt at t. One that is further is refused without a budget.
func (r *Router) pay(t catalog.Target, further bool, now time.Time) bool {
	b := r.budgets[t.Upstream]
	if further {
		return b.take(now)
	}
	b.call(now)
	return true
}

// able returns the targets that a request may go to. The first can do what it asks
// for, or it would not have been admitted.
func (r *Router) able(m *catalog.Model, req *wire.ChatRequest) []catalog.Target {
	targets := m.Targets[:1:1]
	for _, t := range m.Targets[1:] {
		if req == nil || wire.Supports(req, r.providers[t.Upstream].Capabilities(t.Model)) == nil {
			targets = append(targets, t)
		}
	}
	return targets
}

const (
	// The first wait is up to 100 ms, the later ones up to 500: together they stay
	// below what a person notices.
	minWait   = 50 * time.Millisecond
	firstWait = 100 * time.Millisecond
	lastWait  = 500 * time.Millisecond
	// patience is how long callers wait for a first byte: later no target is tried again.
	patience = 2 * time.Minute
	// maxWait is how long a caller is kept waiting because a provider asks for it.
	maxWait = 2 * time.Second
)

// backoff is how long to wait after a round of attempts: a random time, so that calls
// that failed together do not come back together.
func backoff(round int) time.Duration {
	ceiling := min(firstWait<<min(round, 8), lastWait)
	return minWait + rand.N(ceiling-minWait+1)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(upstream.ErrNotStarted, context.Cause(ctx))
	}
}
