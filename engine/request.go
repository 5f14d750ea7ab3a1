package engine

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/parley-ai/parley/engine/sample"
)

// Request asks for one generation, or several from the same prompt.
type Request struct {
	// Owner is who waits. However many requests an owner has, those of others get
	// their turn: of the owners who wait, the one who has the fewest sequences running
	// is next. An owner who has none takes, where no place is free, that of the newest
	// sequence of the owner who has the most, and where pages are missing those of the
	// newest sequence of the owner who holds the most. A sequence that is its owner's
	// only one gives up neither before it has had 32 steps, and after it had to compute
	// much again one more for 8 positions. It goes on as soon as there is room, with the
	// tokens that it gets alone. Requests of one owner whose prompts begin alike compute
	// that beginning once, as long as there is room to keep it; the tokens are the same
	// either way.
	Owner     string
	Prompt    []int32 // at least one token
	MaxTokens int     // of each choice, at least 1; Prompt and MaxTokens together fit the context
	// Choices is how many independent generations, up to MaxChoices; 0 means 1. The
	// prompt is computed once for all that there is room for at the same time; the
	// others follow. Choice 0 is what a request for one choice gives.
	Choices     int
	Temperature float64 // 0: the most likely token each time
	TopP        float64 // in 0..1; 1: off, 0: the most likely token each time
	Seed        uint64
	Stop        []string // texts that end the generation, none empty
	// LogitBias is added to the logits of tokens, -100..100.
	LogitBias map[int32]float64
	// Lead is like LogitBias, beside it, for the first token of a choice only.
	Lead map[int32]float64
	// FrequencyPenalty is taken off a token's logit for each time that the choice has
	// it, PresencePenalty once if it has it at all; both are -2..2.
	FrequencyPenalty, PresencePenalty float64
	// Logprobs asks for the log-probabilities of all tokens, and for those of the
	// TopLogprobs most likely ones at their places, at most MaxTopLogprobs. They are
	// the model's own, before bias, penalties, temperature, TopP and Constraint.
	Logprobs    bool
	TopLogprobs int
	// Constraint, if not nil, makes what a choice is held to; it is called for each
	// before Generate queues the request. A choice ends with FinishStop as soon as its
	// constraint is done.
	Constraint func() sample.Constraint
}

// MaxTopLogprobs bounds Request.TopLogprobs.
const MaxTopLogprobs = 20

// MaxChoices bounds Request.Choices.
const MaxChoices = 128

// Finish is why a generation ended.
type Finish string

// The ends of a generation.
const (
	FinishStop   Finish = "stop"   // the end-of-text token, a stop string, or a constraint that is done
	FinishLength Finish = "length" // MaxTokens
)

// Token is what one step gave one choice.
type Token struct {
	ID     int32 // what was picked
	Choice int   // counted from 0
	// Text is what may be shown: whole UTF-8, never part of a stop string. It lags
	// behind the tokens and may be "".
	Text      string
	Generated int    // tokens of the choice so far; the end-of-text token is not counted
	Cached    int    // tokens of the prompt that an earlier request had computed, the same in every Token
	Finish    Finish // "" until the choice's last one
	// Logprobs is of the tokens of which Text, or an earlier one, has the beginning:
	// those of a token come with its text. A stop string's tokens have none.
	Logprobs []Logprob
}

// Candidate is a token with its log-probability, [sample.LeastLogprob] at least.
type Candidate struct {
	ID      int32
	Bytes   []byte // may be part of a character, and must not be written; a control token's are its name
	Logprob float32
}

// Logprob is a token of an answer and what else was likely in its place, most likely
// first.
type Logprob struct {
	Candidate
	Top []Candidate
}

func (e *Engine) check(r *Request) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrRequest, fmt.Sprintf(format, args...))
	}
	switch {
	case len(r.Prompt) == 0:
		return bad("the prompt is empty")
	case r.MaxTokens < 1:
		return bad("MaxTokens is %d", r.MaxTokens)
	case r.Choices < 0 || r.Choices > MaxChoices:
		return bad("Choices is %d", r.Choices)
	case !(r.Temperature >= 0 && r.Temperature <= maxTemperature): // NaN is neither
		return bad("Temperature is %v", r.Temperature)
	case !(r.TopP >= 0 && r.TopP <= 1):
		return bad("TopP is %v", r.TopP)
	case slices.Contains(r.Stop, ""):
		return bad("a stop string is empty")
	case !(math.Abs(r.FrequencyPenalty) <= 2 && math.Abs(r.PresencePenalty) <= 2):
		return bad("the penalties are %v and %v", r.FrequencyPenalty, r.PresencePenalty)
	case r.TopLogprobs < 0 || r.TopLogprobs > MaxTopLogprobs || r.TopLogprobs > 0 && !r.Logprobs:
		return bad("TopLogprobs is %d, Logprobs %v", r.TopLogprobs, r.Logprobs)
	case r.MaxTokens > e.info.Context || len(r.Prompt) > e.info.Context-r.MaxTokens:
		return fmt.Errorf("%w: %d prompt tokens and MaxTokens %d, the context has %d positions", ErrTooLong, len(r.Prompt), r.MaxTokens, e.info.Context)
	}
	for _, bias := range []map[int32]float64{r.LogitBias, r.Lead} {
		for id, b := range bias {
			if id < 0 || int(id) >= e.info.Vocab || !(math.Abs(b) <= 100) {
				return bad("bias of token %d is %v; the vocabulary has %d tokens", id, b, e.info.Vocab)
			}
		}
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= e.info.Vocab {
			return bad("token %d at %d of the prompt is not in the vocabulary of %d", id, i, e.info.Vocab)
		}
	}
	return nil
}

// maxTemperature keeps logits finite when they are divided; far below it every
// token is as likely as any other.
const maxTemperature = 1e6

// Generate continues r.Prompt. Every choice ends with a token whose Finish is not "",
// and the sequence with the last of these, or with an error: [ErrRequest],
// [ErrTooLong], [ErrBusy], [ErrClosed], the context's (with [ErrNotStarted] if it still
// waited), [ErrConstraint] or a [*PanicError]. Leaving the loop, or cancelling ctx, stops the
// generation and frees its memory by the next step. Nothing happens before the
// sequence is ranged over; each time it is, the generation is made anew. A slow
// consumer delays nobody but itself.
func (e *Engine) Generate(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := e.generate(ctx, r, func(t Token) bool { return yield(t, nil) }); err != nil {
			yield(Token{}, err)
		}
	}
}

// generate returns nil when the consumer left or has had the last token.
func (e *Engine) generate(ctx context.Context, r Request, yield func(Token) bool) error {
	if err := e.check(&r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	c := newCall(ctx, r)
	if err := e.enqueue(c); err != nil {
		return err
	}
	defer e.leave(c)
	patience := time.NewTimer(e.o.QueueWait)
	defer patience.Stop()
	var spare []Token
	for {
		tokens, ended, err := c.out.take(spare)
		for _, t := range tokens {
			if !yield(t) {
				return nil
			}
		}
		if ended {
			return err
		}
		spare = tokens
		select {
		case <-c.out.ready:
		case <-ctx.Done():
			if e.withdraw(c) {
				return fmt.Errorf("%w: %w", ErrNotStarted, ctx.Err())
			}
			return ctx.Err()
		case <-patience.C:
			if e.withdraw(c) {
				return fmt.Errorf("%w: no room within %v", ErrBusy, e.o.QueueWait)
			}
		}
	}
}
