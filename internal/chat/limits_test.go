package chat_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

func (l *line) left() (requests, tokens int64) {
	s := l.Limiter.Peek(time.Now(), chat.Claim(l.caller, 0))
	return s.Requests.Remaining, s.Tokens.Remaining
}

func maxTokens(n int) func(*wire.ChatRequest) {
	return func(r *wire.ChatRequest) { r.MaxTokens, r.MaxTokensParam = n, "max_tokens" }
}

func TestLimits_Requests(t *testing.T) {
	t.Parallel()
	answer := upstreamtest.Script{upstreamtest.Text("a", "b"), upstreamtest.Finish(wire.FinishStop)}
	l := open(t, 100_000, upstreamtest.New(answer, answer, answer))
	l.caller.Plan.RPM, l.caller.Plan.TPM = 2, 1000
	for i := range 2 {
		out := &recorder{}
		if _, err := l.Complete(t.Context(), l.call(i == 0), out); err != nil && !errors.Is(err, errPipe) {
			t.Logf("call %d: %v", i, err) // its head is not checked here
		}
		if got := out.limits.Requests; got.Limit != 2 || got.Remaining != int64(1-i) || got.Reset <= 0 || got.Reset > time.Minute {
			t.Errorf("call %d is told %+v", i, got)
		}
	}
	out := &recorder{}
	_, err := l.Complete(t.Context(), l.call(false), out)
	denied, ok := errors.AsType[*chat.LimitError](err)
	if !ok || denied.Kind != ratelimit.Requests || denied.Used != 2 || denied.RetryAfter <= 0 || denied.RetryAfter > time.Minute {
		t.Fatalf("the third call gives %v", err)
	}
	if out.String() != "" || out.limits.Requests.Remaining != 0 {
		t.Errorf("it emitted %q and was told %+v", out, out.limits)
	}
	if b := l.Ledger.Balance(l.caller.Account.ID); b.Held != 0 || b.Running != 0 {
		t.Errorf("the refused call left %+v", b)
	}
}

// What was claimed for an answer and not used is given back, down to the token.
func TestLimits_Corrected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		script []upstreamtest.Step
		used   int64
	}{
		{"done", []upstreamtest.Step{upstreamtest.Text("a", "b", "c"), upstreamtest.Finish(wire.FinishStop)}, 13},
		{"failed", []upstreamtest.Step{upstreamtest.Fail("failed")}, 0},
	} {
		for _, stream := range []bool{false, true} {
			l := open(t, 100_000, provider(tt.script...))
			l.caller.Plan.RPM, l.caller.Plan.TPM, l.caller.KeyLimits.Tokens = 10, 100, 90
			out := &recorder{}
			_, _ = l.Complete(t.Context(), l.call(stream, maxTokens(50)), out) // the endings have tests of their own
			if got := out.limits.Tokens; got.Limit != 90 || got.Remaining != 30 {
				t.Errorf("%s: while it runs %+v is told, want 30 of 90: the key has the least", tt.name, got)
			}
			if requests, tokens := l.left(); requests != 9 || tokens != 90-tt.used {
				t.Errorf("%s: %d requests and %d tokens left, want 9 and %d", tt.name, requests, tokens, 90-tt.used)
			}
		}
	}
}

// A call without a limit of its own takes what the limits have, not more.
func TestLimits_BoundTheAnswer(t *testing.T) {
	t.Parallel()
	p := provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop))
	l := open(t, 100_000, p)
	l.caller.Plan.TPM = 40
	if _, err := l.Complete(t.Context(), l.call(true), &recorder{}); err != nil {
		t.Fatal(err)
	}
	if got := p.Calls()[0].MaxTokens; got != 30 {
		t.Errorf("the answer may have %d tokens, want 30: 40 a minute less 10 of prompt", got)
	}
	_, err := l.Complete(t.Context(), l.call(true, maxTokens(31)), &recorder{})
	if denied, ok := errors.AsType[*chat.LimitError](err); !ok || !denied.Never {
		t.Errorf("a call of 41 tokens gives %v, want one that can never pass", err)
	}
}

