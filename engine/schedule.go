package engine

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/llama"
)

// batch is the buffers of one step.
type batch struct {
	columns []llama.Column
	picks   []pick // who gets a token
	rows    int    // of logits
	prompt  int    // prompt tokens among the columns
	shares  []share
}

// pick is a sequence that gets a token in this step.
type pick struct {
	s    *sequence
	row  int   // of the logits
	id   int32 // -1: the constraint allows none
	done bool  // by its constraint
	tok  Token
	over bool
}

// loop owns the model: it admits, steps and ends sequences until the engine is
// closed.
func (e *Engine) loop() {
	defer close(e.done)
	for e.turn() {
		if len(e.running) == 0 {
			<-e.wake
			continue
		}
		e.step()
	}
}

// turn does what happens between steps: those who left free their pages, those who
// wait take them. It reports false once the engine is closed and nobody runs.
func (e *Engine) turn() bool {
	e.end(func(s *sequence) error { return s.cancelled() })
	e.mu.Lock()
	closed := e.closed
	var waiting []*call
	if closed {
		waiting = e.queue.clear()
	} else {
		e.admit()
	}
	e.count()
	e.mu.Unlock()
	if !closed {
		return true
	}
	for _, c := range waiting {
		c.out.fail(ErrClosed)
	}
	e.end(func(*sequence) error { return ErrClosed })
	return false
}

// count publishes who runs; e.mu is held.
func (e *Engine) count() {
	e.stats.Running = e.active()
	e.stats.PagesUsed, e.stats.PagesCached = e.cache.Held(), e.cache.Cached()
}

// end ends the running sequences for which why gives an error, which is the same for
// all of a call. Pages are free, and counted so, before a consumer hears of it.
func (e *Engine) end(why func(*sequence) error) {
	var failed []*sequence
	var errs []error
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		err := why(s)
		if err == nil {
			return false
		}
		e.cache.Release(s.pages)
		failed, errs = append(failed, s), append(errs, err)
		return true
	})
	if len(failed) == 0 {
		return
	}
	e.mu.Lock()
	for _, s := range failed {
		e.queue.remove(s.call) // its choices that wait
	}
	e.count()
	e.mu.Unlock()
	for i, s := range failed {
		s.out.fail(errs[i])
	}
}

// step computes one batch and hands out its tokens. A panic on the way ends all
// who run, because their pages may be half written.
func (e *Engine) step() {
	begin := time.Now()
	defer func() {
		if v := recover(); v != nil {
			err := &PanicError{Value: v, Stack: debug.Stack()}
			if p, ok := v.(*llama.Panic); ok {
				err.Value, err.Stack = p.Value, p.Stack
			}
			e.end(func(*sequence) error { return err })
		}
	}()
	e.fill()
	rows, err := e.model.Step(e.batch.columns)
	if err != nil {
		e.end(func(*sequence) error { return err })
		return
	}
	e.keep()
	e.choose(rows)
	tokens := 0
	for i := range e.batch.picks {
		p := &e.batch.picks[i]
		before := p.s.generated
		e.advance(p)
		tokens += p.s.generated - before
	}
	e.deliver(tokens, time.Since(begin))
}

// fill makes the batch: every running sequence's next token, and the next of the
// prompts that join.
func (e *Engine) fill() {
	b := &e.batch
	b.columns, b.picks, b.rows, b.prompt = b.columns[:0], b.picks[:0], 0, 0
	for _, s := range e.running {
		if !s.joins() && !s.follows && !s.paused {
			b.columns = append(b.columns, llama.Column{ID: s.next, Pos: s.pos, Pages: s.pages, Logits: true})
			b.pick(s)
			s.said(s.next)
			s.answer = append(s.answer, s.next)
			s.pos++
			s.fresh++
		}
	}
	e.share()
	for _, s := range e.running {
		if s.quota > 0 && s.pos+s.quota > s.reached {
			s.fresh++
		}
		for ; s.quota > 0; s.quota-- {
			last := s.pos == len(s.Prompt)-1 && s.generated == 0
			b.columns = append(b.columns, llama.Column{ID: s.known(s.pos), Pos: s.pos, Pages: s.pages, Logits: last})
			if last {
				b.pick(s, s.followers...)
			}
			s.pos++
			b.prompt++
		}
	}
}

// joins reports whether the prompt, or what was computed of it and of the answer before
// the pages were taken, is not through.
func (s *sequence) joins() bool { return s.behind() > 0 && !s.follows }

// behind is how many tokens are known and not computed, but for the last one drawn.
func (s *sequence) behind() int { return len(s.Prompt) + len(s.answer) - s.pos }

// known is the token at a position of the prompt or of the answer.
func (s *sequence) known(pos int) int32 {
	if pos < len(s.Prompt) {
		return s.Prompt[pos]
	}
	return s.answer[pos-len(s.Prompt)]
}

// pick notes that a row of logits is for s and others.
func (b *batch) pick(s *sequence, others ...*sequence) {
	b.picks = append(b.picks, pick{s: s, row: b.rows})
	for _, o := range others {
		b.picks = append(b.picks, pick{s: o, row: b.rows})
	}
	b.rows++
}

// share is what an owner needs and gets of the prompt tokens of a step.
type share struct {
	owner     string
	need, got int
}

