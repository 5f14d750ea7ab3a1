package chat

import (
	"errors"
	"fmt"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// Errors of [Service.Complete].
var (
	ErrNoModel  = errors.New("the model does not exist")
	ErrPlan     = errors.New("the plan does not have the model")
	ErrKey      = errors.New("the key does not have the model")
	ErrNoCredit = errors.New("no credit")
	// ErrSubscription is an account without credit whose subscription has ended, or was
	// not renewed.
	ErrSubscription = errors.New("the subscription has ended")
	// ErrClientGone means that the caller left before the end of the answer.
	ErrClientGone = errors.New("the caller has gone")
	// ErrShutdown is the cause of a context that ends because the server does.
	ErrShutdown = errors.New("the server is shutting down")
)

// ModelError is a model that the caller cannot have: [ErrNoModel], [ErrPlan] or [ErrKey].
type ModelError struct {
	Model string
	Err   error
}

func (e *ModelError) Error() string { return fmt.Sprintf("%v: %.64q", e.Err, e.Model) }

// Unwrap returns the reason.
func (e *ModelError) Unwrap() error { return e.Err }

// LimitError is a call that would break a limit on requests, tokens or calls at once.
type LimitError struct {
	ratelimit.DeniedError
	Model  string
	Prompt int // tokens
	Fits   int // how long each choice could be that the call would have passed, 0 for none
}

func (e *LimitError) Error() string { return e.DeniedError.Error() }

// ContextError is a prompt that leaves no room for an answer. With AtLeast the
// counting was stopped at Tokens.
type ContextError struct {
	Window, Tokens int
	AtLeast        bool
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("prompt of %d tokens, context window %d", e.Tokens, e.Window)
}

// OutputError is an output limit above what the model, or with Plan the caller's plan, lets
// an answer have.
type OutputError struct {
	Param        string
	Given, Limit int
	Plan         bool
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("%s is %d, an answer has at most %d", e.Param, e.Given, e.Limit)
}

// ShortError is room for an answer that what was asked for does not fit in. Param is ""
// when no limit of the caller's is to blame, but the context or the model's own.
type ShortError struct {
	Param        string
	Given, Least int
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("%d tokens for an answer of at least %d", e.Given, e.Least)
}

// ShortfallError is a call that the balance, or with Budget the budget of its key, does
// not cover. Fits is how long each choice could be that it would, 0 when not even the
// prompt is.
type ShortfallError struct {
	ledger.InsufficientError
	Prompt int // tokens
	Fits   int
	Budget bool
}
