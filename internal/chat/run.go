package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// run is one admitted call.
type run struct {
	service *Service
	call    Call
	model   *catalog.Model
	ticket  *ratelimit.Ticket // nil once it was given back
	hold    *ledger.Hold
	exact   bool // the prompt was counted, not estimated
	emit    Emitter
	cancel  context.CancelCauseFunc // of the call's context

	hurrying sync.Mutex // held while the emitter is told
	over     bool       // it is not told any more; guarded by hurrying

	pulse pulse
	head  wire.Head

	last    upstream.Event // the newest event
	choices []choice
	first   time.Duration // from receipt to the first event
	started bool          // the emitter has had its Start
	route   upstream.Route
}

// choice is what is known of one of the answers.
type choice struct {
	text    []byte // so far, where its form was promised
	called  bool   // it has tool calls
	refused bool   // it tells why there is no answer
	finish  wire.FinishReason
}

var (
	errNoFinish = errors.New("the answer has no end")
	errChoice   = errors.New("the answer has a choice that was not asked for")
)

// emitError marks an error of the emitter: the caller is gone.
type emitError struct{ err error }

func (e emitError) Error() string { return e.err.Error() }

// do generates, releases and closes the books. A panic below it closes them too.
func (r *run) do(ctx context.Context) (Summary, error) {
	defer func() {
		if p := recover(); p != nil {
			r.end()
			r.broken(fmt.Errorf("panic: %v", p))
			panic(p)
		}
	}()
	req := r.call.Request
	if req.Stream {
		// The row is written while the model computes the first token.
		if err := r.hold.Persist(); err != nil {
			return r.void(err)
		}
	}
	call := &upstream.Call{ID: r.head.ID, Owner: r.call.Caller.Account.ID, Request: req, MaxTokens: r.hold.OutputLimit() / req.N, Seed: seed(req)}
	r.choices = make([]choice, req.N)
	r.begin()
	route, err := r.service.Router.Generate(ctx, r.model, call, func(e upstream.Event) error { return r.event(ctx, e) })
	r.route = route
	if p := r.end(); p != nil {
		panic(p)
	}
	if errors.Is(err, errSpent) {
		r.spent()
		err = nil
	}
	gone, left := r.gone(ctx, err)
	switch {
	case err == nil && !r.ended():
		return r.broken(&upstream.Failure{Class: upstream.Failed, Err: errNoFinish})
	case err == nil && !r.formed():
		return r.broken(&upstream.Failure{Class: upstream.Failed, Err: upstream.ErrNotJSON})
	case err == nil:
		return r.finish()
	case errors.Is(err, upstream.ErrNotStarted) && left:
		return r.void(gone)
	case left:
		// Prompt and answer so far were computed for the caller, whoever cut them off;
		// but what is broken off on our side and was never shown is not charged.
		if !errors.Is(gone, ErrClientGone) && !r.shown() {
			return r.void(gone)
		}
		return r.settle(gone)
	default:
		return r.broken(err)
	}
}

// broken ends a call that failed on our side: what a stream has shown is charged.
func (r *run) broken(err error) (Summary, error) {
	if r.shown() {
		return r.settle(err)
	}
	return r.void(err)
}

// promised says whether the caller was promised JSON.
func (r *run) promised() bool {
	k := r.call.Request.ResponseFormat.Kind
	return k == wire.FormatJSONObject || k == wire.FormatJSONSchema
}

// ended says whether every choice has an end.
func (r *run) ended() bool {
	return !slices.ContainsFunc(r.choices, func(c choice) bool { return c.finish == "" })
}

// formed says whether the choices of a complete answer have the form that was promised.
// Providers are asked to write JSON; that they did is known only here. A tool call is an
// answer of its own form.
func (r *run) formed() bool {
	kind := r.call.Request.ResponseFormat.Kind
	return !r.promised() || !slices.ContainsFunc(r.choices, func(c choice) bool {
		return !c.called && upstream.CheckJSON(kind, string(c.text), c.refused) != nil
	})
}

// shown says whether bytes of the answer may have been released before its end.
func (r *run) shown() bool { return r.started && r.call.Request.Stream }

