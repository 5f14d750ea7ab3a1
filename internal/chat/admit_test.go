package chat_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

func answer() *upstreamtest.Provider {
	return provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop))
}

// What an answer may have: asked for, of the model, of its context, of the credit.
func TestOutputBound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		prompt int
		exact  bool
		max    int
		credit money.Amount
		want   int
	}{
		{"the model's", 10, true, 0, 1e6, 50},
		{"the caller's", 10, true, 7, 1e6, 7},
		{"the context", 70, true, 0, 1e6, 30},
		{"the context before the caller's", 70, true, 40, 1e6, 30},
		{"a context of less than 16", 95, true, 0, 1e6, 5},
		{"one token of context", 99, true, 0, 1e6, 1},
		{"an estimate within the context", 70, false, 0, 1e6, 50},
		{"an estimate beyond it", 200, false, 40, 1e6, 40},
		{"the credit", 10, true, 0, 100 + 20*20, 20},
		{"the least that credit may leave", 10, true, 0, 100 + 20*16, 16},
		{"the caller's, to the last of the credit", 10, true, 3, 100 + 20*3, 3},
		{"the context, to the last of the credit", 95, true, 0, 950 + 20*5, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := answer()
			p.Prompt, p.Estimated = tt.prompt, !tt.exact
			l := open(t, tt.credit, p)
			if _, err := l.Complete(t.Context(), l.call(false, func(r *wire.ChatRequest) { r.MaxTokens = tt.max }), &recorder{}); err != nil {
				t.Fatal(err)
			}
			calls := p.Calls()
			if len(calls) != 1 || calls[0].MaxTokens != tt.want || calls[0].Model != "x" || calls[0].Owner != l.caller.Account.ID {
				t.Errorf("the provider got %+v, want MaxTokens %d", calls, tt.want)
			}
			if r := l.receipt(t); r.OutputLimit != tt.want {
				t.Errorf("OutputLimit = %d, want %d", r.OutputLimit, tt.want)
			}
		})
	}
}

// Refusals by size and credit, with their numbers, and the trace that they do not leave.
func TestRefusals(t *testing.T) {
	t.Parallel()
	short := func(need, left money.Amount, prompt, fits int) error {
		return &chat.ShortfallError{InsufficientError: ledger.InsufficientError{Need: need, Available: left}, Prompt: prompt, Fits: fits}
	}
	for _, tt := range []struct {
		name   string
		model  string
		prompt int
		max    int
		credit money.Amount
		keys   []string
		want   error
	}{
		{"unknown model", "nope", 10, 0, 1e6, nil, &chat.ModelError{Model: "nope", Err: chat.ErrNoModel}},
		{"another plan's model", "titan", 10, 0, 0, nil, &chat.ModelError{Model: "titan", Err: chat.ErrPlan}},
		{"another key's model", "m", 10, 0, 0, []string{"free"}, &chat.ModelError{Model: "m", Err: chat.ErrKey}},
		{"prompt as long as the context", "m", 100, 0, 1e6, nil, &chat.ContextError{Window: 100, Tokens: 100}},
		{"prompt beyond the context", "m", 101, 0, 1e6, nil, &chat.ContextError{Window: 100, Tokens: 101, AtLeast: true}},
		{"more than the model writes", "m", 10, 51, 1e6, nil, &chat.OutputError{Param: "max_tokens", Given: 51, Limit: 50}},
		{"context before output", "m", 100, 51, 0, nil, &chat.ContextError{Window: 100, Tokens: 100}},
		{"output before credit", "m", 10, 51, 0, nil, &chat.OutputError{Param: "max_tokens", Given: 51, Limit: 50}},
		{"no credit", "m", 10, 0, 0, nil, chat.ErrNoCredit},
		{"less than 16 tokens", "m", 10, 0, 100 + 20*16 - 1, nil, short(420, 419, 10, 15)},
		{"less than the caller's limit", "m", 10, 10, 100 + 20*10 - 1, nil, short(300, 299, 10, 9)},
		{"nothing after the prompt", "m", 10, 1, 119, nil, short(120, 119, 10, 0)},
		{"less than the prompt", "m", 10, 1, 99, nil, short(120, 99, 10, 0)},
		{"less than the clamped limit", "m", 95, 50, 1049, nil, short(1050, 1049, 95, 4)},
	} {
		for _, stream := range []bool{false, true} {
			p := answer()
			p.Prompt = tt.prompt
			l := open(t, tt.credit, p)
			l.caller.Models = tt.keys
			out := &recorder{}
			_, err := l.Complete(t.Context(), l.call(stream, func(r *wire.ChatRequest) {
				r.Model, r.MaxTokens, r.MaxTokensParam = tt.model, tt.max, "max_tokens"
			}), out)
			if err == nil || err.Error() != tt.want.Error() || cmp.Diff(plain(tt.want), plain(err)) != "" {
				t.Errorf("%s: Complete gives %#v, want %#v", tt.name, err, tt.want)
			}
			if got, want := l.Ledger.Balance(l.caller.Account.ID), (ledger.Balance{Granted: tt.credit}); got != want || out.String() != "" || len(p.Calls()) != 0 {
				t.Errorf("%s: it left Balance %+v, want %+v, emitted %q, and %d calls", tt.name, got, want, out, len(p.Calls()))
			}
			if err := l.Ledger.Close(); err != nil {
				t.Fatal(err)
			}
			if rs, err := l.db.Receipts(t.Context(), l.caller.Account.ID, 1); err != nil || len(rs) != 0 {
				t.Errorf("%s: receipts %v, %v, want none", tt.name, rs, err)
			}
		}
	}
}