// A plan's limit on a model binds its calls alone, and bounds their answers.
func TestLimits_Model(t *testing.T) {
	t.Parallel()
	p := provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop))
	l := open(t, 100_000, p)
	l.caller.Plan.ModelLimits = map[string]ratelimit.Limits{"m": {Requests: 1, Tokens: 40}}
	out := &recorder{}
	if _, err := l.Complete(t.Context(), l.call(true), out); err != nil {
		t.Fatal(err)
	}
	if got := p.Calls()[0].MaxTokens; got != 30 || out.limits.Requests.Limit != 1 {
		t.Errorf("the answer may have %d tokens, want 30, and is told %+v", got, out.limits)
	}
	_, err := l.Complete(t.Context(), l.call(true), &recorder{})
	if denied, ok := errors.AsType[*chat.LimitError](err); !ok || denied.Limit != 1 || denied.Model != "m" {
		t.Errorf("a second call gives %v", err)
	}
	if _, err := l.Complete(t.Context(), l.call(true, func(r *wire.ChatRequest) { r.Model = "free" }), &recorder{}); err != nil {
		t.Errorf("another model gives %v", err)
	}
}

// A call that credit does not cover leaves no trace in the limits.
func TestLimits_ShortfallLeavesNoTrace(t *testing.T) {
	t.Parallel()
	l := open(t, 1000, provider())
	l.caller.Plan.RPM, l.caller.Plan.TPM, l.caller.Plan.Concurrency = 2, 100, 1
	for range 5 {
		_, err := l.Complete(t.Context(), l.call(false, maxTokens(50)), &recorder{}) // 1100
		if _, ok := errors.AsType[*chat.ShortfallError](err); !ok {
			t.Fatalf("Complete gives %v, want a shortfall", err)
		}
	}
	if requests, tokens := l.left(); requests != 2 || tokens != 100 {
		t.Errorf("%d requests and %d tokens left, want 2 and 100", requests, tokens)
	}
}

// caller calls again the moment it has the end of its answer.
type caller struct {
	recorder
	next func()
}

func (c *caller) Finish(reasons []wire.FinishReason, u wire.Usage) error {
	c.next()
	return c.recorder.Finish(reasons, u)
}

func TestLimits_FreeBeforeTheEnd(t *testing.T) {
	t.Parallel()
	answer := upstreamtest.Script{upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)}
	p := upstreamtest.New(answer, answer)
	p.Prompt, p.Fingerprint = 10, fingerprint
	l := open(t, 100_000, p)
	l.caller.Plan.Concurrency = 1
	var again error
	c := &caller{next: func() { _, again = l.Complete(t.Context(), l.call(false), &recorder{}) }}
	if _, err := l.Complete(t.Context(), l.call(true), c); err != nil {
		t.Fatal(err)
	}
	if again != nil {
		t.Errorf("a call after the end of the only one: %v", again)
	}
}

// Who loses the right to a stream gets no further piece, and pays for what was shown.
func TestRevoked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		stream bool
		cause  error
		want   string
	}{
		{"a stream", true, account.ErrRevoked, "settled key_revoked 200 api_key_revoked 10+1 counted 120"},
		{"a whole answer", false, account.ErrRevoked, "voided key_revoked 401 api_key_revoked 0+0 none 0"},
		{"a stream of a suspended account", true, account.ErrSuspended, "settled key_revoked 200 account_suspended 10+1 counted 120"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			life := account.NewLife()
			l := open(t, 100_000, provider(
				upstreamtest.Text("a"),
				upstreamtest.Do(func(ctx context.Context) error { life.End(tt.cause); <-ctx.Done(); return nil }),
				upstreamtest.Hang(),
			))
			l.caller.KeyLife = life
			out := &recorder{}
			_, err := l.Complete(t.Context(), l.call(tt.stream), out)
			if !errors.Is(err, tt.cause) {
				t.Errorf("Complete gives %v, want %v", err, tt.cause)
			}
			if got := out.String(); got != "start,a" {
				t.Errorf("emitted %q, want %q", got, "start,a")
			}
			if got := text(l.receipt(t)); got != tt.want {
				t.Errorf("receipt %q, want %q", got, tt.want)
			}
		})
	}
	l := open(t, 100_000, provider(upstreamtest.Text("a"), upstreamtest.Hang()))
	l.caller.AccountLife = account.NewLife()
	l.caller.AccountLife.End(account.ErrSuspended)
	if _, err := l.Complete(t.Context(), l.call(true), &recorder{}); !errors.Is(err, account.ErrSuspended) {
		t.Errorf("a call that was admitted just before gives %v", err)
	}
}

