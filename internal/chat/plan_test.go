package chat_test

import (
	"errors"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// subscribe gives the caller a period with so many tokens.
func (l *line) subscribe(t *testing.T, tokens int64) {
	t.Helper()
	turn, err := subscription.Begin(l.caller.Account.ID, subscription.Subscription{}, subscription.Terms{Plan: "p", Tokens: tokens}, subscription.Options{Manual: true}, time.Now())
	if err == nil {
		err = l.Ledger.Turn(t.Context(), turn)
	}
	if err != nil {
		t.Fatal(err)
	}
	a := *l.caller.Account
	a.Subscription = turn.Next
	l.caller.Account = &a
}

// Included tokens pay without any credit, and bound an answer that has no limit.
func TestIncludedTokens(t *testing.T) {
	t.Parallel()
	l := open(t, 0, provider(upstreamtest.Text("a", "b"), upstreamtest.Finish(wire.FinishStop)))
	l.subscribe(t, 10+2+30)
	for _, stream := range []bool{false, true} {
		sum, err := l.Complete(t.Context(), l.call(stream), &recorder{})
		if err != nil || sum.Charge != 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
	}
	// 18 are left: 10 for the prompt, 8 for an answer, which is too short to begin.
	left := l.Ledger.Balance(l.caller.Account.ID).Tokens
	if left.Available() != 18 || left.Held != 0 {
		t.Errorf("left: %+v", left)
	}
	_, err := l.Complete(t.Context(), l.call(false), &recorder{})
	if e, ok := errors.AsType[*chat.ShortfallError](err); !ok || e.Fits != 8 || e.Need != 8*20 || e.Available != 0 {
		t.Errorf("beyond them: %+v, %v", e, err)
	}
	// A free model takes none.
	if _, err := l.Complete(t.Context(), l.call(false, func(r *wire.ChatRequest) { r.Model = "free" }), &recorder{}); err != nil {
		t.Error(err)
	}
	if got := l.Ledger.Balance(l.caller.Account.ID).Tokens; got != left {
		t.Errorf("after a free call: %+v, want %+v", got, left)
	}
}

// Without credit and tokens a caller is told which of the two is missing.
func TestPenniless(t *testing.T) {
	t.Parallel()
	l := open(t, 0, provider())
	late := time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		sub  subscription.Subscription
		want error
	}{
		"never":    {subscription.Subscription{}, chat.ErrNoCredit},
		"active":   {subscription.Subscription{ID: "sub_x", Plan: "p", End: time.Now().Add(time.Hour)}, chat.ErrNoCredit},
		"past due": {subscription.Subscription{ID: "sub_x", Plan: "p", Manual: true, Paid: 1, Period: 1, End: late, Grace: time.Hour}, chat.ErrSubscription},
		"expired":  {subscription.Subscription{ID: "sub_x", Plan: "p", End: late, EndedAt: late}, chat.ErrSubscription},
		"canceled": {subscription.Subscription{ID: "sub_x", Plan: "p", End: late, EndedAt: late, Canceled: true}, chat.ErrSubscription},
	} {
		a := *l.caller.Account
		a.Subscription = c.sub
		call := l.call(false)
		call.Caller = &account.Principal{Account: &a, Plan: l.caller.Plan, KeyID: "key_x"}
		if _, err := l.Complete(t.Context(), call, &recorder{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A plan's bound of an answer is beside the model's: what asks for more is refused, what
// asks for nothing gets as much.
func TestPlanMaxOutput(t *testing.T) {
	t.Parallel()
	p := provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop))
	l := open(t, 100_000, p)
	for _, c := range []struct {
		plan, asked, limit int
		refused            bool
	}{{0, 0, 50, false}, {7, 0, 7, false}, {7, 7, 7, false}, {7, 8, 7, true}, {50, 51, 50, true}, {70, 0, 50, false}} {
		l.caller.Plan = &account.Plan{ID: "p", MaxOutput: c.plan}
		_, err := l.Complete(t.Context(), l.call(false, func(r *wire.ChatRequest) { r.MaxTokens = c.asked }), &recorder{})
		e, refused := errors.AsType[*chat.OutputError](err)
		switch {
		case refused != c.refused || err != nil && !refused:
			t.Errorf("plan %d, asked for %d: %v", c.plan, c.asked, err)
		case refused && (e.Limit != c.limit || e.Plan != (c.plan < 50)):
			t.Errorf("plan %d, asked for %d: %+v", c.plan, c.asked, e)
		case !refused:
			if calls := p.Calls(); calls[len(calls)-1].MaxTokens != c.limit {
				t.Errorf("plan %d, asked for %d: the provider was given %d", c.plan, c.asked, calls[len(calls)-1].MaxTokens)
			}
		}
	}
}
