// Package chat is the line: one request from admission to its charge.
package chat

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// Emitter releases an answer to its caller. An error of any method means that the
// caller is gone. Its methods but Hurry are never called at the same time.
type Emitter interface {
	// Limits tells what is left to the caller. It comes before everything else, once
	// it is known, also of calls that are refused.
	Limits(s ratelimit.Status)
	// Start comes before the first text of any choice.
	Start(h wire.Head) error
	// Alive shows that a started answer is still being made.
	Alive() error
	// Text is a piece of a choice with the log-probabilities of the tokens that begin in
	// it; not both are empty. Choices are counted from 0, as many as were asked for.
	Text(choice int, s string, logprobs []wire.Logprob) error
	// Reasoning is a piece of how the model came to its answer, never empty.
	Reasoning(choice int, s string) error
	// Refusal is a piece of why the model does not answer, never empty.
	Refusal(choice int, s string) error
	// Tool is a piece of a tool call.
	Tool(choice int, d *upstream.ToolDelta) error
	// Finish ends the answer; reasons are those of the choices. What it covers is charged
	// and durable by then.
	Finish(reasons []wire.FinishReason, u wire.Usage) error
	// Hurry comes, while another method may run, when the answer is broken off: nothing
	// waits for a slow reader any longer.
	Hurry()
}

// Router finds and runs the provider of a model.
type Router interface {
	Capabilities(m *catalog.Model) wire.Capabilities
	CountPrompt(m *catalog.Model, req *wire.ChatRequest, limit int) (upstream.Prompt, error)
	Generate(ctx context.Context, m *catalog.Model, call *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error)
}

// Service completes chats. Its fields are set once; it is safe for concurrent use.
type Service struct {
	Catalog *catalog.Catalog
	Ledger  *ledger.Ledger
	Limiter *ratelimit.Limiter
	Router  Router
	// Describe gives the HTTP status and code that a caller will see for an error,
	// for the receipt.
	Describe func(error) (status int, code string)
	// Slice is how many tokens of a stream without max_tokens are paid for in advance, in
	// each choice; 0 is 1,024.
	Slice int
}

// Call is one authenticated request.
type Call struct {
	RequestID string
	Caller    *account.Principal
	Request   *wire.ChatRequest
	Now       time.Time // when it was received

	// Idempotency is the key of a call that has one, and Answer gives what is kept of a
	// whole answer before it is charged: what Finish is going to release. Both may be nil.
	Idempotency *ledger.Idempotency
	Answer      func(reasons []wire.FinishReason, u wire.Usage) ([]byte, error)
}

// Summary is what the log line of a call says.
type Summary struct {
	CompletionID string
	Usage        wire.Usage
	Charge       money.Amount
	Ending       ledger.Ending
	Target       string
	FirstToken   time.Duration
}

// Complete admits c, hands the answer to emit piece by piece and charges what it used,
// exactly once, however it ends: done, failed or left by its caller. When it returns,
// the call has been settled or voided and nothing is computed any more.
//
// When the caller's key is revoked, or its account suspended, the answer is broken off.
//
// It fails with the errors of this package, [account.ErrRevoked] and
// [account.ErrSuspended] while it runs, [*wire.Error] for what the model cannot do,
// [ledger.ErrUnavailable] and [*upstream.Failure].
func (s *Service) Complete(ctx context.Context, c Call, emit Emitter) (Summary, error) {
	model, err := s.admit(c)
	if err != nil {
		return Summary{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{service: s, call: c, model: model, emit: emit, cancel: cancel}
	defer r.leave(0) // should anything panic
	if err := r.reserve(); err != nil {
		return Summary{}, err
	}
	defer c.Caller.Watch(cancel)()
	defer r.calm(context.AfterFunc(ctx, r.hurry))
	return r.do(ctx)
}

// hurry tells the emitter that the call's context has ended.
func (r *run) hurry() {
	r.hurrying.Lock()
	defer r.hurrying.Unlock()
	if !r.over {
		r.emit.Hurry()
	}
}

// calm ends that: after it the emitter is not told any more.
func (r *run) calm(unregister func() bool) {
	if !unregister() {
		r.hurrying.Lock()
		defer r.hurrying.Unlock()
		r.over = true
	}
}

// admit finds the model and refuses what the caller, its plan or its key must not use.
func (s *Service) admit(c Call) (*catalog.Model, error) {
	m, ok := s.Catalog.Lookup(c.Request.Model, c.Now)
	if !ok {
		return nil, &ModelError{Model: c.Request.Model, Err: ErrNoModel}
	}
	if !m.OnPlan(c.Caller.Plan.ID) {
		return nil, &ModelError{Model: m.ID, Err: ErrPlan}
	}
	if !c.Caller.May(m.ID) {
		return nil, &ModelError{Model: m.ID, Err: ErrKey}
	}
	if e := wire.Supports(c.Request, s.Router.Capabilities(m)); e != nil {
		return nil, e
	}
	return m, nil
}

// Claim is what a caller who asks for that many tokens, of whatever model, is counted for.
func Claim(p *account.Principal, tokens int) ratelimit.Claim {
	return ratelimit.Claim{
		Account: p.Account.ID, Key: p.CountedAs, AccountLimits: p.Plan.Limits(), KeyLimits: p.KeyLimits, Tokens: int64(tokens),
	}
}

// claim is what the call is counted for when it asks for that many tokens.
func (r *run) claim(tokens int) ratelimit.Claim {
	c := Claim(r.call.Caller, tokens)
	c.Model, c.ModelLimits = r.model.ID, r.call.Caller.Plan.ModelLimits[r.model.ID]
	return c
}

// seed is the caller's, or a random one.
func seed(req *wire.ChatRequest) uint64 {
	if req.Seed != nil {
		return uint64(*req.Seed)
	}
	var b [8]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return binary.NativeEndian.Uint64(b[:])
}
