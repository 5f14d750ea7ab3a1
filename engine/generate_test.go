package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/gguf/gguftest"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/sample"
)

// A seeded request gives the same tokens alone and in a batch of 16, with 1 and 2
// threads, on every level.
func TestGenerate_Invariant(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	mine := engine.Request{Prompt: prompt(53, 5), MaxTokens: 16, Temperature: 0.9, TopP: 0.95, Seed: 42}
	var want string
	for _, level := range kernel.Levels() {
		for _, threads := range []int{1, 2} {
			e := open(t, path, engine.Options{Kernel: level, Threads: threads, PrefillChunk: 16 * threads, KVBytes: 4 << 20})
			if got := e.Info().Kernel; got != level {
				t.Errorf("Info().Kernel = %q, want %q", got, level)
			}
			alone, last, err := collect(e.Generate(t.Context(), mine))
			if err != nil || last.Finish != engine.FinishLength || last.Generated != 16 {
				t.Fatalf("alone: %+v, %v", last, err)
			}
			if want == "" {
				want = alone
			}
			if alone != want {
				t.Errorf("%s, %d threads: %q, want %q", level, threads, alone, want)
			}
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					r := engine.Request{Owner: fmt.Sprint(i), Prompt: prompt(1+i*4, i), MaxTokens: 4 + i, Temperature: float64(i%3) * 0.7, TopP: 1, Seed: uint64(i)}
					if i == 7 {
						r = mine
					}
					text, _, err := collect(e.Generate(t.Context(), r))
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					}
					if i == 7 && text != want {
						t.Errorf("%s, %d threads, in a batch: %q, want %q", level, threads, text, want)
					}
				})
			}
			wg.Wait()
			if s := e.Stats(); s.PagesUsed != 0 || s.Running != 0 || s.Waiting != 0 || s.Tokens < 16*2 {
				t.Errorf("at the end: %+v", s)
			}
		}
	}
}

func TestGenerate_Seed(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	texts := map[string]bool{}
	for seed := range uint64(4) {
		r := engine.Request{Prompt: prompt(10, 0), MaxTokens: 30, Temperature: 1, TopP: 1, Seed: seed}
		seq := e.Generate(t.Context(), r)
		a, _, err := collect(seq)
		if err != nil {
			t.Fatal(err)
		}
		if b, _, _ := collect(seq); a != b { // ranged over again
			t.Errorf("seed %d gave %q, then %q", seed, a, b)
		}
		texts[a] = true
	}
	if len(texts) != 4 {
		t.Errorf("4 seeds gave %d texts", len(texts))
	}
}

func TestGenerate_Stop(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	r := engine.Request{Prompt: prompt(10, 0), MaxTokens: 60}
	whole, last, err := collect(e.Generate(t.Context(), r))
	if err != nil || last.Finish != engine.FinishLength || len(whole) < 60 {
		t.Fatalf("greedy: %q, %+v, %v", whole, last, err)
	}
	stop := whole[20:24]
	r.Stop = []string{"never in it", stop}
	text, last, err := collect(e.Generate(t.Context(), r))
	if want := whole[:strings.Index(whole, stop)]; err != nil || text != want || last.Finish != engine.FinishStop || last.Generated >= 60 {
		t.Errorf("with stop %q: %q, %+v, %v; want %q", stop, text, last, err, want)
	}
}