// deaf is a provider that has computed ahead of its reader and does not look up.
type deaf struct {
	chat.Router
	life *account.Life
}

func (d deaf) Generate(ctx context.Context, _ *catalog.Model, _ *upstream.Call, yield func(upstream.Event) error) (upstream.Route, error) {
	for i := range 5 {
		if i == 2 {
			d.life.End(account.ErrRevoked)
			<-ctx.Done()
		}
		if err := yield(upstream.Event{Text: "a", Completion: i + 1, Fingerprint: fingerprint}); err != nil {
			return upstream.Route{}, err
		}
	}
	return upstream.Route{}, yield(upstream.Event{Completion: 5, Finish: wire.FinishStop, Fingerprint: fingerprint})
}

// What was computed ahead is not released to a key that is revoked.
func TestRevoked_Ahead(t *testing.T) {
	t.Parallel()
	l := open(t, 100_000, provider())
	l.caller.KeyLife = account.NewLife()
	l.Router = deaf{l.Router, l.caller.KeyLife}
	out := &recorder{}
	if _, err := l.Complete(t.Context(), l.call(true), out); !errors.Is(err, account.ErrRevoked) {
		t.Errorf("Complete gives %v, want ErrRevoked", err)
	}
	if got := out.String(); got != "start,a,a" {
		t.Errorf("emitted %q", got)
	}
	if got, want := text(l.receipt(t)), "settled key_revoked 200 api_key_revoked 10+2 counted 140"; got != want {
		t.Errorf("receipt %q, want %q", got, want)
	}
}

// A stream that has nothing to say shows that it lives: after a minute before its first
// token, and every 15 s from then on.
func TestPulse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, 100_000, provider(
			upstreamtest.Sleep(70*time.Second), upstreamtest.Text("a"),
			upstreamtest.Sleep(40*time.Second), upstreamtest.Finish(wire.FinishStop),
		))
		out := &clocked{since: time.Now()}
		if _, err := l.Complete(t.Context(), l.call(true), out); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{60 * time.Second, 70 * time.Second, 85 * time.Second, 100 * time.Second, 110 * time.Second}
		if got := out.String(); got != "start,a,alive,alive,stop 10+1" {
			t.Errorf("emitted %q", got)
		}
		for i, at := range out.at {
			if at != want[i] {
				t.Errorf("note %d came after %v, want %v", i, at, want[i])
			}
		}
	})
}

// A reader who is found gone by a sign of life ends the call.
func TestPulse_ClientGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, 100_000, provider(upstreamtest.Text("a"), upstreamtest.Hang()))
		_, err := l.Complete(t.Context(), l.call(true), &clocked{recorder: recorder{leave: "alive"}, since: time.Now()})
		if !errors.Is(err, chat.ErrClientGone) {
			t.Errorf("Complete gives %v, want ErrClientGone", err)
		}
		if got, want := text(l.receipt(t)), "settled client_gone 200 client_gone 10+1 counted 120"; got != want {
			t.Errorf("receipt %q, want %q", got, want)
		}
	})
}

