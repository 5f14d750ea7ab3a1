package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/gguf/gguftest"
)

// A prompt that begins as an earlier one of its owner computes the rest only, and says
// the same.
func TestPrefix_Shared(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	e, fresh := open(t, path, small()), open(t, path, small())
	for _, c := range []struct {
		owner        string
		tokens, from int
		cached       int
	}{
		{"a", 53, 0, 0},
		{"a", 53, 0, 48},
		{"b", 53, 0, 0}, // nobody learns what others have sent
		{"a", 48, 0, 32},
		{"a", 49, 0, 48}, // at least the last is computed, for its logits
		{"a", 90, 0, 48},
		{"a", 90, 0, 80},
		{"a", 60, 1, 0},
		{"a", 16, 0, 0},
		{"a", 17, 0, 16},
		{"a", 3, 0, 0},
	} {
		r := engine.Request{Owner: c.owner, Prompt: prompt(c.tokens, c.from), MaxTokens: 20, Temperature: 1, TopP: 1, Seed: 5}
		before := e.Stats().PromptTokens
		text, last, err := collect(e.Generate(t.Context(), r))
		if err != nil || last.Cached != c.cached {
			t.Errorf("%+v: %d cached, %v", c, last.Cached, err)
		}
		if n := e.Stats().PromptTokens - before; n != int64(c.tokens-c.cached) {
			t.Errorf("%+v: %d tokens of the prompt computed", c, n)
		}
		r.Owner += fmt.Sprint(c) // finds nothing
		want, last, err := collect(fresh.Generate(t.Context(), r))
		if err != nil || last.Cached != 0 || text != want {
			t.Errorf("%+v: %q from the cache, %q computed (%d cached, %v)", c, text, want, last.Cached, err)
		}
	}
}

// The next turn of a conversation begins with the answer, whose keys and values were
// computed one by one.
func TestPrefix_NextTurn(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"tiny": tiny(t), "real": gguftest.Weights(t)} {
		e := open(t, path, engine.Options{Threads: 1, Context: 512, KVBytes: 64 << 20})
		r := engine.Request{Owner: "a", Prompt: prompt(21, 0), MaxTokens: 50}
		next := engine.Request{Owner: "a", Prompt: prompt(21, 0), MaxTokens: 30, Temperature: 1, TopP: 1}
		for tok, err := range e.Generate(t.Context(), r) {
			if err != nil || tok.Finish == engine.FinishStop {
				t.Fatalf("%s: %+v, %v", name, tok, err)
			}
			next.Prompt = append(next.Prompt, tok.ID)
		}
		next.Prompt = append(next.Prompt, 7)
		text, last, err := collect(e.Generate(t.Context(), next))
		// All of these 72 tokens but the last of the answer and the 7 were computed.
		if err != nil || last.Cached != 64 {
			t.Errorf("%s: %d cached, %v, want 64", name, last.Cached, err)
		}
		next.Owner = "b"
		want, last, err := collect(e.Generate(t.Context(), next))
		if err != nil || last.Cached != 0 || text != want {
			t.Errorf("%s: %q from the cache, %q computed (%d cached, %v)", name, text, want, last.Cached, err)
		}
	}
}

// What is kept gives way to what is promised.
func TestPrefix_GivesWay(t *testing.T) {
	t.Parallel()
	o := small()
	o.Context, o.KVBytes = 128, 9*2*2*2*16*32 // nine pages
	e := open(t, tiny(t), o)
	for i := range 6 {
		r := engine.Request{Prompt: prompt(100, i), MaxTokens: 28}
		if _, last, err := collect(e.Generate(t.Context(), r)); err != nil || last.Generated != 28 || last.Cached != 0 {
			t.Errorf("request %d of the whole context: %+v, %v", i, last, err)
		}
	}
	s := e.Stats()
	if s.PagesUsed != 0 || s.PagesCached == 0 || s.PagesCached > 9 {
		t.Errorf("at the end %+v", s)
	}
}

// Who leaves in the middle of a prompt leaves what was computed behind.
func TestPrefix_Cancelled(t *testing.T) {
	t.Parallel()
	o := small()
	o.PrefillChunk = 8
	e := open(t, tiny(t), o)
	ctx, cancel := context.WithCancel(t.Context())
	steps := &turns{Context: ctx, at: 7, note: cancel} // Generate's own, then one a step
	r := engine.Request{Prompt: prompt(100, 0), MaxTokens: 5, Temperature: 1, TopP: 1}
	if _, _, err := collect(e.Generate(steps, r)); err == nil {
		t.Fatal("it was not cancelled")
	}
	text, last, err := collect(e.Generate(t.Context(), r))
	if err != nil || last.Cached == 0 || last.Cached > 48 {
		t.Errorf("after %d tokens of the prompt: %d cached, %v", e.Stats().PromptTokens, last.Cached, err)
	}
	r.Owner = "another"
	if want, _, err := collect(e.Generate(t.Context(), r)); err != nil || text != want {
		t.Errorf("%q, computed at once %q, %v", text, want, err)
	}
}
