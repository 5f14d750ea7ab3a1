// Package local offers the embedded engine as a provider.
package local

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

var _ upstream.Provider = (*Provider)(nil)

// Engine is what the provider needs of [engine.Engine].
type Engine interface {
	Encode(msgs []engine.Message, limit int) ([]int32, error)
	Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Token, error]
	Info() engine.Info
}

// Provider computes with an engine in this process.
type Provider struct {
	engine      Engine
	fingerprint string
}

// New returns a provider over e. The engine stays the caller's to close.
func New(e Engine) *Provider {
	return &Provider{engine: e, fingerprint: "fp_" + e.Info().Fingerprint}
}

// CountPrompt counts exactly what Generate will compute.
func (p *Provider) CountPrompt(req *wire.ChatRequest, limit int) (int, bool, error) {
	ids, err := p.engine.Encode(messages(req), limit)
	return len(ids), true, err
}

// Capabilities is plain text: constrained output, penalties, log-probabilities and
// several choices are not there yet and are refused rather than ignored.
func (p *Provider) Capabilities(string) wire.Capabilities { return wire.Capabilities{} }

// Generate computes the answer with the engine's own token counts.
func (p *Provider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	req := call.Request
	prompt, err := p.engine.Encode(messages(req), 0)
	if err != nil {
		return &upstream.Failure{Class: upstream.Failed, Err: err}
	}
	// Behind a target whose prompts are estimated, the bound may be more than fits.
	window := p.engine.Info().Context
	if len(prompt) >= window {
		return &upstream.Rejected{Answer: wire.ContextLengthExceeded(window, len(prompt), false), Err: engine.ErrTooLong}
	}
	tokens := p.engine.Generate(ctx, engine.Request{
		Owner: call.Owner, Prompt: prompt, MaxTokens: min(call.MaxTokens, window-len(prompt)),
		Temperature: req.Temperature, TopP: req.TopP, Seed: call.Seed, Stop: req.Stop,
	})
	for t, err := range tokens {
		if err != nil {
			return failure(ctx, err)
		}
		e := upstream.Event{Text: t.Text, Completion: t.Generated, Fingerprint: p.fingerprint}
		switch t.Finish {
		case engine.FinishStop:
			e.Finish = wire.FinishStop
		case engine.FinishLength:
			e.Finish = wire.FinishLength
		}
		if err := yield(e); err != nil {
			return err
		}
		if e.Finish != "" {
			return nil
		}
	}
	return &upstream.Failure{Class: upstream.Cut, Err: errors.New("the engine ended without a finish")}
}

func failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		if errors.Is(err, engine.ErrNotStarted) {
			return fmt.Errorf("%w: %w", upstream.ErrNotStarted, context.Cause(ctx))
		}
		return context.Cause(ctx)
	case errors.Is(err, engine.ErrBusy):
		return &upstream.Failure{Class: upstream.Busy, Err: err}
	default:
		return &upstream.Failure{Class: upstream.Failed, Err: err}
	}
}

// messages is what the chat template sees. It has no place for names; a tool's result
// is told as such by its role.
func messages(req *wire.ChatRequest) []engine.Message {
	ms := make([]engine.Message, len(req.Messages))
	for i, m := range req.Messages {
		role := m.Role
		if role == wire.RoleDeveloper {
			role = wire.RoleSystem
		}
		ms[i] = engine.Message{Role: string(role), Content: m.Content}
	}
	return ms
}
