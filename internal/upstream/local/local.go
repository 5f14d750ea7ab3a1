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

// Capabilities is text with everything that bears on how it is drawn. Constrained
// output is not there yet and is refused rather than ignored.
func (p *Provider) Capabilities(string) wire.Capabilities {
	return wire.Capabilities{FrequencyPenalty: true, PresencePenalty: true, LogitBias: true, Logprobs: true, MultipleChoices: true}
}

// Generate computes the answer with the engine's own token counts.
func (p *Provider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	r, err := p.request(call)
	if err != nil {
		return err
	}
	counts := make([]int, r.Choices)
	total, ended := 0, 0
	for t, err := range p.engine.Generate(ctx, r) {
		if err != nil {
			return failure(ctx, err)
		}
		total += t.Generated - counts[t.Choice]
		counts[t.Choice] = t.Generated
		e := upstream.Event{
			Choice: t.Choice, Text: t.Text, Logprobs: logprobs(t.Logprobs), Completion: total, Cached: t.Cached, Fingerprint: p.fingerprint,
		}
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
			ended++
		}
	}
	if ended < r.Choices {
		return &upstream.Failure{Class: upstream.Cut, Err: errors.New("the engine ended without a finish")}
	}
	return nil
}

// request is what the engine is asked for.
func (p *Provider) request(call *upstream.Call) (engine.Request, error) {
	req := call.Request
	prompt, err := p.engine.Encode(messages(req), 0)
	if err != nil {
		return engine.Request{}, &upstream.Failure{Class: upstream.Failed, Err: err}
	}
	info := p.engine.Info()
	// Behind a target whose prompts are estimated, the bound may be more than fits.
	if len(prompt) >= info.Context {
		return engine.Request{}, &upstream.Rejected{Answer: wire.ContextLengthExceeded(info.Context, len(prompt), false), Err: engine.ErrTooLong}
	}
	r := engine.Request{
		Owner: call.Owner, Prompt: prompt, MaxTokens: min(call.MaxTokens, info.Context-len(prompt)), Choices: max(req.N, 1),
		Temperature: req.Temperature, TopP: req.TopP, Seed: call.Seed, Stop: req.Stop,
		FrequencyPenalty: req.FrequencyPenalty, PresencePenalty: req.PresencePenalty,
		Logprobs: req.Logprobs, TopLogprobs: req.TopLogprobs,
	}
	for id, bias := range req.LogitBias {
		if id >= info.Vocab {
			return engine.Request{}, &upstream.Rejected{Answer: wire.UnknownBiasToken(id, info.Vocab), Err: engine.ErrRequest}
		}
		if r.LogitBias == nil {
			r.LogitBias = make(map[int32]float64, len(req.LogitBias))
		}
		r.LogitBias[int32(id)] = bias
	}
	return r, nil
}

func logprobs(list []engine.Logprob) []wire.Logprob {
	if len(list) == 0 {
		return nil
	}
	out := make([]wire.Logprob, len(list))
	for i, l := range list {
		out[i] = candidate(l.Candidate)
		for _, c := range l.Top {
			out[i].Top = append(out[i].Top, candidate(c))
		}
	}
	return out
}

func candidate(c engine.Candidate) wire.Logprob {
	return wire.Logprob{Token: string(c.Bytes), Bytes: c.Bytes, Logprob: float64(c.Logprob)}
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
