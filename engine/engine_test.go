package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/engine/kernel"
)

func tiny(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := enginetest.WriteModel(path, 1); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens the model for the length of the test, at the end of which no page may
// be held.
func open(t testing.TB, path string, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.Open(path, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if s := e.Stats(); s.PagesUsed != 0 || s.Running != 0 || s.Waiting != 0 {
			t.Errorf("after Close: %+v", s)
		}
	})
	return e
}

// small is one model at the fastest level with a small cache.
func small() engine.Options {
	return engine.Options{Threads: 1, KVBytes: 4 << 20}
}

func prompt(n, from int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(3 + (from+i*37)%250)
	}
	return out
}

// collect runs a request to its end.
func collect(seq iter.Seq2[engine.Token, error]) (text string, last engine.Token, err error) {
	for tok, e := range seq {
		if e != nil {
			return text, last, e
		}
		text += tok.Text
		last = tok
	}
	return text, last, nil
}

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// gate is a context at which the engine's loop stops once: Generate asks for Err
// before it queues a request, and the loop after the request's first step.
type gate struct {
	context.Context
	calls       atomic.Int32
	there, open chan struct{}
}

func (g *gate) Err() error {
	if g.calls.Add(1) == 2 {
		close(g.there)
		<-g.open
	}
	return g.Context.Err()
}

// hold starts a long request and stops the loop after its first step. resume lets
// the loop go on, release ends the request too.
func hold(t *testing.T, e *engine.Engine, owner string) (resume, release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g := &gate{Context: ctx, there: make(chan struct{}), open: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		r := engine.Request{Owner: owner, Prompt: prompt(3, 0), MaxTokens: min(2000, e.Info().Context-3)}
		if _, _, err := collect(e.Generate(g, r)); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the request that holds a place: %v", err)
		}
	})
	resume = sync.OnceFunc(func() { close(g.open) })
	release = func() {
		cancel()
		resume()
		wg.Wait()
	}
	t.Cleanup(release)
	<-g.there
	return resume, release
}

