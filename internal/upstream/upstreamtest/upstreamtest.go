// Package upstreamtest is a provider that does what a test tells it to.
//
// A script is a list of steps; nothing in it waits for time:
//
//	p := upstreamtest.New(upstreamtest.Text("Hel", "lo"), upstreamtest.Finish(wire.FinishStop))
package upstreamtest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// Fingerprint is that of every event.
const Fingerprint = "fp_0123456789"

// ErrScript is the error inside a scripted failure. Its text must reach no client.
var ErrScript = errors.New("secret words of the provider: rate limit, invalid_request_error")

// Provider plays a script for every call. Its fields are set before its first use; it
// is safe for concurrent use.
type Provider struct {
	Script []Step
	// Choose, if set, gives the script of a call instead.
	Choose func(*upstream.Call) []Step
	// Prompt counts prompts; nil counts 10 exact tokens.
	Prompt func(*wire.ChatRequest, int) (n int, exact bool, err error)
	Can    wire.Capabilities

	mu    sync.Mutex
	calls []upstream.Call
}

var _ upstream.Provider = (*Provider)(nil)

// New returns a provider that plays the steps for every call.
func New(steps ...Step) *Provider { return &Provider{Script: steps} }

// CountPrompt asks Prompt.
func (p *Provider) CountPrompt(req *wire.ChatRequest, limit int) (int, bool, error) {
	if p.Prompt == nil {
		return 10, true, nil
	}
	return p.Prompt(req, limit)
}

// Capabilities returns Can.
func (p *Provider) Capabilities(string) wire.Capabilities { return p.Can }

// Calls returns the calls so far, in the order in which they came.
func (p *Provider) Calls() []upstream.Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Generate plays the script of the call.
func (p *Provider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	p.mu.Lock()
	p.calls = append(p.calls, *call)
	p.mu.Unlock()
	steps := p.Script
	if p.Choose != nil {
		steps = p.Choose(call)
	}
	r := &Run{Ctx: ctx, Call: call, yield: yield}
	for _, step := range steps {
		if err := step(r); err != nil || r.finished {
			return err
		}
	}
	return nil
}

// Run is one call that is being played.
type Run struct {
	Ctx  context.Context
	Call *upstream.Call

	yield    func(upstream.Event) error
	tokens   int
	finished bool
}

// emit yields e unless the caller has left.
func (r *Run) emit(e upstream.Event) error {
	if r.Ctx.Err() != nil {
		return context.Cause(r.Ctx)
	}
	e.Completion, e.Fingerprint = r.tokens, Fingerprint
	r.finished = e.Finish != ""
	return r.yield(e)
}

// Step is one thing that a provider does. An error of it ends the call, and so does
// the event with Finish.
type Step func(*Run) error

// Text yields the pieces, one token each. At MaxTokens the answer ends by its length.
func Text(pieces ...string) Step {
	return func(r *Run) error {
		for _, s := range pieces {
			if r.tokens == r.Call.MaxTokens {
				return r.emit(upstream.Event{Finish: wire.FinishLength})
			}
			r.tokens++
			if err := r.emit(upstream.Event{Text: s}); err != nil {
				return err
			}
		}
		return nil
	}
}

// Finish yields the last event, without text.
func Finish(reason wire.FinishReason) Step {
	return func(r *Run) error { return r.emit(upstream.Event{Finish: reason}) }
}

// Report is [Finish] with a count of the provider's own.
func Report(reason wire.FinishReason, u wire.Usage) Step {
	return func(r *Run) error { return r.emit(upstream.Event{Finish: reason, Usage: &u}) }
}

// Fail fails with a failure of that class.
func Fail(c upstream.Class) Step {
	return func(*Run) error { return &upstream.Failure{Class: c, Err: ErrScript} }
}

// Wait waits for ch, or for the end of the call.
func Wait(ch <-chan struct{}) Step {
	return func(r *Run) error {
		select {
		case <-ch:
			return nil
		case <-r.Ctx.Done():
			return context.Cause(r.Ctx)
		}
	}
}

// Reached closes ch, which tells a test how far the call is.
func Reached(ch chan<- struct{}) Step {
	return func(*Run) error {
		close(ch)
		return nil
	}
}

// Panic panics with v.
func Panic(v any) Step { return func(*Run) error { panic(v) } }