func TestGenerate_Refuses(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), engine.Options{Threads: 1, Context: 128, KVBytes: 4 << 20})
	ok := engine.Request{Prompt: prompt(100, 0), MaxTokens: 28, TopP: 1}
	if _, last, err := collect(e.Generate(t.Context(), ok)); err != nil || last.Generated != 28 {
		t.Errorf("a full context: %+v, %v", last, err)
	}
	for name, c := range map[string]struct {
		change func(*engine.Request)
		want   error
	}{
		"no prompt":        {func(r *engine.Request) { r.Prompt = nil }, engine.ErrRequest},
		"no tokens":        {func(r *engine.Request) { r.MaxTokens = 0 }, engine.ErrRequest},
		"temperature":      {func(r *engine.Request) { r.Temperature = math.NaN() }, engine.ErrRequest},
		"cold":             {func(r *engine.Request) { r.Temperature = -1 }, engine.ErrRequest},
		"top_p":            {func(r *engine.Request) { r.TopP = 1.5 }, engine.ErrRequest},
		"empty stop":       {func(r *engine.Request) { r.Stop = []string{"a", ""} }, engine.ErrRequest},
		"unknown token":    {func(r *engine.Request) { r.Prompt = []int32{5, 40000} }, engine.ErrRequest},
		"negative token":   {func(r *engine.Request) { r.Prompt = []int32{-1} }, engine.ErrRequest},
		"no penalty":       {func(r *engine.Request) { r.PresencePenalty = math.NaN() }, engine.ErrRequest},
		"high penalty":     {func(r *engine.Request) { r.FrequencyPenalty = -2.1 }, engine.ErrRequest},
		"bias":             {func(r *engine.Request) { r.LogitBias = map[int32]float64{5: 101} }, engine.ErrRequest},
		"unknown bias":     {func(r *engine.Request) { r.LogitBias = map[int32]float64{40000: 1} }, engine.ErrRequest},
		"top_logprobs":     {func(r *engine.Request) { r.Logprobs, r.TopLogprobs = true, 21 }, engine.ErrRequest},
		"no logprobs":      {func(r *engine.Request) { r.TopLogprobs = 1 }, engine.ErrRequest},
		"choices":          {func(r *engine.Request) { r.Choices = engine.MaxChoices + 1 }, engine.ErrRequest},
		"one too many":     {func(r *engine.Request) { r.MaxTokens = 29 }, engine.ErrTooLong},
		"far too many":     {func(r *engine.Request) { r.MaxTokens = math.MaxInt }, engine.ErrTooLong},
		"prompt too long":  {func(r *engine.Request) { r.Prompt, r.MaxTokens = prompt(128, 0), 1 }, engine.ErrTooLong},
		"cancelled before": {nil, context.Canceled},
	} {
		r, ctx := ok, t.Context()
		if c.change == nil {
			var cancel func()
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		} else {
			c.change(&r)
		}
		if _, _, err := collect(e.Generate(ctx, r)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestGenerate_Busy(t *testing.T) {
	t.Parallel()
	o := small()
	o.MaxSequences, o.QueueLength = 1, 2
	e := open(t, tiny(t), o)
	_, release := hold(t, e, "a")
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if _, _, err := collect(e.Generate(t.Context(), engine.Request{Owner: "a", Prompt: prompt(3, i), MaxTokens: 2})); err != nil {
				t.Errorf("waiting request: %v", err)
			}
		})
	}
	until(t, "two requests wait", func() bool { return e.Stats().Waiting == 2 })
	if _, _, err := collect(e.Generate(t.Context(), engine.Request{Owner: "b", Prompt: prompt(3, 0), MaxTokens: 2})); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("with a full queue: %v, want ErrBusy", err)
	}
	release()
	wg.Wait()
}

func TestGenerate_BusyAfterWait(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	synctest.Test(t, func(t *testing.T) {
		o := small()
		o.MaxSequences = 1
		e := open(t, path, o)
		hold(t, e, "a")
		begin := time.Now()
		_, _, err := collect(e.Generate(t.Context(), engine.Request{Prompt: prompt(3, 0), MaxTokens: 2}))
		if took := time.Since(begin); !errors.Is(err, engine.ErrBusy) || took != 30*time.Second {
			t.Errorf("after %v: %v, want ErrBusy after 30 s", took, err)
		}
		if n := e.Stats().Waiting; n != 0 {
			t.Errorf("%d requests still wait", n)
		}
	})
}

