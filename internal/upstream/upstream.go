// Package upstream is what computes answers, seen from the line: providers, the
// pieces they push and the classes of their failures.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/wire"
)

// Call is one request as a provider gets it.
type Call struct {
	ID        string // of the completion
	Owner     string // the account, for fairness; never sent outside
	Model     string // the model's name at the provider
	Window    int    // the context window that the caller knows of; 0 when unknown
	Request   *wire.ChatRequest
	MaxTokens int    // of each choice, always set: the hold covers no more
	Seed      uint64 // given by the caller, else random
}

// Event is one piece of an answer. It is valid until yield returns.
type Event struct {
	Choice      int               // which of the request's N choices it is of, from 0
	Text        string            // whole runes
	Logprobs    []wire.Logprob    // of the tokens that begin in Text, where they were asked for
	Reasoning   string            // of models that show how they think
	Refusal     string            // whole runes of why the model does not answer, instead of Text
	Tool        *ToolDelta        // a piece of a tool call
	Completion  int               // tokens of all choices so far, this piece included
	Cached      int               // tokens of the prompt that were not computed again, if the provider counts itself as it goes
	Finish      wire.FinishReason // set on the last event of each choice only
	Usage       *wire.Usage       // what the provider itself counted, on the last event of all, if it did
	Fingerprint string            // of model and build, the same in every event
}

// ToolDelta is a piece of a tool call. Calls come one after another, their Index
// counting from 0. The first piece of a call has its ID and Name and no arguments, the
// others have neither; the pieces of Arguments make up JSON, at least {}, unless the
// answer was cut at its length or by a filter.
type ToolDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// Prompt is what is known of a call's cost before it is admitted.
type Prompt struct {
	Tokens int
	Exact  bool // false for an estimate
	// Least is the fewest tokens in which what is asked for can be answered, such as a
	// value of a schema; 0 when any number will do.
	Least int
}

// Counter counts prompts before a call is admitted. It stops soon after limit tokens,
// when the count says only "at least". What the provider cannot do, and only it knows,
// is a [*wire.Error].
type Counter interface {
	CountPrompt(req *wire.ChatRequest, limit int) (Prompt, error)
}

// Provider computes answers. It is safe for concurrent use.
type Provider interface {
	Counter
	// Capabilities is what the model of that name can do.
	Capabilities(model string) wire.Capabilities
	// Generate computes one answer and hands each piece to yield, in order and from
	// the calling goroutine; choices may take turns. It returns nil after an event with
	// Finish of every choice. An error of
	// yield stops it and is returned as it is; so is the cause of ctx. A caller's
	// fault that only the provider sees is [*Rejected]. Everything else is a
	// [*Failure]. When it returns, nothing is computed any more.
	Generate(ctx context.Context, call *Call, yield func(Event) error) error
}

// Route says where an answer came from, for its receipt.
type Route struct {
	Target   string // "upstream/model", the last that was tried
	Attempts int
}

// ErrNotStarted is joined to the error of a call that ended before anything was
// computed for it.
var ErrNotStarted = errors.New("the call had not started")

// Class is what kind of failure a provider had.
type Class string

// The classes of failure.
const (
	Failed      Class = "failed"      // an error, or an answer that is none
	Refused     Class = "refused"     // this one request, by whosever fault
	Denied      Class = "denied"      // our key, our credit there or the model's name is not good
	Unreachable Class = "unreachable" // no connection
	Timeout     Class = "timeout"
	Overloaded  Class = "overloaded" // a provider that refuses for its load
	Busy        Class = "busy"       // our own engine's queue is full
	Cut         Class = "cut"        // the answer broke off
)

// Failure is a provider's failure. Its text is for the log, never for a client. One that
// wraps [*Rejected] says nothing against the provider, which does not take what the caller
// asks for: another may, and where none does the answer is the caller's.
type Failure struct {
	Class Class
	Err   error
	// Retryable says that the same call may do better at the same target, as long as
	// nothing of its answer was seen.
	Retryable bool
	// RetryAfter is how long the provider asks to be left alone, 0 when it does not say.
	RetryAfter time.Duration
}

func (f *Failure) Error() string { return fmt.Sprintf("upstream %s: %v", f.Class, f.Err) }

// Unwrap returns the provider's error.
func (f *Failure) Unwrap() error { return f.Err }

// Rejected is a request that a provider refuses for a fault of the caller, told in our
// words. It comes before the first event. errors.As finds the answer in it.
type Rejected struct {
	Answer *wire.Error
	Err    error // the provider's words, for the log
}

func (r *Rejected) Error() string { return fmt.Sprintf("upstream rejects the request: %v", r.Err) }

// Unwrap returns the answer and the provider's error.
func (r *Rejected) Unwrap() []error { return []error{r.Answer, r.Err} }
