package simulation_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// include begins period n of a plan, for an hour.
func included(n, tokens int64, credit money.Amount) subscription.Turn {
	now := time.Now().UTC()
	return subscription.Turn{
		At: now, Begins: true, Tokens: tokens, Credit: credit,
		Next: subscription.Subscription{ID: "sub_1", AccountID: account, Plan: "p", Period: n, End: now.Add(time.Hour)},
	}
}

// A turn brings tokens and credit once, to the end of what an account can hold.
func TestCore_Turn(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		ctx := t.Context()
		if err := b.Turn(ctx, included(1, 50, 30)); err != nil {
			t.Fatal(err)
		}
		want := ledger.Balance{Granted: 1030, Tokens: ledger.TokenBalance{Granted: 50}}
		if err := b.Turn(ctx, included(1, 50, 30)); !errors.Is(err, subscription.ErrChanged) || b.Balance(account) != want {
			t.Errorf("the same period again gives %v, %+v", err, b.Balance(account))
		}
		if err := b.Turn(ctx, included(2, 0, 0)); err != nil || b.Balance(account) != want {
			t.Errorf("a period of nothing gives %v, %+v", err, b.Balance(account))
		}
		if len(b.disk.grants) != 3 { // of 0, none is made
			t.Errorf("%d grants", len(b.disk.grants))
		}
		for _, g := range b.disk.grants[1:] {
			if g.Kind != ledger.Included || g.Priority != 10 || g.Source != "sub:sub_1:1" || g.Period != 1 || !g.ExpiresAt.After(g.CreatedAt) {
				t.Errorf("included: %+v", g)
			}
		}
		for _, bad := range []subscription.Turn{
			included(3, -1, 0), included(3, 0, -1), included(3, int64(money.MaxAmount)+1, 0), included(3, 0, money.MaxAmount+1),
		} {
			if err := b.Turn(ctx, bad); !errors.Is(err, ledger.ErrAmount) {
				t.Errorf("a turn of %d and %d gives %v", bad.Tokens, bad.Credit, err)
			}
		}
		for n := int64(4); n < 4+(1<<63-1)/int64(money.MaxAmount); n++ {
			if err := b.Turn(ctx, included(n, int64(money.MaxAmount), 0)); err != nil {
				break
			}
		}
		if err := b.Turn(ctx, included(98, 0, money.MaxAmount)); err != nil {
			t.Errorf("the most credit that a period can include gives %v", err)
		}
		before := b.Balance(account)
		if err := b.Turn(ctx, included(99, int64(money.MaxAmount), money.MaxAmount)); !errors.Is(err, ledger.ErrAmount) || b.Balance(account) != before {
			t.Errorf("tokens beyond what an account can hold give %v, %+v", err, b.Balance(account))
		}
		// The credit that came with them was not announced either.
		for range int((1<<63 - 1 - before.Granted) / money.MaxAmount) {
			b.grant(t, ledger.Grant{Amount: money.MaxAmount})
		}
	})
}

// What a turn could not make durable is not there, and says so; what it has ended is gone
// when it returns.
func TestCore_TurnEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		if err := b.Turn(t.Context(), included(1, 50, 30)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-b.ExpiryChanged():
		default:
			t.Error("what a period includes ends, and nobody is told to look")
		}
		pass(2 * time.Hour)
		end := included(2, 0, 0)
		end.Next.EndedAt = end.At
		if err := b.Turn(t.Context(), end); err != nil || b.Balance(account) != (ledger.Balance{Granted: 1000}) {
			t.Errorf("its end gives %v, %+v", err, b.Balance(account))
		}
		if err := b.Turn(t.Context(), included(3, 7, 0)); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		if err := b.Turn(t.Context(), included(4, 0, 0)); err != nil || b.Balance(account).Tokens.Granted != 7 {
			t.Errorf("a turn that ends nothing gives %v, %+v", err, b.Balance(account))
		}
		replace := included(5, 0, 0)
		replace.Replaced = &subscription.Subscription{}
		if err := b.Turn(t.Context(), replace); err != nil || b.Balance(account).Tokens.Granted != 0 {
			t.Errorf("a replacement gives %v, %+v", err, b.Balance(account))
		}
		b.disk.fates = func() fate { return refused }
		if err := b.Turn(t.Context(), included(6, 50, 30)); !errors.Is(err, ledger.ErrUnavailable) || b.Balance(account).Tokens.Granted != 0 {
			t.Errorf("on a failed disk it gives %v, %+v", err, b.Balance(account))
		}
	})
}

