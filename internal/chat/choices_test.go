package chat_test

import (
	"errors"
	"testing"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// choices are three, of 2, 1 and 3 tokens, that take turns.
func choices() []upstreamtest.Step {
	push := func(choice int, text string, completion int, finish wire.FinishReason) upstreamtest.Step {
		return upstreamtest.Push(upstream.Event{Choice: choice, Text: text, Completion: completion, Finish: finish, Fingerprint: fingerprint, Cached: 4})
	}
	return []upstreamtest.Step{
		push(0, "a", 1, ""), push(1, "x", 2, wire.FinishStop), push(2, "p", 3, ""),
		push(0, "b", 4, wire.FinishStop), push(2, "q", 5, ""), push(2, "r", 6, wire.FinishLength),
		upstreamtest.Return(nil),
	}
}

func three(r *wire.ChatRequest) { r.N = 3 }

func can(p *upstreamtest.Provider) *upstreamtest.Provider {
	p.Can = wire.Capabilities{MultipleChoices: true, Logprobs: true}
	return p
}

// All choices are charged, and the hold covers all of them at their longest.
func TestChoices(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		p := can(provider(choices()...))
		l := open(t, 100_000, p)
		out := &recorder{}
		sum, err := l.Complete(t.Context(), l.call(stream, three, maxTokens(7)), out)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), "start,a,#1 x,#2 p,b,#2 q,#2 r,stop stop length 10+6"; got != want {
			t.Errorf("emitted %s, want %s", got, want)
		}
		if c := p.Calls()[0]; c.MaxTokens != 7 || c.Request.N != 3 {
			t.Errorf("the provider is asked for %d choices of %d tokens", c.Request.N, c.MaxTokens)
		}
		const charge = 6*10 + 4*5 + 6*20
		r := l.receipt(t)
		if r.OutputLimit != 21 || r.CompletionTokens != 6 || r.CachedTokens != 4 || r.Charge != charge || sum.Charge != charge || r.Ending != ledger.EndStop {
			t.Errorf("receipt %+v", r)
		}
		if r.Hold != 100+21*20 {
			t.Errorf("hold %d, want the prompt and 21 tokens", r.Hold)
		}
		l.verify(t)
	}
}

// Credit that does not cover all choices bounds each of them alike, or is refused with
// what would fit.
func TestChoices_Credit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		credit money.Amount
		max    int
		want   int // MaxTokens
		fits   int // where it is refused
	}{
		{100 + 20*3*50, 0, 50, 0},
		{100 + 20*100, 0, 33, 0},
		{100 + 20*3*16, 0, 16, 0},
		{100 + 20*3*16 - 1, 0, 0, 15},
		{100 + 20*3*9, 10, 0, 9},
		{100 + 20*3*10, 10, 10, 0},
	} {
		p := can(provider(choices()...))
		l := open(t, tt.credit, p)
		_, err := l.Complete(t.Context(), l.call(false, three, maxTokens(tt.max)), &recorder{})
		if short, ok := errors.AsType[*chat.ShortfallError](err); ok != (tt.want == 0) || ok && short.Fits != tt.fits {
			t.Errorf("%+v: %v, %+v", tt, err, short)
		}
		if calls := p.Calls(); tt.want > 0 && (len(calls) != 1 || calls[0].MaxTokens != tt.want) {
			t.Errorf("%+v: the provider got %+v", tt, calls)
		}
	}
}

// A choice without an end, or one too many, is no answer.
func TestChoices_Broken(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]upstreamtest.Step{
		"no end":   append(choices()[:5:5], upstreamtest.Return(nil)),
		"missing":  {upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)},
		"too many": append(choices()[:5:5], upstreamtest.Push(upstream.Event{Choice: 3, Text: "?"})),
		"negative": append(choices()[:5:5], upstreamtest.Push(upstream.Event{Choice: -1, Text: "?"})),
	} {
		l := open(t, 100_000, can(provider(steps...)))
		_, err := l.Complete(t.Context(), l.call(false, three), &recorder{})
		if f, ok := errors.AsType[*upstream.Failure](err); !ok || f.Class != upstream.Failed {
			t.Errorf("%s: %v, want a failure", name, err)
		}
		if r := l.receipt(t); r.State != ledger.Voided || r.Charge != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Of a stream that its caller leaves, what all choices had is charged.
func TestChoices_Left(t *testing.T) {
	t.Parallel()
	l := open(t, 100_000, can(provider(choices()...)))
	_, err := l.Complete(t.Context(), l.call(true, three), &recorder{leave: "#2 q"})
	if !errors.Is(err, chat.ErrClientGone) {
		t.Fatal(err)
	}
	if r := l.receipt(t); r.CompletionTokens != 5 || r.CachedTokens != 4 || r.Charge != 6*10+4*5+5*20 {
		t.Errorf("receipt %+v", r)
	}
}

// Log-probabilities come with their text, and without any.
func TestChoices_Logprobs(t *testing.T) {
	t.Parallel()
	l := open(t, 100_000, can(provider(
		upstreamtest.Push(upstream.Event{Text: "a", Logprobs: []wire.Logprob{{Token: "a"}}, Completion: 1, Fingerprint: fingerprint}),
		upstreamtest.Event(upstream.Event{Logprobs: []wire.Logprob{{Token: "<x>"}}, Completion: 2, Finish: wire.FinishStop}),
	)))
	out := &recorder{}
	if _, err := l.Complete(t.Context(), l.call(true, func(r *wire.ChatRequest) { r.Logprobs = true }), out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "start,a{a},{<x>},stop 10+2"; got != want {
		t.Errorf("emitted %s, want %s", got, want)
	}
}
