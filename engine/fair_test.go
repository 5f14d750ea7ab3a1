package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/engine"
)

// beside starts requests that the loop, which stands still, finds waiting. note is
// called by the loop after the first one's first step.
func beside(t *testing.T, e *engine.Engine, r engine.Request, n int, note func()) {
	t.Helper()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	before := e.Stats().Waiting
	for i := range n {
		ctx := ctx
		if i == 0 {
			ctx = &turns{Context: ctx, at: 2, note: note}
		}
		wg.Go(func() {
			if _, _, err := collect(e.Generate(ctx, r)); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%+v: %v", r, err)
			}
		})
		until(t, "the request waits", func() bool { return e.Stats().Waiting == before+i+1 })
	}
}

// An owner with long answers leaves places, and pages, to who comes next.
func TestFair_LeavesRoom(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	for name, c := range map[string]struct {
		pages, tokens int
		running       int // of the greedy owner
	}{
		"places": {400, 300, 14},
		"pages":  {128, 157, 8}, // of ten pages each, beside 32 of the first and 16 for others
	} {
		o := engine.Options{Threads: 1, QueueWait: time.Hour, Context: 512, KVBytes: pages(c.pages)}
		e := open(t, path, o)
		resume, _ := hold(t, e, "first")
		full, submitted, done := make(chan engine.Stats), make(chan struct{}), make(chan engine.Stats)
		beside(t, e, engine.Request{Owner: "greedy", Prompt: prompt(3, 0), MaxTokens: c.tokens}, 20, func() {
			full <- e.Stats()
			<-submitted
		})
		resume()
		if s := <-full; s.Running != c.running+1 {
			t.Errorf("%s: %d run, want the first and %d more: %+v", name, s.Running, c.running, s)
		}
		beside(t, e, engine.Request{Owner: "modest", Prompt: prompt(3, 0), MaxTokens: 100}, 1, func() { done <- e.Stats() })
		close(submitted)
		if s := <-done; s.Running != c.running+2 {
			t.Errorf("%s: with the modest one %d run, want %d: %+v", name, s.Running, c.running+2, s)
		}
	}
}

// Who has nothing running takes the place of somebody's newest sequence when all places
// are taken; that one goes on later, with the tokens it gets alone.
func TestFair_Yields(t *testing.T) {
	t.Parallel()
	o := small()
	o.MaxSequences, o.QueueWait = 4, time.Hour
	e := open(t, tiny(t), o)
	resume, release := hold(t, e, "greedy")
	full, submitted, done := make(chan engine.Stats), make(chan struct{}), make(chan engine.Stats, 1)
	long := engine.Request{Owner: "greedy", Prompt: prompt(3, 0), MaxTokens: 100, Temperature: 1, TopP: 1}
	beside(t, e, long, 2, func() {
		full <- e.Stats()
		<-submitted
	})
	newest, got := long, make(chan string)
	newest.Prompt = prompt(300, 0) // so long that it is not through when it is interrupted
	go func() {
		text, last, err := collect(e.Generate(t.Context(), newest))
		if err != nil || last.Generated != newest.MaxTokens {
			t.Errorf("the sequence that was interrupted: %+v, %v", last, err)
		}
		got <- text
	}()
	until(t, "the newest waits", func() bool { return e.Stats().Waiting == 3 })
	resume()
	if s := <-full; s.Running != 4 {
		t.Errorf("%d run, want 4", s.Running)
	}
	before := e.Stats()
	beside(t, e, engine.Request{Owner: "modest", Prompt: prompt(3, 0), MaxTokens: 5}, 1, func() { done <- e.Stats() })
	close(submitted)
	if s := <-done; s.Running != 4 || s.Waiting != 0 || s.Steps != before.Steps+1 {
		t.Errorf("after the modest one's first step: %+v, before it: %+v", s, before)
	}
	text := <-got
	release()
	if alone, _, err := collect(e.Generate(t.Context(), newest)); err != nil || text != alone {
		t.Errorf("interrupted %q, alone %q, %v", text, alone, err)
	}
}

// A short prompt waits for no long ones of somebody else.
func TestFair_Prompts(t *testing.T) {
	t.Parallel()
	o := small()
	o.PrefillChunk = 16
	e := open(t, tiny(t), o)
	resume, _ := hold(t, e, "first")
	long := engine.Request{Owner: "greedy", Prompt: prompt(500, 0), MaxTokens: 5}
	beside(t, e, long, 3, func() {})
	before, after := e.Stats(), make(chan engine.Stats, 1)
	beside(t, e, engine.Request{Owner: "modest", Prompt: prompt(8, 0), MaxTokens: 50}, 1, func() { after <- e.Stats() })
	resume()
	s := <-after
	if steps, tokens := s.Steps-before.Steps, s.Tokens-before.Tokens; steps != 1 || tokens != 2 {
		t.Errorf("%d tokens after %d steps, want one of the first and one of the modest", tokens, steps)
	}
	if n := s.PromptTokens - before.PromptTokens; n != 16 {
		t.Errorf("%d tokens of prompts in the step, want all 16", n)
	}
}
