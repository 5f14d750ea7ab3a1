package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/sample"
)

// Request asks for one generation.
type Request struct {
	// Owner is who waits: the queue serves owners in turn, however many requests
	// each has in it. Requests of one owner whose prompts begin alike compute that
	// beginning once, as long as there is room to keep it; the tokens are the same
	// either way.
	Owner       string
	Prompt      []int32 // at least one token
	MaxTokens   int     // at least 1; Prompt and MaxTokens together fit the context
	Temperature float64 // 0: the most likely token each time
	TopP        float64 // in 0..1; 1: off, 0: the most likely token each time
	Seed        uint64
	Stop        []string // texts that end the generation, none empty
}

// Finish is why a generation ended.
type Finish string

// The ends of a generation.
const (
	FinishStop   Finish = "stop"   // the end-of-text token, or a stop string
	FinishLength Finish = "length" // MaxTokens
)

// Token is what one step gave.
type Token struct {
	ID int32 // what was picked
	// Text is what may be shown: whole UTF-8, never part of a stop string. It lags
	// behind the tokens and may be "".
	Text      string
	Generated int    // tokens so far; the end-of-text token is not counted
	Cached    int    // tokens of the prompt that an earlier request had computed, the same in every Token
	Finish    Finish // "" until the last one
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
	case !(r.Temperature >= 0 && r.Temperature <= maxTemperature): // NaN is neither
		return bad("Temperature is %v", r.Temperature)
	case !(r.TopP >= 0 && r.TopP <= 1):
		return bad("TopP is %v", r.TopP)
	case slices.Contains(r.Stop, ""):
		return bad("a stop string is empty")
	case r.MaxTokens > e.info.Context || len(r.Prompt) > e.info.Context-r.MaxTokens:
		return fmt.Errorf("%w: %d prompt tokens and MaxTokens %d, the context has %d positions", ErrTooLong, len(r.Prompt), r.MaxTokens, e.info.Context)
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

// sequence is a request on its way through the engine.
type sequence struct {
	Request
	ctx  context.Context
	gone atomic.Bool // the consumer has left
	out  stream

	// Owned by the loop.
	prefix
	pages     kv.Table
	pos       int   // positions computed
	next      int32 // the token at pos, once the prompt is through
	generated int
	sampler   *sample.Sampler // nil: greedy
	text      *sample.Text
}

func (e *Engine) newSequence(ctx context.Context, r Request) *sequence {
	r.Prompt, r.Stop = slices.Clone(r.Prompt), slices.Clone(r.Stop)
	s := &sequence{Request: r, ctx: ctx, prefix: newPrefix(r.Owner, r.Prompt), text: sample.NewText(r.Stop)}
	if r.Temperature > 0 && r.TopP > 0 {
		s.sampler = sample.New(e.kernel, sample.Options{Temperature: r.Temperature, TopP: r.TopP, Seed: r.Seed})
	}
	s.out.ready = make(chan struct{}, 1)
	return s
}

// stream carries tokens to a consumer who may be slow or gone: the loop never
// waits for it. It holds at most MaxTokens and one.
type stream struct {
	ready chan struct{} // has room for one: there is something to take

	mu     sync.Mutex
	tokens []Token
	ended  bool
	err    error
}

func (s *stream) put(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	s.ended = t.Finish != ""
	s.mu.Unlock()
	s.signal()
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	s.ended, s.err = true, err
	s.mu.Unlock()
	s.signal()
}

func (s *stream) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take gives what has come, for which it swaps in the buffer of an earlier take.
func (s *stream) take(buffer []Token) (tokens []Token, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens, s.tokens = s.tokens, buffer[:0]
	return tokens, s.ended, s.err
}

// Generate continues r.Prompt. The sequence ends with a token whose Finish is not
// "", or with an error: [ErrRequest], [ErrTooLong], [ErrBusy], [ErrClosed], the
// context's (with [ErrNotStarted] if it still waited), or a [*PanicError]. Leaving the loop, or cancelling ctx, stops the
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
	s := e.newSequence(ctx, r)
	if err := e.enqueue(s); err != nil {
		return err
	}
	defer e.leave(s)
	patience := time.NewTimer(e.o.QueueWait)
	defer patience.Stop()
	var spare []Token
	for {
		tokens, ended, err := s.out.take(spare)
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
		case <-s.out.ready:
		case <-ctx.Done():
			if e.dequeue(s) {
				return fmt.Errorf("%w: %w", ErrNotStarted, ctx.Err())
			}
			return ctx.Err()
		case <-patience.C:
			if e.dequeue(s) {
				return fmt.Errorf("%w: no room within %v", ErrBusy, e.o.QueueWait)
			}
		}
	}
}