func TestGenerate_CancelWaiting(t *testing.T) {
	t.Parallel()
	o := small()
	o.MaxSequences = 1
	e := open(t, tiny(t), o)
	hold(t, e, "a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := collect(e.Generate(ctx, engine.Request{Prompt: prompt(3, 0), MaxTokens: 2}))
		done <- err
	}()
	until(t, "the request waits", func() bool { return e.Stats().Waiting == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the queue: %v", err)
	}
	if n := e.Stats().Waiting; n != 0 {
		t.Errorf("%d requests still wait", n)
	}
}

// turns is a context that calls note when it is asked for its Err for the at-th time.
// Generate asks first, then the loop before each of the request's steps but its first.
type turns struct {
	context.Context
	calls atomic.Int32
	at    int32
	note  func()
}

func (c *turns) Err() error {
	if c.calls.Add(1) == c.at {
		c.note()
	}
	return c.Context.Err()
}

// One owner's many requests do not keep another's one waiting.
func TestGenerate_Fair(t *testing.T) {
	t.Parallel()
	o := small()
	o.MaxSequences, o.QueueWait = 1, time.Hour
	e := open(t, tiny(t), o)
	_, release := hold(t, e, "greedy")
	var order []string // written by the loop
	var wg sync.WaitGroup
	for i, owner := range strings.Fields("greedy greedy greedy greedy greedy modest") {
		ctx := &turns{Context: t.Context(), at: 2, note: func() { order = append(order, owner) }}
		wg.Go(func() {
			if _, _, err := collect(e.Generate(ctx, engine.Request{Owner: owner, Prompt: prompt(20, 0), MaxTokens: 5})); err != nil {
				t.Errorf("%s: %v", owner, err)
			}
		})
		until(t, "the request waits", func() bool { return e.Stats().Waiting == i+1 })
	}
	release()
	wg.Wait()
	if len(order) != 6 || order[1] != "modest" {
		t.Errorf("turns: %v, want modest's second", order)
	}
}

// Leaving the loop and cancelling the context both free the pages by the next step.
func TestGenerate_CancelFreesPages(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	resume, _ := hold(t, e, "stay")
	used := e.Stats().PagesUsed
	resume()
	for _, by := range []string{"break", "cancel"} {
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		for tok, e := range e.Generate(ctx, engine.Request{Prompt: prompt(40, 0), MaxTokens: 1000}) {
			if err = e; err != nil {
				break
			}
			if tok.Generated == 3 {
				if by == "break" {
					break
				}
				cancel()
			}
		}
		steps := e.Stats().Steps
		cancel()
		if by == "cancel" != errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", by, err)
		}
		until(t, "the pages are free", func() bool {
			s := e.Stats()
			// The step that was under way, and the next, which begins after the sweep.
			if s.PagesUsed > used && s.Steps > steps+1 {
				t.Fatalf("%s: %d steps later %d pages are held, want %d", by, s.Steps-steps, s.PagesUsed, used)
			}
			return s.PagesUsed <= used // less if the one that stays has ended
		})
	}
}

// A consumer that does not read stalls nobody, and loses nothing.
func TestGenerate_SlowConsumer(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	r := engine.Request{Owner: "slow", Prompt: prompt(9, 0), MaxTokens: 100}
	want, _, err := collect(e.Generate(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(e.Generate(t.Context(), r))
	defer stop()
	first, err, _ := next()
	if err != nil {
		t.Fatal(err)
	}
	if _, last, err := collect(e.Generate(t.Context(), engine.Request{Prompt: prompt(9, 1), MaxTokens: 300})); err != nil || last.Generated != 300 {
		t.Fatalf("beside a slow consumer: %+v, %v", last, err)
	}
	if s := e.Stats(); s.Running != 0 || s.PagesUsed != 0 {
		t.Errorf("the slow consumer's request holds on: %+v", s)
	}
	text, n := first.Text, 1
	for tok, err, ok := next(); ok; tok, err, ok = next() {
		if err != nil {
			t.Fatal(err)
		}
		text += tok.Text
		n++
	}
	if text != want || n != 100 {
		t.Errorf("the slow consumer got %d tokens %q, want %q", n, text, want)
	}
}

// While a long prompt joins, a running sequence gets a token with every step.
func TestGenerate_LongPrompt(t *testing.T) {
	t.Parallel()
	o := small()
	o.PrefillChunk = 8
	e := open(t, tiny(t), o)
	resume, _ := hold(t, e, "a")
	before := e.Stats()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, tok, err := collect(e.Generate(t.Context(), engine.Request{Owner: "b", Prompt: prompt(80, 0), MaxTokens: 1}))
		if err != nil || tok.Finish != engine.FinishLength {
			t.Errorf("%+v, %v, want one token", tok, err)
		}
	})
	until(t, "the request waits", func() bool { return e.Stats().Waiting == 1 })
	resume()
	wg.Wait()
	after := e.Stats()
	if n := after.Tokens - before.Tokens; n < 10 {
		t.Errorf("%d tokens beside a prompt of 10 chunks, want at least 10", n)
	}
	if got := after.PromptTokens - before.PromptTokens; got != 80 {
		t.Errorf("PromptTokens rose by %d, want 80", got)
	}
}