// A turn that is durable was made, also when what it has ended cannot be read to be taken back:
// whoever made it goes on from it, and somebody looks again.
func TestCore_TurnEndsUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, disk: &disk{rows: newRows(account)}, progress: newMemory(nil)}
		store := &blind{disk: b.disk}
		l, _, err := ledger.Open(t.Context(), store, b.progress)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Turn(t.Context(), included(1, 50, 30)); err != nil {
			t.Fatal(err)
		}
		<-l.ExpiryChanged() // that something ends at all
		pass(2 * time.Hour)
		store.what = "expiring"
		end := included(2, 0, 0)
		end.Next.EndedAt = end.At
		if err := l.Turn(t.Context(), end); err != nil {
			t.Errorf("a turn that is on the disk gives %v", err)
		}
		store.what = ""
		select {
		case <-l.ExpiryChanged():
		default:
			t.Error("nobody is told to look again")
		}
		if _, err := l.ExpireDue(t.Context(), time.Now()); err != nil || l.Balance(account) != (ledger.Balance{}) {
			t.Errorf("looking again gives %v, %+v", err, l.Balance(account))
		}
	})
}

// Included tokens pay for the prompt, for what of it was cached and for the answer, in
// this order; a call that uses less gives back the rest, one that uses more takes what is
// free, and an end waits for what is held.
func TestCore_IncludedFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		included int64
		price    money.Price
		o        ledger.Outcome // of a hold of 10 and 20 tokens
		held     money.Amount
		plan     int
		charge   money.Amount
	}{
		"none":                    {0, price, used(20), 500, 0, 500},
		"one":                     {1, price, used(20), 490, 1, 490},
		"a part of the prompt":    {7, price, used(20), 430, 7, 430},
		"the prompt":              {10, price, used(20), 400, 10, 400},
		"one of the answer":       {11, price, used(20), 380, 11, 380},
		"all":                     {30, price, used(20), 0, 30, 0},
		"more than all":           {99, price, used(20), 0, 30, 0},
		"less was used":           {99, price, used(3), 0, 13, 0},
		"more was used":           {99, price, used(40), 0, 50, 0},
		"more than is left":       {35, price, used(40), 0, 35, 300},
		"cached after the rest":   {8, price, ledger.Outcome{PromptTokens: 10, CachedTokens: 4, CompletionTokens: 2}, 420, 8, 50},
		"what is free takes none": {5, money.Price{Output: 20}, used(20), 300, 5, 300},
	} {
		inBubble(t, 10_000, func(b *bench) {
			t := b.t
			if tt.included > 0 {
				if err := b.Turn(t.Context(), included(1, tt.included, 0)); err != nil {
					t.Fatal(err)
				}
			}
			c := b.call("req_1", 20, 20)
			c.Price = tt.price
			h := b.reserve(t, c)
			if got := b.Balance(account); got.Held != tt.held || got.Tokens.Held != min(tt.included, 30) || got.Tokens.Available() != max(0, tt.included-30) {
				t.Errorf("%s: holds %+v", name, got)
			}
			if tt.price != price { // the rows prove charges of another price only where none is 0
				if h.Void(used(0)) != nil {
					t.Error("Void fails")
				}
				return
			}
			r, err := h.Settle(tt.o)
			if err != nil || r.PlanTokens != tt.plan || r.Charge != tt.charge || r.WrittenOff != 0 {
				t.Errorf("%s: Settle = %d tokens, %d, %d, %v, want %d, %d", name, r.PlanTokens, r.Charge, r.WrittenOff, err, tt.plan, tt.charge)
			}
			got := b.Balance(account).Tokens
			if want := (ledger.TokenBalance{Granted: tt.included, Posted: int64(tt.plan)}); got != want || got.Balance() != tt.included-int64(tt.plan) {
				t.Errorf("%s: tokens %+v, want %+v", name, got, want)
			}
		})
	}
}