// share divides PrefillChunk prompt tokens among the owners whose prompts join: all get
// the same, and what one does not need the others get. A short prompt so waits for no
// long one of somebody else. Of one owner the oldest comes first, which ends earlier
// and nothing later than if they took turns.
func (e *Engine) share() {
	b := &e.batch
	b.shares = b.shares[:0]
	of := func(owner string) *share {
		i := slices.IndexFunc(b.shares, func(s share) bool { return s.owner == owner })
		if i < 0 {
			i, b.shares = len(b.shares), append(b.shares, share{owner: owner})
		}
		return &b.shares[i]
	}
	for _, s := range e.running {
		if s.joins() && !s.paused {
			of(s.Owner).need += s.behind()
		}
	}
	wanting := len(b.shares)
	for left := e.o.PrefillChunk; left > 0 && wanting > 0; {
		each := max(1, left/wanting)
		wanting = 0
		for i := range b.shares {
			o := &b.shares[i]
			n := min(each, o.need-o.got, left)
			o.got += n
			left -= n
			if o.got < o.need {
				wanting++
			}
		}
	}
	for _, s := range e.running {
		if s.joins() && !s.paused {
			o := of(s.Owner)
			s.quota = min(o.got, s.behind())
			o.got -= s.quota
		}
	}
}

// keep publishes the pages that the step has filled, and lets choices begin whose
// prompt is through: they share its full pages, and each has its own copy of the last.
func (e *Engine) keep() {
	for _, s := range e.running {
		if s.follows {
			continue
		}
		s.publish(e.cache, s.pages, s.pos)
		if s.joins() {
			continue
		}
		for _, f := range s.followers {
			if end := len(s.Prompt); end%kernel.Page > 0 {
				e.cache.Copy(f.pages, s.pages, end/kernel.Page)
			}
			f.follows, f.pos = false, s.pos
			f.found(s.pos)
		}
		s.followers = nil
	}
}

// choose picks a token from each row, side by side: a draw from a large vocabulary
// takes about as long as a part of the step.
func (e *Engine) choose(rows [][]float32) {
	e.model.Each(len(e.batch.picks), func(i int) {
		p := &e.batch.picks[i]
		s, row := p.s, rows[p.row]
		if s.sampler == nil {
			p.id = e.model.Argmax(row)
		} else if p.id = s.sampler.Pick(row, s.pos, s.MaxTokens-s.generated); p.id >= 0 && !e.tk.IsEnd(p.id) {
			s.sampler.Accept(p.id)
			p.done = s.sampler.Constraint != nil && s.sampler.Constraint.Done()
		}
		if c := &s.scores; c.scorer != nil && p.id >= 0 {
			c.own, c.top = c.scorer.Score(row, p.id, s.TopLogprobs)
		}
	})
}

// advance makes the token of a pick and decides whether it is the last.
func (e *Engine) advance(p *pick) {
	s := p.s
	p.tok = Token{ID: p.id, Choice: s.choice, Generated: s.generated, Cached: s.call.cached}
	switch {
	case p.id < 0:
		p.over = true
		return
	case e.tk.IsEnd(p.id):
		p.tok.Text, p.tok.Finish = s.text.Flush(), s.ended()
	default:
		e.say(p)
	}
	p.tok.Logprobs = s.scores.release(s.text.Shown())
	p.over = p.tok.Finish != ""
}

// ended is why an answer has ended that its constraint, if any, lets end here.
func (s *sequence) ended() Finish {
	if s.sampler != nil {
		if c, ok := s.sampler.Constraint.(cut); ok && c.Cut() {
			return FinishLength
		}
	}
	return FinishStop
}

// say adds the token of a pick to the text.
func (e *Engine) say(p *pick) {
	s := p.s
	s.next = p.id
	s.generated++
	p.tok.Generated = s.generated
	var piece []byte
	if !e.tk.IsControl(p.id) { // a control token that ends nothing has no text
		piece = e.tk.Piece(p.id)
	}
	s.scores.push(e, len(piece))
	var stopped bool
	p.tok.Text, stopped = s.text.Push(piece)
	switch {
	case stopped:
		p.tok.Finish = FinishStop
		return
	case p.done:
		p.tok.Finish = s.ended()
	case s.generated == s.MaxTokens:
		p.tok.Finish = FinishLength
	default:
		return
	}
	p.tok.Text += s.text.Flush()
}

// deliver frees the pages of those who are done, publishes the counts of the step, and
// only then hands out the tokens: who has had the last token finds its pages free.
func (e *Engine) deliver(tokens int, took time.Duration) {
	for _, p := range e.batch.picks {
		if p.over {
			e.cache.Release(p.s.pages)
			i := slices.Index(e.running, p.s)
			e.running = slices.Delete(e.running, i, i+1)
		}
	}
	e.mu.Lock()
	e.stats.Steps++
	e.stats.Tokens += int64(tokens)
	e.stats.PromptTokens += int64(e.batch.prompt)
	e.stats.Busy += took
	e.stats.TokensPerSecond = e.speed.add(tokens, took)
	for _, p := range e.batch.picks {
		if c := p.s.call; !c.begun {
			c.begun = true
			e.stats.FirstToken.observe(time.Since(c.since))
		}
	}
	e.count()
	e.mu.Unlock()
	for _, p := range e.batch.picks {
		if p.id < 0 {
			p.s.out.fail(ErrConstraint)
			continue
		}
		p.s.out.put(p.tok)
	}
	clear(e.batch.picks) // holds no ended request until the next step
}
