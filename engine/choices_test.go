package engine_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine"
)

// texts runs a request to its end and returns what each choice said.
func texts(t *testing.T, seq iter.Seq2[engine.Token, error], choices int) []string {
	t.Helper()
	out, counts, ended := make([]string, choices), make([]int, choices), make([]bool, choices)
	for tok, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		if c := tok.Choice; ended[c] || tok.Generated < counts[c] || tok.Generated > counts[c]+1 {
			t.Fatalf("%+v after %d tokens, ended: %v", tok, counts[c], ended[c])
		}
		out[tok.Choice] += tok.Text
		counts[tok.Choice] = tok.Generated
		ended[tok.Choice] = tok.Finish != ""
	}
	if slices.Contains(ended, false) {
		t.Fatalf("choices ended: %v", ended)
	}
	return out
}

// Choice 0 is what a request for one gives, and all are the same however many run at
// once.
func TestChoices(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	for _, length := range []int{1, 15, 16, 17, 53} {
		r := engine.Request{Prompt: prompt(length, 0), MaxTokens: 40, Temperature: 1, TopP: 0.95, Seed: 9}
		e := open(t, path, small())
		one := texts(t, e.Generate(t.Context(), r), 1)
		r.Owner, r.Choices = "another", 8
		before := e.Stats().PromptTokens
		all := texts(t, e.Generate(t.Context(), r), 8)
		if n := e.Stats().PromptTokens - before; n != int64(length) {
			t.Errorf("prompt of %d: %d tokens of it computed for 8 choices", length, n)
		}
		if all[0] != one[0] {
			t.Errorf("prompt of %d: choice 0 is %q, alone %q", length, all[0], one[0])
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(all))); len(distinct) != 8 {
			t.Errorf("prompt of %d: %d different choices of 8", length, len(distinct))
		}
		for name, o := range map[string]engine.Options{
			"3 places": {Threads: 2, MaxSequences: 3, KVBytes: 4 << 20, PrefillChunk: 7},
			"9 pages":  {Threads: 1, Context: 128, KVBytes: 9 * 2 * 2 * 2 * 16 * 32},
		} {
			if some := texts(t, open(t, path, o).Generate(t.Context(), r), 8); !slices.Equal(some, all) {
				t.Errorf("prompt of %d, %s: %q, want %q", length, name, some, all)
			}
		}
	}
}

// What an owner asked for before is reported as cached; what its own choices share is
// not.
func TestChoices_Cached(t *testing.T) {
	t.Parallel()
	o := small()
	o.MaxSequences = 2
	e := open(t, tiny(t), o)
	for _, want := range []int{0, 32} {
		for tok, err := range e.Generate(t.Context(), engine.Request{Prompt: prompt(40, 0), MaxTokens: 3, Choices: 5}) {
			if err != nil || tok.Cached != want {
				t.Fatalf("%+v, %v, want %d cached", tok, err, want)
			}
		}
	}
}

func TestChoices_Stop(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	r := engine.Request{Prompt: prompt(10, 0), MaxTokens: 60, Choices: 4, Temperature: 1, TopP: 1, Seed: 3}
	whole := texts(t, e.Generate(t.Context(), r), 4)
	r.Stop = []string{whole[2][10:13]}
	for i, text := range texts(t, e.Generate(t.Context(), r), 4) {
		want, _, _ := strings.Cut(whole[i], r.Stop[0])
		if text != want {
			t.Errorf("choice %d with stop %q: %q, want %q", i, r.Stop[0], text, want)
		}
	}
}