// A sign of life that panics ends its call and no other.
func TestPulse_Panic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, 100_000, provider(upstreamtest.Text("a"), upstreamtest.Hang()))
		func() {
			defer func() {
				if p := recover(); p != "alive" {
					t.Errorf("Complete panics with %v, want alive", p)
				}
			}()
			_, err := l.Complete(t.Context(), l.call(true), &lifeless{})
			t.Errorf("Complete returns %v", err)
		}()
		if got, want := text(l.receipt(t)), "settled upstream_cut 200 internal_error 10+1 counted 120"; got != want {
			t.Errorf("receipt %q, want %q", got, want)
		}
	})
}

// lifeless is a caller to whom no sign of life can be given.
type lifeless struct{ recorder }

func (*lifeless) Alive() error { panic("alive") }

// clocked notes when each part was emitted.
type clocked struct {
	recorder
	since time.Time
	at    []time.Duration
}

func (c *clocked) note() { c.at = append(c.at, time.Since(c.since).Round(time.Second)) }

func (c *clocked) Start(h wire.Head) error { c.note(); return c.recorder.Start(withPrint(h)) }
func (c *clocked) Alive() error            { c.note(); return c.recorder.Alive() }
func (c *clocked) Text(choice int, s string, l []wire.Logprob) error {
	c.note()
	return c.recorder.Text(choice, s, l)
}

func (c *clocked) Finish(r []wire.FinishReason, u wire.Usage) error {
	c.note()
	return c.recorder.Finish(r, u)
}

// withPrint stands in for the fingerprint that is not known before the first event.
func withPrint(h wire.Head) wire.Head {
	h.Fingerprint = fingerprint
	return h
}

func TestSubscriptionEnded(t *testing.T) {
	t.Parallel()
	l := open(t, 0, provider())
	for _, tt := range []struct {
		until time.Time
		want  error
	}{{time.Time{}, chat.ErrNoCredit}, {time.Now().Add(time.Hour), chat.ErrNoCredit}, {time.Now().Add(-time.Hour), chat.ErrSubscription}} {
		a := *l.caller.Account
		a.Subscription = subscription.Subscription{Plan: "p", Until: tt.until}
		l.caller.Account = &a
		if _, err := l.Complete(t.Context(), l.call(false), &recorder{}); !errors.Is(err, tt.want) {
			t.Errorf("subscription until %v: %v, want %v", tt.until, err, tt.want)
		}
	}
}

// startled is a caller who cannot even be told its limits.
type startled struct{ recorder }

func (*startled) Limits(ratelimit.Status) { panic("limits") }

// A place in the limits is given back whatever breaks behind it.
func TestLimits_Panic(t *testing.T) {
	t.Parallel()
	l := open(t, 100_000, provider(upstreamtest.Finish(wire.FinishStop)))
	l.caller.Plan.Concurrency = 1
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = l.Complete(t.Context(), l.call(false), &startled{}) // it panics
	}()
	if _, err := l.Complete(t.Context(), l.call(false), &recorder{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// stuck is a caller who does not read.
type stuck struct {
	recorder
	hurried chan struct{}
}

func (s *stuck) Hurry() { close(s.hurried) }

func (s *stuck) Text(int, string, []wire.Logprob) error {
	<-s.hurried
	return errPipe
}

// A caller who does not read cannot keep what it has lost.
func TestRevoked_Stuck(t *testing.T) {
	t.Parallel()
	life := account.NewLife()
	revoke := upstreamtest.Do(func(context.Context) error { go life.End(account.ErrRevoked); return nil })
	l := open(t, 100_000, provider(revoke, upstreamtest.Text("a", "b"), upstreamtest.Finish(wire.FinishStop)))
	l.caller.KeyLife = life
	if _, err := l.Complete(t.Context(), l.call(true), &stuck{hurried: make(chan struct{})}); err == nil {
		t.Error("the call ended as if it had been read")
	}
	if b := l.Ledger.Balance(l.caller.Account.ID); b.Held != 0 || b.Running != 0 {
		t.Errorf("it left %+v", b)
	}
}
