// Package chat is the line: one request from admission to its charge.
package chat

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// leastOutput is the shortest answer worth starting when the caller set no limit of
// its own and credit is short.
const leastOutput = 16

// Emitter releases an answer to its caller. An error of any method means that the
// caller is gone.
type Emitter interface {
	// Start comes before the first text.
	Start(h wire.Head) error
	// Text is a piece of the answer, never empty.
	Text(s string) error
	// Finish ends the answer. What it covers is charged and durable by then.
	Finish(reason wire.FinishReason, u wire.Usage) error
}

// Router finds and runs the provider of a model.
type Router interface {
	Capabilities(m *catalog.Model) wire.Capabilities
	CountPrompt(m *catalog.Model, req *wire.ChatRequest, limit int) (n int, exact bool, err error)
	Generate(ctx context.Context, m *catalog.Model, call *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error)
}

// Service completes chats. Its fields are set once; it is safe for concurrent use.
type Service struct {
	Catalog *catalog.Catalog
	Ledger  *ledger.Ledger
	Router  Router
	// Describe gives the HTTP status and code that a caller will see for an error,
	// for the receipt.
	Describe func(error) (status int, code string)
}

// Call is one authenticated request.
type Call struct {
	RequestID string
	Caller    *account.Principal
	Request   *wire.ChatRequest
	Now       time.Time // when it was received
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
// It fails with the errors of this package, [*wire.Error] for what the model cannot do,
// [ledger.ErrUnavailable] and [*upstream.Failure].
func (s *Service) Complete(ctx context.Context, c Call, emit Emitter) (Summary, error) {
	model, err := s.admit(c)
	if err != nil {
		return Summary{}, err
	}
	hold, id, err := s.reserve(c, model)
	if err != nil {
		return Summary{}, err
	}
	r := &run{
		service: s, call: c, model: model, hold: hold, emit: emit,
		head: wire.Head{ID: id, Created: c.Now.Unix(), Model: model.ID},
	}
	return r.do(ctx)
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

// reserve counts the prompt, bounds the answer and sets the credit for both aside.
func (s *Service) reserve(c Call, m *catalog.Model) (*ledger.Hold, string, error) {
	req := c.Request
	prompt, exact, err := s.Router.CountPrompt(m, req, m.ContextWindow+1)
	if err != nil {
		return nil, "", fmt.Errorf("count prompt: %w", err)
	}
	room := m.ContextWindow - prompt
	if !exact {
		// An estimate must not refuse or cut what fits: the provider knows.
		room = m.ContextWindow
	} else if room <= 0 {
		return nil, "", &ContextError{Window: m.ContextWindow, Tokens: prompt, AtLeast: room < 0}
	}
	if req.MaxTokens > m.MaxOutput {
		return nil, "", &OutputError{Param: req.MaxTokensParam, Given: req.MaxTokens, Limit: m.MaxOutput}
	}
	output := min(m.MaxOutput, room)
	least := min(leastOutput, output)
	if req.MaxTokens > 0 {
		output = min(req.MaxTokens, output)
		least = output
	}
	account := c.Caller.Account.ID
	if b := s.Ledger.Balance(account); b.Balance() <= 0 && !m.Price.Free() {
		return nil, "", ErrNoCredit
	}
	id := ident.CompletionID()
	hold, err := s.Ledger.Reserve(ledger.Call{
		RequestID: c.RequestID, CompletionID: id, AccountID: account, KeyID: c.Caller.KeyID,
		Model: m.ID, PriceID: m.PriceID, Price: m.Price, PlanVersion: c.Caller.Plan.Version,
		Stream: req.Stream, CreatedAt: c.Now, PromptTokens: prompt, Output: output, LeastOutput: least,
	})
	if short, ok := errors.AsType[*ledger.InsufficientError](err); ok {
		return nil, "", &ShortfallError{InsufficientError: *short, Fits: fits(m.Price, prompt, short.Available)}
	}
	return hold, id, err
}

// fits is the longest answer that available pays for after the prompt.
func fits(p money.Price, prompt int, available money.Amount) int {
	base, err := p.Cost(money.Tokens{Prompt: prompt})
	if err != nil || base > available || p.Output == 0 {
		return 0
	}
	return int((available - base) / p.Output)
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
