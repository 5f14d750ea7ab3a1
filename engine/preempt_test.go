package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/engine"
)

// bytes of n pages of the tiny model.
func pages(n int) int64 { return int64(n * 2 * 2 * 2 * 16 * 32) }

// same runs a request again, for an owner that finds nothing in the cache, and compares.
func same(t *testing.T, e *engine.Engine, r engine.Request, got []string) {
	t.Helper()
	r.Owner += " once more"
	for i, want := range texts(t, e.Generate(t.Context(), r), max(1, r.Choices)) {
		if got[i] != want {
			t.Errorf("%s: choice %d is %q, alone %q", r.Owner, i, got[i], want)
		}
	}
}

// Who has nothing running waits for no long answer whose pages it needs, but for its
// turn; the long one goes on later, with the tokens it gets alone.
func TestPreempt_OnlyAnswer(t *testing.T) {
	t.Parallel()
	for name, places := range map[string]int{"pages": 16, "places": 1} {
		o := engine.Options{Threads: 1, MaxSequences: places, QueueWait: time.Hour, Context: 256, KVBytes: pages(18)}
		if name == "places" {
			o.KVBytes = pages(100)
		}
		e := open(t, tiny(t), o)
		_, release := hold(t, e, "first")
		long := engine.Request{Owner: "long", Prompt: prompt(100, 0), MaxTokens: 150, Temperature: 1, TopP: 1, Seed: 3, FrequencyPenalty: 1, Stop: []string{"\x00"}}
		begun, submitted, got := make(chan engine.Stats), make(chan struct{}), make(chan []string)
		go func() {
			ctx := &turns{Context: t.Context(), at: 2, note: func() { begun <- e.Stats(); <-submitted }}
			got <- texts(t, e.Generate(ctx, long), 1)
		}()
		until(t, "the long one waits", func() bool { return e.Stats().Waiting == 1 })
		release()
		before, short := <-begun, make(chan engine.Stats, 1)
		beside(t, e, engine.Request{Owner: "short", Prompt: prompt(40, 0), MaxTokens: 8}, 1, func() { short <- e.Stats() })
		close(submitted)
		if s := <-short; s.Steps > before.Steps+40 || s.Tokens >= before.Tokens+int64(long.MaxTokens) {
			t.Errorf("%s: the short one's first step: %+v, when the long one began: %+v", name, s, before)
		}
		same(t, e, long, <-got)
		if s := e.Stats(); (s.Preempted > 0) != (name == "pages") {
			t.Errorf("%s: %d times pages were taken", name, s.Preempted)
		}
	}
}

// Of an owner who has more than one the newest gives its pages up at once, whether it
// answers, computes its prompt or follows a choice that does.
func TestPreempt_Newest(t *testing.T) {
	t.Parallel()
	for name, newest := range map[string]engine.Request{
		"prompt":  {Prompt: prompt(200, 1), MaxTokens: 20},
		"answer":  {Prompt: prompt(20, 1), MaxTokens: 200},
		"choices": {Prompt: prompt(150, 1), MaxTokens: 15, Choices: 4},
	} {
		newest.Owner, newest.Temperature, newest.TopP = "greedy", 1, 1
		e := open(t, tiny(t), engine.Options{Threads: 1, QueueWait: time.Hour, Context: 256, KVBytes: pages(34), PrefillChunk: 16})
		resume, release := hold(t, e, "greedy")
		begun, submitted, got := make(chan engine.Stats), make(chan struct{}), make(chan []string)
		go func() {
			ctx := &turns{Context: t.Context(), at: 3, note: func() { begun <- e.Stats(); <-submitted }}
			got <- texts(t, e.Generate(ctx, newest), max(1, newest.Choices))
		}()
		until(t, "the newest waits", func() bool { return e.Stats().Waiting == 1 })
		resume()
		before, after := <-begun, make(chan engine.Stats, 1)
		beside(t, e, engine.Request{Owner: "modest", Prompt: prompt(60, 0), MaxTokens: 60}, 1, func() { after <- e.Stats() })
		close(submitted)
		if s := <-after; s.Steps != before.Steps+1 || s.Preempted == 0 {
			t.Errorf("%s: after the modest one's first step %+v, before it %+v", name, s, before)
		}
		text := <-got
		release()
		same(t, e, newest, text)
	}
}

// Owners whose answers do not fit beside each other take turns.
func TestPreempt_TakeTurns(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), engine.Options{Threads: 2, QueueWait: time.Hour, Context: 256, KVBytes: pages(17)})
	_, release := hold(t, e, "first")
	var wg sync.WaitGroup
	answers := make([][]string, 4)
	request := func(i int) engine.Request {
		return engine.Request{Owner: fmt.Sprint(i), Prompt: prompt(40+10*i, i), MaxTokens: 150, Temperature: 1, TopP: 1}
	}
	for i := range answers {
		wg.Go(func() { answers[i] = texts(t, e.Generate(t.Context(), request(i)), 1) })
	}
	until(t, "all wait", func() bool { return e.Stats().Waiting == len(answers) })
	release()
	wg.Wait()
	s := e.Stats()
	if s.Preempted < int64(2*len(answers)) || s.PagesUsed != 0 {
		t.Errorf("at the end %+v", s)
	}
	for i := range answers {
		same(t, e, request(i), answers[i])
	}
}

// Who leaves while its pages are somebody else's leaves nothing behind.
func TestPreempt_Cancelled(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), engine.Options{Threads: 1, QueueWait: time.Hour, Context: 256, KVBytes: pages(16)})
	_, release := hold(t, e, "first")
	ctx, cancel := context.WithCancel(t.Context())
	begun, submitted, left := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		steps := &turns{Context: ctx, at: 2, note: func() { close(begun); <-submitted }}
		_, _, err := collect(e.Generate(steps, engine.Request{Owner: "long", Prompt: prompt(3, 0), MaxTokens: 250}))
		left <- err
	}()
	until(t, "the long one waits", func() bool { return e.Stats().Waiting == 1 })
	release()
	<-begun
	// The next one's first step finds the long one without pages.
	beside(t, e, engine.Request{Owner: "next", Prompt: prompt(3, 0), MaxTokens: 200}, 1, cancel)
	close(submitted)
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	until(t, "all is quiet", func() bool { s := e.Stats(); return s.Running == 0 && s.PagesUsed == 0 })
	if n := e.Stats().Preempted; n == 0 {
		t.Error("the long one kept its pages")
	}
}