// event notes what was computed and releases its text. A provider may have computed
// ahead of a slow reader: what comes behind the end of ctx is neither released nor charged.
func (r *run) event(ctx context.Context, e upstream.Event) error {
	r.pulse.mu.Lock()
	defer r.pulse.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.first == 0 {
		r.first = time.Since(r.call.Now)
		r.head.Fingerprint = e.Fingerprint
	}
	if e.Choice < 0 || e.Choice >= len(r.choices) {
		return &upstream.Failure{Class: upstream.Failed, Err: errChoice}
	}
	if e.Usage == nil { // which comes after the last of what is released
		if err := r.cover(e.Completion); err != nil {
			return err
		}
	}
	r.last = e
	c := &r.choices[e.Choice]
	c.finish = e.Finish
	if e.Text == "" && e.Reasoning == "" && e.Refusal == "" && e.Tool == nil && len(e.Logprobs) == 0 {
		return nil
	}
	c.called = c.called || e.Tool != nil
	c.refused = c.refused || e.Refusal != ""
	if r.promised() {
		c.text = append(c.text, e.Text...)
	}
	if err := r.start(); err != nil {
		return err
	}
	// Noted before it is released: a kill between the two charges at most this event.
	r.hold.Delivered(e.Completion)
	if err := r.release(&e); err != nil {
		return emitError{err}
	}
	r.busy()
	return nil
}

// errSpent ends an answer because there is no credit for more of it.
var errSpent = errors.New("the credit is spent")

// cover holds credit for that many tokens, or ends the answer before them.
func (r *run) cover(tokens int) error {
	err := r.hold.Cover(tokens)
	_, credit := errors.AsType[*ledger.InsufficientError](err)
	_, budget := errors.AsType[*ledger.BudgetError](err)
	if credit || budget {
		return errSpent
	}
	return err
}

// spent ends every choice that goes on, as max_tokens would.
func (r *run) spent() {
	for i := range r.choices {
		r.choices[i].finish = cmp.Or(r.choices[i].finish, wire.FinishLength)
	}
}

// release hands the parts of an event to the emitter.
func (r *run) release(e *upstream.Event) error {
	if e.Reasoning != "" {
		if err := r.emit.Reasoning(e.Choice, e.Reasoning); err != nil {
			return err
		}
	}
	if e.Refusal != "" {
		if err := r.emit.Refusal(e.Choice, e.Refusal); err != nil {
			return err
		}
	}
	if e.Text != "" || len(e.Logprobs) > 0 {
		if err := r.emit.Text(e.Choice, e.Text, e.Logprobs); err != nil {
			return err
		}
	}
	if e.Tool != nil {
		return r.emit.Tool(e.Choice, e.Tool)
	}
	return nil
}

// start opens the answer once. Of a stream nothing leaves before its hold is durable.
func (r *run) start() error {
	if r.started {
		return nil
	}
	if r.call.Request.Stream {
		if err := r.hold.Durable(); err != nil {
			return err
		}
	}
	r.started = true
	if err := r.emit.Start(r.head); err != nil {
		return emitError{err}
	}
	return nil
}

// gone says whether err means that the call was ended by its caller, by the server's
// own end, or because the caller lost its key, and as which error that is told.
func (r *run) gone(ctx context.Context, err error) (error, bool) {
	if err == nil || ownFault(err) {
		return nil, false
	}
	if e, ok := errors.AsType[emitError](err); ok {
		return fmt.Errorf("%w: %w", ErrClientGone, e.err), true
	}
	if ctx.Err() == nil {
		return nil, false
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrShutdown), errors.Is(cause, ledger.ErrUnavailable), errors.Is(cause, account.ErrRevoked), errors.Is(cause, account.ErrSuspended):
		return cause, true
	}
	return fmt.Errorf("%w: %w", ErrClientGone, context.Cause(ctx)), true
}

// ownFault says whether the provider ended the call by itself. Who leaves in that moment
// pays no more than who stays.
func ownFault(err error) bool {
	_, failed := errors.AsType[*upstream.Failure](err)
	_, rejected := errors.AsType[*upstream.Rejected](err)
	return failed || rejected
}

// finish charges a complete answer and releases its end.
func (r *run) finish() (Summary, error) {
	if err := r.start(); err != nil {
		if _, gone := errors.AsType[emitError](err); gone {
			return r.settle(fmt.Errorf("%w: %w", ErrClientGone, err))
		}
		return r.void(err)
	}
	o := r.outcome(nil)
	reasons := make([]wire.FinishReason, len(r.choices))
	for i, c := range r.choices {
		reasons[i] = c.finish
	}
	o.Ending = ledger.Ending(reasons[0])
	if r.call.Answer != nil {
		var err error
		if r.call.Idempotency.Answer, err = r.call.Answer(reasons, r.usage(o.PromptTokens, o.CompletionTokens, o.CachedTokens)); err != nil {
			return r.broken(err)
		}
	}
	receipt, err := r.hold.Settle(o)
	if err != nil {
		return r.summary(receipt), err
	}
	r.leave(receipt.PromptTokens + receipt.CompletionTokens)
	if err := r.emit.Finish(reasons, r.usage(receipt.PromptTokens, receipt.CompletionTokens, receipt.CachedTokens)); err != nil {
		return r.summary(receipt), fmt.Errorf("%w: %w", ErrClientGone, err)
	}
	return r.summary(receipt), nil
}