// An answer that has a least length: what is to blame for too little room is named, so
// that nobody raises a limit that is none.
func TestRefusals_Least(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		prompt, max, fit int
		want             chat.ShortError
	}{
		{"the caller's limit", 10, 19, 20, chat.ShortError{Param: "max_tokens", Given: 19, Least: 20}},
		{"the context", 81, 0, 20, chat.ShortError{Given: 19, Least: 20}},
		{"the context, with a limit that would do", 81, 20, 20, chat.ShortError{Given: 19, Least: 20}},
		{"the context and the caller's limit", 81, 18, 20, chat.ShortError{Param: "max_tokens", Given: 18, Least: 20}},
		{"what the model writes", 10, 0, 51, chat.ShortError{Given: 50, Least: 51}},
	} {
		p := answer()
		p.Prompt, p.Least = tt.prompt, tt.fit
		l := open(t, 1e6, p)
		_, err := l.Complete(t.Context(), l.call(false, func(r *wire.ChatRequest) {
			if r.MaxTokens = tt.max; tt.max > 0 {
				r.MaxTokensParam = "max_tokens"
			}
		}), &recorder{})
		if e, ok := errors.AsType[*chat.ShortError](err); !ok || *e != tt.want {
			t.Errorf("%s: Complete gives %#v, want %+v", tt.name, err, tt.want)
		}
	}
}

// The budget of a key refuses what the balance would pay, with its own numbers, and
// shortens what has no bound of its own.
func TestBudget(t *testing.T) {
	t.Parallel()
	p := answer()
	p.Prompt = 10
	l := open(t, 1e6, p)
	l.caller.Budget = account.Budget{ID: "budget_x", Amount: 1000, Monthly: true}
	call := func(model string, max int) (*recorder, error) {
		out := &recorder{}
		_, err := l.Complete(t.Context(), l.call(false, func(r *wire.ChatRequest) {
			r.Model, r.MaxTokens, r.MaxTokensParam = model, max, "max_tokens"
		}), out)
		return out, err
	}
	refused := func(what string, err error, need, left money.Amount, fits int) {
		t.Helper()
		want := chat.ShortfallError{InsufficientError: ledger.InsufficientError{Need: need, Available: left}, Prompt: 10, Fits: fits, Budget: true}
		if e, ok := errors.AsType[*chat.ShortfallError](err); !ok || *e != want {
			t.Errorf("%s gives %v, want %+v", what, err, want)
		}
	}
	_, err := call("m", 46) // 1020
	refused("more than the budget", err, 1020, 1000, 45)
	if _, err := call("m", 0); err != nil { // bound to 45 tokens, uses 2
		t.Fatal(err)
	}
	if got := p.Calls()[0].MaxTokens; got != 45 {
		t.Errorf("the answer may have %d tokens, want 45", got)
	}
	rest := 1000 - l.Ledger.Balance(l.caller.Account.ID).Posted
	spend := ledger.Budget{ID: "budget_x", Period: l.caller.Budget.Period(time.Now())}
	if got := l.Ledger.Spending(l.caller.Account.ID, spend); got != (ledger.Spending{Spent: 1000 - rest}) {
		t.Errorf("Spending = %+v, want %d spent", got, 1000-rest)
	}
	_, err = call("m", 50)
	refused("more than the rest", err, 1100, rest, int(rest-100)/20)
	// What is spent up refuses before the limits are asked.
	l.caller.Budget.Amount, l.caller.Plan.RPM = 1000-rest, 2
	if _, err := call("free", 1); err != nil {
		t.Errorf("a model that costs nothing gives %v", err)
	}
	_, err = call("m", 1)
	refused("nothing left", err, 120, 0, 0)
	if requests, _ := l.left(); requests != 0 {
		t.Errorf("%d requests left, want 0: what ran has taken them", requests)
	}
	l.verify(t)
}

