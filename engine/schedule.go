package engine

import (
	"runtime/debug"
	"slices"

	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/llama"
)

// batch is the buffers of one step.
type batch struct {
	columns []llama.Column
	picks   []pick // who gets a token, in the order of the logits
	prompt  int    // prompt tokens among the columns
}

// pick is a sequence that gets a token in this step.
type pick struct {
	s    *sequence
	id   int32
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
	for !closed && len(e.running) < e.o.MaxSequences {
		s := e.queue.first()
		if s == nil {
			break
		}
		// Its whole budget is promised now, so it never runs out of room. Nobody
		// overtakes the first one, or a long request would starve.
		tables, cached, ok := e.cache.Admit(kv.Need{
			Prefix: s.reusable(len(s.Prompt)), Shared: len(s.Prompt), Length: len(s.Prompt) + s.MaxTokens, Tables: 1,
		})
		if !ok {
			break
		}
		s.pages, s.pos = tables[0], cached
		s.found(cached)
		e.running = append(e.running, e.queue.pop())
	}
	var waiting []*sequence
	for closed && e.queue.n > 0 {
		waiting = append(waiting, e.queue.pop())
	}
	e.count()
	e.mu.Unlock()
	if !closed {
		return true
	}
	for _, s := range waiting {
		s.out.fail(ErrClosed)
	}
	e.end(func(*sequence) error { return ErrClosed })
	return false
}

// count publishes who runs; e.mu is held.
func (e *Engine) count() {
	e.stats.Running = len(e.running)
	e.stats.PagesUsed, e.stats.PagesCached = e.cache.Held(), e.cache.Cached()
}

// end ends the running sequences for which why gives an error. Pages are free, and
// counted so, before a consumer hears of it.
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
	e.count()
	e.mu.Unlock()
	for i, s := range failed {
		s.out.fail(errs[i])
	}
}

// step computes one batch and hands out its tokens. A panic on the way ends all
// who run, because their pages may be half written.
func (e *Engine) step() {
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
	for _, s := range e.running {
		s.publish(e.cache, s.pages, s.pos)
	}
	e.choose(rows)
	tokens := 0
	for i := range e.batch.picks {
		p := &e.batch.picks[i]
		before := p.s.generated
		e.advance(p)
		tokens += p.s.generated - before
	}
	e.deliver(tokens)
}

// fill makes the batch: every running sequence's next token, and of the prompts
// that join, the oldest first, at most PrefillChunk tokens in all.
func (e *Engine) fill() {
	b := &e.batch
	b.columns, b.picks, b.prompt = b.columns[:0], b.picks[:0], 0
	for _, s := range e.running {
		if s.pos >= len(s.Prompt) {
			b.columns = append(b.columns, llama.Column{ID: s.next, Pos: s.pos, Pages: s.pages, Logits: true})
			s.said(s.next)
			b.picks = append(b.picks, pick{s: s})
			s.pos++
		}
	}
	for _, s := range e.running {
		for s.pos < len(s.Prompt) && b.prompt < e.o.PrefillChunk {
			last := s.pos == len(s.Prompt)-1
			b.columns = append(b.columns, llama.Column{ID: s.Prompt[s.pos], Pos: s.pos, Pages: s.pages, Logits: last})
			if last {
				b.picks = append(b.picks, pick{s: s})
			}
			s.pos++
			b.prompt++
		}
	}
}

// choose picks a token from each row, side by side: a draw from a large vocabulary
// takes about as long as a part of the step.
func (e *Engine) choose(rows [][]float32) {
	e.model.Each(len(rows), func(i int) {
		p := &e.batch.picks[i]
		if p.s.sampler == nil {
			p.id = e.model.Argmax(rows[i])
			return
		}
		p.id = p.s.sampler.Pick(rows[i], p.s.pos)
	})
}

// advance makes the token of a pick and decides whether it is the last.
func (e *Engine) advance(p *pick) {
	s := p.s
	p.tok = Token{ID: p.id, Generated: s.generated, Cached: s.cached}
	if e.tk.IsEnd(p.id) {
		p.tok.Text, p.tok.Finish, p.over = s.text.Flush(), FinishStop, true
		return
	}
	s.next = p.id
	s.generated++
	p.tok.Generated = s.generated
	stopped := false
	if !e.tk.IsControl(p.id) { // a control token that ends nothing has no text
		p.tok.Text, stopped = s.text.Push(e.tk.Piece(p.id))
	}
	switch {
	case stopped:
		p.tok.Finish = FinishStop
	case s.generated == s.MaxTokens:
		p.tok.Text += s.text.Flush()
		p.tok.Finish = FinishLength
	}
	p.over = p.tok.Finish != ""
}

// deliver frees the pages of those who are done, publishes the counts, and only
// then hands out the tokens: who has had the last token finds its pages free.
func (e *Engine) deliver(tokens int) {
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
	e.count()
	e.mu.Unlock()
	for _, p := range e.batch.picks {
		p.s.out.put(p.tok)
	}
	clear(e.batch.picks) // holds no ended request until the next step
}
