package simulation_test

import (
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

func TestSpending_Left(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ spent, held, amount, want money.Amount }{
		{0, 0, 100, 100}, {30, 20, 100, 50}, {80, 20, 100, 0}, {90, 20, 100, 0},
	} {
		if got := (ledger.Spending{Spent: tt.spent, Held: tt.held}).Left(tt.amount); got != tt.want {
			t.Errorf("of %d with %d spent and %d held %d are left, want %d", tt.amount, tt.spent, tt.held, got, tt.want)
		}
	}
}

// A budget holds what its calls hold and has spent what they were charged, each by itself
// and beside calls without one.
func TestCore_BudgetSpending(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		of := func(id string, period int64) *ledger.Hold {
			c := b.call(id, 10, 10) // 300
			c.Budget = ledger.Budget{ID: "b", Period: period, Amount: 1000}
			return b.reserve(t, c)
		}
		want := func(period int64, want ledger.Spending) {
			t.Helper()
			if got := b.Spending(account, ledger.Budget{ID: "b", Period: period}); got != want {
				t.Errorf("Spending in %d = %+v, want %+v", period, got, want)
			}
		}
		charge := func(h *ledger.Hold, tokens int) {
			t.Helper()
			if _, err := h.Settle(used(tokens)); err != nil {
				t.Fatal(err)
			}
		}
		first, second, other := of("req_1", 1), of("req_2", 1), of("req_3", 2)
		without := b.reserve(t, b.call("req_4", 10, 10))
		want(1, ledger.Spending{Held: 600})
		want(2, ledger.Spending{Held: 300})
		charge(first, 5)
		want(1, ledger.Spending{Spent: 200, Held: 300})
		charge(without, 10)
		want(1, ledger.Spending{Spent: 200, Held: 300})
		charge(second, 9)
		want(1, ledger.Spending{Spent: 480})
		if err := other.Void(used(0)); err != nil {
			t.Fatal(err)
		}
		want(2, ledger.Spending{})
		// 520 of it are left: the longest answer after a prompt of 100 is of 21.
		c := b.call("req_5", 30, 1)
		c.Budget = ledger.Budget{ID: "b", Period: 1, Amount: 1000}
		if h := b.reserve(t, c); h.OutputLimit() != 21 {
			t.Errorf("with 520 left of the budget an answer is of %d, want 21", h.OutputLimit())
		}
		want(1, ledger.Spending{Spent: 480, Held: 520})
	})
}

// A budget of everything counts what was spent by the month, before and beside it, in this process
// and the next; a month counts its own.
func TestCore_BudgetOfEverything(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		monthly, all := ledger.Budget{ID: "b", Period: 202611, Amount: 1000}, ledger.Budget{ID: "b", Amount: 1000}
		of := func(id string, budget ledger.Budget) *ledger.Hold {
			c := b.call(id, 10, 10) // 300
			c.Budget = budget
			return b.reserve(t, c)
		}
		want := func(inMonth, inAll ledger.Spending) {
			t.Helper()
			if m, a := b.Spending(account, monthly), b.Spending(account, all); m != inMonth || a != inAll {
				t.Errorf("Spending = %+v in the month and %+v in all, want %+v and %+v", m, a, inMonth, inAll)
			}
		}
		first, second := of("req_1", monthly), of("req_2", all)
		want(ledger.Spending{Held: 300}, ledger.Spending{Held: 600})
		for _, h := range []*ledger.Hold{first, second} {
			if _, err := h.Settle(used(9)); err != nil { // 280
				t.Fatal(err)
			}
		}
		want(ledger.Spending{Spent: 280}, ledger.Spending{Spent: 560})
		c := b.call("req_3", 30, 30) // 700
		c.Budget = all
		if _, err := b.Reserve(c); err == nil {
			t.Error("700 were admitted with 440 left in all")
		}
		c.Budget = monthly
		if err := b.reserve(t, c).Void(used(0)); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.open(t)
		want(ledger.Spending{Spent: 280}, ledger.Spending{Spent: 560})
	})
}
