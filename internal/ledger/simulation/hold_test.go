package simulation_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// A call ends once: whatever is said of it later changes nothing, nor sets anything aside.
func TestCore_EndsOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*ledger.Hold) error{
		"settled": func(h *ledger.Hold) error { return second(h.Settle(used(5))) },
		"voided":  func(h *ledger.Hold) error { return h.Void(used(5)) },
	} {
		inBubble(t, 10_000, func(b *bench) {
			t := b.t
			h := b.reserve(t, b.call("req_1", 5, 5))
			if err := end(h); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := b.Balance(account)
			for range 2 {
				if _, err := h.Settle(used(100)); !errors.Is(err, ledger.ErrResolved) {
					t.Errorf("%s: Settle gives %v, want ErrResolved", name, err)
				}
				if err := h.Void(used(0)); !errors.Is(err, ledger.ErrResolved) {
					t.Errorf("%s: Void gives %v, want ErrResolved", name, err)
				}
			}
			synctest.Wait()
			if got := b.Balance(account); got != want || got.Held != 0 || len(b.disk.charges) != 1 {
				t.Errorf("%s: Balance = %+v with %d charges, want %+v", name, got, len(b.disk.charges), want)
			}
		})
	}
}

// A charge that the books have already is no second one.
func TestCore_ChargedBefore(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		if _, err := b.reserve(t, b.call("req_1", 5, 5)).Settle(used(5)); err != nil {
			t.Fatal(err)
		}
		again := b.reserve(t, b.call("req_1", 5, 5))
		if _, err := again.Settle(used(5)); !errors.Is(err, ledger.ErrResolved) {
			t.Errorf("Settle under an id that was charged gives %v, want ErrResolved", err)
		}
		if got := b.Balance(account); got.Posted != 200 {
			t.Errorf("posted %d, want the one charge of 200", got.Posted)
		}
	})
}

// A void is written though nobody waits for it, and counts nothing, whatever was computed.
func TestCore_Void(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		h := b.reserve(t, b.call("req_1", 5, 5))
		h.Delivered(3) // of a whole answer, which notes no progress
		pass(time.Second)
		err := h.Void(ledger.Outcome{
			PromptTokens: 10, CachedTokens: 4, CompletionTokens: 3, Status: 502, ErrorCode: "c", Ending: ledger.EndUpstreamError,
			UsageSource: ledger.UsageProvider, Target: "t", Attempts: 2, FirstToken: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r := b.disk.charges["req_1"]
		want := ledger.Receipt{
			RequestID: "req_1", AccountID: account, Price: price, CreatedAt: r.CreatedAt, OutputLimit: 5, Hold: 200, Status: 502, ErrorCode: "c",
			State: ledger.Voided, Ending: ledger.EndUpstreamError, UsageSource: ledger.UsageNone, Target: "t", Attempts: 2, FirstToken: time.Millisecond, Total: time.Second,
		}
		if r != want {
			t.Errorf("the books have %+v, want %+v", r, want)
		}
	})
}

// A call is charged as it was admitted: included tokens that come while it runs are for
// others, unless it uses more than it holds.
func TestCore_SettleAsHeld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ tokens, plan, charge int }{
		"less than held": {4, 0, 180},
		"all of it":      {5, 0, 200},
		"more":           {6, 16, 0},
	} {
		inBubble(t, 10_000, func(b *bench) {
			t := b.t
			h := b.reserve(t, b.call("req_1", 5, 5))
			if err := b.Turn(t.Context(), included(1, 100, 0)); err != nil {
				t.Fatal(err)
			}
			if r, err := h.Settle(used(tt.tokens)); err != nil || r.PlanTokens != tt.plan || int(r.Charge) != tt.charge {
				t.Errorf("%s: the plan pays for %d tokens, the charge is %d, %v; want %d and %d", name, r.PlanTokens, r.Charge, err, tt.plan, tt.charge)
			}
			if got := b.Balance(account); got.Held != 0 || got.Tokens.Held != 0 {
				t.Errorf("%s: left held: %+v", name, got)
			}
		})
	}
}

// A provider may count more than a hold covers: the account and the budget pay as far as
// they can, the rest is written off, and nothing stays held.
func TestCore_SettleAboveHold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ credit, budget, charge, writtenOff money.Amount }{
		"there is enough":      {10_000, 10_000, 1100, 0},
		"without a budget":     {10_000, 0, 1100, 0},
		"the account ends":     {700, 10_000, 700, 400},
		"the budget ends":      {10_000, 600, 600, 500},
		"nothing more is left": {200, 0, 200, 900},
	} {
		inBubble(t, tt.credit, func(b *bench) {
			t := b.t
			c := b.call("req_1", 5, 5)
			if tt.budget > 0 {
				c.Budget = ledger.Budget{ID: "b", Amount: tt.budget}
			}
			r, err := b.reserve(t, c).Settle(used(50))
			if err != nil || r.Charge != tt.charge || r.WrittenOff != tt.writtenOff {
				t.Errorf("%s: charged %d, written off %d, %v; want %d and %d", name, r.Charge, r.WrittenOff, err, tt.charge, tt.writtenOff)
			}
			if got, want := b.Balance(account), (ledger.Balance{Granted: tt.credit, Posted: tt.charge}); got != want {
				t.Errorf("%s: Balance = %+v, want %+v", name, got, want)
			}
			if got := b.Spending(account, c.Budget); tt.budget > 0 && got != (ledger.Spending{Spent: tt.charge}) {
				t.Errorf("%s: Spending = %+v", name, got)
			}
		})
	}
}

// Where answers are free, credit for exactly the prompt pays for the answer that was asked
// for, and for no longer one.
func TestCore_FreeAnswer(t *testing.T) {
	t.Parallel()
	inBubble(t, 100, func(b *bench) {
		c := b.call("req_1", 5, 5)
		c.Price = money.Price{Input: 10, CachedInput: 10}
		if h := b.reserve(b.t, c); h.OutputLimit() != 5 || b.Balance(account).Held != 100 {
			b.t.Errorf("OutputLimit = %d, %+v", h.OutputLimit(), b.Balance(account))
		}
	})
}
