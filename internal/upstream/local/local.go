// Package local offers the embedded engine as a provider.
package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

var _ upstream.Provider = (*Provider)(nil)

// Engine is what the provider needs of [engine.Engine].
type Engine interface {
	Encode(msgs []engine.Message, limit int) ([]int32, error)
	Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Token, error]
	Info() engine.Info
	Vocab() (*grammar.Vocab, error)
}

// Provider computes with an engine in this process.
type Provider struct {
	engine      Engine
	fingerprint string
	words       toolWords
	forms       forms
}

// New returns a provider over e. The engine stays the caller's to close.
func New(e Engine) *Provider {
	return &Provider{engine: e, fingerprint: "fp_" + e.Info().Fingerprint, words: chosenWords(), forms: forms{made: map[[sha256.Size]byte]*form{}}}
}

// CountPrompt counts exactly what Generate will compute. A schema that cannot be held
// to is a [*wire.Error], unless the prompt is above the limit: then it is not looked at, since
// tools stand in the prompt, and megabytes of them would take many times their size.
func (p *Provider) CountPrompt(req *wire.ChatRequest, limit int) (upstream.Prompt, error) {
	ids, err := p.engine.Encode(p.words.messages(req), limit)
	n := upstream.Prompt{Tokens: len(ids), Exact: true}
	if err != nil || limit > 0 && len(ids) > limit {
		return n, err
	}
	f, err := p.form(req)
	if err != nil {
		return upstream.Prompt{}, err
	}
	if f != nil {
		n.Least = f.least
	}
	return n, nil
}

// Capabilities is everything.
func (p *Provider) Capabilities(string) wire.Capabilities {
	return wire.Capabilities{
		JSONObject: true, JSONSchema: true, Tools: true,
		FrequencyPenalty: true, PresencePenalty: true, LogitBias: true, Logprobs: true, MultipleChoices: true,
	}
}

// Generate computes the answer with the engine's own token counts.
func (p *Provider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	r, err := p.request(call)
	if err != nil {
		return err
	}
	f, err := p.form(call.Request)
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return &upstream.Rejected{Answer: e, Err: engine.ErrRequest}
	}
	if err != nil {
		return &upstream.Failure{Class: upstream.Failed, Err: err}
	}
	g := &generation{Provider: p, request: r, form: f, stops: call.Request.Stop}
	all := func(e upstream.Event, _ int) error { return yield(e) }
	if f == nil {
		return g.run(ctx, all)
	}
	if r.MaxTokens < f.least {
		return &upstream.Rejected{Answer: wire.MaxTokensTooSmall(call.Request.MaxTokensParam, r.MaxTokens, f.least), Err: engine.ErrRequest}
	}
	g.request.Stop, g.request.Constraint = nil, f.engine.Constraint
	if f.marker != "" {
		if g.request.Lead, err = p.lead(f, call.Request, r.MaxTokens); err != nil {
			return &upstream.Failure{Class: upstream.Failed, Err: err}
		}
	}
	if f.checks != nil {
		return g.runChecked(ctx, yield)
	}
	return g.run(ctx, all)
}

// request is what the engine is asked for.
func (p *Provider) request(call *upstream.Call) (engine.Request, error) {
	req := call.Request
	prompt, err := p.engine.Encode(p.words.messages(req), 0)
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

// never is the bias of a token that is not wanted.
const never = -100

// lead leans towards a call, and away from one that does not fit: its mark could not be
// completed, and a model that has begun it writes the rest of a call in words. Behind the
// result of a call it is words that are due, or agents would go round.
func (p *Provider) lead(f *form, req *wire.ChatRequest, maxTokens int) (map[int32]float64, error) {
	lean := p.words.lean
	switch {
	case maxTokens < f.room:
		lean = never
	case req.Messages[len(req.Messages)-1].Role != wire.RoleUser:
		return nil, nil //nolint:nilnil // it leans to neither
	}
	vocab, err := p.engine.Vocab()
	if err != nil {
		return nil, err
	}
	for id := range int32(vocab.Size()) {
		if string(vocab.Piece(id)) == callOpen[:1] {
			return map[int32]float64{id: lean}, nil
		}
	}
	return nil, nil //nolint:nilnil // the vocabulary begins calls by another token
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
