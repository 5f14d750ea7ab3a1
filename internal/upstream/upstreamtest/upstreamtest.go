// Package upstreamtest is a provider that does what a test tells it to.
//
// A [Script] is the answer to one call, step by step: pieces of text, delays, waits
// for the test, failures. The [Provider] follows the contract of [upstream.Provider]
// around the script and records what it was asked:
//
//	p := upstreamtest.New(
//		upstreamtest.Script{upstreamtest.Fail(upstream.Overloaded)},   // the first call
//		upstreamtest.Script{upstreamtest.Text("Hi"), upstreamtest.Finish(wire.FinishStop)}, // all others
//	)
//	err := p.Generate(ctx, call, yield)
//	calls := p.Calls()
//
// No step needs the real clock: [Sleep] is for testing/synctest, [Wait] and [Signal]
// put the test in step with the provider anywhere.
package upstreamtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

var _ upstream.Provider = (*Provider)(nil)

// ErrScripted is inside every [upstream.Failure] of a script.
var ErrScripted = errors.New("so the script says")

// Script is what happens in one call, in order. A script that ends without a step that
// ends the call is an answer that was cut off.
type Script []Step

// Step is one thing that happens in a call. The zero Step does nothing.
type Step struct {
	do func(*run) (ended bool, err error)
}

// run is one call under way.
type run struct {
	ctx    context.Context
	event  upstream.Event // with what the next one has in common with the last
	events int
	yield  func(upstream.Event) error
}

func (r *run) send(e upstream.Event) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	r.events++
	return r.yield(e)
}

// Text pushes each piece as an event of one token.
func Text(pieces ...string) Step {
	return Step{func(r *run) (bool, error) {
		for _, s := range pieces {
			r.event.Completion++
			e := r.event
			e.Text = s
			if err := r.send(e); err != nil {
				return true, err
			}
		}
		return false, nil
	}}
}

// Push pushes e as it is and goes on, also when e ends a choice. Later pieces count on
// from its Completion.
func Push(e upstream.Event) Step {
	return Step{func(r *run) (bool, error) {
		r.event.Completion = e.Completion
		return false, r.send(e)
	}}
}

// Event pushes e as it is and, when it has a Finish, ends the call well. Later pieces
// count on from its Completion.
func Event(e upstream.Event) Step {
	return Step{func(r *run) (bool, error) {
		r.event.Completion = e.Completion
		return e.Finish != "", r.send(e)
	}}
}

// Finish ends the call well, with an event that has no text and no usage.
func Finish(reason wire.FinishReason) Step {
	return Step{func(r *run) (bool, error) {
		e := r.event
		e.Finish = reason
		return true, r.send(e)
	}}
}

// FinishUsage ends the call well, with what the provider counted.
func FinishUsage(reason wire.FinishReason, u wire.Usage) Step {
	return Step{func(r *run) (bool, error) {
		e := r.event
		e.Finish, e.Usage = reason, &u
		return true, r.send(e)
	}}
}

// Fail ends the call with an [upstream.Failure] of that class. After [Text] it is a
// failure in the middle of an answer.
func Fail(class upstream.Class) Step {
	return Return(&upstream.Failure{Class: class, Err: ErrScripted})
}

// Return ends the call with err, which may break the contract: nil without an event
// that finishes, or an error that is no Failure.
func Return(err error) Step {
	return Step{func(*run) (bool, error) { return true, err }}
}

// Panic ends the call with a panic.
func Panic(v any) Step {
	return Step{func(*run) (bool, error) { panic(v) }}
}

// Sleep waits for d, or until the caller leaves.
func Sleep(d time.Duration) Step {
	return Step{func(r *run) (bool, error) {
		t := time.NewTimer(d)
		defer t.Stop()
		return hold(r.ctx, t.C)
	}}
}

// Wait waits until ch can be received from or is closed, or until the caller leaves.
func Wait(ch <-chan struct{}) Step {
	return Step{func(r *run) (bool, error) { return hold(r.ctx, ch) }}
}

// Hang waits until the caller leaves.
func Hang() Step { return Wait(nil) }

// Signal tells the test that the call has come so far, by a send on ch, for which it
// waits.
func Signal(ch chan<- struct{}) Step {
	return Step{func(r *run) (bool, error) {
		select {
		case ch <- struct{}{}:
			return false, nil
		case <-r.ctx.Done():
			return true, context.Cause(r.ctx)
		}
	}}
}

func hold[T any](ctx context.Context, ch <-chan T) (bool, error) {
	select {
	case <-ch:
		return false, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// Call is the record of one call.
type Call struct {
	upstream.Call
	Events int   // that were pushed, the one that was refused included
	Ended  bool  // Generate has returned
	Err    error // what it returned
}

// Provider answers each call by the next script, and by the last one when there is
// none left. Its fields may be set before its first use. It is safe for concurrent use.
type Provider struct {
	Prompt      int   // what CountPrompt counts, up to its limit
	Estimated   bool  // the count is not exact
	Least       int   // the shortest answer
	CountErr    error // CountPrompt fails
	Fingerprint string
	Can         wire.Capabilities

	scripts []Script
	mu      sync.Mutex
	calls   []*Call
}

// New returns a provider of those scripts. Without one every answer is cut off at once.
func New(scripts ...Script) *Provider { return &Provider{scripts: scripts} }

// CountPrompt counts as the fields say, the request is not looked at.
func (p *Provider) CountPrompt(_ *wire.ChatRequest, limit int) (upstream.Prompt, error) {
	return upstream.Prompt{Tokens: min(p.Prompt, limit), Exact: !p.Estimated, Least: p.Least}, p.CountErr
}

// Capabilities is Can for every model.
func (p *Provider) Capabilities(string) wire.Capabilities { return p.Can }

// Generate follows the script of this call. It does not look at MaxTokens.
func (p *Provider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	script, record := p.begin(call)
	r := &run{ctx: ctx, yield: yield, event: upstream.Event{Fingerprint: p.Fingerprint}}
	err := error(&upstream.Failure{Class: upstream.Cut, Err: errors.New("the script is over")})
	defer func() { // also after a panic
		p.mu.Lock()
		defer p.mu.Unlock()
		record.Events, record.Ended, record.Err = r.events, true, err
	}()
	for _, s := range script {
		if s.do == nil {
			continue
		}
		if ended, e := s.do(r); ended || e != nil {
			err = e
			break
		}
	}
	return err
}

func (p *Provider) begin(call *upstream.Call) (Script, *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record := &Call{Call: *call}
	p.calls = append(p.calls, record)
	if len(p.scripts) == 0 {
		return nil, record
	}
	return p.scripts[min(len(p.calls), len(p.scripts))-1], record
}

// Calls returns what was asked so far, oldest first.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := make([]Call, len(p.calls))
	for i, c := range p.calls {
		calls[i] = *c
	}
	return calls
}
