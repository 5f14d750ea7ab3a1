package api

import (
	"errors"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// Bounds of what is remembered of a caller's own text.
const (
	mostModel   = 64
	mostMessage = 512
)

// refused hands on why a call was refused, so that it can be explained later. A call that
// was admitted has a receipt, however it ended.
func (s *server) refused(x *exchange) {
	if x.err == nil || s.Refused == nil || x.call.CompletionID != "" || !strings.HasPrefix(x.route, "chat.") && !strings.HasPrefix(x.route, "models.") || errors.Is(x.err, chat.ErrClientGone) {
		return
	}
	e := toWire(x.err)
	r := refusal.Record{
		RequestID: x.id, At: x.now.UTC().Truncate(time.Microsecond), Model: clip(x.model, mostModel),
		Status: e.Status, Code: e.Code, Message: clip(e.Message, mostMessage), MaxTokens: x.maxTokens,
	}
	if e.Param != nil {
		r.Param = clip(*e.Param, mostModel)
	}
	if x.caller != nil {
		r.AccountID, r.KeyID = x.caller.Account.ID, x.caller.KeyID
	} else if d, ok := errors.AsType[*apikey.DeniedError](x.err); ok {
		r.AccountID, r.KeyID = d.AccountID, d.KeyID
	}
	measure(&r, x)
	s.Refused(r)
}

// measure adds the rule and its numbers.
func measure(r *refusal.Record, x *exchange) {
	if e, ok := errors.AsType[*chat.LimitError](x.err); ok {
		r.Rule, r.Scope = limitRule(e), refusal.Scope(e.Scope)
		r.Limit, r.Used, r.Asked, r.Fits, r.PromptTokens = e.Limit, e.Used, e.Requested, e.Fits, e.Prompt
		if !e.Never && e.Kind != ratelimit.Concurrency {
			r.Clears = e.RetryAfter
		}
		return
	}
	if e, ok := errors.AsType[*chat.ShortfallError](x.err); ok {
		r.Asked, r.Limit, r.Held, r.Fits, r.PromptTokens = int64(e.Need), int64(e.Available), int64(e.Held), e.Fits, e.Prompt
		switch {
		case e.Budget:
			r.Rule, r.Scope = wire.RuleBudget, refusal.Key
		case e.Available+e.Held >= e.Need:
			r.Rule, r.Scope = wire.RuleHeld, refusal.Account
		default:
			r.Rule, r.Scope = wire.RuleCredit, refusal.Account
		}
		return
	}
	if e, ok := errors.AsType[*chat.ContextError](x.err); ok {
		r.Rule, r.Limit, r.PromptTokens = wire.RuleContext, int64(e.Window), e.Tokens
		return
	}
	for _, row := range []struct {
		err   error
		rule  wire.Rule
		scope refusal.Scope
	}{
		{chat.ErrNoCredit, wire.RuleCredit, refusal.Account},
		{chat.ErrSubscription, wire.RuleSubscription, refusal.Account},
		{chat.ErrPlan, wire.RulePlan, refusal.Account},
		{chat.ErrKey, wire.RuleKeyModels, refusal.Key},
		{chat.ErrNoModel, wire.RuleModel, ""},
	} {
		if errors.Is(x.err, row.err) {
			r.Rule, r.Scope = row.rule, row.scope
			return
		}
	}
	if r.Param != "" {
		r.Rule = wire.RuleParameter
	}
}

func limitRule(e *chat.LimitError) wire.Rule {
	switch {
	case e.Never:
		return wire.RuleTooLarge
	case e.Kind == ratelimit.Requests:
		return wire.RuleRequests
	case e.Kind == ratelimit.Tokens:
		return wire.RuleTokens
	}
	return wire.RuleConcurrency
}
