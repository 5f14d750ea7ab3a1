package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/local"
	"github.com/parley-ai/parley/internal/wire"
)

func open(t *testing.T, o engine.Options) (*local.Provider, *engine.Engine) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := enginetest.WriteModel(path, 1); err != nil {
		t.Fatal(err)
	}
	o.Threads, o.KVBytes = 1, 8<<20
	e, err := engine.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return local.New(e), e
}

func request(text string) *wire.ChatRequest {
	return &wire.ChatRequest{Messages: []wire.Message{{Role: wire.RoleDeveloper, Content: "Be brief."}, {Role: wire.RoleUser, Content: text}}, Temperature: 1, TopP: 1, N: 1}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	p, _ := open(t, engine.Options{})
	var texts []string
	for range 2 { // the same seed, the same answer
		var text strings.Builder
		var last upstream.Event
		seen := 0
		err := p.Generate(t.Context(), &upstream.Call{Owner: "a", Request: request("Hello"), MaxTokens: 12, Seed: 7}, func(e upstream.Event) error {
			if e.Completion < seen || e.Completion > seen+1 || !strings.HasPrefix(e.Fingerprint, "fp_") {
				t.Errorf("event %+v after %d tokens", e, seen)
			}
			seen, last = e.Completion, e
			text.WriteString(e.Text)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if last.Finish != wire.FinishLength && last.Finish != wire.FinishStop || last.Finish == wire.FinishLength && seen != 12 {
			t.Errorf("it ended with %+v", last)
		}
		texts = append(texts, text.String())
	}
	if texts[0] != texts[1] {
		t.Errorf("one seed gave %q and %q", texts[0], texts[1])
	}
}

func TestCountPrompt(t *testing.T) {
	t.Parallel()
	p, e := open(t, engine.Options{})
	want, err := e.Encode([]engine.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hello"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.CountPrompt(request("Hello"), 1000); n.Tokens != len(want) || !n.Exact || err != nil {
		t.Errorf("CountPrompt = %+v, %v, want %d, exact", n, err, len(want))
	}
	if n, err := p.CountPrompt(request(strings.Repeat("Hello ", 10_000)), 100); n.Tokens <= 100 || n.Tokens > 200 || err != nil {
		t.Errorf("CountPrompt of a huge prompt with limit 100 = %+v, %v, want a little more than 100", n, err)
	}
	// Tools that do not fit are not compiled: in sum they may be megabytes.
	large := ask(wire.ToolAuto, "")
	large.Tools[0].Parameters = json.RawMessage(`{"type":"nothing","description":"` + strings.Repeat("Hello ", 10_000) + `"}`)
	if n, err := p.CountPrompt(large, 100); n.Tokens <= 100 || err != nil {
		t.Errorf("CountPrompt of huge tools with limit 100 = %+v, %v, want more than 100", n, err)
	}
	if _, err := p.CountPrompt(large, 100_000); err == nil {
		t.Error("a schema that cannot be held to was counted")
	}
}

func TestGenerate_Ends(t *testing.T) {
	t.Parallel()
	p, e := open(t, engine.Options{})
	stop := errors.New("enough")
	err := p.Generate(t.Context(), &upstream.Call{Request: request("a"), MaxTokens: 100}, func(upstream.Event) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("an error of yield comes back as %v", err)
	}
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	err = p.Generate(ctx, &upstream.Call{Request: request("a"), MaxTokens: 1000}, func(upstream.Event) error { cancel(left); return nil })
	if !errors.Is(err, left) || errors.Is(err, upstream.ErrNotStarted) {
		t.Errorf("the end of the context comes back as %v", err)
	}
	err = p.Generate(ctx, &upstream.Call{Request: request("a"), MaxTokens: 1}, func(upstream.Event) error { return nil })
	if !errors.Is(err, left) || !errors.Is(err, upstream.ErrNotStarted) {
		t.Errorf("a call that came too late gives %v, want ErrNotStarted", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	err = p.Generate(t.Context(), &upstream.Call{Request: request("a"), MaxTokens: 1}, func(upstream.Event) error { return nil })
	if f, ok := errors.AsType[*upstream.Failure](err); !ok || f.Class != upstream.Failed {
		t.Errorf("a closed engine gives %v, want a failure", err)
	}
}

// full is an engine whose queue is.
type full struct{ local.Engine }

func (full) Generate(context.Context, engine.Request) iter.Seq2[engine.Token, error] {
	return func(yield func(engine.Token, error) bool) { yield(engine.Token{}, engine.ErrBusy) }
}

func TestGenerate_Busy(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	err := local.New(full{e}).Generate(t.Context(), &upstream.Call{Request: request("a"), MaxTokens: 1}, func(upstream.Event) error { return nil })
	if f, ok := errors.AsType[*upstream.Failure](err); !ok || f.Class != upstream.Busy {
		t.Errorf("a full queue gives %v, want class busy", err)
	}
}

// A call that was admitted by an estimate gets what fits, and one that does not fit is
// told so.
func TestGenerate_Fits(t *testing.T) {
	t.Parallel()
	p, e := open(t, engine.Options{Context: 64})
	n, err := p.CountPrompt(request("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var last upstream.Event
	err = p.Generate(t.Context(), &upstream.Call{Request: request("a"), MaxTokens: e.Info().Context}, func(e upstream.Event) error { last = e; return nil })
	if err != nil || last.Finish == "" || last.Completion > e.Info().Context-n.Tokens {
		t.Errorf("a bound above the rest of the context gives %+v, %v", last, err)
	}
	err = p.Generate(t.Context(), &upstream.Call{Request: request(strings.Repeat("word ", 100)), MaxTokens: 1}, func(upstream.Event) error { return nil })
	if r, ok := errors.AsType[*upstream.Rejected](err); !ok || r.Answer.Code != "context_length_exceeded" {
		t.Errorf("a prompt above the context gives %v", err)
	}
}