// Requests that do not fit the pages wait for them.
func TestGenerate_WaitsForPages(t *testing.T) {
	t.Parallel()
	o := small()
	o.QueueWait = time.Hour
	o.Context, o.KVBytes = 128, 9*2*2*2*16*32 // nine pages: one full context of eight, not two
	e := open(t, tiny(t), o)
	if n := e.Stats().PagesTotal; n != 9 {
		t.Fatalf("%d pages, want 9", n)
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			_, last, err := collect(e.Generate(t.Context(), engine.Request{Owner: fmt.Sprint(i), Prompt: prompt(60, i), MaxTokens: 20}))
			if err != nil || last.Generated != 20 {
				t.Errorf("request %d: %+v, %v", i, last, err)
			}
		})
	}
	wg.Wait()
	if n := e.Stats().PagesUsed; n != 0 {
		t.Errorf("%d pages held at the end", n)
	}
}

// broken is a constraint that panics after some tokens.
type broken struct {
	sample.Constraint
	left int
}

func (b *broken) Allows(int32, int) bool { return true }
func (b *broken) Done() bool             { return false }
func (b *broken) Accept(int32) {
	if b.left--; b.left < 0 {
		panic("a bug")
	}
}

func TestGenerate_Panic(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{1, 2} {
		o := small()
		o.Threads = threads
		e := open(t, tiny(t), o)
		r := engine.Request{Prompt: prompt(25, 0), MaxTokens: 50, Choices: 2}
		want, _, err := collect(e.Generate(t.Context(), engine.Request{Prompt: r.Prompt, MaxTokens: 5}))
		if err != nil {
			t.Fatal(err)
		}
		r.Constraint = func() sample.Constraint { return &broken{left: 9} }
		var bug *engine.PanicError
		if _, _, err := collect(e.Generate(t.Context(), r)); !errors.As(err, &bug) || len(bug.Stack) == 0 {
			t.Errorf("a panic in the step: %v, want a PanicError with its stack", err)
		}
		if got, last, err := collect(e.Generate(t.Context(), engine.Request{Prompt: r.Prompt, MaxTokens: 5})); err != nil || last.Generated != 5 || got != want {
			t.Errorf("after it: %q, %+v, %v, want %q", got, last, err, want)
		}
	}
}

// The real weights answer, and alike in company.
func TestGenerate_RealWeights(t *testing.T) {
	t.Parallel()
	e := open(t, gguftest.Weights(t), engine.Options{Threads: 2, Context: 1024})
	if i := e.Info(); i.Quantization != "Q4_1" || i.Vocab != 49152 {
		t.Errorf("Info() = %+v", i)
	}
	ids, err := e.Encode([]engine.Message{{Role: "user", Content: "What is gravity?"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []engine.Request{
		{Prompt: ids, MaxTokens: 40},
		{Prompt: ids, MaxTokens: 40, Temperature: 0.8, TopP: 0.9, Seed: 7},
	} {
		want, _, err := collect(e.Generate(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if r.Temperature == 0 && !strings.Contains(want, "Gravity") {
			t.Errorf("What is gravity? %q", want)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				q := r
				if i != 3 {
					q = engine.Request{Prompt: ids[:len(ids)-i], MaxTokens: 10 + 5*i, Temperature: 1, TopP: 1, Seed: uint64(i)}
				}
				text, _, err := collect(e.Generate(t.Context(), q))
				if err != nil || i == 3 && text != want {
					t.Errorf("in company: %q, %v; want %q", text, err, want)
				}
			})
		}
		wg.Wait()
	}
}