// plain is the fields of an error that cmp can compare.
func plain(err error) any {
	switch e := err.(type) { //nolint:errorlint // the errors are compared as they come
	case *chat.ShortfallError:
		return *e
	case *chat.ContextError:
		return *e
	case *chat.OutputError:
		return *e
	}
	return err.Error()
}

// What running calls hold is missing to the next, and is told.
func TestHeldCredit(t *testing.T) {
	t.Parallel()
	asked, end := make(chan struct{}), make(chan struct{})
	l := open(t, 1100+100, provider(reached(asked), upstreamtest.Wait(end), upstreamtest.Finish(wire.FinishStop)))
	done := l.start(t, l.call(false), &recorder{})
	<-asked
	_, err := l.Complete(t.Context(), l.call(true), &recorder{})
	short, ok := errors.AsType[*chat.ShortfallError](err)
	if want := (ledger.InsufficientError{Need: 420, Available: 100, Held: 1100}); !ok || short.InsufficientError != want || short.Fits != 0 {
		t.Errorf("Complete gives %v, want %+v", err, want)
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A count that fails is neither a refusal nor an admission.
func TestCountFails(t *testing.T) {
	t.Parallel()
	p := answer()
	p.CountErr = upstreamtest.ErrScripted
	l := open(t, 1e6, p)
	if _, err := l.Complete(t.Context(), l.call(false), &recorder{}); !errors.Is(err, upstreamtest.ErrScripted) {
		t.Errorf("Complete gives %v, want the counter's error", err)
	}
	if b := l.Ledger.Balance(l.caller.Account.ID); b.Held != 0 {
		t.Errorf("Balance = %+v", b)
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	l := open(t, 1e6, answer())
	_, err := l.Complete(t.Context(), l.call(false, wantJSON), &recorder{})
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Status != 400 {
		t.Errorf("JSON mode without it gives %v, want 400", err)
	}
}

// A deprecated model does not exist from its day on.
func TestDeprecated(t *testing.T) {
	t.Parallel()
	l := open(t, 1e6, answer())
	c := l.call(false)
	m, _ := l.Catalog.Lookup("m", c.Now)
	old := *m
	old.Deprecated = c.Now
	var err error
	if l.Catalog, err = catalog.New([]catalog.Model{old}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Complete(t.Context(), c, &recorder{}); !errors.Is(err, chat.ErrNoModel) {
		t.Errorf("on its day: %v, want ErrNoModel", err)
	}
	c.Now = c.Now.Add(-time.Second)
	if _, err := l.Complete(t.Context(), c, &recorder{}); err != nil {
		t.Errorf("before its day: %v", err)
	}
}

// The seed of a caller is kept; without one, calls differ.
func TestSeed(t *testing.T) {
	t.Parallel()
	p := answer()
	l := open(t, 1e6, p)
	given := int64(-1)
	for _, seed := range []*int64{&given, nil, nil} {
		if _, err := l.Complete(t.Context(), l.call(false, func(r *wire.ChatRequest) { r.Seed = seed }), &recorder{}); err != nil {
			t.Fatal(err)
		}
	}
	c := p.Calls()
	if c[0].Seed != 1<<64-1 || c[1].Seed == c[2].Seed {
		t.Errorf("seeds %d, %d, %d", c[0].Seed, c[1].Seed, c[2].Seed)
	}
}

// Where the classes of failure are told apart, the receipt follows.
func TestClasses(t *testing.T) {
	t.Parallel()
	for class, want := range map[upstream.Class]string{
		upstream.Failed: "502 upstream_error", upstream.Unreachable: "502 upstream_error", upstream.Timeout: "502 upstream_timeout",
		upstream.Overloaded: "502 upstream_overloaded", upstream.Busy: "503 server_is_overloaded", upstream.Cut: "502 upstream_error",
	} {
		l := open(t, 1e6, provider(upstreamtest.Fail(class)))
		if _, err := l.Complete(t.Context(), l.call(true), &recorder{}); err == nil {
			t.Errorf("%s: no error", class)
		}
		if got := text(l.receipt(t)); got != "voided upstream_error "+want+" 0+0 none 0" {
			t.Errorf("%s: receipt %q, want %s", class, got, want)
		}
	}
}