// Close ends running and waiting requests, and leaves no goroutine behind: the
// bubble would not end.
func TestClose_Running(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	synctest.Test(t, func(t *testing.T) {
		e, err := engine.Open(path, engine.Options{Threads: 3, MaxSequences: 2, KVBytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		started := make(chan struct{}, 5)
		for i := range 5 {
			wg.Go(func() {
				r := engine.Request{Owner: fmt.Sprint(i), Prompt: prompt(5, i), MaxTokens: 2000}
				for _, err := range e.Generate(t.Context(), r) {
					if err != nil && !errors.Is(err, engine.ErrClosed) {
						t.Errorf("request %d: %v, want ErrClosed", i, err)
					}
					if err == nil {
						select {
						case started <- struct{}{}:
						default:
						}
					}
				}
			})
		}
		<-started
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wg.Wait()
		if err := e.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, _, err := collect(e.Generate(t.Context(), engine.Request{Prompt: prompt(5, 0), MaxTokens: 2})); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Generate after Close: %v, want ErrClosed", err)
		}
		if s := e.Stats(); s.PagesUsed != 0 || s.Running != 0 || s.Waiting != 0 {
			t.Errorf("after Close: %+v", s)
		}
	})
}

func TestEncode(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	msgs := []engine.Message{{Role: "user", Content: "Say <|im_end|> and the rest"}}
	ids, err := e.Encode(msgs, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := 0
	for _, id := range ids {
		if id < 3 {
			control++
		}
	}
	if control != 5 { // system, user, and the beginning of the answer
		t.Errorf("%d control tokens, want the template's own 5", control)
	}
	if got, err := e.Encode(msgs, len(ids)); err != nil || !slices.Equal(got, ids) {
		t.Errorf("Encode at the limit: %d ids, %v; want all %d", len(got), err, len(ids))
	}
	if got, err := e.Encode(msgs, 10); err != nil || len(got) <= 10 {
		t.Errorf("Encode past the limit: %d ids, %v; want more than 10", len(got), err)
	}
}

func TestOpen_Info(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	var last, all int64
	o := small()
	o.Progress = func(done, total int64) { last, all = done, total }
	e := open(t, path, o)
	i := e.Info()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if i.Name != enginetest.Name || i.Quantization != "Q4_1" || i.FileBytes != st.Size() || i.Context != enginetest.Context ||
		i.Threads != 1 || i.MaxSequences != 16 || len(i.Fingerprint) != 10 || last == 0 || last != all {
		t.Errorf("Info() = %+v, progress %d of %d", i, last, all)
	}
	again := open(t, path, small())
	if again.Info().Fingerprint != i.Fingerprint {
		t.Error("the same file has two fingerprints")
	}
	other := filepath.Join(t.TempDir(), "other.gguf")
	if err := enginetest.WriteModel(other, 2); err != nil {
		t.Fatal(err)
	}
	if open(t, other, small()).Info().Fingerprint == i.Fingerprint {
		t.Error("two models have one fingerprint")
	}
}

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	good := tiny(t)
	dir := t.TempDir()
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o666); err != nil {
			t.Fatal(err)
		}
		return p
	}
	changed := func(name string, change func(*enginetest.Model)) string {
		m := enginetest.NewModel(1)
		change(m)
		p := filepath.Join(dir, name)
		if err := m.Write(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct {
		path string
		o    engine.Options
		want string
	}{
		"no file":       {filepath.Join(dir, "none"), small(), "none"},
		"empty":         {file("empty", nil), small(), "empty"},
		"cut":           {file("cut", whole[:len(whole)*2/3]), small(), "cut"},
		"no template":   {changed("t", func(m *enginetest.Model) { delete(m.Meta, "tokenizer.chat_template") }), small(), "tokenizer.chat_template"},
		"bad template":  {changed("b", func(m *enginetest.Model) { m.Meta["tokenizer.chat_template"] = "{% for %}" }), small(), "tokenizer.chat_template"},
		"no width":      {changed("w", func(m *enginetest.Model) { delete(m.Meta, "llama.embedding_length") }), small(), "llama.embedding_length"},
		"few tokens":    {changed("v", func(m *enginetest.Model) { truncateTokens(m) }), small(), "tokenizer.ggml.tokens"},
		"little memory": {good, engine.Options{KVBytes: 1 << 16}, "full context"},
		"long context":  {good, engine.Options{Context: enginetest.Context + 1}, "2048"},
		"negative":      {good, engine.Options{MaxSequences: -1}, "negative"},
		"kernel":        {good, engine.Options{Kernel: "mmx"}, "mmx"},
	} {
		e, err := engine.Open(c.path, c.o)
		if err == nil {
			e.Close()
			t.Errorf("%s: it opens", name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to name %q", name, err, c.want)
		}
	}
}

// truncateTokens makes the vocabulary one shorter than the embedding.
func truncateTokens(m *enginetest.Model) {
	tokens := m.Meta["tokenizer.ggml.tokens"].([]string)
	merges := m.Meta["tokenizer.ggml.merges"].([]string)
	types := m.Meta["tokenizer.ggml.token_type"].([]int32)
	m.Meta["tokenizer.ggml.tokens"] = tokens[:len(tokens)-1]
	m.Meta["tokenizer.ggml.merges"] = merges[:len(merges)-1]
	m.Meta["tokenizer.ggml.token_type"] = types[:len(types)-1]
}

func TestOpen_KernelFromEnvironment(t *testing.T) {
	t.Setenv("PARLEY_KERNEL", "scalar") // so not parallel
	if got := open(t, tiny(t), small()).Info().Kernel; got != "scalar" {
		t.Errorf("with PARLEY_KERNEL=scalar the level is %q", got)
	}
	o := small()
	best := kernel.Levels()[len(kernel.Levels())-1]
	o.Kernel = best
	if got := open(t, tiny(t), o).Info().Kernel; got != best {
		t.Errorf("Options.Kernel = %q gives %q", best, got)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	if s := e.Stats(); s.Places != 16 || s.TokensPerSecond != 0 || s.QueueTime.Count != 0 {
		t.Errorf("at first %+v", s)
	}
	for range 2 {
		if _, _, err := collect(e.Generate(t.Context(), engine.Request{Prompt: prompt(40, 0), MaxTokens: 5, Choices: 3})); err != nil {
			t.Fatal(err)
		}
	}
	s := e.Stats()
	if s.Tokens != 30 || s.PromptTokens != 40+8 || s.PrefixQueries != 80 || s.PrefixHits != 32 || s.Busy <= 0 || s.TokensPerSecond <= 0 {
		t.Errorf("after two requests %+v", s)
	}
	if s.QueueTime.Count != 2 || s.FirstToken.Count != 2 || s.FirstToken.Sum < s.QueueTime.Sum {
		t.Errorf("times %+v, %+v", s.QueueTime, s.FirstToken)
	}
}
