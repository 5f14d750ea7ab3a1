package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/sample"
)

// call is a request on its way through the engine.
type call struct {
	Request
	ctx  context.Context
	gone atomic.Bool // the consumer has left
	out  stream
	keys []kv.Key // of the prompt's full pages

	constraints []sample.Constraint // by choice; nil: none

	// Written by the loop while it holds the engine's mutex.
	admitted int   // choices that have run or do
	ticket   int64 // when it came

	// Owned by the loop.
	cached int  // positions that the first choice found in the cache
	begun  bool // some choice has a token
	since  time.Time
}

func newCall(ctx context.Context, r Request) *call {
	r.Prompt, r.Stop = slices.Clone(r.Prompt), slices.Clone(r.Stop)
	r.LogitBias, r.Lead = maps.Clone(r.LogitBias), maps.Clone(r.Lead)
	r.Choices = max(r.Choices, 1)
	c := &call{Request: r, ctx: ctx, since: time.Now(), keys: kv.Keys(r.Owner, r.Prompt)}
	c.out.ready = make(chan struct{}, 1)
	c.out.open = r.Choices
	if r.Constraint != nil {
		for range r.Choices {
			c.constraints = append(c.constraints, r.Constraint())
		}
	}
	return c
}

// cancelled is why c should not go on, or nil.
func (c *call) cancelled() error {
	if c.gone.Load() {
		return context.Canceled
	}
	return c.ctx.Err()
}

// sequence is one choice of a call that runs. The loop owns it.
type sequence struct {
	*call
	prefix
	choice    int
	followers []*sequence // choices that begin when this one has computed their prompt
	follows   bool        // is one of them, and the prompt is not through
	paused    bool        // has left its place to somebody who had none
	ticket    int64       // when it did
	pages     kv.Table    // nil: it has left these too
	pos       int         // positions computed
	reached   int         // before its pages were taken
	lost      int         // of these, those it has had to compute again
	fresh     int         // steps in which it got on since it has place and pages
	next      int32       // the token at pos, once the prompt is through
	answer    []int32     // the tokens before that, from the prompt's end
	generated int
	quota     int             // prompt tokens of the step that is made up
	sampler   *sample.Sampler // nil: greedy
	text      *sample.Text
	scores    scores
}

// begin makes the next choices of c run in tables, the first cached positions of
// which need not be computed; e.mu is held.
func (e *Engine) begin(c *call, tables []kv.Table, cached int) {
	if c.admitted == 0 {
		c.cached = cached
		e.stats.PrefixQueries += int64(len(c.Prompt))
		e.stats.PrefixHits += int64(cached)
		e.stats.QueueTime.observe(time.Since(c.since))
	}
	var leader *sequence
	for _, t := range tables {
		s := e.newSequence(c, t)
		if leader == nil {
			leader = s
			s.pos = cached
			s.found(cached)
		} else {
			s.follows = true
			leader.followers = append(leader.followers, s)
		}
		c.admitted++
		e.running = append(e.running, s)
	}
}

func (e *Engine) newSequence(c *call, t kv.Table) *sequence {
	s := &sequence{call: c, choice: c.admitted, prefix: newPrefix(c), pages: t, text: sample.NewText(c.Stop)}
	o := sample.Options{
		Temperature: c.Temperature, TopP: c.TopP, Seed: c.Seed, Choice: s.choice,
		Bias: c.LogitBias, Lead: c.Lead, FrequencyPenalty: c.FrequencyPenalty, PresencePenalty: c.PresencePenalty,
	}
	if c.constraints != nil {
		o.Constraint = c.constraints[s.choice]
	}
	if c.Temperature > 0 && c.TopP > 0 || len(o.Bias) > 0 || len(o.Lead) > 0 || o.FrequencyPenalty != 0 || o.PresencePenalty != 0 || o.Constraint != nil {
		s.sampler = sample.New(e.kernel, o)
	}
	if c.Logprobs {
		s.scores.scorer = sample.NewScorer(e.kernel)
	}
	return s
}

// stream carries tokens to a consumer who may be slow or gone: the loop never
// waits for it. It holds at most MaxTokens and one of each choice.
type stream struct {
	ready chan struct{} // has room for one: there is something to take

	mu     sync.Mutex
	open   int // choices that have not ended
	tokens []Token
	ended  bool
	err    error
}

func (s *stream) put(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	if t.Finish != "" {
		s.open--
		s.ended = s.open == 0
	}
	s.mu.Unlock()
	s.signal()
}

// fail ends all choices that have not ended.
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
