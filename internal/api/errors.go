package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// statusClientGone is what logs and receipts show of a call whose caller left before
// there was an answer. It is never sent. nginx has the number from the same need.
const statusClientGone = 499

// Describe is the status and code that a caller sees for err.
func Describe(err error) (status int, code string) {
	if errors.Is(err, chat.ErrClientGone) {
		return statusClientGone, "client_gone"
	}
	e := toWire(err)
	return e.Status, e.Code
}

// toWire is the one table from errors of the rooms to answers. What it does not know
// is 500, and only the log learns more.
func toWire(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*apikey.UnknownError](err); ok {
		return wire.IncorrectKey(e.Token)
	}
	if e, ok := errors.AsType[*chat.ModelError](err); ok {
		return modelRefused(e)
	}
	if e, ok := errors.AsType[*chat.ContextError](err); ok {
		return wire.ContextLengthExceeded(e.Window, e.Tokens, e.AtLeast)
	}
	if e, ok := errors.AsType[*chat.OutputError](err); ok {
		if e.Plan {
			return wire.MaxTokensAbovePlan(e.Param, e.Given, e.Limit)
		}
		return wire.MaxTokensTooLarge(e.Param, e.Given, e.Limit)
	}
	if e, ok := errors.AsType[*chat.ShortError](err); ok {
		return wire.MaxTokensTooSmall(e.Param, e.Given, e.Least)
	}
	if e, ok := errors.AsType[*chat.ShortfallError](err); ok {
		short := wire.Shortfall{Need: e.Need.String(), Left: e.Available.String(), Held: e.Held.String(), Fits: e.Fits}
		if e.Budget {
			return wire.KeyBudgetExceeded(short)
		}
		return wire.NotEnoughCredit(short)
	}
	if e, ok := errors.AsType[*idempotency.CompletedError](err); ok {
		return wire.IdempotencyCompleted(e.CompletionID)
	}
	if e, ok := errors.AsType[*chat.LimitError](err); ok {
		return limited(e)
	}
	if e, ok := errors.AsType[*upstream.Failure](err); ok {
		return providerFailed(e.Class)
	}
	for _, row := range []struct {
		err    error
		answer func() *wire.Error
	}{
		{apikey.ErrMissing, wire.MissingKey},
		{apikey.ErrMalformed, wire.MalformedKey},
		{apikey.ErrSuspended, wire.AccountSuspended},
		{apikey.ErrRevoked, wire.KeyRevoked},
		{apikey.ErrExpired, wire.KeyExpired},
		{chat.ErrNoCredit, wire.NoCredit},
		{payment.ErrSignature, wire.InvalidSignature},
		{idempotency.ErrKey, wire.InvalidIdempotencyKey},
		{idempotency.ErrReuse, wire.IdempotencyKeyReuse},
		{idempotency.ErrInProgress, wire.IdempotencyInProgress},
		{chat.ErrSubscription, wire.SubscriptionInactive},
		{chat.ErrShutdown, func() *wire.Error { return wire.Overloaded(5 * time.Second) }},
		{ledger.ErrUnavailable, wire.LedgerUnavailable},
	} {
		if errors.Is(err, row.err) {
			return row.answer()
		}
	}
	return wire.Internal()
}

func modelRefused(e *chat.ModelError) *wire.Error {
	switch {
	case errors.Is(e, chat.ErrPlan):
		return wire.PlanLacksModel(e.Model)
	case errors.Is(e, chat.ErrKey):
		return wire.KeyLacksModel(e.Model)
	}
	return wire.ModelNotFound(e.Model)
}

func providerFailed(c upstream.Class) *wire.Error {
	switch c {
	case upstream.Timeout:
		return wire.UpstreamTimeout()
	case upstream.Overloaded:
		return wire.UpstreamOverloaded()
	case upstream.Busy:
		return wire.Overloaded(time.Second)
	case upstream.Refused:
		return wire.UpstreamRefused()
	case upstream.Cut:
		return wire.UpstreamCut()
	}
	return wire.UpstreamFailed()
}

func slowBody() *wire.Error {
	return &wire.Error{
		Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "request_timeout",
		Message: fmt.Sprintf("The request body did not arrive within %d seconds. Send it again.", int(bodyTimeout.Seconds())),
		Header:  []wire.Header{{Name: "Connection", Value: "close"}},
	}
}

func brokenBody() *wire.Error {
	return &wire.Error{
		Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "invalid_body",
		Message: "The request body could not be read to its end. Check its transfer encoding and length.",
		Header:  []wire.Header{{Name: "Connection", Value: "close"}},
	}
}

// notReady is the answer of /readyz for an operator's probe.
func notReady(err error) *wire.Error {
	e := wire.Overloaded(time.Second)
	e.Code, e.Message = "not_ready", err.Error()
	return e
}

// panicError is a bug, kept for the log.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
