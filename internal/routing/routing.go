// Package routing finds a provider for a model: its targets are tried in order until
// one begins to answer.
package routing

import (
	"context"
	"errors"
	"fmt"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// Router sends calls to providers. It is safe for concurrent use.
type Router struct {
	providers map[string]upstream.Provider // by upstream id
}

// New returns a router over the providers by the ids of their upstreams. Every target
// of a model that is routed must name one of them.
func New(providers map[string]upstream.Provider) *Router { return &Router{providers: providers} }

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
func (r *Router) CountPrompt(m *catalog.Model, req *wire.ChatRequest, limit int) (int, bool, error) {
	return r.providers[m.Targets[0].Upstream].CountPrompt(req, limit)
}

// Capabilities is what the model's first target can do.
func (r *Router) Capabilities(m *catalog.Model) wire.Capabilities {
	t := m.Targets[0]
	return r.providers[t.Upstream].Capabilities(t.Model)
}

// Generate computes the answer at the first target that begins one. A target that
// fails before its first event is passed over; after it, or when ctx has ended, its
// failure is the call's.
func (r *Router) Generate(ctx context.Context, m *catalog.Model, call *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error) {
	var (
		route upstream.Route
		begun bool
		err   error
	)
	for _, t := range m.Targets {
		route.Target = t.String()
		route.Attempts++
		call.Model = t.Model
		err = r.providers[t.Upstream].Generate(ctx, call, func(e upstream.Event) error {
			begun = true
			return yield(e)
		})
		if _, failed := errors.AsType[*upstream.Failure](err); !failed || begun || ctx.Err() != nil {
			break
		}
	}
	return route, err
}
