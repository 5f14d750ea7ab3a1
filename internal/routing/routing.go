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
	// that it has tried before, in all.
	Retries int
}

// Router sends calls to providers. It is safe for concurrent use.
type Router struct {
	providers map[string]upstream.Provider // by upstream id
	options   map[string]Options
}

// New returns a router over the providers by the ids of their upstreams. Every target
// of a model that is routed must name one of them.
func New(providers map[string]upstream.Provider) *Router { return &Router{providers: providers} }

// WithOptions returns a router over the same providers with options by upstream id.
// An upstream that options leave out has none.
func (r *Router) WithOptions(options map[string]Options) *Router {
	return &Router{providers: r.providers, options: options}
}

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
// better are tried again, as often as their upstreams allow, after a short wait. After
// the first event, or when ctx has ended, a failure is the call's, and so is
// [*upstream.Rejected] at any time. Targets that cannot do what the request asks for are left out, but for the first. A
// call that ends while it waits between two attempts ends with
// [upstream.ErrNotStarted].
func (r *Router) Generate(ctx context.Context, m *catalog.Model, call *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error) {
	var route upstream.Route
	call.Window = m.ContextWindow
	begun := false
	watched := func(e upstream.Event) error {
		begun = true
		return yield(e)
	}
	spent := map[string]int{} // further attempts by upstream
	may := func(t catalog.Target) bool { return spent[t.Upstream] < r.options[t.Upstream].Retries }
	var last error
	for round, targets := 0, r.able(m, call.Request); ; round++ {
		var again []catalog.Target
		var wait time.Duration
		for _, t := range targets {
			if round > 0 {
				// An earlier target of this round may have taken the last one.
				if !may(t) {
					continue
				}
				spent[t.Upstream]++
			}
			route.Target = t.String()
			route.Attempts++
			call.Model = t.Model
			err := r.providers[t.Upstream].Generate(ctx, call, watched)
			failure, failed := errors.AsType[*upstream.Failure](err)
			if !failed || begun || ctx.Err() != nil {
				return route, err
			}
			last = err
			if failure.Retryable && failure.RetryAfter <= maxWait {
				again = append(again, t)
				wait = max(wait, failure.RetryAfter)
			}
		}
		if !slices.ContainsFunc(again, may) {
			return route, last
		}
		targets = again
		if err := pause(ctx, max(wait, backoff(round))); err != nil {
			return route, err
		}
	}
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
