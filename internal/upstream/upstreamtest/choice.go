package upstreamtest

import (
	"context"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// Do calls f with the context of the call, for what no other step says. An error of f
// ends the call as it is.
func Do(f func(ctx context.Context) error) Step {
	return Step{func(r *run) (bool, error) {
		err := f(r.ctx)
		return err != nil, err
	}}
}

// Choice is a provider that finds the script of a call by what is asked. Its prompts
// have 10 tokens.
type Choice func(*upstream.Call) Script

var _ upstream.Provider = Choice(nil)

// CountPrompt counts 10 exact tokens.
func (Choice) CountPrompt(*wire.ChatRequest, int) (upstream.Prompt, error) {
	return upstream.Prompt{Tokens: 10, Exact: true}, nil
}

// Capabilities is plain text.
func (Choice) Capabilities(string) wire.Capabilities { return wire.Capabilities{} }

// Generate follows the script for call.
func (c Choice) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	return New(c(call)).Generate(ctx, call, yield)
}