// usage is what the caller is told of the tokens that are charged. How many of them were
// reasoning only the provider knows, which may not say.
func (r *run) usage(prompt, completion, cached int) wire.Usage {
	u := wire.Usage{PromptTokens: prompt, CompletionTokens: completion, CachedTokens: cached}
	if p := r.last.Usage; p != nil && r.plausible(p) {
		u.ReasoningTokens = max(0, min(p.ReasoningTokens, completion))
	}
	return u
}

// settle charges what was computed of an answer that err broke off, and returns err.
func (r *run) settle(err error) (Summary, error) {
	o := r.outcome(err)
	if o.Ending = ending(err, ledger.EndUpstreamCut); o.Ending == ledger.EndUpstreamCut && o.CompletionTokens == 0 {
		return r.void(err)
	}
	receipt, failed := r.hold.Settle(o)
	r.leave(receipt.PromptTokens + receipt.CompletionTokens)
	return r.summary(receipt), errors.Join(err, failed)
}

// void ends a call of which nothing was shown and returns err.
func (r *run) void(err error) (Summary, error) {
	o := r.outcome(err)
	o.Ending = ending(err, ledger.EndUpstreamError)
	r.leave(0)
	failed := r.hold.Void(o)
	return Summary{CompletionID: r.head.ID, Ending: o.Ending, Target: o.Target}, errors.Join(err, failed)
}

// ending is how receipts call the end that err brought; ours is what stands for any
// failure of the provider.
func ending(err error, ours ledger.Ending) ledger.Ending {
	switch {
	case errors.Is(err, ErrClientGone):
		return ledger.EndClientGone
	case errors.Is(err, ErrShutdown):
		return ledger.EndShutdown
	case errors.Is(err, account.ErrRevoked), errors.Is(err, account.ErrSuspended):
		return ledger.EndKeyRevoked
	}
	return ours
}

// outcome is what is known of the call now. err is what ended it.
func (r *run) outcome(err error) ledger.Outcome {
	o := ledger.Outcome{
		PromptTokens: r.hold.PromptTokens(), CachedTokens: min(r.last.Cached, r.hold.PromptTokens()), CompletionTokens: r.last.Completion, Status: 200, UsageSource: ledger.UsageCounted,
		Target: r.route.Target, Attempts: r.route.Attempts, FirstToken: r.first,
	}
	if !r.exact {
		o.UsageSource = ledger.UsageEstimated
	}
	if u := r.last.Usage; u != nil && r.plausible(u) {
		o.PromptTokens, o.CachedTokens, o.CompletionTokens, o.UsageSource = u.PromptTokens, u.CachedTokens, u.CompletionTokens, ledger.UsageProvider
	}
	if err != nil {
		status, code := r.service.Describe(err)
		if o.ErrorCode = code; !r.shown() {
			o.Status = status
		}
	}
	return o
}

// plausible says whether a provider's count can be true. One that cannot be is not
// charged: no price can be put on it, and its hold would stay for ever.
func (r *run) plausible(u *wire.Usage) bool {
	within := func(n, most int) bool { return n >= 0 && n <= most }
	if !within(u.PromptTokens, r.model.ContextWindow) || !within(u.CompletionTokens, r.call.Request.N*r.model.ContextWindow) || !within(u.CachedTokens, u.PromptTokens) {
		return false
	}
	_, err := r.model.Price.Cost(money.Tokens{Prompt: u.PromptTokens, Cached: u.CachedTokens, Completion: u.CompletionTokens})
	return err == nil
}

func (r *run) summary(rec ledger.Receipt) Summary {
	return Summary{
		CompletionID: r.head.ID,
		Usage:        wire.Usage{PromptTokens: rec.PromptTokens, CompletionTokens: rec.CompletionTokens, CachedTokens: rec.CachedTokens},
		Charge:       rec.Charge, Ending: rec.Ending, Target: rec.Target, FirstToken: r.first,
	}
}