// Tokens that have ended are not there for others, and are taken when who holds them has.
func TestCore_IncludedEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		if err := b.Turn(t.Context(), included(1, 40, 0)); err != nil {
			t.Fatal(err)
		}
		h := b.reserve(t, b.call("req_1", 5, 5))
		pass(time.Hour)
		if _, err := b.ExpireDue(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if got, want := b.Balance(account).Tokens, (ledger.TokenBalance{Granted: 15, Held: 15, Expiring: 15}); got != want || got.Available() != 0 {
			t.Errorf("while a call holds them: %+v, want %+v", got, want)
		}
		select { // that of the turn
		case <-b.ExpiryChanged():
		default:
		}
		if err := h.Void(used(0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-b.ExpiryChanged():
		default:
			t.Error("the call has ended and nobody is told to look")
		}
		if _, err := b.ExpireDue(t.Context(), time.Now()); err != nil || b.Balance(account).Tokens != (ledger.TokenBalance{}) {
			t.Errorf("in the end: %+v, %v", b.Balance(account), err)
		}
		_, err := b.Reserve(b.call("req_2", 1000, 1000))
		short, ok := errors.AsType[*ledger.InsufficientError](err)
		if !ok || short.Tokens != 0 || short.Need != 20_100 || !strings.Contains(err.Error(), "insufficient credit") {
			t.Errorf("Reserve gives %v", err)
		}
	})
}

// The longest answer that is paid for is found to the token, with and without credit.
func TestCore_Fits(t *testing.T) {
	t.Parallel()
	free := money.Price{Input: 10}
	for _, tt := range []struct {
		price  money.Price
		tokens int64
		credit money.Amount
		want   int
	}{
		{price, 0, 99, 0},
		{price, 0, 100, 0},
		{price, 0, 119, 0},
		{price, 0, 120, 1},
		{price, 0, 500, 20},
		{price, 30, 0, 20},
		{price, 10, 0, 0},
		{price, 9, 9, 0},
		{price, 9, 10, 0},
		{price, 9, 30, 1},
		{price, 30, 41, 22},
		{price, 1 << 40, 0, math.MaxInt32 - 10},
		{money.Price{Input: 1, CachedInput: 1, Output: 1}, 30, 2, 22},
		{money.Price{Input: math.MaxInt64, Output: 1}, 30, math.MaxInt64, 0}, // no number says what it costs
		{money.Price{Output: 1}, 30, math.MaxInt64 - 30, math.MaxInt64},
		{money.Price{Output: 1}, 30, math.MaxInt64 - 29, math.MaxInt64},
		{free, 0, 99, 0},
		{free, 0, 100, math.MaxInt},
	} {
		if got := ledger.Fits(tt.price, 10, tt.tokens, tt.credit); got != tt.want {
			t.Errorf("Fits(%v, 10, %d, %d) = %d, want %d", tt.price, tt.tokens, tt.credit, got, tt.want)
		}
	}
	inBubble(t, 0, func(b *bench) {
		if err := b.Turn(b.t.Context(), included(1, 30, 0)); err != nil {
			b.t.Fatal(err)
		}
		if h := b.reserve(b.t, b.call("req_1", 50, 1)); h.OutputLimit() != 20 {
			b.t.Errorf("30 included tokens without credit give an answer of %d, want 20", h.OutputLimit())
		}
	})
}

// Credit on its way takes no room from tokens: they fit to the last one that can be told.
func TestCore_MostTokens(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		const most, whole = 1<<63 - 1, int64(money.MaxAmount)
		if _, text := b.code(ledger.Promo, 5, time.Time{}); second(b.Redeem(t.Context(), account, text)) != nil {
			t.Error("a code cannot be redeemed")
		}
		for n := range most / whole {
			if err := b.Turn(t.Context(), included(n+1, whole, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Turn(t.Context(), included(98, most%whole+1, 0)); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("one token too many gives %v", err)
		}
		if err := b.Turn(t.Context(), included(99, most%whole, 0)); err != nil || b.Balance(account).Tokens.Granted != most {
			t.Errorf("the last ones give %v, %+v", err, b.Balance(account))
		}
	})
}

func second[T any](_ T, err error) error { return err }
