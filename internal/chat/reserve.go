package chat

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/wire"
)

// leastOutput is the shortest answer worth starting when the caller set no limit of
// its own and credit is short.
const leastOutput = 16

// reserve takes everything that the call needs, or nothing: its place in the limits
// and the credit for its prompt and the longest answer it can have, in all its choices.
func (r *run) reserve() error {
	prompt, output, least, err := r.bound()
	if err != nil {
		return err
	}
	output, least = output*r.call.Request.N, least*r.call.Request.N
	s, who := r.service, r.call.Caller
	balance := s.Ledger.Balance(who.Account.ID)
	included := balance.Tokens.Available()
	if balance.Balance() <= 0 && balance.Tokens.Balance() <= 0 && !r.model.Price.Free() {
		r.emit.Limits(s.Limiter.Peek(r.call.Now, r.claim(0)))
		return r.penniless()
	}
	budget, room := who.Budget, balance.Available()
	if budget.ID != "" {
		spending := s.Ledger.Spending(who.Account.ID, r.budget())
		if spending.Spent >= budget.Amount && included == 0 && !r.model.Price.Free() {
			r.emit.Limits(s.Limiter.Peek(r.call.Now, r.claim(0)))
			return r.exhausted(prompt, least, spending)
		}
		room = min(room, spending.Left(budget.Amount))
	}
	slice := 0
	if r.call.Request.MaxTokens == 0 {
		output = max(least, min(output, underLimit(who.Plan.TPM, prompt), underLimit(who.KeyLimits.Tokens, prompt), underLimit(who.Plan.ModelLimits[r.model.ID].Tokens, prompt)))
		paid := ledger.Fits(r.model.Price, prompt, included, room)
		if r.endless() && paid >= s.slice()*r.call.Request.N {
			slice = s.slice() * r.call.Request.N
		} else {
			// What is not paid for need not be claimed from the limits either.
			output = max(least, min(output, paid))
		}
	}
	ticket, status, err := s.Limiter.Take(time.Now(), r.claim(prompt+output))
	r.ticket = ticket
	r.emit.Limits(status)
	if d, ok := errors.AsType[*ratelimit.DeniedError](err); ok {
		return r.denied(d, prompt)
	}
	id := ident.CompletionOf(r.call.RequestID)
	hold, err := s.Ledger.Reserve(ledger.Call{
		RequestID: r.call.RequestID, CompletionID: id, AccountID: who.Account.ID, KeyID: who.KeyID,
		Model: r.model.ID, PriceID: r.model.PriceID, Price: r.model.Price, PlanVersion: who.Plan.Version,
		Stream: r.call.Request.Stream, CreatedAt: r.call.Now, Budget: r.budget(), PromptTokens: prompt, Output: output, LeastOutput: least, Slice: slice,
		Idempotency: r.call.Idempotency,
	})
	if err != nil {
		r.ticket = nil
		ticket.Cancel()
		r.emit.Limits(s.Limiter.Peek(time.Now(), r.claim(0)))
		return r.short(err, prompt)
	}
	r.hold = hold
	r.head = wire.Head{ID: id, Created: r.call.Now.Unix(), Model: r.model.ID}
	return nil
}

// denied adds to a refusal of the limiter what would have passed.
func (r *run) denied(d *ratelimit.DeniedError, prompt int) error {
	e := &LimitError{DeniedError: *d, Model: r.model.ID, Prompt: prompt}
	if d.Kind == ratelimit.Tokens {
		e.Fits = max(0, int(d.Limit-d.Used)-prompt) / r.call.Request.N
		if d.Never {
			e.Fits = max(0, int(d.Limit)-prompt) / r.call.Request.N
		}
	}
	return e
}

// sliceTokens is how much of an answer without an end is paid for in advance.
const sliceTokens = 1024

func (s *Service) slice() int { return cmp.Or(s.Slice, sliceTokens) }

// endless says whether the answer may end anywhere, so that its credit is held in slices.
// What has a form ends where that is whole: the model has to know from the beginning how
// far it may go.
func (r *run) endless() bool {
	return r.call.Request.Stream && !r.promised() && len(r.call.Request.Tools) == 0
}

// penniless refuses a caller who has neither credit nor included tokens.
func (r *run) penniless() error {
	switch r.call.Caller.Account.Subscription.Status(r.call.Now) {
	case subscription.None, subscription.Active:
		return ErrNoCredit
	}
	return ErrSubscription
}

// budget is what the ledger has to know of the key's.
func (r *run) budget() ledger.Budget {
	b := r.call.Caller.Budget
	return ledger.Budget{ID: b.ID, Period: b.Period(r.call.Now), Amount: b.Amount}
}

// exhausted refuses a call of which not one token is paid for, before it is counted.
func (r *run) exhausted(prompt, least int, s ledger.Spending) error {
	need, err := r.model.Price.Cost(money.Tokens{Prompt: prompt, Completion: least})
	if err != nil {
		return err
	}
	return &ShortfallError{InsufficientError: ledger.InsufficientError{Need: need, Held: s.Held}, Prompt: prompt, Budget: true}
}

// short adds to a refusal of the ledger what would have fitted.
func (r *run) short(err error, prompt int) error {
	e := &ShortfallError{Prompt: prompt}
	if short, ok := errors.AsType[*ledger.InsufficientError](err); ok {
		e.InsufficientError = *short
	} else if short, ok := errors.AsType[*ledger.BudgetError](err); ok {
		e.InsufficientError, e.Budget = short.InsufficientError, true
	} else {
		return err
	}
	e.Fits = ledger.Fits(r.model.Price, prompt, e.Tokens, e.Available) / r.call.Request.N
	return e
}

// bound counts the prompt and says how long a choice may be, and how short at worst.
func (r *run) bound() (prompt, output, least int, err error) {
	req, m := r.call.Request, r.model
	counted, err := r.service.Router.CountPrompt(m, req, m.ContextWindow+1)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("count prompt: %w", err)
	}
	r.exact = counted.Exact
	prompt = counted.Tokens
	room := m.ContextWindow - prompt
	if !r.exact {
		// An estimate must not refuse or cut what fits: the provider knows.
		room = m.ContextWindow
	} else if room <= 0 {
		return 0, 0, 0, &ContextError{Window: m.ContextWindow, Tokens: prompt, AtLeast: room < 0}
	}
	most, plan := m.MaxOutput, r.call.Caller.Plan.MaxOutput
	if plan > 0 && plan < most {
		most = plan
	}
	if req.MaxTokens > most {
		return 0, 0, 0, &OutputError{Param: req.MaxTokensParam, Given: req.MaxTokens, Limit: most, Plan: most < m.MaxOutput}
	}
	output = min(most, room)
	if req.MaxTokens > 0 {
		output = min(req.MaxTokens, output)
		least = output
	} else {
		least = min(max(leastOutput, counted.Least), output)
	}
	if output < counted.Least {
		short := &ShortError{Given: output, Least: counted.Least}
		if req.MaxTokens < counted.Least {
			short.Param = req.MaxTokensParam
		}
		return 0, 0, 0, short
	}
	return prompt, output, least, nil
}

// underLimit is the longest answer that a limit on tokens lets in after the prompt.
func underLimit(limit int64, prompt int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return int(limit) - prompt
}

// leave gives back what the call claimed of its limits and did not use, once. It comes
// before the end of the answer is released: who waits for it may call again at once.
func (r *run) leave(tokens int) {
	if r.ticket != nil {
		r.ticket.Done(time.Now(), int64(tokens))
		r.ticket = nil
	}
}
